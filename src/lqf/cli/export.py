"""`lqf export RUN -o model.onnx`: the model as a file for other programs."""

from __future__ import annotations

import argparse
import time
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, facts

SUMMARY = "the model as one graph for other programs: ONNX, or PyTorch's own format"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN -o FILE."""
    parser.usage = "lqf export RUN -o FILE.onnx|.pt2 [options]"
    options.add_run(parser)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the .onnx or .pt2 file to write")
    options.add_overwrite(parser)
    parser.add_argument(
        "--check",
        metavar="DIR",
        nargs="+",
        help="images on which the file is compared with the model (default: noise in several sizes)",
    )


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Trace, write, compare."""
    began = time.perf_counter()
    out = options.output_path(args.output)
    from lqf.export import SUFFIXES
    from lqf.utils.files import check_file

    check_file(out, args.overwrite, SUFFIXES)
    model = load_model(args)
    check = getattr(args, "check", None)
    written = model.export(out, check=check, overwrite=args.overwrite, progress=progress)
    return {**written.to_dict(), "run": args.run, "seconds": time.perf_counter() - began}


def show(result: dict[str, Any]) -> str:
    """What goes in, what comes out, how exactly."""
    lines = [f"Written to {result['path']}, {result['bytes'] / 1e6:.1f} MB.\n"]
    inputs = [(f"input {name}", text) for name, text in result["inputs"].items()]
    n = len(result["classes"])
    lines += facts(
        [
            *inputs,
            ("output", f"probabilities (batch, {n}), outputs (batch, {n if n > 2 else 1})"),
            ("compared", f"within {result['difference']:.1e} on {counted(result['images'], 'image')}"),
            ("time", duration(result["seconds"])),
        ]
    )
    return "\n".join(lines)
