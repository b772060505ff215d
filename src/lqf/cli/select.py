"""`lqf select DATA --backbones A B C`: which network to fit, before anything is trained."""

from __future__ import annotations

import argparse
import shlex
import time
from dataclasses import fields
from typing import Any

from lqf.cli import options
from lqf.cli.next_steps import setup_options, typed
from lqf.errors import Incomplete
from lqf.settings import Settings, Setup
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, percent, shortened, wrapped

SUMMARY = "backbones ranked on your images by leave-one-out, before anything is trained"
SETUP = ("leaky", "size", "squash", "strict", "limit_per_class")
SETTINGS = ("batch_size", "seed")
NAME = 20
"""Columns of a backbone's name, at most."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """DATA [--backbones NAME…]."""
    parser.usage = "lqf select DATA [--backbones NAME[=FILE]…] [options]"
    parser.add_argument("data", metavar="DATA", help="labelled images, as `lqf fit` takes them")
    parser.add_argument(
        "--backbones",
        nargs="+",
        metavar="NAME",
        help="names that `lqf backbones` lists, timm:NAME, torchvision:NAME; NAME=FILE with a weights file (default: "
        "the built-in ones whose weights are installed)",
    )
    options.add_settings(parser, Setup, only=SETUP)
    parser.add_argument(
        "--pooling",
        choices=["auto", "avg", "bilinear", "both"],
        help="as `lqf fit --pooling`; auto: what is best for every backbone, by leave-one-out (default: each one's own "
        "features, which is quicker)",
    )
    options.add_device(parser)
    options.add_settings(parser, Settings, only=SETTINGS)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Try every one; some that cannot be loaded do not keep the others from it."""
    began = time.perf_counter()
    from lqf.selection import select

    known = {f.name for kind in (Setup, Settings) for f in fields(kind)}
    given = {name: value for name, value in vars(args).items() if name in known}
    found = select(args.data, backbones=getattr(args, "backbones", None), progress=progress, **given)
    best = found.best
    own = {f.name: given[f.name] for f in fields(Setup) if f.name in given}
    words = setup_options(Setup(**own, backbone=best.name, weights=best.weights))
    result = {
        **found.to_dict(),
        "next": shlex.join(["lqf", "fit", args.data, "-o", "RUN", *words]),
        "seconds": time.perf_counter() - began,
    }
    if found.failed:
        tried = len(found.candidates) + len(found.failed)
        raise Incomplete(f"{len(found.failed)} of {counted(tried, 'backbone')} could not be tried", result)
    return result


def show(result: dict[str, Any]) -> str:
    """A table, the best first; what could not be tried and why."""
    rows = result["backbones"]
    name = max(len("backbone"), *(min(len(r["name"]), NAME) for r in rows))
    head = f"  {'backbone':<{name}}  {'loss':>12}  {'error':>5}{'':6}  {'LogME':>6}  {'time':>7}"
    lines = [f"{counted(result['n'], 'image')} of {result['classes']} classes, left out one by one (exact):", ""]
    lines += [f"{head}  {'weights':>7}  px", *(_row(r, name) for r in rows), "", wrapped(_verdict(result))]
    for failed in result["failed"]:
        lines.append(wrapped(f"`{failed['name']}` could not be tried: {failed['reason']}"))
    return "\n".join([*lines, f"\nNext ({duration(result['seconds'])} so far):", typed(result["next"])])


def _row(r: dict[str, Any], name: int) -> str:
    loss = f"{r['loss']:.3f} ±{r['loss_standard_error']:.3f}"
    error = f"{percent(r['error']):>5} {'±' + format(100 * r['error_standard_error'], '.1f'):<5}"
    weights = f"{r['parameters'] / 1e6:.1f} M"
    shown = shortened(r["name"], name)
    return (
        f"  {shown:<{name}}  {loss:>12}  {error}  {r['log_me']:>6.3f}  {duration(r['seconds']):>7}"
        f"  {weights:>7}  {r['size']}"
    )


def _verdict(result: dict[str, Any]) -> str:
    best, lead = result["best"], result["lead"]
    if lead is None:
        return f"`{best}` is the only one that was tried."
    other = result["backbones"][1]["name"]
    difference = f"{lead['mean']:.3f} ± {lead['standard_error']:.3f}"
    doubt = "" if lead["mean"] > 2 * lead["standard_error"] else "; that may be chance"
    return f"`{best}` is best. Its cross-entropy is {difference} below that of `{other}`, image by image{doubt}."
