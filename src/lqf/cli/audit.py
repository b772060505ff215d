"""`lqf audit RUN`: what a model says about its own training data."""

from __future__ import annotations

import argparse
import time
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.cli.next_steps import audit_command, fit_command, typed
from lqf.utils.progress import Progress
from lqf.utils.text import columns, counted, duration, percent, shortened, shortened_path, wrapped

SUMMARY = "wrong labels, near-duplicates, informative samples of the training data"
FEW = 8
"""Rows of a table on the terminal."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN [--train DIR] [-o OUT]."""
    parser.usage = "lqf audit RUN [-o OUT] [options]"
    options.add_run(parser)
    options.add_train(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="folder for whole tables (CSV, JSON), pictures, and manifests to fit again",
    )
    options.add_overwrite(parser)
    parser.add_argument(
        "--similar", type=options.share, metavar="COS", help="least cosine of near-duplicates (default: 0.9)"
    )


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Look at the training data, write the folder if there is one to write."""
    began = time.perf_counter()
    out = options.output_path(args.output) if hasattr(args, "output") else None
    from lqf.data.manifests import without_manifest
    from lqf.data.readers.audit_table import MANIFESTS
    from lqf.reports.audit_folder import check, check_apart, write

    train = getattr(args, "train", None)
    if out is not None:
        check(out, args.overwrite)
    model = load_model(args)
    fitted = model.fitted_
    if out is not None:
        check_apart(out, train, model.fitted_.train.source)
    similar = {"similar": args.similar} if hasattr(args, "similar") else {}
    audit = model.audit(train, progress=progress, **similar)
    bare = without_manifest(audit.samples)
    files = [] if out is None else write(audit, out, overwrite=args.overwrite)
    extra = {
        "run": args.run,
        "train": train,
        "output": out,
        "files": files,
        "next": []
        if out is None or bare
        else [fit_command(out / n, fitted.setup, fitted.settings.class_weight) for n in MANIFESTS],
        "no_manifests": bare,
        "seconds": time.perf_counter() - began,
    }
    return {**audit.to_dict(), **extra}


def show(result: dict[str, Any]) -> str:
    """A screen of it: the strongest of each kind."""
    n, wrong = result["n"], result["contradicted"]
    level = result["levels"]["leave_one_out"]["level"]
    contradicted = f"{counted(wrong, 'label')} of {n:,} ({percent(result['loo_error'])}, {level})"
    lines = [wrapped(f"Leave-one-out contradicts {contradicted}{_strongly(result)}.")]
    lines += _suspects(result["suspects"], wrong)
    lines += _duplicates(result)
    lines += _confusions(result)
    lines += _informative(result)
    lines += ["", *_written(result), duration(result["seconds"]), *_next(result)]
    return "\n".join(lines)


def _strongly(result: dict[str, Any]) -> str:
    """How many of the contradicted labels are suspicious, and what that means."""
    n, wrong = result["suspicious"], result["contradicted"]
    if not wrong:
        return ""
    sure = percent(result["suspicious_from"], 0)
    if not n:
        return f", none of them strongly: without the image, no other class has {sure} or more"
    return f", {n} of them strongly: without the image, another class has {sure} or more"


def _written(result: dict[str, Any]) -> list[str]:
    """What was written, or how to write it."""
    if result["output"]:
        return [wrapped(f"Everything: {result['output']}/ ({', '.join(result['files'])})")]
    command = audit_command(result["run"], result["train"])
    return ["Whole tables, pictures, and manifests to fit again:", typed(command)]


def _next(result: dict[str, Any]) -> list[str]:
    """The fits that come next, where there is something to leave out; or why there are none."""
    if result["no_manifests"]:
        return ["", wrapped(f"There are no manifests to fit again: {result['no_manifests']}.")]
    if not result["contradicted"] or not result["next"]:
        return []
    without, replaced = result["next"]
    if not result["left_out"]:
        look = f"{result['output']}/{'labels.png' if 'labels.png' in result['files'] else 'labels.csv'}"
        by_hand = (
            f"Next: look at {look}; where a label is wrong, correct it in the manifest, column label, and fit that:"
        )
        return ["", wrapped(by_hand), typed(replaced)]
    return [
        f"\nNext, when you have looked at them: without {counted(result['left_out'], 'suspicious label')}",
        typed(without),
        "or with the predictions in their place",
        typed(replaced),
    ]


def _suspects(rows: list[dict[str, Any]], wrong: int) -> list[str]:
    shown = [r for r in rows if r["predicted"] != r["label"]][: min(FEW, wrong)]
    if not shown:
        return []
    room = columns() - len("    ? 100.0%")
    name = min(max(len(r["predicted"]) for r in shown), room // 2)
    path = min(max(len(r["id"]) for r in shown), room - name)
    lines = ["", "Labels that look wrong"]
    for r in shown:
        guess = f"{shortened(r['predicted'], name)}? {percent(r['predicted_probability'])}"
        lines.append(f"  {shortened_path(r['id'], path):<{path}}  {guess}")
    return lines + _more(wrong - len(shown))


def _duplicates(result: dict[str, Any]) -> list[str]:
    n, other = result["duplicate_pairs"], result["duplicates_with_other_label"]
    if n == 0:
        return ["", "No near-duplicates."]
    half = (columns() - 14) // 2
    lines = ["", f"Near-duplicates: {counted(n, 'pair')}, {other or 'none'} with different labels"]
    for r in result["duplicates"][:FEW]:
        what = "same" if r["same_file"] else f"{r['similarity']:.3f}"
        lines.append(f"  {what:<5}  {shortened_path(r['id'], half):<{half}} = {shortened_path(r['other'], half)}")
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
        most, least = (shortened_path(ends[k][0]["id"], half) if ends[k] else "" for k in ("most", "least"))
        lines.append(f"  {shortened(name, name_width):<{name_width}}  {most:<{half}}  {least}".rstrip())
    return lines + _more(len(rows) - min(len(rows), FEW))


def _more(n: int) -> list[str]:
    return [f"  … and {n:,} more"] if n > 0 else []
