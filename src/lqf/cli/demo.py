"""`lqf demo`: solar-cell defects from 400 labelled images, and a page of results."""

from __future__ import annotations

import argparse
from typing import Any

from lqf.cli import options
from lqf.utils.progress import Progress

OWN = ("size", "seed", "device")
"""Options that are arguments of `lqf.demo.run_demo` and have their defaults there."""
SUMMARY = "solar-cell defects from 400 images, and a page of results"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where to write."""
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", default="lqf-demo", help="where to write (default: lqf-demo)"
    )
    options.add_overwrite(parser)
    parser.add_argument("--size", type=int, metavar="PX", help="side of the images")
    parser.add_argument("--seed", type=int, metavar="N", help="chooses the images")
    options.add_device(parser)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """All of it is in `lqf.demo`."""
    out = options.output_path(args.output)
    from lqf.demo import run_demo
    from lqf.runtime.deadline import process_began

    given = {name: getattr(args, name) for name in OWN if hasattr(args, name)}
    return run_demo(
        out, overwrite=args.overwrite, began=process_began() if args.own_process else None, progress=progress, **given
    )


def show(result: dict[str, Any]) -> str:
    """As the demo itself reports it."""
    from lqf import demo

    return demo.show(result)
