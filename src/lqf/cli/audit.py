"""`lqf audit RUN`: what a model says about its own training data."""

from __future__ import annotations

import argparse
import time
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.utils.progress import Progress
from lqf.utils.text import columns, counted, duration, percent, shortened, wrapped

SUMMARY = "wrong labels, near-duplicates, informative samples of the training data"
FEW = 8
"""Rows of a table on the terminal."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN [--train DIR] [-o OUT]."""
    parser.usage = "lqf audit RUN [-o OUT] [options]"
    options.add_run(parser)
    options.add_train(parser)
    parser.add_argument("-o", "--output", metavar="OUT", help="folder for the whole tables (CSV, JSON) and pictures")
    options.add_overwrite(parser)
    parser.add_argument(
        "--similar", type=options.share, metavar="COS", help="least cosine of near-duplicates (default: 0.9)"
    )


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Look at the training data, write the folder if there is one to write."""
    began = time.perf_counter()
    out = options.output_path(args.output) if hasattr(args, "output") else None
    from lqf.reports.audit_folder import check, write

    if out is not None:
        check(out, args.overwrite)
    model = load_model(args)
    similar = {"similar": args.similar} if hasattr(args, "similar") else {}
    audit = model.audit(getattr(args, "train", None), progress=progress, **similar)
    files = [] if out is None else write(audit, out, overwrite=args.overwrite)
    extra = {"run": args.run, "output": out, "files": files, "seconds": time.perf_counter() - began}
    return {**audit.to_dict(), **extra}


def show(result: dict[str, Any]) -> str:
    """A screen of it: the strongest of each kind."""
    n, wrong = result["n"], result["contradicted"]
    level = result["levels"]["leave_one_out"]["level"]
    lines = [
        wrapped(
            f"Leave-one-out contradicts {counted(wrong, 'label')} of {n:,} ({percent(result['loo_error'])}, {level})."
        )
    ]
    lines += _suspects(result["suspects"], wrong)
    lines += _duplicates(result)
    lines += _confusions(result)
    lines += _informative(result)
    where = f"Everything: {result['output']}/ ({', '.join(result['files'])})" if result["output"] else ""
    lines += ["", wrapped(where or "Whole tables and pictures:  lqf audit RUN -o OUT"), duration(result["seconds"])]
    return "\n".join(lines)


def _suspects(rows: list[dict[str, Any]], wrong: int) -> list[str]:
    shown = rows[: min(FEW, wrong)]
    if not shown:
        return []
    half = (columns() - 26) // 2
    lines = ["", "Labels that look wrong"]
    for r in shown:
        guess = f"{shortened(r['predicted'], columns() - half - 14)}? {percent(r['predicted_probability'])}"
        lines.append(f"  {shortened(r['id'], half):<{half}}  {guess}")
    return lines + _more(wrong - len(shown))


def _duplicates(result: dict[str, Any]) -> list[str]:
    n, other = result["duplicate_pairs"], result["duplicates_with_other_label"]
    if n == 0:
        return ["", "No near-duplicates."]
    half = (columns() - 14) // 2
    lines = ["", f"Near-duplicates: {counted(n, 'pair')}, {other or 'none'} with different labels"]
    for r in result["duplicates"][:FEW]:
        what = "same" if r["same_file"] else f"{r['similarity']:.3f}"
        lines.append(f"  {what:<5}  {shortened(r['id'], half):<{half}} = {shortened(r['other'], half)}")
    return lines + _more(n - min(n, FEW))


def _confusions(result: dict[str, Any]) -> list[str]:
    rows = result["confusions"][:FEW]
    if not rows:
        return []
    half = (columns() - 18) // 2
    lines = ["", "Classes that get confused (label, taken for)"]
    for r in rows:
        pair = f"{shortened(r['label'], half):<{half}}  {shortened(r['predicted'], half):<{half}}"
        lines.append(f"  {pair}  {r['n']:>4} {percent(r['share']):>6}")
    return lines + _more(result["confused_pairs"] - len(rows))


def _informative(result: dict[str, Any]) -> list[str]:
    rows = list(result["informative"].items())
    wide = max((len(name) for name, _ in rows[:FEW]), default=0)
    name_width = min(max(wide, 5), columns() // 4)
    half = (columns() - name_width - 6) // 2
    lines = ["", f"  {'class':<{name_width}}  {'most informative':<{half}}  least informative"]
    for name, ends in rows[:FEW]:
        most, least = (shortened(ends[k][0]["id"], half) if ends[k] else "" for k in ("most", "least"))
        lines.append(f"  {shortened(name, name_width):<{name_width}}  {most:<{half}}  {least}".rstrip())
    return lines + _more(len(rows) - min(len(rows), FEW))


def _more(n: int) -> list[str]:
    return [f"  … and {n:,} more"] if n > 0 else []
