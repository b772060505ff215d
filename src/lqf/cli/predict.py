"""`lqf predict RUN IMAGE|FOLDER|MANIFEST… [-o FILE]`: labels of new images."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lqf.cli import options
from lqf.cli.models import load_model
from lqf.errors import Incomplete, LQFError
from lqf.settings import Setup
from lqf.utils.progress import Progress
from lqf.utils.text import counted, duration, number, one_line, percent, wrapped

if TYPE_CHECKING:
    from lqf import LQFClassifier
    from lqf.data import Images
    from lqf.reports.predictions import Prediction, Sure

SUMMARY = "labels and probabilities of new images, on the screen or in a file"
UNSURE = ("sets", "std", "novelty")
"""Options that ask how sure the predictions are."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """RUN IMAGE…."""
    parser.usage = "lqf predict RUN IMAGE… [-o FILE] [options]"
    options.add_run(parser)
    images = "image files, folders with images below, .csv manifests with a column path"
    parser.add_argument("images", metavar="IMAGE", nargs="+", help=images)
    options.add_rows(parser, "every image with its prediction")
    parser.add_argument("--top", type=options.positive, metavar="K", help="so many classes of each image (default: 1)")
    below = "`unsure` instead of a label that is less probable, e.g. 0.8"
    parser.add_argument("--threshold", type=options.share, metavar="P", help=below)
    options.add_settings(parser, Setup, only=("strict",))
    parser.add_argument("--jobs", type=options.positive, metavar="N", help="threads that decode; default: all cores")
    go_on = "go on from FILE.partial of a run that was interrupted"
    parser.add_argument("--resume", action="store_true", default=False, help=f"with -o: {go_on}")
    add_unsure(parser.add_argument_group("how sure"))


def add_unsure(group: argparse._ActionsContainer) -> None:
    """Sets, standard deviations, unusual images."""
    sets = "with every image the classes of which one is right with probability C, e.g. 0.9"
    group.add_argument("--sets", type=float, metavar="C", help=sets)
    group.add_argument("--by-class", action="store_true", help="of --sets: right that often within every class")
    ways = "auto, jackknife+, minmax (more careful) or jackknife (without the training images)"
    choices = ("auto", "jackknife+", "minmax", "jackknife")
    group.add_argument("--way", choices=choices, metavar="WAY", help=f"of --sets: {ways}; default: auto")
    group.add_argument("--std", action="store_true", help="the standard deviation of the output behind the label")
    group.add_argument("--novelty", action="store_true", help="a p-value: small where no training image is like it")
    options.add_train(group)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Predict every image; one that cannot be read is a row with a note, unless none can."""
    began, out = time.perf_counter(), options.rows_path(args)
    whole = next((f"--{name}" for name in (*UNSURE, "json") if getattr(args, name, False)), None)
    check_resume(args, out, whole)
    if out is not None and whole is None:
        result = _to_file(args, out, progress)
    else:
        result = _held(args, out, progress)
    result |= {"run": args.run, "output": out, "seconds": time.perf_counter() - began}
    if result["skipped"]:
        n = len(result["skipped"])
        raise Incomplete(_left_out(n, result["n"] + n), result)
    return result


def check_resume(args: argparse.Namespace, out: Path | None, whole: str | None) -> None:
    """Refuse to continue what is not written row by row."""
    if args.resume and out is None:
        raise LQFError("--resume continues a file; name it with -o, e.g. -o predictions.csv")
    if args.resume and whole is not None:
        raise LQFError(f"--resume continues a file of labels, and {whole} needs all images at once; leave one out")


def _to_file(args: argparse.Namespace, out: Path, progress: Progress) -> dict[str, Any]:
    """Rows are written as they come."""
    check_unsure(args)
    threshold = getattr(args, "threshold", None)
    done = load_model(args).predict_to_file(
        args.images,
        out,
        top=getattr(args, "top", 1),
        threshold=threshold,
        jobs=getattr(args, "jobs", None),
        resume=args.resume,
        overwrite=args.overwrite,
        strict=getattr(args, "strict", False),
        progress=progress,
    )
    return {"n": done.n, "unsure": done.unsure, "threshold": threshold, "sets": None, "skipped": done.skipped}


def _held(args: argparse.Namespace, out: Path | None, progress: Progress) -> dict[str, Any]:
    """All images at once: for the screen, for JSON, and where it is asked how sure the predictions are."""
    from lqf.data.named import name_images
    from lqf.reports import predictions, row_files

    top, threshold = getattr(args, "top", 1), getattr(args, "threshold", None)
    samples, given = name_images(args.images)
    model = load_model(args)
    classes = model.fitted_.classes
    predictions.check_threshold(classes, threshold)
    check_unsure(args)
    strict, jobs = getattr(args, "strict", False), getattr(args, "jobs", None)
    images = model.open(samples, strict=strict, jobs=jobs, progress=progress)
    predicted, *numbers = model.scores(images, progress=progress)
    about, sure = unsure(args, model, images, predicted, progress)
    rows = predictions.predictions(
        samples, images.skipped, classes, predicted, numbers[1], top=top, threshold=threshold, given=given, sure=sure
    )
    if out is not None:
        row_files.write(out, predictions.table(rows, nested=row_files.is_nested(out)), overwrite=args.overwrite)
    return {
        "predictions": _entries(images.samples.ids, rows, classes, *numbers),
        "n": len(images),
        "unsure": sum(row.unsure is True for row in rows),
        "threshold": threshold,
        "classes": list(classes),
        **about,
        "skipped": images.skipped,
    }


