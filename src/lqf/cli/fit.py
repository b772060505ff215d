"""`lqf fit TRAIN -o RUN`: fine-tune a backbone on a folder of images."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lqf.cli import options
from lqf.cli.fit_summary import details, show
from lqf.errors import LQFError, ProcessLost
from lqf.runtime.distributed import joined, launched
from lqf.settings import EFFORT, IMAGES, PROBLEM, SOLVING, Settings, Setup
from lqf.utils.no_images import no_images
from lqf.utils.progress import Progress

if TYPE_CHECKING:
    from lqf.fitting import Model

__all__ = ["SUMMARY", "add_options", "details", "run", "show"]

SUMMARY = "fine-tune a backbone on a folder of images"
ENDING = 0.5
"""Seconds that a process takes to end, which a time limit counts where the command is the process."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options have the name and the default of the argument of `LQFClassifier` they set."""
    parser.usage = "lqf fit TRAIN -o RUN [options]"
    parser.add_argument(
        "train", metavar="TRAIN", help="a folder CLASS/*.jpg, or a .csv with path,label[,weight][,group]"
    )
    parser.add_argument("-o", "--output", metavar="RUN", required=True, help="the folder to write the model to")
    options.add_overwrite(parser)
    parser.add_argument(
        "--resume",
        action="store_true",
        default=False,
        help="go on from the model in RUN, or from RUN.checkpoint of a fit that was interrupted",
    )
    for name in (EFFORT, IMAGES, PROBLEM, SOLVING):
        if name == SOLVING:
            _add_privacy(parser.add_argument_group("privacy"))
        group = parser.add_argument_group(name)
        options.add_settings(group, Setup, Settings, group=name)
        if name == SOLVING:
            options.add_memory(group)


def _add_privacy(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--epsilon",
        type=float,
        metavar="E",
        help="fit a model that is differentially private in every image, with noise, and nothing else of the images: "
        "1 is strong, 8 is weak; a head, or with --solver dense the whole model",
    )
    group.add_argument("--delta", type=float, metavar="D", help="with --epsilon: far below 1 over the number of images")


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Fit, save, report."""
    began, private = time.monotonic(), hasattr(args, "epsilon") or hasattr(args, "delta")
    if private and args.resume:
        raise LQFError("a private fit goes on from no other, and keeps no checkpoint; leave out --resume")
    out, checkpoint = _targets(args)
    from lqf.estimator import LQFClassifier  # now: a wrong path is reported without waiting for torch
    from lqf.runtime.deadline import process_began
    from lqf.storage import check_target, kept_bytes, save
    from lqf.utils.rooms import recover

    model = LQFClassifier(**{k: v for k, v in vars(args).items() if k in LQFClassifier().get_params()})
    earlier = _earlier(args, out, progress)
    check_target(out, args.overwrite or earlier is not None)
    before = _stamp(checkpoint)
    if not private:
        _mention(checkpoint, args.resume, earlier is not None, progress)
    kept: list[str] = []

    def keep(better: Model) -> None:
        save(better, out, overwrite=True)
        kept[:] = [r["name"] for r in better.report.rungs if r["kept"]][-1:]

    try:
        with joined(model.device) as world:
            model.fit(
                args.train,
                checkpoint=None if private else checkpoint,
                resume=args.resume,
                keep=keep if world.rank == 0 else None,
                earlier=earlier,
                began=process_began() - ENDING if args.own_process else None,
                progress=progress,
                world=world,
            )
            if world.rank == 0:
                if not kept and not (earlier is not None and model.fitted_ is earlier):
                    save(model.fitted_, out, overwrite=args.overwrite)
                if not _time_was_up(model.report_):
                    checkpoint.unlink(missing_ok=True)
                    recover(checkpoint)  # what a kill has left of writing it
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(args, out, kept, checkpoint, before)) from None
    except ProcessLost as lost:
        raise ProcessLost(_interrupted(args, out, kept, checkpoint, before, str(lost)), lost.aloud) from lost
    command = shlex.join(["lqf", *_resumable(args)])
    result = {**model.report_, "run": out, "kept_bytes": kept_bytes(model.fitted_), "command": command}
    result["loo"] = model.fitted_.settings.loo
    return result | {"seconds": time.monotonic() - began} if private else result


def _earlier(args: argparse.Namespace, out: Path, progress: Progress) -> Model | None:
    """The model in RUN, to go on from; None where there is none, or where it saw a part of the images alone."""
    if not args.resume or not out.exists():
        return None
    from lqf.storage import load

    model = load(out, weights=getattr(args, "weights", None))
    if model.report.images_given is None:
        return model
    progress.say(f"`{out}` was fitted on a part of the images, for want of time; beginning again")
    args.overwrite = True
    return None


def _time_was_up(report: dict[str, Any]) -> bool:
    return any(rung["why"] == "the time was up" for rung in report["rungs"])


def _targets(args: argparse.Namespace) -> tuple[Path, Path]:
    """The folder to write, and the checkpoint beside it."""
    out = options.output_path(args.output)
    train = Path(args.train).expanduser()
    if not train.exists():
        raise no_images(train)
    if train.is_dir() and train.resolve() in out.resolve().parents:
        raise LQFError(
            f"`{out}` lies inside the training folder and would be a class there; choose another place for it"
        )
    return out, out.with_name(f"{out.name}.checkpoint")


def _stamp(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


def _mention(checkpoint: Path, resume: bool, earlier: bool, progress: Progress) -> None:
    if resume and not checkpoint.exists() and not earlier:
        progress.say(f"there is no model to go on from, and no checkpoint `{checkpoint}`; starting from the beginning")
    elif checkpoint.exists() and not resume:
        progress.say(f"`{checkpoint}` of an interrupted fit is being replaced; --resume would have continued it")


def _resumable(args: argparse.Namespace) -> list[str]:
    """The words of the command, without those that only matter once."""
    return [w for w in args.words if w not in ("--resume", "--overwrite", "--json")]


def _interrupted(
    args: argparse.Namespace, out: Path, kept: list[str], checkpoint: Path, before: int, why: str = "interrupted"
) -> str:
    words = _resumable(args) if kept else [w for w in args.words if w != "--resume"]
    lqf = "lqf" if launched()[1] == 1 else "torchrun … -m lqf"
    command = f"{lqf} {shlex.join([*words, '--resume'])}"
    if kept:
        return f"{why}; `{out}` holds the best model so far ({kept[0]}). To go on from there:\n  {command}"
    if not checkpoint.exists():
        return f"{why} before the first checkpoint; to start again:\n  {lqf} {shlex.join(words)}"
    if not args.resume and _stamp(checkpoint) == before:
        return f"{why} before the first checkpoint; `{checkpoint}` still is that of the fit before this one"
    return f"{why}; what was solved so far is kept in `{checkpoint}`. To continue:\n  {command}"
