"""`lqf predict RUN IMAGE|FOLDER…`: labels of new images."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.errors import LQFError
from lqf.settings import Setup
from lqf.utils.progress import Progress
from lqf.utils.text import percent

SUMMARY = "labels, scores and probabilities of new images"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN IMAGE|FOLDER…."""
    options.add_run(parser)
    parser.add_argument("images", metavar="IMAGE|FOLDER", nargs="+", help="image files, and folders with images below")
    options.add_settings(parser, Setup, only=("strict",))


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Predict every image; a named file that cannot be read is refused, one in a folder skipped and listed."""
    began = time.perf_counter()
    from lqf.data import load_unlabelled

    samples = load_unlabelled(args.images)
    model = load_model(args)
    classes = model.fitted_.classes
    images = model.open(samples, strict=getattr(args, "strict", False), progress=progress)
    _refuse_named(args.images, images.skipped)
    predicted, scores, probabilities = model.scores(images, progress=progress)
    entries = [
        {
            "id": name,
            "label": classes[k],
            "scores": dict(zip(classes, s.tolist(), strict=True)),
            "probabilities": dict(zip(classes, p.tolist(), strict=True)),
        }
        for name, k, s, p in zip(images.samples.ids, predicted.tolist(), scores, probabilities, strict=True)
    ]
    return {
        "predictions": entries,
        "n": len(entries),
        "classes": list(classes),
        "skipped": images.skipped,
        "run": args.run,
        "seconds": time.perf_counter() - began,
    }


def _refuse_named(given: list[str], skipped: tuple[tuple[str, str], ...]) -> None:
    from lqf.utils.text import clean

    named = {clean(Path(path).expanduser()) for path in given}
    for name, reason in skipped:
        if name in named:
            raise LQFError(f"`{name}` {reason}; give image files or folders with images")


def show(result: dict[str, Any]) -> str:
    """One line per image: id, label, probability."""
    entries = result["predictions"]
    wide = max((len(e["id"]) for e in entries), default=0)
    name = max((len(c) for c in result["classes"]), default=0)
    return "\n".join(
        f"{e['id']:<{wide}}  {e['label']:<{name}}  {percent(e['probabilities'][e['label']]):>6}" for e in entries
    )
