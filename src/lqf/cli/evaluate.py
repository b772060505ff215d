"""`lqf evaluate RUN TEST`: the error of a model on labelled images."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.settings import Setup
from lqf.utils.progress import Progress
from lqf.utils.text import columns, counted, duration, percent, shortened

SUMMARY = "error of a fitted model on labelled images"
MOST_ROWS = 20
"""Classes a person wants to see at once."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN TEST."""
    options.add_run(parser)
    parser.add_argument("test", metavar="TEST", help="a folder CLASS/*.jpg, or a .csv with path,label[,weight]")
    options.add_settings(parser, Setup, only=("strict",))


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Predict everything, compare with the labels."""
    began = time.perf_counter()
    model = load_model(args)
    from lqf.reports.evaluation import tested

    seen = tested(model, args.test, strict=getattr(args, "strict", False), progress=progress)
    return {
        **seen.result,
        "skipped": seen.images.skipped,
        "expected_error": model.report_["error"],
        "loo_error": model.report_["loo_error"],
        "loo_level": model.report_["loo_level"],
        "expected_balanced_error": model.report_["balanced_error"],
        "loo_balanced_error": model.report_["loo_balanced_error"],
        "class_weights": model.report_["class_weights"],
        "run": args.run,
        "test": args.test,
        "seconds": time.perf_counter() - began,
    }


def show(result: dict[str, Any]) -> str:
    """The error and a table, the worst classes first."""
    rows = sorted(result["per_class"].items(), key=lambda row: -(row[1]["error"] or 0))
    lines = [f"Error {percent(result['error'])} on {counted(result['n'], 'image')}{_predicted(result)}.\n"]
    lines += _table(rows[:MOST_ROWS], _taken_for(result))
    if len(rows) > MOST_ROWS:
        lines.append(f"  … and {counted(len(rows) - MOST_ROWS, 'class')} with no larger error (--json has all)")
    skipped = f"; {counted(len(result['skipped']), 'image')} skipped" if result["skipped"] else ""
    mean = f"Mean error of the classes {percent(result['mean_class_error'])}."
    return "\n".join([*lines, f"\n{mean} {duration(result['seconds'])}{skipped}."])


def _predicted(result: dict[str, Any]) -> str:
    """The error that the fit expected: of all its choices, or of the one model that was named."""
    if result.get("class_weights"):  # they weigh what the fit expected of all images, not that of each class
        known = [e for e in (result["expected_balanced_error"], result["loo_balanced_error"]) if e is not None]
        return f"; the fit expected a mean error of the classes of {percent(known[0])}" if known else ""
    if result["expected_error"] is not None:
        return f"; the fit expected {percent(result['expected_error'])}"
    if result["loo_error"] is None:
        return ""
    return f"; leave-one-out predicted {percent(result['loo_error'])} ({result['loo_level']})"


def _taken_for(result: dict[str, Any]) -> dict[str, str]:
    """The most frequent wrong answer for every class that has one, with its count."""
    most: dict[str, str] = {}
    for pair in result["confusions"]:
        most.setdefault(pair["label"], f"{pair['predicted']} ({pair['n']})")
    return most


def _table(rows: Sequence[tuple[str, dict[str, Any]]], taken_for: dict[str, str]) -> list[str]:
    width = min(max(len("class"), *(len(name) for name, _ in rows)), columns() - 46)
    lines = [f"  {'class':<{width}}  {'images':>6}  {'error':>6}  mostly taken for"]
    for name, c in rows:
        other = shortened(taken_for.get(name, ""), columns() - width - 20)
        lines.append(f"  {shortened(name, width):<{width}}  {c['n']:>6}  {percent(c['error']):>6}  {other}".rstrip())
    return lines
