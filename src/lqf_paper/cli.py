"""`lqf paper NAME… --data DIR… --out results`: some of the paper's tables and figures, on your own data."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lqf.cli import options
from lqf.errors import LQFError
from lqf.settings import Setup
from lqf.utils.progress import Progress
from lqf.utils.text import columns, counted, duration, facts, shortened

SUMMARY = "repeat an experiment of the paper: baselines, tables, figures"
SCALES = ("short", "paper", "quick")
WIDEST = 28
"""Characters of a column in the terminal."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """NAME… --data DIR… --out DIR."""
    parser.usage = "lqf paper NAME [NAME …] --data DIR [DIR …] --out DIR [options]"
    parser.add_argument(
        "names", metavar="NAME", nargs="+", help="table1, bilinear, ablation, …, or `all`; `list` shows them all"
    )
    parser.add_argument("--data", metavar="DIR", nargs="+", default=[], help="folders with train/ and test/")
    parser.add_argument("--out", metavar="DIR", default="results", help="where JSON, PNG and README.md go")
    options.add_settings(parser, Setup, only=("backbone", "weights", "size"))
    parser.add_argument("--grid", choices=SCALES, default="short", help="how much of the paper's grids is searched")
    parser.add_argument(
        "--quick", action="store_true", default=False, help="the same as --grid quick: minutes, on a CPU"
    )
    parser.add_argument("--epochs", type=options.positive, metavar="N", help="passes of the mini-batch methods")
    parser.add_argument(
        "--seeds", type=options.positive, metavar="N", default=1, help="runs of every search's winner (default: 1)"
    )
    parser.add_argument(
        "--select",
        choices=("test", "validation"),
        default="test",
        help="choose settings by test error as in the paper, or on a part of the training images too",
    )
    parser.add_argument(
        "--methods",
        metavar="METHOD",
        nargs="+",
        default=[],
        help="compute only these methods' cells (nlft, lqf, …), in this order",
    )
    parser.add_argument(
        "--first",
        type=options.positive,
        metavar="N",
        help="compute only the first N settings of every search, the most telling ones",
    )
    parser.add_argument(
        "--time-limit",
        type=options.positive,
        metavar="SECONDS",
        help="begin no cell that may take longer, by the seconds of cells like it",
    )
    parser.add_argument(
        "--left",
        action="store_true",
        default=False,
        help="compute nothing: list the cells that are missing, and what they may take",
    )
    parser.add_argument(
        "--cells-only",
        action="store_true",
        default=False,
        help="compute cells and write no results: without matplotlib, `--finished` writes them elsewhere",
    )
    parser.add_argument(
        "--leaky-weights",
        metavar="FILE",
        help="weights of the network with leaky activations, as `lqf adapt` writes them (default: --weights)",
    )
    parser.add_argument(
        "--finished",
        action="store_true",
        default=False,
        help="compute nothing: write the results of the cells that are there",
    )
    options.add_device(parser)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Compute the cells that are missing, then write the results."""
    import torch

    from lqf.runtime.device import resolve_device
    from lqf_paper.command import Order, carry_out
    from lqf_paper.experiments import EXPERIMENTS
    from lqf_paper.methods.catalogue import METHODS

    if args.names == ["list"]:
        return {"experiments": {name: e.TITLE for name, e in EXPERIMENTS.items()}}
    names = dict.fromkeys(EXPERIMENTS if args.names == ["all"] else args.names)
    for name in names:
        if name not in EXPERIMENTS:
            raise LQFError(f"there is no experiment `{name}`; there are {', '.join(EXPERIMENTS)}, or `all`")
    if not args.data:
        raise LQFError("name the data: --data DIR [DIR …], folders with train/ and test/")
    unknown = [m for m in args.methods if m not in METHODS]
    if unknown:
        raise LQFError(f"there is no method `{unknown[0]}`; there are {', '.join(METHODS)}")
    taken = ("backbone", "weights", "size", "epochs", "seeds", "select", "leaky_weights", "time_limit", "left", "first")
    given = {k: v for k, v in vars(args).items() if k in taken}
    order = Order(
        names=tuple(names),
        data=tuple(args.data),
        out=options.output_path(args.out),
        scale="quick" if args.quick else args.grid,
        device=torch.device("cpu") if args.finished or args.left else resolve_device(getattr(args, "device", "auto")),
        finished=args.finished,
        methods=tuple(args.methods),
        cells_only=args.cells_only,
        command=shlex.join(["lqf", *args.words]),
        **given,
    )
    return carry_out(order, progress)


def show(result: dict[str, Any]) -> str:
    """The tables, and where the rest is."""
    if "experiments" in result:
        return "\n".join(facts(list(result["experiments"].items())))
    if "cells" in result:
        there = f"{counted(result['cells'], 'cell')} there; --finished writes the results"
        return "\n".join([*_not_begun(result.get("left", [])), there])
    blocks = ["\n".join(_block(r, named=len(result["results"]) > 1)) for r in result["results"]]
    if result["elsewhere"]:
        n = counted(result["elsewhere"], "cell")
        verb = "is" if result["elsewhere"] == 1 else "are"
        blocks.append(f"{n} {verb} still being computed by other processes; the last of them writes the results")
    blocks += ["\n".join(lines)] if (lines := _not_begun(result.get("left", []))) else []
    return "\n\n".join(blocks)


def _not_begun(left: Sequence[dict[str, Any]]) -> list[str]:
    """The cells that are missing, with the seconds that they may take, and how many they are."""
    if not left:
        return []
    seconds = [cell["seconds"] for cell in left]
    rows = [f"{'?' if s is None else f'{s:.0f} s':>7}  {cell['cell']}" for s, cell in zip(seconds, left, strict=True)]
    known = [s for s in seconds if s is not None]
    more = f", {duration(sum(known))} for {len(known)} of them" if known else ""
    return [*rows, f"{counted(len(left), 'cell')} left{more}"]


def _block(result: dict[str, Any], *, named: bool) -> list[str]:
    missing = "" if result["cells"] == result["of"] else f" of {result['of']:,}"
    lines = facts(
        [
            ("cells", f"{result['cells']:,}{missing}, {duration(result['seconds'])} of work in all"),
            ("written to", ", ".join(str(Path(p)) for p in result["files"])),
        ]
    )
    head = [result["experiment"], ""] if named else []
    table = result["table"]
    return [*head, *_aligned([table["columns"], *table["rows"]], table["keys"]), "", *lines]


def _aligned(rows: Sequence[Sequence[str]], keys: int) -> list[str]:
    """Columns side by side; what is wider than the terminal goes on below, behind the first ``keys`` columns again."""
    widths = [min(WIDEST, max(len(r[k]) for r in rows)) for k in range(len(rows[0]))]
    blocks: list[list[int]] = [[]]
    for k in range(keys, len(widths)):
        shown = [*range(keys), *blocks[-1], k]
        if blocks[-1] and sum(widths[j] for j in shown) + 2 * (len(shown) - 1) > columns():
            blocks.append([])
        blocks[-1].append(k)
    return "\n\n".join("\n".join(_lines(rows, [*range(keys), *b], widths)) for b in blocks).splitlines()


def _lines(rows: Sequence[Sequence[str]], shown: Sequence[int], widths: Sequence[int]) -> list[str]:
    return ["  ".join(shortened(r[k], widths[k]).ljust(widths[k]) for k in shown).rstrip() for r in rows]
