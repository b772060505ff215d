"""`lqf predict RUN IMAGE|FOLDER|MANIFEST… [-o FILE]`: labels of new images."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.errors import Incomplete
from lqf.settings import Setup
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, percent

if TYPE_CHECKING:
    from lqf.reports.predictions import Prediction

SUMMARY = "labels and probabilities of new images, on the screen or in a file"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN IMAGE…."""
    parser.usage = "lqf predict RUN IMAGE… [-o FILE] [options]"
    options.add_run(parser)
    images = "image files, folders with images below, .csv manifests with a column path"
    parser.add_argument("images", metavar="IMAGE", nargs="+", help=images)
    options.add_rows(parser, "every image with its prediction")
    parser.add_argument("--top", type=options.positive, metavar="K", help="so many classes of each image (default: 1)")
    below = "`unsure` instead of a label that is less probable, e.g. 0.8"
    parser.add_argument("--threshold", type=options.share, metavar="P", help=below)
    options.add_settings(parser, Setup, only=("strict",))


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Predict every image; one that cannot be read is a row with a note, unless none can."""
    began, out = time.perf_counter(), options.rows_path(args)
    from lqf.data.named import name_images
    from lqf.reports import predictions, row_files

    top, threshold = getattr(args, "top", 1), getattr(args, "threshold", None)
    samples, given = name_images(args.images)
    model = load_model(args)
    classes = model.fitted_.classes
    predictions.check_threshold(classes, threshold)
    images = model.open(samples, strict=getattr(args, "strict", False), progress=progress)
    predicted, *numbers = model.scores(images, progress=progress)
    rows = predictions.predictions(
        samples, images.skipped, classes, predicted, numbers[1], top=top, threshold=threshold, given=given
    )
    if out is not None:
        row_files.write(out, predictions.table(rows, nested=row_files.is_nested(out)), overwrite=args.overwrite)
    result = {
        "predictions": _entries(images.samples.ids, rows, classes, *numbers),
        "n": len(images),
        "unsure": sum(row.unsure is True for row in rows),
        "threshold": threshold,
        "classes": list(classes),
        "skipped": images.skipped,
        "run": args.run,
        "output": out,
        "seconds": time.perf_counter() - began,
    }
    if images.skipped:
        raise Incomplete(_left_out(len(images.skipped), len(samples)), result)
    return result


def _entries(
    ids: Sequence[str], rows: Sequence[Prediction], classes: Sequence[str], scores: Any, probabilities: Any
) -> list[dict[str, Any]]:
    """The predicted images, with the scores and probabilities (M, n_classes) of all classes."""
    read = [row for row in rows if row.ranked]
    return [
        {
            "id": name,
            "path": row.path,
            "given": row.given,
            "label": row.label,
            "probability": row.probability,
            "top": row.top,
            "scores": dict(zip(classes, s.tolist(), strict=True)),
            "probabilities": dict(zip(classes, p.tolist(), strict=True)),
        }
        for name, row, s, p in zip(ids, read, scores, probabilities, strict=True)
    ]


def _left_out(skipped: int, n: int) -> str:
    rest = "the other one is" if n - skipped == 1 else f"the other {n - skipped:,} are"
    return f"{skipped:,} of {counted(n, 'image')} could not be read; {rest} predicted"


def show(result: dict[str, Any]) -> str:
    """One line per image: id, label, probability, further classes; or what was written."""
    if result["output"] is not None:
        return _written(result)
    entries = result["predictions"]
    wide = max((len(e["id"]) for e in entries), default=0)
    name = max((len(c) for c in (*result["classes"], *(e["label"] for e in entries))), default=0)
    lines = (f"{e['id']:<{wide}}  {e['label']:<{name}}  {percent(e['probability']):>6}  {_further(e)}" for e in entries)
    return "\n".join(line.rstrip() for line in lines)


def _further(entry: dict[str, Any]) -> str:
    """The other classes that were asked for, and the one that an unsure prediction might be."""
    best, *others = entry["top"]
    guess = [] if entry["label"] == best["label"] else [f"{best['label']}?"]
    return "  ".join([*guess, *(f"{c['label']} {percent(c['probability'])}" for c in others)])


def _written(result: dict[str, Any]) -> str:
    unsure = f", {result['unsure']:,} of them unsure" if result["threshold"] is not None else ""
    skipped = f"; {len(result['skipped']):,} could not be read" if result["skipped"] else ""
    lines = [f"{counted(result['n'], 'image')} predicted{unsure}{skipped}; {duration(result['seconds'])}."]
    return "\n".join([*lines, f"Written to {result['output']}"])
