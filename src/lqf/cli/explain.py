"""`lqf explain RUN IMAGE…`: the training images behind a prediction."""

from __future__ import annotations

import argparse
import time
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.runtime.distributed import joined
from lqf.utils.progress import Progress
from lqf.utils.text import columns, counted, percent, precise, shortened, shortened_path, wrapped

SUMMARY = "a prediction and the training images that pushed it there and away"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN IMAGE… [-o FILE]."""
    parser.usage = "lqf explain RUN IMAGE… [-o FILE.html|.png|.json] [options]"
    options.add_run(parser)
    parser.add_argument("images", metavar="IMAGE", nargs="+", help="image files, and folders with images below")
    options.add_train(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="page, picture or numbers to write: .html, .png, .json")
    options.add_overwrite(parser)
    parser.add_argument("--top", type=options.positive, metavar="K", help="training images of each kind (default: 6)")
    parser.add_argument("--class", metavar="NAME", dest="of", help="explain this class instead of the predicted one")
    haste = parser.add_mutually_exclusive_group()
    haste.add_argument(
        "--quick", action="store_true", help="an estimate, by at most three passes over the training images"
    )
    haste.add_argument(
        "--exact",
        action="store_true",
        help="as exact as the model allows, whatever it takes (default: where that takes seconds)",
    )
    parser.add_argument(
        "--without", metavar="ID", action="append", help="also say the prediction without this training sample"
    )


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Predict, and take the prediction apart."""
    began = time.perf_counter()
    out = options.output_path(args.output) if hasattr(args, "output") else None
    from lqf.analysis import Queries
    from lqf.data import load_unlabelled
    from lqf.reports.explanations import SUFFIXES
    from lqf.utils.files import check_file

    if out is not None:
        check_file(out, args.overwrite, SUFFIXES)
    samples = load_unlabelled(args.images)
    model = load_model(args)
    with joined(model.device) as world:
        queries = Queries.of(model.open(samples, strict=True, progress=progress))
        model.analyse(getattr(args, "train", None), progress=progress, world=world)
        explained = model.explain(
            queries,
            top=getattr(args, "top", 6),
            without=getattr(args, "without", ()),
            of=getattr(args, "of", None),
            quick=_quick(args),
            progress=progress,
        )
        if out is not None and world.rank == 0:
            explained.save(out, overwrite=args.overwrite)
    extra = {"run": args.run, "output": out, "seconds": time.perf_counter() - began}
    return {**explained.to_dict(), **extra}


def _quick(args: argparse.Namespace) -> bool | None:
    quick, exact = (getattr(args, name, False) for name in ("quick", "exact"))
    return None if quick == exact else quick


def show(result: dict[str, Any]) -> str:
    """Every image: what it is taken for, and by whose doing."""
    blocks = [_block(e) for e in result["explanations"]]
    note = f" ({result['note']})" if result["level"] == "estimated" and result["note"] else ""
    end = ["", wrapped(f"{counted(result['n'], 'image')}, influence {result['level']}{note}.")]
    if result["output"]:
        end.append(f"Written to {result['output']}")
    return "\n".join(["\n\n".join(blocks), *end])


def _block(e: dict[str, Any]) -> str:
    others = ", ".join(f"{shortened(k, 24)} {percent(p)}" for k, p in list(e["probabilities"].items())[1:3])
    lines = [
        shortened_path(e["id"], columns()),
        f"  {shortened(e['predicted'], 40)} {precise(e['probability'])}" + (f"  ({others})" if others else ""),
    ]
    if len(e["probabilities"]) > 2 or e["explained"] != e["predicted"]:
        pair = f"{shortened(e['explained'], 30)}, not {shortened(e['against'], 30)}"
        lines.append(f"  why {pair}: {precise(e['share'])} of the two")
    if "without" in e:
        w = e["without"]
        lines.append(f"  without {counted(len(w['ids']), 'sample')}: {w['predicted']} {precise(w['probability'])}")
    for side, title in (("towards", "pushed it there"), ("away", "pushed it away")):
        lines.append(f"  {title}:")
        lines += [_push(p) for p in e[side]] or ["    nothing"]
    return "\n".join(lines)


def _push(p: dict[str, Any]) -> str:
    width = columns() - 35
    return f"    {shortened_path(p['name'], width):<{width}}  without it {precise(p['probability']):>9}"
