"""`lqf serve RUN`: a page on this machine to look at a model's images and ask "what if?"."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.errors import LQFError
from lqf.utils.progress import Progress

SUMMARY = 'a page on this machine: browse images, ask "what if?", correct labels'


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN [--test DIR] [--port N] [--read-only]."""
    parser.usage = "lqf serve RUN [--test DIR] [--port N] [--read-only] [options]"
    options.add_run(parser)
    parser.add_argument("--test", metavar="DIR", help="labelled test images: a folder CLASS/*.jpg, or a .csv")
    parser.add_argument("--pool", metavar="DIR", help="images without labels: the page says which to label next")
    options.add_train(parser)
    parser.add_argument("--port", type=port, default=8765, metavar="N", help="default: 8765; 0: any free one")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="default: 127.0.0.1, this machine alone")
    parser.add_argument("--read-only", action="store_true", default=False, help="refuse every correction")
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="folder for the corrected model (default: RUN-corrected, beside RUN)"
    )


def port(text: str) -> int:
    """A number from 0 to 65535."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"`{text}` is not a port; give a number from 1 to 65535, or 0 for a free one")
    return int(text)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Open the model, serve until Ctrl-C."""
    from lqf.serve.run import check_installed, listen, serve
    from lqf.serve.session import Session

    check_installed()
    folder = Path(args.run).resolve()
    out = options.output_path(args.output) if hasattr(args, "output") else folder.with_name(f"{folder.name}-corrected")
    model = load_model(args)
    if model.tensors != "pictures":
        raise LQFError("the model was fitted on normalised tensors, which have no pictures to show; ask it in Python")
    with listen(args.host, args.port) as bound:
        session = Session.open(
            model,
            folder.name,
            out,
            train=getattr(args, "train", None),
            test=getattr(args, "test", None),
            pool=getattr(args, "pool", None),
            read_only=args.read_only,
            progress=progress,
        )
        return {"run": args.run, **serve(session, bound, args.host, progress)}


def show(result: dict[str, Any]) -> str:
    """That it has ended, and what was written last."""
    written = f" Written: {', '.join(result['written'])}" if result["written"] else ""
    return f"{result['address']} is no longer served.{written}"
