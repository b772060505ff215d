"""`lqf tune RUN [--validation DIR] [--at HEAD BODY | --choose] [-o OUT]`: other weight decays of a fitted model."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lqf.cli import options
from lqf.cli.changed import add_target, saved_to, target
from lqf.cli.models import load_model
from lqf.errors import LQFError
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, percent, wrapped

if TYPE_CHECKING:
    from lqf.estimator import LQFClassifier

SUMMARY = "error against both weight decays, and the model at other ones"
MOST_ROWS = 12


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN [--validation DIR] [--at HEAD [BODY] | --choose] [-o OUT]."""
    parser.usage = "lqf tune RUN [--validation DIR] [--at HEAD BODY | --choose] [options]"
    options.add_run(parser)
    options.add_train(parser)
    parser.add_argument(
        "--validation", metavar="DIR", help="labelled images that judge (default: leave-one-out of the training images)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--at",
        nargs="+",
        type=options.above_zero,
        metavar="λ",
        help="weight decays of head and body to solve for, nothing else",
    )
    which.add_argument(
        "--choose", action="store_true", default=False, help="keep the model with the lowest cross-entropy"
    )
    parser.add_argument(
        "--factors",
        nargs="+",
        type=options.above_zero,
        metavar="X",
        help="factors of each weight decay at which to look",
    )
    parser.add_argument("--plot", metavar="FILE", help="a picture of the path: a .png, .svg or .pdf file to write")
    add_target(parser)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Look at other strengths, or solve for some; write a model where one was asked for."""
    began = time.perf_counter()
    at, plot = getattr(args, "at", None), getattr(args, "plot", None)
    out, picture = _target(args, changes=at is not None or args.choose), None
    if at is not None and (len(at) > 2 or plot is not None or hasattr(args, "validation") or hasattr(args, "factors")):
        raise LQFError("--at takes the weight decays of head and body, and looks at no others; leave the rest out")
    if plot is not None:
        from lqf.changes.tuning.plot import check_plot

        picture = options.output_path(plot)
        check_plot(picture, args.overwrite)
    model, train = load_model(args), getattr(args, "train", None)
    path = None
    if at is None:
        path = model.tune(
            getattr(args, "validation", None), factors=getattr(args, "factors", None), train=train, progress=progress
        )
        if picture is not None:
            path.plot(picture, overwrite=args.overwrite)
    tuned = None
    if out is not None:
        tuned = model.tuned(*([path] if path is not None else at or ()), train=train, progress=progress)
        saved_to(tuned, out, args)
    return {
        "run": args.run,
        "validation": getattr(args, "validation", None),
        "path": None if path is None else path.to_dict(),
        "before": _said_of(model),
        "after": None if tuned is None else _said_of(tuned),
        "plot": picture,
        "output": out,
        "seconds": time.perf_counter() - began,
    }


def _target(args: argparse.Namespace, *, changes: bool) -> Path | None:
    """Where the changed model goes: RUN itself, in one step, where nothing else was named."""
    if changes:
        return target(args)
    if hasattr(args, "output"):
        raise LQFError("a folder for the changed model was given, but no change; add --choose, or --at HEAD BODY")
    return None


def _said_of(model: LQFClassifier) -> dict[str, Any]:
    names = ("weight_decay", "body_weight_decay", "loo_error", "loo_level", "solver", "passes", "certificate")
    return {name: model.report_[name] for name in names}


def show(result: dict[str, Any]) -> str:
    """The best pair and a few more, or the new model."""
    from lqf.changes.tuning.path import decays

    lines = [] if result["path"] is None else _path(result["path"])
    if result["after"] is not None:
        after = result["after"]
        loo = (
            ""
            if after["loo_error"] is None
            else f"; leave-one-out {percent(after['loo_error'])} ({after['loo_level']})"
        )
        where = decays(after["weight_decay"], after["body_weight_decay"])
        lines += [f"{result['output']} has {where}{loo}.", wrapped(after["certificate"], "    ", first="  ")]
    if result["plot"] is not None:
        lines.append(f"Picture: {result['plot']}")
    return "\n".join([*lines, f"{duration(result['seconds'])}."])


def _path(path: dict[str, Any]) -> list[str]:
    passes = f", {counted(path['passes'], 'pass')} over the training data" if path["passes"] else ""
    exact = path["level"] + (f": {path['note']}" if path["note"] else "")
    lines = [wrapped(f"By {path['by']} of {counted(path['n'], 'image')} ({exact}{passes})"), ""]
    rows = sorted(path["grid"], key=lambda t: t["loss"])[:MOST_ROWS]
    body = "" if path["best"]["body_weight_decay"] is None else f"{'body':>9}  "
    lines.append(f"  {'':<4}  {'head':>9}  {body}{'error':>6}  cross-entropy")
    lines += [_row("now", path["current"]), _row("best", path["best"])]
    lines += [_row("", t) for t in rows]
    more = len(path["grid"]) - len(rows)
    return [*lines, *([f"  … and {counted(more, 'further pair')} (--json has all)"] if more else []), ""]


def _row(name: str, t: dict[str, Any]) -> str:
    body = "" if t["body_weight_decay"] is None else f"{t['body_weight_decay']:>9.3g}  "
    return f"  {name:<4}  {t['weight_decay']:>9.3g}  {body}{percent(t['error']):>6}  {t['loss']:>13.4f}"
