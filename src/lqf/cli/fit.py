"""`lqf fit TRAIN -o RUN`: fine-tune a backbone on a folder of images."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from lqf.cli import options
from lqf.errors import LQFError, ProcessLost
from lqf.runtime.distributed import joined, launched
from lqf.settings import IMAGES, PROBLEM, SOLVING, Settings, Setup
from lqf.utils.progress import Progress
from lqf.utils.text import WIDTH, counted, duration, facts, number, percent

SUMMARY = "fine-tune a backbone on a folder of images"


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options have the name and the default of the argument of `LQFClassifier` they set."""
    parser.usage = "lqf fit TRAIN -o RUN [options]"
    parser.add_argument(
        "train", metavar="TRAIN", help="a folder CLASS/*.jpg, or a .csv with path,label[,weight][,group]"
    )
    parser.add_argument("-o", "--output", metavar="RUN", required=True, help="the folder to write the model to")
    options.add_overwrite(parser)
    parser.add_argument(
        "--resume", action="store_true", default=False, help="continue a fit that was interrupted, from RUN.checkpoint"
    )
    for name in (IMAGES, PROBLEM, SOLVING):
        group = parser.add_argument_group(name)
        options.add_settings(group, Setup, Settings, group=name)
        if name == SOLVING:
            options.add_memory(group)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Fit, save, report."""
    out, checkpoint = _targets(args)
    from lqf.estimator import LQFClassifier  # now: a wrong path is reported without waiting for torch
    from lqf.storage import check_target

    check_target(out, args.overwrite)
    model = LQFClassifier(**{k: v for k, v in vars(args).items() if k in LQFClassifier().get_params()})
    before = _stamp(checkpoint)
    _mention(checkpoint, args.resume, progress)
    try:
        with joined(model.device) as world:
            model.fit(args.train, checkpoint=checkpoint, resume=args.resume, progress=progress, world=world)
            if world.rank == 0:
                model.save(out, overwrite=args.overwrite)
                checkpoint.unlink(missing_ok=True)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(args, checkpoint, before)) from None
    except ProcessLost as lost:
        raise ProcessLost(_interrupted(args, checkpoint, before, str(lost)), lost.aloud) from lost
    return {**model.report_, "run": out}


def _targets(args: argparse.Namespace) -> tuple[Path, Path]:
    """The folder to write, and the checkpoint beside it."""
    out = options.output_path(args.output)
    train = Path(args.train).expanduser()
    if train.is_dir() and train.resolve() in out.resolve().parents:
        raise LQFError(
            f"`{out}` lies inside the training folder and would be a class there; choose another place for it"
        )
    return out, out.with_name(f"{out.name}.checkpoint")


def _stamp(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


def _mention(checkpoint: Path, resume: bool, progress: Progress) -> None:
    if resume and not checkpoint.exists():
        progress.say(f"there is no checkpoint `{checkpoint}`; starting from the beginning")
    elif checkpoint.exists() and not resume:
        progress.say(f"`{checkpoint}` of an interrupted fit is being replaced; --resume would have continued it")


def _interrupted(args: argparse.Namespace, checkpoint: Path, before: int, why: str = "interrupted") -> str:
    words = [w for w in args.words if w != "--resume"]
    lqf = "lqf" if launched()[1] == 1 else "torchrun … -m lqf"
    if not checkpoint.exists():
        return f"{why} before the first checkpoint; to start again:\n  {lqf} {shlex.join(words)}"
    if not args.resume and _stamp(checkpoint) == before:
        return f"{why} before the first checkpoint; `{checkpoint}` still is that of the fit before this one"
    command = shlex.join([*words, "--resume"])
    return f"{why}; what was solved so far is kept in `{checkpoint}`. To continue:\n  {lqf} {command}"


def show(result: dict[str, Any]) -> str:
    """A summary, and what to type next."""
    run = shlex.quote(str(result["run"]))
    lines = facts(
        [
            ("leave-one-out error", _leave_one_out(result)),
            ("  of the head alone", "" if result["solver"] == "head" else percent(result["head_loo_error"])),
            ("solver", _solver(result)),
            ("linearised at", _moved(result["moved"])),
            ("relative residual", _residual(result)),
            ("weight decay", _weight_decay(result)),
            ("skipped", counted(len(result["skipped"]), "image") if result["skipped"] else ""),
            ("time", duration(result["seconds"])),
            ("written to", str(result["run"])),
        ]
    )
    return "\n".join(
        [
            f"Fitted {counted(result['n'], 'image')} of {counted(len(result['classes']), 'class')}.\n",
            *lines,
            *_choices(result["choices"]),
            f"\nNext:  lqf evaluate {run} TEST",
            f"       lqf predict {run} IMAGE…",
            f"       lqf report {run} -o report.html",
        ]
    )


def _choices(choices: list[dict[str, Any]]) -> list[str]:
    """One line per automatic choice: what was tried, with its leave-one-out error, and what was kept."""
    return ["\nChosen by leave-one-out:", *(f"  {_choice_line(c)}" for c in choices)] if choices else []


def _choice_line(choice: dict[str, Any]) -> str:
    tried, kept = choice["tried"], choice["kept"]
    if isinstance(tried, dict):
        shown = ", ".join(f"{name} {percent(t['loo_error'])}" for name, t in tried.items())
        why = f" ({choice['why']})" if choice.get("why") else ""
        return f"{choice['what']}: {shown}; kept {kept}{why}"
    decays, errors = [t["weight_decay"] for t in tried], [t["loo_error"] for t in tried]
    ends = f"{choice['what']}: {decays[0]:.2g}–{decays[-1]:.2g}"
    line = f"{ends}: {' '.join(f'{100 * e:.1f}' for e in errors)}%; kept {kept:.2g}"
    if len(line) <= WIDTH - 2:
        return line
    at = percent(errors[decays.index(kept)])
    return f"{ends}: {100 * min(errors):.1f}–{percent(max(errors))}; kept {kept:.2g}, {at}"


def _solver(result: dict[str, Any]) -> str:
    where = result["device"] if result["processes"] == 1 else f"{result['processes']} processes"
    return f"{result['solver']} on {where}, {counted(result['unknowns'], 'unknown')}"


def _leave_one_out(result: dict[str, Any]) -> str:
    if result["loo_error"] is None:
        return "not known for this many images and classes; evaluate on labelled test images"
    level = ", ".join(filter(None, [result["loo_level"], result["loo_note"]]))
    return f"{percent(result['loo_error'])} ± {100 * result['loo_standard_error']:.1f} ({level})"


def _moved(how: dict[str, Any] | None) -> str:
    """Where the network was moved to, if it was."""
    if not how:
        return ""
    tuned = f"after {counted(how['epochs'], 'epoch')} of fine-tuning" if "epochs" in how else ""
    steps = how.get("steps", [])
    lengths = ", ".join(f"{length:.2g}" for length in steps)
    walked = f"after {counted(len(steps), 'step')} of length {lengths}" if steps else ""
    return ", ".join(filter(None, [tuned, walked]))


def _residual(result: dict[str, Any]) -> str:
    text = f"{result['relative_residual']:.1e} after {counted(result['passes'], 'pass')} over the data"
    return text if result["converged"] else f"{text}: not converged; try a larger --max-passes or --epochs"


def _weight_decay(result: dict[str, Any]) -> str:
    body = result["body_weight_decay"]
    if body is None or body == result["weight_decay"]:
        return number(result["weight_decay"])
    return f"{number(result['weight_decay'])} (head), {number(body)} (body)"
