"""`lqf report RUN -o FILE.html`: everything about a model and its data on one page."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.reports.figures import interval
from lqf.reports.weighting import how
from lqf.settings import Setup
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, facts, percent, wrapped

SUMMARY = "one HTML page: errors, calibration, suspicious labels, influence, exactness"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN [--test DIR] -o FILE.html."""
    parser.usage = "lqf report RUN -o FILE.html [--test DIR] [options]"
    options.add_run(parser)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the .html file to write")
    options.add_overwrite(parser)
    parser.add_argument("--test", metavar="DIR", help="labelled test images: a folder CLASS/*.jpg, or a .csv")
    options.add_train(parser)
    parser.add_argument("--title", metavar="TEXT", help="the page's title (default: the name of RUN)")
    options.add_settings(parser, Setup, only=("strict",))


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Collect, draw, write."""
    began = time.perf_counter()
    out = options.output_path(args.output)
    from lqf.utils.files import check_file, write_file

    check_file(out, args.overwrite, (".html", ".htm"))
    from lqf.reports.report import collect

    model = load_model(args)
    test, strict = getattr(args, "test", None), getattr(args, "strict", False)
    parts = collect(model, train=getattr(args, "train", None), test=test, strict=strict, progress=progress)
    html = parts.page(getattr(args, "title", None) or Path(args.run).resolve().name)
    write_file(out, html)
    return {
        **parts.to_dict(),
        "run": args.run,
        "output": out,
        "bytes": len(html.encode()),
        "seconds": time.perf_counter() - began,
    }


def show(result: dict[str, Any]) -> str:
    """The figures at the top of the page, and where it is."""
    shift = result["shift"]
    lines = facts(
        [
            ("test error", "" if result["test_error"] is None else _test(result)),
            ("error on unseen images", "" if result["error"] is None else _unseen(result)),
            ("leave-one-out error", f"{percent(result['loo_error'])} ({how(result, result['loo_level'])})"),
            ("contradicted labels", f"{result['contradicted']:,} of {counted(result['n'], 'image')}"),
            ("test against train", "" if shift is None else f"told apart with AUC {shift['auc']:.2f} (0.50: alike)"),
            ("written to", f"{result['output']} ({result['bytes'] / 1e6:.1f} MB)"),
            ("time", duration(result["seconds"])),
        ]
    )
    warning = ["", wrapped(result["warning"])] if result["warning"] else []
    return "\n".join([*lines, *warning])


def _unseen(result: dict[str, Any]) -> str:
    note = how(result, result["error_note"])
    return f"{percent(result['error'])} ± {100 * result['error_standard_error']:.1f} ({note})"


def _test(result: dict[str, Any]) -> str:
    ends = interval("error", result["test"]["intervals"]["error"])
    chance = f" (95%: {ends})" if ends else ""
    return f"{percent(result['test_error'])}{chance} of {counted(result['test_n'], 'image')}"
