"""`lqf evaluate RUN TEST [-o FILE]`: how good a model is on labelled images."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.reports import figures
from lqf.settings import Setup
from lqf.utils.progress import Progress
from lqf.utils.text import capitalized, columns, counted, duration, percent, shortened, wrapped

SUMMARY = "error, F1, AUC and calibration of a fitted model on labelled images"
MOST_ROWS = 20
"""Classes a person wants to see at once."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN TEST [-o FILE]."""
    parser.usage = "lqf evaluate RUN TEST [-o FILE] [options]"
    options.add_run(parser)
    parser.add_argument("test", metavar="TEST", help="a folder CLASS/*.jpg, or a .csv with path,label[,weight][,group]")
    options.add_rows(parser, "every image with its prediction")
    options.add_settings(parser, Setup, only=("strict",))


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Predict everything, compare with the labels."""
    began = time.perf_counter()
    out = options.rows_path(args)
    from lqf.reports import row_files
    from lqf.reports.evaluation import tested
    from lqf.reports.predictions import answers

    model = load_model(args)
    seen = tested(model, args.test, strict=getattr(args, "strict", False), progress=progress)
    if out is not None:
        row_files.write(out, answers(seen.rows()), overwrite=args.overwrite)
    return {
        **seen.result,
        "skipped": seen.images.skipped,
        "expected_error": model.report_["error"],
        "loo_error": model.report_["loo_error"],
        "loo_level": model.report_["loo_level"],
        "error_unknown": model.fitted_.report.error_unknown or None,
        "expected_balanced_error": model.report_["balanced_error"],
        "loo_balanced_error": model.report_["loo_balanced_error"],
        "class_weights": model.report_["class_weights"],
        "run": args.run,
        "test": args.test,
        "output": out,
        "seconds": time.perf_counter() - began,
    }


def show(result: dict[str, Any]) -> str:
    """The error, the other figures, and a table with the worst classes first."""
    rows = sorted(result["per_class"].items(), key=lambda row: -(row[1]["error"] or 0))
    lines = [*_answer(result), "", *_figures(result), "", *_table(rows[:MOST_ROWS], _taken_for(result))]
    if len(rows) > MOST_ROWS:
        lines.append(f"  … and {counted(len(rows) - MOST_ROWS, 'class')} with no larger error (--json has all)")
    skipped = f"; {counted(len(result['skipped']), 'image')} skipped" if result["skipped"] else ""
    written = [f"Every image: {result['output']}"] if result["output"] is not None else []
    return "\n".join([*lines, "", *written, f"{duration(result['seconds'])}{skipped}."])


def _answer(result: dict[str, Any]) -> list[str]:
    ends = figures.interval("error", result["intervals"]["error"])
    chance = f" (95%: {ends})" if ends else ""
    answer = f"Error {percent(result['error'])}{chance} on {counted(result['n'], 'image')}."
    return [answer, *_predicted(result)]


def _figures(result: dict[str, Any]) -> list[str]:
    """All but the error, which is said already."""
    rows = figures.rows(result)[1:]
    name, value = (max(len(row[k]) for row in rows) for k in (0, 1))
    lines = []
    for row in rows:
        more = "; ".join(filter(None, [row.interval, row.note]))
        lines.append(f"  {row.name:<{name}}  {row.value:>{value}}{f'  ({more})' if more else ''}")
    return lines


def _predicted(result: dict[str, Any]) -> list[str]:
    """The error that the fit expected: of all its choices, or of the one model that was named."""
    if result.get("class_weights"):  # they weigh what the fit expected of all images, not that of each class
        known = [e for e in (result["expected_balanced_error"], result["loo_balanced_error"]) if e is not None]
        return [f"The fit expected a mean error of the classes of {percent(known[0])}."] if known else []
    if result["expected_error"] is not None:
        return [f"The fit expected {percent(result['expected_error'])}."]
    if result["loo_error"] is None:
        unknown = result.get("error_unknown")
        return [wrapped(f"{capitalized(unknown)}.")] if unknown else []
    return [f"Leave-one-out predicted {percent(result['loo_error'])} ({result['loo_level']})."]


def _taken_for(result: dict[str, Any]) -> dict[str, str]:
    """The most frequent wrong answer for every class that has one, with its count."""
    most: dict[str, str] = {}
    for pair in result["confusions"]:
        most.setdefault(pair["label"], f"{pair['predicted']} ({pair['n']})")
    return most


def _table(rows: Sequence[tuple[str, dict[str, Any]]], taken_for: dict[str, str]) -> list[str]:
    width = min(max(len("class"), *(len(name) for name, _ in rows)), columns() - 53)
    lines = [f"  {'class':<{width}}  {'images':>6}  {'error':>6}  {'F1':>5}  mostly taken for"]
    for name, c in rows:
        other = shortened(taken_for.get(name, ""), columns() - width - 27)
        shares = f"{percent(c['error']):>6}  {figures.score(c['f1']):>5}"
        lines.append(f"  {shortened(name, width):<{width}}  {c['n']:>6}  {shares}  {other}".rstrip())
    return lines
