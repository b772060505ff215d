"""`lqf summarize RUN --keep 0.5`: the samples worth keeping."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.cli.next_steps import audit_command, fit_command, typed
from lqf.utils.progress import Progress
from lqf.utils.text import columns, counted, duration, facts, shortened, shortened_path, wrapped

SUMMARY = "the most informative part of the training data, as a manifest for `lqf fit`"


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN --keep SHARE [-o FILE]."""
    parser.usage = "lqf summarize RUN --keep SHARE [-o FILE.csv] [options]"
    options.add_run(parser)
    options.add_train(parser)
    parser.add_argument("--keep", type=options.share, metavar="SHARE", required=True, help="share to keep, e.g. 0.5")
    parser.add_argument(
        "--validation", metavar="DIR", help="images whose predictions should change least (default: the training ones)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the .csv manifest to write")
    options.add_overwrite(parser)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Rank by functional information, keep the first."""
    began = time.perf_counter()
    out = options.output_path(args.output) if hasattr(args, "output") else None
    from lqf.fitting.class_weights import own_weights
    from lqf.reports.summary import manifest, summarize
    from lqf.utils.files import check_file, write_file

    if out is not None:
        check_file(out, args.overwrite, (".csv",))
    model = load_model(args)
    fitted = model.fitted_
    train = getattr(args, "train", None)
    analysis = model.analyse(train, progress=progress)
    summary = summarize(analysis, args.keep, getattr(args, "validation", None))
    if out is not None:
        samples = replace(analysis.images.samples, weights=own_weights(analysis.model))
        write_file(out, manifest(summary, samples))
    extra = {
        "run": args.run,
        "train": train,
        "output": out,
        "next": None if out is None else fit_command(out, fitted.setup, fitted.settings.class_weight),
        "seconds": time.perf_counter() - began,
    }
    return {**summary.to_dict(), **extra}


def show(result: dict[str, Any]) -> str:
    """How much is kept of what, and what comes next."""
    per_class = result["per_class"]
    thin = min(per_class, key=lambda name: per_class[name]["kept"])
    lines = [f"Kept {result['kept']:,} of {counted(result['n'], 'image')}.\n"]
    lines += facts(
        [
            ("information kept", f"{result['information_share']:.1%} of the sum ({result['level']})"),
            ("least of a class", f"{per_class[thin]['kept']} of {per_class[thin]['n']} ({shortened(thin, 40)})"),
            ("written to", str(result["output"] or "")),
            ("time", duration(result["seconds"])),
        ]
    )
    if result["output"] is None:
        lines += ["", *(shortened_path(name, columns()) for name in result["ids"][:10])]
        if result["kept"] > 10:
            lines.append(f"… and {result['kept'] - 10:,} more (-o FILE.csv writes all)")
    lines += _look_first(result)
    if result["next"]:
        lines.append(f"\nNext:\n{typed(result['next'])}")
    return "\n".join(lines)


def _look_first(result: dict[str, Any]) -> list[str]:
    """What to do before, where labels look wrong: such images are informative."""
    n, wrong = result["suspicious"], result["contradicted"]
    kept = result["suspicious_kept"] if n else result["contradicted_kept"]
    if not n and not kept:
        return []
    contradicted = f"Leave-one-out contradicts {counted(wrong, 'label')}, {f'{n:,}' if n else 'none'} of them strongly"
    words = (
        f"{contradicted}. Wrong labels look informative ({kept:,} of the {n or wrong:,} were kept): look at them first."
    )
    return ["", wrapped(words), typed(audit_command(result["run"], result["train"]))]