def check_unsure(args: argparse.Namespace) -> None:
    """Refuse, before anything is predicted, what no set can be made of."""
    from lqf.uncertainty import Asked

    if hasattr(args, "sets"):
        Asked(args.sets, getattr(args, "way", "auto"))
    elif hasattr(args, "way") or hasattr(args, "by_class"):
        option = "--way" if hasattr(args, "way") else "--by-class"
        raise LQFError(f"{option} says how sets are made; ask for them with --sets, e.g. --sets 0.9")


def unsure(
    args: argparse.Namespace, model: LQFClassifier, images: Images, predicted: Any, progress: Progress
) -> tuple[dict[str, Any], list[Sure] | None]:
    """What holds for all predictions, and how sure each of them is, as far as it was asked for."""
    about: dict[str, Any] = dict.fromkeys(UNSURE)
    wanted = [name for name in about if hasattr(args, name)]
    if not wanted:
        return about, None
    from lqf.analysis import Queries
    from lqf.reports.predictions import Sure

    if hasattr(args, "train"):
        model.analyse(args.train, progress=progress)
    queries, found = Queries.of(images), [Sure() for _ in range(len(images))]
    if "sets" in wanted:
        by_class, way = getattr(args, "by_class", False), getattr(args, "way", "auto")
        sets = model.predict_set(queries, args.sets, way=way, by_class=by_class, progress=progress)
        about["sets"] = sets.to_dict()
        found = [replace(s, classes=tuple(map(str, own))) for s, own in zip(found, sets.sets, strict=True)]
    if "std" in wanted:
        std = model.predict_std(queries, progress=progress)
        about["std"], last = std.to_dict(), std.value.shape[1] - 1
        own = std.value[range(len(found)), predicted.clip(max=last)].tolist()
        found = [replace(s, std=x) for s, x in zip(found, own, strict=True)]
    if "novelty" in wanted:
        novelty = model.novelty(queries, progress=progress)
        about["novelty"] = novelty.to_dict()
        found = [replace(s, novelty=x) for s, x in zip(found, novelty.value.tolist(), strict=True)]
    return about, found


def _entries(
    ids: Sequence[str], rows: Sequence[Prediction], classes: Sequence[str], scores: Any, probabilities: Any
) -> list[dict[str, Any]]:
    """The predicted images, with the scores and probabilities (M, n_classes) of all classes."""
    read = [row for row in rows if row.ranked]
    return [
        {
            "id": name,
            "path": row.path,
            "given": row.given,
            "label": row.label,
            "probability": row.probability,
            "top": row.top,
            "scores": dict(zip(classes, s.tolist(), strict=True)),
            "probabilities": dict(zip(classes, p.tolist(), strict=True)),
            **({} if row.sure is None else row.sure.columns(nested=True)),
        }
        for name, row, s, p in zip(ids, read, scores, probabilities, strict=True)
    ]


def _left_out(skipped: int, n: int) -> str:
    rest = "the other one is" if n - skipped == 1 else f"the other {n - skipped:,} are"
    return f"{skipped:,} of {counted(n, 'image')} could not be read; {rest} predicted"


def show(result: dict[str, Any]) -> str:
    """One line per image: id, label, probability, further classes, how sure; or what was written."""
    if result["output"] is not None:
        return _written(result)
    entries = result["predictions"]
    ids = [one_line(e["id"]) for e in entries]
    wide = max(map(len, ids), default=0)
    name = max((len(one_line(c)) for c in (*result["classes"], *(e["label"] for e in entries))), default=0)
    lines = [
        f"{id:<{wide}}  {one_line(e['label']):<{name}}  {percent(e['probability']):>6}  {_further(e)}".rstrip()
        + _sure(e)
        for id, e in zip(ids, entries, strict=True)
    ]
    return "\n".join([*lines, *_about_sets(result)])


def _sure(entry: dict[str, Any]) -> str:
    """What was asked for beside the label."""
    parts = []
    if "set" in entry:
        parts.append("{" + ", ".join(map(one_line, entry["set"])) + "}")
    if "std" in entry:
        parts.append(f"± {number(entry['std'])}")
    if "novelty" in entry:
        parts.append(f"p {number(entry['novelty'])}")
    return "".join(f"  {part}" for part in parts)


def _about_sets(result: dict[str, Any]) -> list[str]:
    """How many classes a set has, and what stands behind them."""
    sets = result["sets"]
    if sets is None:
        return []
    empty = f", {sets['empty']:,} of them empty" if sets["empty"] else ""
    mean = f"Sets at coverage {sets['coverage']:g}: {sets['mean_size']:.2f} classes on average{empty};"
    return ["", wrapped(f"{mean} {sets['promise']}.")]


def _further(entry: dict[str, Any]) -> str:
    """The other classes that were asked for, and the one that an unsure prediction might be."""
    best, *others = entry["top"]
    guess = [] if entry["label"] == best["label"] else [f"{one_line(best['label'])}?"]
    return "  ".join([*guess, *(f"{one_line(c['label'])} {percent(c['probability'])}" for c in others)])


def _written(result: dict[str, Any]) -> str:
    unsure = f", {result['unsure']:,} of them unsure" if result["threshold"] is not None else ""
    skipped = f"; {len(result['skipped']):,} could not be read" if result["skipped"] else ""
    lines = [f"{counted(result['n'], 'image')} predicted{unsure}{skipped}; {duration(result['seconds'])}."]
    return "\n".join([*lines, *_about_sets(result)[1:], f"Written to {result['output']}"])
