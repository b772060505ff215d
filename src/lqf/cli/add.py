"""`lqf add RUN NEW`: the optimum with further training images, at the point and the strengths of the fit."""

from __future__ import annotations

import argparse
from typing import Any

from lqf.cli import options
from lqf.cli.changed import about_error, about_members, add_retrain, add_target, error, saved_to, target
from lqf.cli.models import load_model
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, listed, wrapped

SUMMARY = "add training images to a model, new classes too, without fitting again"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN NEW [-o OUT]."""
    parser.usage = "lqf add RUN NEW [-o OUT] [options]"
    options.add_run(parser)
    parser.add_argument("new", metavar="NEW", help="a folder CLASS/*.jpg, or a .csv with path,label[,weight][,group]")
    options.add_train(parser)
    add_target(parser)
    add_retrain(parser)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Add, write."""
    out = target(args)
    model = load_model(args)
    train = getattr(args, "train", None)
    addition = model.add(args.new, train=train, retrain=args.retrain, progress=progress)
    saved_to(model, out, args)
    return {
        **addition.to_dict(),
        "run": args.run,
        "output": str(out),
        **error(model),
    }


def show(result: dict[str, Any]) -> str:
    """What was done, and how exactly."""
    n = result["n"]
    lines = [wrapped(f"{counted(result['added'], 'image')} added; `{result['output']}` is now the optimum of {n:,}.")]
    if result["new_classes"]:
        what = "a new class" if len(result["new_classes"]) == 1 else "new classes"
        again = ", for which the linearisation point was made again, at the same strengths"
        point = again if result["point"] == "made again" else ""
        lines.append(wrapped(f"{listed(result['new_classes'])}: {what}{point}."))
    lines += about_members(result["members"])
    return "\n".join([*lines, *about_error(result), "", duration(result["seconds"])])
