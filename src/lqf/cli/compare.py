"""`lqf compare RUN_A RUN_B --test DIR [-o FILE]`: what tells two models apart on labelled images."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.settings import Settings
from lqf.utils.progress import Progress
from lqf.utils.text import duration

SUMMARY = "paired difference of two models, and which predictions changed"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN_A RUN_B --test DIR [-o FILE] [--html FILE]."""
    parser.usage = "lqf compare RUN_A RUN_B --test DIR [-o FILE] [--html FILE] [options]"
    parser.add_argument("first", metavar="RUN_A", help="the folder of a model, e.g. the one in use")
    parser.add_argument("second", metavar="RUN_B", help="the folder of the model that may replace it")
    parser.add_argument(
        "--test", metavar="DIR", required=True, help="labelled images that neither was fitted on, as for `lqf evaluate`"
    )
    options.add_rows(parser, "every image with another prediction")
    parser.add_argument("--html", metavar="FILE", help="a page with pictures of these images: the .html file to write")
    options.add_device(parser)
    options.add_settings(parser, Settings, only=("batch_size",))


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Predict with both, compare image by image."""
    began = time.perf_counter()
    out = options.rows_path(args)
    page = options.output_path(args.html) if hasattr(args, "html") else None
    from lqf.reports import row_files
    from lqf.reports.comparison import COLUMNS, compare
    from lqf.utils.files import check_file, write_file

    if page is not None:
        check_file(page, args.overwrite, (".html", ".htm"))
    first, second = (load_model(args, run) for run in (args.first, args.second))
    found = compare(first, second, args.test, progress=progress)
    if out is not None:
        row_files.write(out, [c.to_dict() for c in found.changed], columns=COLUMNS, overwrite=args.overwrite)
    if page is not None:
        write_file(page, found.page((Path(args.first).resolve().name, Path(args.second).resolve().name)))
    return {
        **found.to_dict(),
        "run_a": args.first,
        "run_b": args.second,
        "test": args.test,
        "output": out,
        "html": page,
        "seconds": time.perf_counter() - began,
    }


def show(result: dict[str, Any]) -> str:
    """Both errors, their difference with its interval, and the images with another prediction."""
    from lqf.reports.comparison import said

    files = {"Every changed image": result["output"], "With pictures": result["html"]}
    written = [f"{what}: {file}" for what, file in files.items() if file is not None]
    said_of_both = said(result, (result["run_a"], result["run_b"]))
    return "\n".join([said_of_both, "", *written, duration(result["seconds"])])
