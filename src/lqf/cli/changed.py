"""What the commands share that change a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lqf.cli import options
from lqf.cli.fit_summary import of_leave_one_out
from lqf.utils.text import against_the_fit, capitalized, counted, wrapped

if TYPE_CHECKING:
    from lqf.estimator import LQFClassifier


def add_target(parser: argparse.ArgumentParser) -> None:
    """Where the changed model goes."""
    parser.add_argument("-o", "--output", metavar="OUT", help="the folder to write; default: RUN itself, in one step")
    options.add_overwrite(parser)


def add_retrain(parser: argparse.ArgumentParser) -> None:
    """What becomes of networks that cannot be solved again."""
    text = "train fine-tuned networks of a stack again; default: they leave it, and its weights are chosen again"
    parser.add_argument("--retrain", action="store_true", default=False, help=text)


def target(args: argparse.Namespace) -> Path:
    """The folder to write, refused now where it cannot be written: RUN itself, or OUT."""
    if not hasattr(args, "output"):
        return options.output_path(args.run)
    from lqf.storage import check_target

    out = options.output_path(args.output)
    check_target(out, args.overwrite)
    return out


def saved_to(model: LQFClassifier, out: Path, args: argparse.Namespace) -> None:
    """The changed model in place of the old one, or in a folder of its own."""
    from lqf.storage import save

    save(model.fitted_, out, overwrite=args.overwrite or not hasattr(args, "output"))


def error(model: LQFClassifier) -> dict[str, Any]:
    """For the result: leave-one-out after the change, or why nothing is known of the error, where it was before."""
    report = model.fitted_.report
    known = {name: getattr(report, name) for name in ("loo_error", "loo_standard_error", "loo_level", "loo_note")}
    return {**known, "weighted": report.weighted, "error_unknown": report.error_unknown or None}


def about_error(result: dict[str, Any]) -> list[str]:
    """That, in a line."""
    if result["loo_error"] is not None:
        return [wrapped(f"expected error on new images  {of_leave_one_out(result)}", "    ", first="  ")]
    sentence = result["error_unknown"]
    return [wrapped(f"{capitalized(sentence)}; `lqf evaluate` measures it.")] if sentence else []


def about_members(members: list[dict[str, Any]]) -> list[str]:
    """A line for each model: what was done, how far from the optimum it can be, what it cost."""
    lines = []
    for m in members:
        name = "" if m["name"] == "model" else f"{m['name']}: "
        text = f"{name}{m['fate']}"
        if m["bound"] is not None:
            text += f" ({m['solver']}, {m['level']}): ‖Hδ − b‖ = {m['residual']:.2g}, ‖δ − δ*‖ ≤ {m['bound']:.2g}"
        if m["saved"] is not None:
            text += f"; {counted(m['passes'], 'product')}, {against_the_fit(m['saved'])}"
        if not m["converged"]:
            text += "; the tolerance was not reached"
        lines.append(wrapped(f"{text}; {m['note']}" if m["note"] else text, "    ", first="  "))
    return lines
