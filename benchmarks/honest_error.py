"""Is the error that a climb reports honest, which rule should keep a rung, and are probabilities from few images right?

    python benchmarks/honest_error.py DATA... [--images 24 48 96] [--draws 12 6 3] [--test]

Each DATA is a folder with train/ and test/. Small tasks are drawn from the training images; the other training images
of the same classes are held out. Every task climbs as `lqf fit --effort quick` does: head, mirror images, eight views.

- estimates: error and cross-entropy as leave-one-out and the folds of the kept model say, and those of the whole choice
  (the error that is reported); beside what is held out.
- rules: the rung that would be kept if other gains counted, on what is held out.
- temperatures: by the best fit to left-out outputs, and with mistakes assumed besides (`lqf.evaluation.calibration`);
  from leave-one-out of the kept model, or from the outputs of the whole choice.

`--test` adds the temperatures on test images: of tasks with the same numbers of images up to 48, and of models of 400
training images of all classes, in up to two views.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common.calibration import WAYS, Calibration
from common.climbed import Climbed, Rule, Scores, scores
from common.hardware import hardware, write
from common.maps import CPU
from common.options import Options
from common.tasks import Pool, Task, mean

from lqf.evaluation.calibration import fit_temperature
from lqf.evaluation.paired import LEAST_GAIN

DEFAULT = f"{LEAST_GAIN:.1%} of the loss"
RULES: dict[str, Rule] = {
    "first rung always": lambda g: False,
    "any gain": lambda g: g.mean > 0,
    DEFAULT: lambda g: g.counts(),
    "2% of the loss": lambda g: g.mean > 0.02 * g.before,
    "half a standard error": lambda g: g.mean > 0.5 * g.standard_error,
    "one standard error": lambda g: g.mean > g.standard_error,
    "no loss above half a standard error": lambda g: g.mean > -0.5 * g.standard_error,
    "no loss above one standard error": lambda g: g.mean > -g.standard_error,
    "no loss above two standard errors": lambda g: g.mean > -2 * g.standard_error,
    "last rung always": lambda g: True,
}
MANY = 400
"""Training images of the larger models that are tested."""


def estimates(done: Climbed) -> dict[str, Scores]:
    """Four ways to know error and cross-entropy."""
    name, y = done.kept(RULES[DEFAULT]), done.data.labels
    left_out = done.left_out(name)
    folds = done.ground.attempts[name].outputs
    by_folds = {"folds of the kept": (folds, done.ground.losses(folds)), "whole choice": done.whole_choice()}
    return {
        "leave-one-out of the kept": scores(left_out, y, fit_temperature(left_out, y)[1]),
        **{way: scores(f, y, float(losses.mean())) for way, (f, losses) in by_folds.items()},
        "held out": done.held_out(name),
    }


def temperatures(done: Climbed) -> dict[str, float]:
    """Of the kept model, by each way."""
    sources = {"": done.left_out(done.kept(RULES[DEFAULT])), ", whole choice": done.whole_choice()[0]}
    return {way + of: fit(f, done.data.labels) for of, f in sources.items() for way, fit in WAYS.items()}


class Results:
    """Of all tasks, by their number of images."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.calibration: dict[str, Calibration] = {}
        self.test: dict[str, Calibration] = {}

    def add(self, data: str, images: int, done: Climbed) -> None:
        """A task whose training images are held out."""
        row = {"parts": ("all", f"{images} images", data), "classes": done.task.classes, "held": len(done.task.held)}
        under = {rule: done.held_out(done.kept(test)) for rule, test in RULES.items()}
        self.rows.append({**row, "estimates": estimates(done), "rules": under})
        self.calibrate(self.calibration, f"{images} images", done)

    def add_test(self, data: str, images: str, done: Climbed) -> None:
        """A task whose test images are held out."""
        for part in (f"all, {images}", f"{data}, {images}"):
            self.calibrate(self.test, part, done)

    def calibrate(self, to: dict[str, Calibration], key: str, done: Climbed) -> None:
        """Add a task's temperatures."""
        outputs = done.held[done.kept(RULES[DEFAULT])]
        to.setdefault(key, Calibration()).add(outputs, done.task.labels, temperatures(done))

    def means(self, key: str, against: str, part: str) -> dict[str, Any]:
        """Of the tasks of a part; and of the differences from one entry, task by task."""
        rows = [r[key] for r in self.rows if part in r["parts"]]
        out: dict[str, Any] = {}
        for name in rows[0]:
            out[name] = {what: mean(r[name][what] for r in rows) for what in rows[0][name]}
            if name != against:
                minus = {what: mean(r[name][what] - r[against][what] for r in rows) for what in rows[0][name]}
                out[name][f"minus {against}"] = minus
        return out

    def about(self, part: str) -> dict[str, Any]:
        """How many tasks, of how many classes, from the fewest to the most, and images held out in all."""
        rows = [r for r in self.rows if part in r["parts"]]
        classes = [r["classes"] for r in rows]
        return {"n": len(rows), "classes": [min(classes), max(classes)], "held_out": sum(r["held"] for r in rows)}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        parts = list(dict.fromkeys(part for r in self.rows for part in r["parts"]))
        return {
            "tasks": {part: self.about(part) for part in parts},
            "estimates": {part: self.means("estimates", "held out", part) for part in parts},
            "rules": {part: self.means("rules", DEFAULT, part) for part in parts},
            "temperatures": {n: c.summary() for n, c in self.calibration.items()},
            "temperatures, test images": {n: c.summary() for n, c in self.test.items()},
        }


