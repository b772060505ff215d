"""`lqf constrain RUN …`: a fitted model changed so that its outputs satisfy constraints."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lqf.cli import options
from lqf.cli.changed import add_target, saved_to, target
from lqf.cli.models import load_model
from lqf.errors import LQFError
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, facts

if TYPE_CHECKING:
    import numpy as np

    from lqf.changes.constraints.conditions import Constraint
    from lqf.estimator import LQFClassifier

SUMMARY = "change a fitted model so that its outputs satisfy linear constraints, exactly"
EPILOG = """\
examples:
  lqf constrain run --equal-means hospital -o fair
      equal mean outputs in every hospital, a column of the training manifest
  lqf constrain run --keep-right old-run --on recent -o compatible
      what the older model gets right on these labelled images stays right
  lqf constrain run --bound 'crack<=12' --bound 'mean ok>=3' -o bounded
      of every training image, and of their mean
"""
_BOUND = re.compile(r"\s*(mean\s+)?(.*?)\s*(<=|>=|=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True)
class BoundText:
    """A bound as it is typed: `crack<=12`, `mean ok>=3`, `>=-20` of every class."""

    of: str | None
    mean: bool
    lower: float | None
    upper: float | None


def bound(text: str) -> BoundText:
    """Read one."""
    match = _BOUND.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"`{text}` is no bound; write CLASS<=NUMBER, CLASS>=NUMBER or mean CLASS=NUMBER"
        )
    mean, of, sign, number = match.groups()
    value = float(number)
    return BoundText(of or None, bool(mean), value if sign != "<=" else None, value if sign != ">=" else None)


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN [constraints] [-o OUT]."""
    parser.usage = "lqf constrain RUN [constraints] [-o OUT] [options]"
    parser.epilog = EPILOG
    options.add_run(parser)
    options.add_train(parser)
    group = parser.add_argument_group("constraints, in the units of the model's outputs; all that are given hold")
    group.add_argument(
        "--equal-means",
        metavar="COLUMN",
        help="equal mean outputs of all groups that this column of the manifest (of --on, or the training data) names",
    )
    group.add_argument("--agree", metavar="OLD", help="outputs of the model in OLD on the images of --on")
    group.add_argument("--keep-right", metavar="OLD", help="labelled images of --on that OLD gets right stay right")
    group.add_argument(
        "--bound",
        type=bound,
        action="append",
        metavar="BOUND",
        help="CLASS<=NUMBER, CLASS>=NUMBER, or mean CLASS=NUMBER, on --on or the training images; no CLASS: of all",
    )
    group.add_argument("--on", metavar="DATA", help="a folder or a .csv of images, other than the training ones")
    group.add_argument(
        "--tolerance", type=options.not_negative, metavar="T", help="of --equal-means and --agree (default: 0)"
    )
    group.add_argument("--margin", type=options.not_negative, metavar="M", help="of --keep-right (default: 0.1)")
    parser.add_argument("--test", metavar="DIR", help="labelled images on which the model before and after is compared")
    add_target(parser)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Solve, compare, write."""
    began = time.perf_counter()
    out = target(args)
    model = load_model(args)
    constraints = _constraints(args, model)
    old = getattr(args, "keep_right", getattr(args, "agree", None))
    compared = [("on", args.on)] if hasattr(args, "keep_right") else []
    compared += [("test", args.test)] if hasattr(args, "test") else []
    before = {name: _Judged.of(model, data) for name, data in compared}
    model.constrain(constraints, train=getattr(args, "train", None), progress=progress)
    after = {name: _Judged.of(model, data) for name, data in compared}
    older = None if old is None else _opened(old, args)
    flips = {name: _compared(before[name], after[name], older, data) for name, data in compared}
    saved_to(model, out, args)
    report = model.report_["constraints"]
    return {**report, "compared": flips, "run": args.run, "output": out, "seconds": time.perf_counter() - began}


def _violated(by: float) -> str:
    return f"by at most {by:.1e}" if by > 0 else "not at all"


def show(result: dict[str, Any]) -> str:
    """What holds now, what it took, and which predictions changed."""
    lines = []
    for c in result["constraints"]:
        lines.append(f"{c['what']}:")
        lines += facts(
            [
                ("violated before", f"{c['violated_before']} of {c['rows']}, by up to {c['violation_before']:.3g}"),
                ("now", f"{_violated(c['violation'])}; {c['active']} active"),
                ("costliest", c.get("dearest", "")),
            ]
        )
    lines.append("")
    for name, c in result["compared"].items():
        what = "on the images of --on" if name == "on" else "on the test images"
        lines.append(f"Error {what}: {c['error_before']:.1%} before, {c['error']:.1%} now.")
        if "negative_flips" in c:
            was, now = c["negative_flips_before"], c["negative_flips"]
            lines.append(
                f"Right in the older model and wrong here: {was} before, {now} now, of {counted(c['n'], 'image')}."
            )
    lines.append(f"Written to {result['output']} ({result['level']}; {duration(result['seconds'])}).")
    return "\n".join(lines)


def _constraints(args: argparse.Namespace, model: LQFClassifier) -> list[Constraint]:
    from lqf.changes.constraints.conditions import Agree, Bound, EqualMeans, KeepRight

    on, tolerance = getattr(args, "on", None), getattr(args, "tolerance", 0.0)
    found: list[Constraint] = []
    if hasattr(args, "equal_means"):
        found.append(EqualMeans(_groups(args, model, on), on, tolerance))
    for name in ("agree", "keep_right"):
        if hasattr(args, name) and on is None:
            raise LQFError(
                f"--{name.replace('_', '-')} needs --on DATA: the images on which the older model is kept to"
            )
    if hasattr(args, "agree"):
        found.append(Agree(_opened(args.agree, args), on, tolerance))
    if hasattr(args, "keep_right"):
        found.append(KeepRight(_opened(args.keep_right, args), on, margin=getattr(args, "margin", 0.1)))
    found += [Bound(b.lower, b.upper, b.of, on, b.mean) for b in getattr(args, "bound", ())]
    if not found:
        raise LQFError("give a constraint: --equal-means COLUMN, --keep-right OLD, --agree OLD or --bound BOUND")
    return found


def _groups(args: argparse.Namespace, model: LQFClassifier, on: str | None) -> Sequence[str]:
    """Of every image of --on, or of the training data, by a column of its manifest."""
    from lqf.data.readers.manifest import read_column

    table = model.fitted_.train
    source = on or getattr(args, "train", None) or table.source
    if source is None or Path(source).suffix.lower() != ".csv":
        raise LQFError(f"--equal-means reads a column of a .csv manifest, and the data are `{source}`; give a manifest")
    values = read_column(Path(source), args.equal_means)
    if on is not None:
        return list(values.values())
    missing = [name for name in table.ids if name not in values]
    if missing:
        raise LQFError(f"`{source}` does not list `{missing[0]}`, which the model was fitted on")
    return [values[name] for name in table.ids]


def _opened(run: str, args: argparse.Namespace) -> LQFClassifier:
    from lqf.estimator import LQFClassifier

    device = {"device": args.device} if hasattr(args, "device") else {}
    return LQFClassifier.load(run, verbose=0, **device)


@dataclass(frozen=True)
class _Judged:
    """Which labelled images a model gets right."""

    right: np.ndarray

    @classmethod
    def of(cls, model: LQFClassifier, data: str) -> _Judged:
        from lqf.data import load_samples

        samples = load_samples(data, classes=model.fitted_.classes)
        predicted, _, _ = model.scores(model.open(samples, strict=True))
        return cls(predicted == samples.labels)


def _compared(before: _Judged, after: _Judged, older: LQFClassifier | None, data: str) -> dict[str, Any]:
    out = {
        "n": len(after.right),
        "error_before": 1 - float(before.right.mean()),
        "error": 1 - float(after.right.mean()),
    }
    if older is None:
        return out
    was = _Judged.of(older, data).right
    flips = {
        "negative_flips_before": int((was & ~before.right).sum()),
        "negative_flips": int((was & ~after.right).sum()),
    }
    return {**out, **flips}
