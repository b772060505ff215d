"""One image per class: which ridge strength, which temperature and which pooling, where nothing can be left out?

    python benchmarks/one_shot.py DATA... [--classes 2 5 10 20 40] [--draws 4] [--sizes 96 224]

Each DATA is a folder with train/. A task is one training image of each of some random classes; other training images of
these classes are held out. Closed-form heads, by average, bilinear and both poolings of EfficientNet-Lite0, are solved
at powers of ten of the ridge strength, in units of the kernel's mean eigenvalue (`PRIOR_STRENGTH` of
`lqf.fitting.head_fit`), and their probabilities are taken at several β·α (`PRIOR_SPREAD` of
`lqf.fitting.out_of_sample`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from common.hardware import hardware, write
from common.maps import CPU
from common.options import Options
from common.tasks import Pool, Task, mean
from torch import Tensor

from lqf.evaluation.calibration import log_loss
from lqf.fitting.assemble import assemble_head
from lqf.fitting.head_fit import PRIOR_STRENGTH, HeadFit
from lqf.fitting.out_of_sample import PRIOR_SPREAD
from lqf.fitting.select_pooling import candidate_heads
from lqf.linear import head_products
from lqf.linear.targets import error_rate

STRENGTHS = tuple(sorted({1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, PRIOR_STRENGTH}))
SPREADS = tuple(sorted({3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0, 200.0, 400.0, PRIOR_SPREAD}))
HELD = 10
"""Images of a class that are held out, at most, or more where there are few classes."""
Found = dict[tuple[str, float], tuple[float, list[float]]]
"""By pooling and strength: error, and cross-entropy at every spread."""


def outputs(head: HeadFit, z: Tensor, strength: float) -> Tensor:
    """(M, C) for features z (M, p), by the head at a ridge strength in units of the mean eigenvalue."""
    v = head.head.solve(strength * head.head.ridge.scale)
    return head.data.constant + head_products.jvp(z, v)


def measured(task: Task) -> Found:
    """All heads of a task, on what is held out."""
    data, found = task.data(), {}
    alpha = data.context.settings.alpha
    for head in candidate_heads(data, task.backbone):
        z = assemble_head(head).features(task.held, device=CPU, batch_size=16)
        for strength in STRENGTHS:
            f = outputs(head, z, strength)
            losses = [log_loss(f, task.labels, spread / alpha) for spread in SPREADS]
            found[head.pooling, strength] = error_rate(f, task.labels), losses
    return found


def summary(tasks: list[Found]) -> dict[str, Any]:
    """By pooling and strength: errors, and cross-entropies where one spread serves all tasks."""
    out: dict[str, Any] = {"n": len(tasks)}
    for pooling, strength in tasks[0]:
        errors, losses = over(tasks, pooling, strength)
        best, default = int(losses.mean(0).argmin()), SPREADS.index(PRIOR_SPREAD)
        out.setdefault(pooling, {})[f"{strength:g}"] = {
            "error": mean(errors),
            f"error minus that at strength {PRIOR_STRENGTH:g}": mean(errors - over(tasks, pooling, PRIOR_STRENGTH)[0]),
            "error minus that of average pooling": mean(errors - over(tasks, "avg", strength)[0]),
            "best spread": SPREADS[best],
            "cross_entropy at the best spread": mean(losses[:, best]),
            f"cross_entropy at spread {PRIOR_SPREAD:g}": mean(losses[:, default]),
        }
    return out


def by_spread(tasks: list[Found]) -> dict[str, dict[str, float]]:
    """Cross-entropy at the default strength, by pooling and spread."""
    names = [f"{spread:g}" for spread in SPREADS]
    losses = {pooling: over(tasks, pooling, PRIOR_STRENGTH)[1].mean(0).round(4).tolist() for pooling, _ in tasks[0]}
    return {pooling: dict(zip(names, values, strict=True)) for pooling, values in losses.items()}


def by_pooling(tasks: list[Found]) -> dict[str, Any]:
    """Errors at the default strength."""
    return {pooling: mean(over(tasks, pooling, s)[0]) for pooling, s in tasks[0] if s == PRIOR_STRENGTH}


def over(tasks: list[Found], pooling: str, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Errors (T,), and cross-entropies at every spread (T, S)."""
    found = [t[pooling, strength] for t in tasks]
    return np.array([error for error, _ in found]), np.array([losses for _, losses in found])


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --classes 2 3 --draws 2 --sizes 64")
    out.add_data("+")
    out.add_argument("--classes", type=int, nargs="+", default=[2, 5, 10, 20, 40], help="of a task")
    out.add_argument("--draws", type=int, default=4, help="tasks of a data set with so many classes")
    out.add_argument("--sizes", type=int, nargs="+", default=[96, 224], help="of the images, in pixels")
    out.add_argument("--name", default="one_shot")
    return out


def tasks_of(data: Path, size: int, sizes: list[int], draws: int) -> Iterator[tuple[int, Found]]:
    """Number of classes and results of every task of a data set."""
    pool = Pool(data / "train", size, "none", HELD * max(sizes), HELD)
    for classes in (c for c in sizes if c <= len(pool.counts)):
        for seed in range(draws):
            generator = np.random.default_rng((seed, classes))
            names = generator.permutation(sorted(pool.counts))[:classes].tolist()
            yield classes, measured(pool.split(names, 1, generator))


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    parts: dict[str, list[Found]] = {}
    began = time.perf_counter()
    sets: dict[str, list[Found]] = {}
    for size, data in product(args.sizes, args.data):
        for classes, found in tasks_of(data, size, args.classes, args.draws):
            sets.setdefault(f"{size} px, {data.name}", []).append(found)
            for part in (f"{size} px", f"{size} px, {classes} classes"):
                parts.setdefault(part, []).append(found)
        print(size, data.name, {k: round(e, 3) for (k, s), (e, _) in found.items() if s == PRIOR_STRENGTH}, flush=True)
    result = {
        "what": f"efficientnet_lite0, {' and '.join(map(str, args.sizes))} px, one image per class",
        "problem": "tasks from " + ", ".join(d.name for d in args.data),
        "by pooling and strength": {name: summary(tasks) for name, tasks in parts.items()},
        f"errors at strength {PRIOR_STRENGTH:g}": {name: by_pooling(tasks) for name, tasks in sets.items()},
        f"cross_entropy at strength {PRIOR_STRENGTH:g} by spread": {
            name: by_spread(tasks) for name, tasks in parts.items()
        },
        "seconds": round(time.perf_counter() - began),
        "hardware": hardware(CPU),
    }
    print(write(args.name, result, args.out))


if __name__ == "__main__":
    main()
