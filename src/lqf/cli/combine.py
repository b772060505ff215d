"""`lqf combine RUN… --times W… -o OUT`: a weighted sum of models of one network and one point."""

from __future__ import annotations

import argparse
import time
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.errors import LQFError
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, wrapped

SUMMARY = "weighted sum of models around one point, as one model"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN… --times W… -o OUT."""
    parser.usage = "lqf combine RUN… --times W… -o OUT [options]"
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folders of models, e.g. one and what it was tuned to")
    parser.add_argument("--times", metavar="W", type=float, nargs="+", required=True, help="a number for each of them")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="folder of the sum")
    options.add_overwrite(parser)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Add, or refuse with the reason."""
    began = time.perf_counter()
    if len(args.times) != len(args.runs):
        raise LQFError(
            f"{counted(len(args.runs), 'model')} and {counted(len(args.times), 'number')} were given; give a number "
            "for each model"
        )
    out = options.output_path(args.output)
    from lqf.changes.arithmetic import combined
    from lqf.storage import check_target

    check_target(out, args.overwrite)
    models = [load_model(args, name) for name in args.runs]
    total = models[0].with_model(combined([m.fitted_ for m in models], args.times))
    total.save(out, overwrite=args.overwrite)
    terms = [{"run": name, "times": w} for name, w in zip(args.runs, args.times, strict=True)]
    return {"terms": terms, "output": out, "seconds": time.perf_counter() - began}


def show(result: dict[str, Any]) -> str:
    """What was added."""
    terms = " + ".join(f"{t['times']:g} · {t['run']}" for t in result["terms"])
    says = "It predicts that sum of the outputs; leave-one-out is for the models it was made of."
    return "\n".join([f"{result['output']} = {terms}; {duration(result['seconds'])}.", wrapped(says)])
