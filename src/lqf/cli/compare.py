"""`lqf compare RUN_A RUN_B --test DIR [-o FILE]`: what tells two models apart on labelled images."""

from __future__ import annotations

import argparse
import time
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.settings import Settings
from lqf.utils.progress import Progress
from lqf.utils.text import duration

SUMMARY = "paired difference of two models, and which predictions changed"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN_A RUN_B --test DIR [-o FILE]."""
    parser.usage = "lqf compare RUN_A RUN_B --test DIR [-o FILE] [options]"
    parser.add_argument("first", metavar="RUN_A", help="the folder of a model, e.g. the one in use")
    parser.add_argument("second", metavar="RUN_B", help="the folder of the model that may replace it")
    parser.add_argument(
        "--test", metavar="DIR", required=True, help="labelled images that neither was fitted on, as for `lqf evaluate`"
    )
    options.add_rows(parser, "every image with another prediction")
    options.add_device(parser)
    options.add_settings(parser, Settings, only=("batch_size",))


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Predict with both, compare image by image."""
    began = time.perf_counter()
    out = options.rows_path(args)
    from lqf.reports import row_files
    from lqf.reports.comparison import COLUMNS, compare

    first, second = (load_model(args, run) for run in (args.first, args.second))
    found = compare(first, second, args.test, progress=progress)
    if out is not None:
        row_files.write(out, [c.to_dict() for c in found.changed], columns=COLUMNS, overwrite=args.overwrite)
    return {
        **found.to_dict(),
        "run_a": args.first,
        "run_b": args.second,
        "test": args.test,
        "output": out,
        "seconds": time.perf_counter() - began,
    }


def show(result: dict[str, Any]) -> str:
    """Both errors, their difference with its interval, and the images with another prediction."""
    from lqf.reports.comparison import said

    written = f"Every changed image: {result['output']}; " if result["output"] is not None else ""
    return f"{said(result, (result['run_a'], result['run_b']))}\n\n{written}{duration(result['seconds'])}."
