"""Every rung of a climb at the highest effort, out of sample and on the test set, and what each effort keeps.

    python benchmarks/climbs.py DATA… --backbone resnet50 --weights r50.safetensors --device cuda [--time-limit 200]

DATA is a folder with train/ and test/. All rungs are fitted to all training images, whether they gain or not, so that
each can be tested; which one a climb keeps, and what a stack weighs, is decided before by out-of-sample outputs alone.
"standard" is what `lqf fit --effort standard` keeps: the same rungs without those of `best`, and the fine-tuned network
alone where `best` has its mean with those without a fold. Several processes may work
on one list: each takes the next data set that has no file in the output folder yet.
"""

from __future__ import annotations

import argparse
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common.hardware import RESULTS, hardware, write
from common.options import Options
from safetensors.torch import save_file
from torch import Tensor

from lqf import LQFClassifier
from lqf.data import Images, load_samples, open_images, with_views
from lqf.errors import LQFError
from lqf.evaluation.calibration import log_loss, log_losses
from lqf.evaluation.metrics import standard_error
from lqf.fitting import FittedModel, Stack, ladder
from lqf.fitting.assemble import assemble_finetuned
from lqf.fitting.finetuned import Tuned, averaged
from lqf.fitting.rungs import finetuned
from lqf.fitting.rungs.finetuned import FINETUNED, LOWER_RATE, FineTunedRung
from lqf.fitting.rungs.linear import LQF_CROPS
from lqf.fitting.rungs.moved import MOVED
from lqf.fitting.rungs.plan import Plan, make_plan
from lqf.fitting.rungs.rung import Attempt, Ground, NotNow
from lqf.fitting.rungs.stack import STACK, StackRung
from lqf.fitting.stack import Model
from lqf.linear.batch import usual_rows
from lqf.linear.targets import error_rate
from lqf.runtime.device import computing_on, resolve_device
from lqf.utils.progress import terminal_progress

BEST_ONLY = (LQF_CROPS, MOVED, LOWER_RATE)
"""Rungs that the effort standard does not have."""
NAMES = (
    *("backbone", "weights", "size", "limit_per_class", "device", "seed", "pooling", "views", "strengths", "head"),
    *("effort", "time_limit"),
)
"""Settings."""
Row = dict[str, Any]


class Watched(ladder._Climb):
    """A climb whose attempts can be looked at when it is over."""

    seen: list[Watched] = []  # noqa: RUF012

    def run(self) -> Model:
        Watched.seen.append(self)
        return super().run()


class LastNetworks:
    """The fine-tuned network of all samples, where a model is the mean of it and others."""

    def __init__(self) -> None:
        self.tuned: dict[str, Tuned] = {}
        plain = FineTunedRung._finished

        def finished(rung: FineTunedRung, *args: Any) -> FittedModel:
            def seen(networks: list[Tuned]) -> Tuned:
                self.tuned[rung.name] = networks[-1].put_away(networks[-1].encoder.data)
                return averaged(networks)

            finetuned.averaged = seen
            return plain(rung, *args)

        FineTunedRung._finished = finished  # type: ignore[method-assign]

    def model(self, attempt: Attempt) -> FittedModel | None:
        """What the effort `standard` would have; None where that is the attempt's own model."""
        tuned = self.tuned.get(attempt.name)
        return None if tuned is None else assemble_finetuned(tuned, None, attempt.about["shown"])


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --limit-per-class 8 --effort best --time-limit 60")
    out.add_data("+")
    out.add_settings(*NAMES[:-2], effort="best", time_limit="1h")
    out.add_argument("--only", nargs="+", metavar="RUNG", help="rungs to try; default: all of the effort")
    out.add_argument("--name", default="", help="of these settings, for the name of the JSON")
    out.add_argument("--memory", type=float, help="share of the GPU's memory to use, beside other processes")
    out.add_argument("--outputs", type=Path, help="folder for the outputs of every rung, out of sample and in test")
    return out


def climbed(train: Path, args: argparse.Namespace) -> tuple[Watched, Model, float]:
    """After `lqf fit`."""
    began = time.perf_counter()
    ladder._Climb = Watched  # type: ignore[misc]
    ladder.make_plan = (lambda ground: _only(args.only, make_plan(ground))) if args.only else make_plan
    fitted = LQFClassifier(**{n: getattr(args, n) for n in NAMES}).fit(train, progress=terminal_progress()).fitted_
    return Watched.seen.pop(), fitted, time.perf_counter() - began


def _only(names: list[str], plan: Plan) -> Plan:
    return replace(plan, rungs=tuple(r for r in plan.rungs if r.name in names))


class Tested:
    """Models of rungs on a test set, each fitted and tested once."""

    def __init__(self, ground: Ground, last: Model, images: Images, device: torch.device):
        self.ground, self.images, self.device = ground, images, device
        self.models: dict[str, FittedModel] = {n: m for n, m in ground.models.items() if isinstance(m, FittedModel)}
        if isinstance(last, Stack):
            self.models |= dict(zip(last.names, last.members, strict=True))
        self.known: dict[str, Tensor] = {}

    def outputs(self, attempt: Attempt) -> Tensor:
        """(n_test, C)."""
        if attempt.name not in self.known:
            if attempt.name not in self.models:
                model = attempt.finish()
                assert isinstance(model, FittedModel)
                self.models[attempt.name] = model
                attempt.release()
            self.known[attempt.name] = self.of(self.models[attempt.name])
        return self.known[attempt.name]

    def of(self, model: FittedModel) -> Tensor:
        """(n_test, C)."""
        seen = with_views(self.images, model.preprocess)
        return model.outputs(seen, device=self.device, batch_size=usual_rows(self.device)).double()


