"""`lqf suggest RUN POOL -k 20 -o next.csv`: which images to label next."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.cli.next_steps import typed
from lqf.errors import LQFError
from lqf.utils.progress import Progress
from lqf.utils.text import columns, counted, duration, percent, shortened_path, wrapped

SUMMARY = "which images of a pool to label next"
USUAL = 20
"""Images, where it is not said how many."""
FEW = 10
"""Rows on the terminal."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN POOL -k K [-o FILE]."""
    parser.usage = "lqf suggest RUN POOL [-k K] [-o FILE.csv] [options]"
    options.add_run(parser)
    images = "images without labels: files, folders with images below, .csv manifests with a column path"
    parser.add_argument("pool", metavar="POOL", nargs="+", help=images)
    parser.add_argument("-k", type=options.positive, metavar="K", help=f"so many images (default: {USUAL})")
    parser.add_argument("-o", "--output", metavar="FILE", help="the .csv file to write, with a column for the labels")
    options.add_overwrite(parser)
    parser.add_argument(
        "--by",
        choices=["information", "uncertainty", "both"],
        help="information: what makes the whole pool most certain, no two alike; uncertainty: what is between two "
        "classes; both: information about images whose class is not clear (default)",
    )
    options.add_train(parser)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Choose, and write the file."""
    began = time.perf_counter()
    out = options.output_path(args.output) if hasattr(args, "output") else None
    from lqf.data.manifests import without_manifest
    from lqf.utils.files import check_file

    if out is not None:
        check_file(out, args.overwrite, (".csv",))
    model = load_model(args)
    by = {"by": args.by} if hasattr(args, "by") else {}
    k, train = getattr(args, "k", USUAL), getattr(args, "train", None)
    found = model.suggest(args.pool, k, train=train, progress=progress, **by)
    if out is not None:
        if reason := without_manifest(found.samples):
            raise LQFError(reason)
        _write(out, [row | {"label": ""} for row in found.rows()])
    return {**found.to_dict(), "run": args.run, "output": out, "seconds": time.perf_counter() - began}


def _write(out: Path, rows: list[dict[str, Any]]) -> None:
    from lqf.utils.files import atomic_file, write_table

    with atomic_file(out) as temporary:
        write_table(temporary, rows, ["path", "label", "rank", "score", "predicted", "probability"])


def show(result: dict[str, Any]) -> str:
    """The first of them, and how they were chosen."""
    what = {
        "information": "that together tell most about all of them",
        "uncertainty": "that are nearest to the border between two classes",
        "both": "that together tell most about those whose class is not clear",
    }[result["by"]]
    level = "" if result["by"] == "uncertainty" else f" ({result['level']})"
    lines = [wrapped(f"{counted(result['k'], 'image')} of {result['pool']:,} {what}{level}:"), ""]
    half = columns() - 34
    lines.append(f"  {'':<{half}}  {'unclear' if result['by'] == 'uncertainty' else 'tells':>8}  taken for")
    for r in result["suggestions"][:FEW]:
        path = shortened_path(r["id"], half)
        score = f"{r['score']:.3f}" if result["by"] == "uncertainty" else percent(r["score"], 2)
        lines.append(f"  {path:<{half}}  {score:>8}  {r['predicted'][:12]:<12} {percent(r['probability'], 0):>4}")
    if result["k"] > FEW:
        more = "" if result["output"] else " (-o FILE.csv writes all)"
        lines.append(f"  … and {result['k'] - FEW:,} more{more}")
    if result["copies"]:
        n = counted(len(result["copies"]), "image")
        lines.append(wrapped(f"{n} of the pool left out, with the same contents as another one there."))
    lines += ["", duration(result["seconds"])]
    if result["output"]:
        command = shlex.join(["lqf", "add", str(result["run"]), str(result["output"])])
        lines += [f"Written to {result['output']}; when its column label is filled in:", typed(command)]
    return "\n".join(lines)
