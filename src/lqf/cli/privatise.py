"""`lqf privatise RUN --epsilon E --delta D`: a model that may be released without giving away a training image."""

from __future__ import annotations

import argparse
import time
from typing import Any

from lqf.cli import options
from lqf.cli.changed import add_target, saved_to, target
from lqf.cli.models import load_model
from lqf.utils.progress import Progress
from lqf.utils.text import duration, facts, wrapped

SUMMARY = "make a fitted model differentially private in its training images, for release"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN --epsilon E --delta D [-o OUT]."""
    parser.usage = "lqf privatise RUN --epsilon E --delta D [-o OUT] [options]"
    options.add_run(parser)
    options.add_train(parser)
    parser.add_argument("--epsilon", type=float, metavar="E", required=True, help="1 is strong, 8 is weak")
    parser.add_argument(
        "--delta", type=float, metavar="D", required=True, help="far below 1 over the number of images, e.g. 1e-5"
    )
    parser.add_argument(
        "--part", choices=("head", "all"), help="the last layer, or the network's change too (default: head)"
    )
    parser.add_argument(
        "--clip", type=float, metavar="LENGTH", help="cut the rows to this length; default: scale all to length one"
    )
    parser.add_argument(
        "--private-weight-decay",
        type=float,
        metavar="W",
        help="for rows of that length; default: by the budget and the number of images",
    )
    add_target(parser)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Solve the bounded problem, add noise, write."""
    began = time.perf_counter()
    out = target(args)
    model = load_model(args)
    model.privatise(
        epsilon=args.epsilon,
        delta=args.delta,
        part=getattr(args, "part", "head"),
        clip=getattr(args, "clip", None),
        weight_decay=getattr(args, "private_weight_decay", None),
        train=getattr(args, "train", None),
        progress=progress,
    )
    saved_to(model, out, args)
    return {**model.report_["privacy"], "run": args.run, "output": out, "seconds": time.perf_counter() - began}


def show(result: dict[str, Any]) -> str:
    """The guarantee, and what it does not cover."""
    of = f"({result['epsilon']:g}, {result['delta']:g})-differentially private"
    lines = [wrapped(f"{of}: {result['neighbours']}."), ""]
    lines += facts(
        [
            ("rows", result["rows"]),
            ("sensitivity", f"{result['sensitivity']:.3g} at weight decay {result['weight_decay']:.3g}"),
            ("noise", f"{result['noise']:.3g} ({result['mechanism']})"),
            ("public", ", ".join(result["public"])),
            ("not private", ", ".join(result["not_private"]) or "nothing that is in the folder"),
        ]
    )
    if result["groups"]:
        lines.append("Images were in groups: the guarantee is for one image, not for a whole group.")
    lines += ["", f"Written to {result['output']} ({duration(result['seconds'])})."]
    return "\n".join(lines)