def on_training(data: Path, pool: Pool, sizes: dict[int, int], results: Results) -> None:
    """Small tasks, judged by other training images."""
    for images, draws in sizes.items():
        for seed in range(draws):
            task = pool.task(images, np.random.default_rng((seed, images)))
            results.add(data.name, images, Climbed(task, seed))
        last = results.rows[-1]["estimates"]
        print(data.name, images, {k: round(v["error"], 3) for k, v in last.items()}, flush=True)


def on_test(data: Path, pool: Pool, sizes: dict[int, int], size: int, results: Results) -> None:
    """Small tasks and a larger one, judged by test images."""
    test = Pool(data / "test", size, "crops8")
    for images in (n for n in sizes if n <= 48):
        for seed in range(3):
            task = pool.task(images, np.random.default_rng((1000 + seed, images)))
            task = replace(task, held=test.of_classes(task.train.samples.classes))
            results.add_test(data.name, f"{images} images", Climbed(task, seed))
    whole = Pool(data / "train", size, "flip", MANY, 1)
    task = Task(whole.images, test.of_classes(whole.images.samples.classes), whole.backbone)
    results.add_test(data.name, f"up to {MANY} images", Climbed(task, 0, 2))
    print(data.name, "tested", flush=True)


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --images 9 --draws 2 --size 64 --test")
    out.add_data("+")
    out.add_argument("--images", type=int, nargs="+", default=[24, 48, 96], help="of a task")
    out.add_argument("--draws", type=int, nargs="+", default=[12, 6, 3], help="tasks of a data set with so many images")
    out.add_argument("--size", type=int, default=96)
    out.add_argument("--test", action="store_true", help="test temperatures on test images")
    out.add_argument("--name", default="honest_error")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    results, began = Results(), time.perf_counter()
    sizes = dict(zip(args.images, args.draws, strict=True))
    for data in args.data:
        pool = Pool(data / "train", args.size, "crops8", 300)
        on_training(data, pool, sizes, results)
        if args.test:
            on_test(data, pool, sizes, args.size, results)
        result = {
            "what": f"efficientnet_lite0, {args.size} px, quick climbs",
            "problem": "tasks from " + ", ".join(d.name for d in args.data),
            **results.to_dict(),
            "seconds": round(time.perf_counter() - began),
            "hardware": hardware(CPU),
        }
        path = write(args.name, result, args.out)  # after every data set: they take long
    print(path)


if __name__ == "__main__":
    main()