def stacked(attempt: Attempt, known: dict[str, Tensor]) -> Tensor:
    """(n_test, C) of a stack, from its members."""
    return torch.stack([w * known[name] for name, w in attempt.about["weights"].items()]).sum(0)


def weighed(ground: Ground) -> Attempt | None:
    """The stack of what there is; None where there is nothing to stack."""
    try:
        return StackRung().attempt(ground)
    except NotNow:
        return None


def kept(ground: Ground, stack: Attempt | None) -> str:
    """Name of the rung at which the climb ends."""
    best = ""
    for name, attempt in [*ground.attempts.items(), *([(STACK, stack)] if stack else [])]:
        if name == STACK and attempt is not stack:
            continue
        found = {**ground.attempts, STACK: stack}
        if not best or ground.gain(attempt.outputs, found[best].outputs).counts(attempt.doubt):  # type: ignore[union-attr]
            best = name
    return best


def measured(data: Path, args: argparse.Namespace) -> Row:
    """One data set."""
    device, last = resolve_device(args.device), LastNetworks()
    climb, fitted, seconds = climbed(data / "train", args)
    climb.context.deadline.at = float("inf")  # what it left out is fitted now
    ground = climb.ground
    attempts = {n: a for n, a in ground.attempts.items() if n != STACK}
    ground = replace(ground, attempts=attempts)
    test = load_samples(data / "test", classes=fitted.classes)
    images = open_images(test, replace(ground.data.preprocess, views="none"))
    labels = torch.tensor(images.samples.labels)
    with computing_on(device):
        tested = Tested(ground, fitted, images, device)
        for attempt in attempts.values():
            tested.outputs(attempt)
        single = last.model(attempts[FINETUNED]) if FINETUNED in attempts else None
        efforts, alone = {}, {} if single is None else {FINETUNED: tested.of(single)}
        small = {n: a for n, a in attempts.items() if n not in BEST_ONLY}
        for effort, some in (("standard", replace(ground, attempts=small)), ("best", ground)):
            stack = weighed(some)
            name = kept(some, stack)
            known = tested.known | (alone if effort == "standard" else {})
            if stack is not None:
                known[STACK] = stacked(stack, known)
            judged = stack if stack is not None and name == STACK else some.attempts[name]
            efforts[effort] = {
                "kept": name,
                "test_error": error_rate(known[name], labels),
                "out_of_sample_error": climb._score(judged.outputs)[0],
                "stack": None if stack is None else stack.about["members"],
                "stack_test_error": None if stack is None else error_rate(known[STACK], labels),
            }
            chosen = {"out of sample/kept": judged.outputs.float(), "test/kept": known[name].float().cpu()}
    if args.outputs:
        args.outputs.mkdir(parents=True, exist_ok=True)
        kept_outputs = {f"out of sample/{n}": a.outputs.float() for n, a in attempts.items()}
        kept_outputs |= {f"test/{n}": f.float().cpu() for n, f in tested.known.items()}
        kept_outputs |= {f"test/{n}, one network": f.float() for n, f in alone.items()}
        kept_outputs |= {**chosen, "labels": ground.data.labels, "test labels": labels}
        save_file({n: t.contiguous() for n, t in kept_outputs.items()}, args.outputs / f"{data.name}.safetensors")
    report = fitted.report.to_dict()
    rungs = [rung | _tested(tested, rung["name"], labels) for rung in report["rungs"] if rung["name"] != STACK]
    return {
        "data": data.name,
        "n": len(ground.data),
        "n_test": len(labels),
        "classes": len(fitted.classes),
        "efforts": efforts,
        "expected_error": report["error"],
        "expected_standard_error": report["error_standard_error"],
        "seconds": seconds,
        "stages": report["stages"],
        "rungs": rungs,
        "choices": [
            c for a in attempts.values() if a.linear and a.linear.problem.stages for c in [a.linear.problem.choices[-1]]
        ],
    }


def _tested(tested: Tested, name: str, labels: Tensor) -> Row:
    if name not in tested.known:
        return {"test_error": None}
    f, model = tested.known[name], tested.models[name]
    error = error_rate(f, labels)
    first = next(iter(tested.known))
    gain = log_losses(tested.known[first], labels, tested.models[first].beta) - log_losses(f, labels, model.beta)
    return {
        "test_error": error,
        "test_standard_error": standard_error(error, len(labels)),
        "test_cross_entropy": log_loss(f, labels, model.beta),
        "test_gain": {"mean": float(gain.mean()), "standard_error": float(gain.std() / len(gain) ** 0.5)},
        "predict_views": model.preprocess.views,
    }


def main() -> None:
    """Measure and write JSON, one file a data set."""
    args = options().parse()
    out = args.out or RESULTS
    if args.memory and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(args.memory)
    for data in args.data:
        parts = ("climbs", data.name, args.name, args.backbone.replace(":", "-"), resolve_device(args.device).type)
        name = "-".join(filter(None, parts))
        out.mkdir(parents=True, exist_ok=True)
        try:
            (out / f"{name}.taken").touch(exist_ok=False)
        except FileExistsError:
            continue
        try:
            row = measured(data, args)
        except (LQFError, RuntimeError) as error:
            traceback.print_exc()
            print(f"{data.name}: {error}", flush=True)
            continue
        write(name, row | {"hardware": hardware(resolve_device(args.device))}, args.out)
        shown = {e: (v["kept"], f"{v['test_error']:.1%}") for e, v in row["efforts"].items()}
        print(f"{data.name}: {shown}, {row['seconds']:.0f} s", flush=True)
        if args.small:
            (out / f"{name}.taken").unlink()


if __name__ == "__main__":
    main()
