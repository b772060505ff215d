"""`lqf fit TRAIN -o RUN`: fine-tune a backbone on a folder of images."""

from __future__ import annotations

import argparse
import shlex
import textwrap
from pathlib import Path
from typing import Any

from lqf.cli import options
from lqf.errors import LQFError, ProcessLost
from lqf.reports.weighting import balanced, class_weights, counting, how
from lqf.runtime.distributed import joined, launched
from lqf.settings import EFFORT, IMAGES, PROBLEM, SOLVING, Settings, Setup
from lqf.utils.progress import Progress
from lqf.utils.text import WIDTH, counted, duration, facts, number, percent, rough_duration

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
        group = parser.add_argument_group(name)
        options.add_settings(group, Setup, Settings, group=name)
        if name == SOLVING:
            options.add_memory(group)


def run(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Fit, save, report."""
    out, checkpoint = _targets(args)
    from lqf.estimator import LQFClassifier  # now: a wrong path is reported without waiting for torch
    from lqf.fitting import Model
    from lqf.runtime.deadline import process_began
    from lqf.storage import check_target, save

    model = LQFClassifier(**{k: v for k, v in vars(args).items() if k in LQFClassifier().get_params()})
    earlier = _earlier(args, out, progress)
    check_target(out, args.overwrite or earlier is not None)
    before = _stamp(checkpoint)
    _mention(checkpoint, args.resume, earlier is not None, progress)
    kept: list[str] = []

    def keep(better: Model) -> None:
        save(better, out, overwrite=True)
        kept[:] = [r["name"] for r in better.report.rungs if r["kept"]][-1:]

    try:
        with joined(model.device) as world:
            model.fit(
                args.train,
                checkpoint=checkpoint,
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
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(args, out, kept, checkpoint, before)) from None
    except ProcessLost as lost:
        raise ProcessLost(_interrupted(args, out, kept, checkpoint, before, str(lost)), lost.aloud) from lost
    return {**model.report_, "run": out, "command": shlex.join(["lqf", *_resumable(args)])}


def _earlier(args: argparse.Namespace, out: Path, progress: Progress) -> Any:
    """The model in RUN, to go on from; None where there is none, or where it saw a part of the images alone."""
    if not args.resume or not out.exists():
        return None
    from lqf.storage import load

    model = load(out, weights=args.weights)
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


def show(result: dict[str, Any]) -> str:
    """A summary, and what to type next."""
    run, by = shlex.quote(str(result["run"])), counting(result)
    lines = facts(
        [
            ("error on unseen images", _unseen(result)),
            ("  mean of the classes", balanced(result, "") if result["rungs"] else ""),
            ("leave-one-out error", _leave_one_out(result)),
            ("  mean of the classes", balanced(result, "loo_")),
            ("  of the head alone", "" if _is_head(result) or result["rungs"] else percent(result["head_loo_error"])),
            ("model", _model(result)),
            ("solver", _solver(result)),
            ("network", _moved(result["moved"])),
            ("relative residual", _residual(result)),
            ("class weights", class_weights(result)),
            ("weight decay", _weight_decay(result)),
            ("skipped", counted(len(result["skipped"]), "image") if result["skipped"] else ""),
            ("time", duration(result["seconds"])),
            ("written to", str(result["run"])),
        ]
    )
    given = f" (of {result['images_given']:,}: the time limit)" if result["images_given"] else ""
    return "\n".join(
        [
            f"Fitted {counted(result['n'], 'image')}{given} of {counted(len(result['classes']), 'class')}.\n",
            *lines,
            *_rungs(result["rungs"], by),
            *_about_the_body(result["rungs"]),
            *_choices(result["choices"], by),
            *_further(result),
            f"\nNext:  lqf evaluate {run} TEST",
            f"       lqf predict {run} IMAGE…",
            f"       lqf report {run} -o report.html",
        ]
    )


def _is_head(result: dict[str, Any]) -> bool:
    return result["solver"] == "head"


def _unseen(result: dict[str, Any]) -> str:
    """The error of the whole choice; for one model that was named, leave-one-out says it."""
    if result["error"] is None:
        return "" if not result["rungs"] else "not known: nothing could be left out"
    note = how(result, result["error_note"])
    return f"{percent(result['error'])} ± {100 * result['error_standard_error']:.1f} ({note})"


def _model(result: dict[str, Any]) -> str:
    """Which rung it is."""
    kept = [rung for rung in result["rungs"] if rung["kept"]]
    if not kept:
        return ""
    if "members" in kept[-1]:
        return ", ".join(f"{name} ({share:.0%})" for name, share in kept[-1]["members"].items())
    from lqf.reports.rungs import POOLINGS

    return ", ".join([kept[-1]["name"], POOLINGS.get(kept[-1]["pooling"], f"{kept[-1]['pooling']} pooling")])


def _rungs(rungs: list[dict[str, Any]], by: str = "") -> list[str]:
    """A table of what was tried, and a line about what was not; ``by``: what its errors count by, if that is said."""
    if not rungs:
        return []
    width = max(len(rung["name"]) for rung in rungs)
    out = [f"\n  {'tried'.ljust(width)}   error  cross-entropy            gain    time"]
    for rung in rungs:
        name = rung["name"].ljust(width)
        if rung["error"] is None and rung["seconds"] is not None and rung["kept"]:
            out.append(f"  {name}{'–':>8}{'–':>15}{'':>16}{rough_duration(rung['seconds']):>8}  kept")
        elif rung["error"] is None:
            why = f"not tried: {rung['why']}" if rung["seconds"] is None else rung["why"]
            out.append(_wrapped(f"{name}  {why}", width + 4))
        else:
            gain = "" if rung["gain"] is None else f"{rung['gain']:+.3f} ± {rung['gain_standard_error']:.3f}"
            took, kept = rough_duration(rung["seconds"]), "  kept" if rung["kept"] else ""
            out.append(f"  {name}{percent(rung['error']):>8}{rung['loss']:>15.3f}{gain:>16}{took:>8}{kept}")
    return [*out, f"  (error and cross-entropy: {by})"] if by else out


def _about_the_body(rungs: list[dict[str, Any]]) -> list[str]:
    """What was gained by changing more of the network than its last layer, in a sentence."""
    if not rungs:
        return []
    from lqf.reports.rungs import body

    return [f"\n{textwrap.fill(body(rungs), WIDTH, initial_indent='  ', subsequent_indent='  ')}"]


def _further(result: dict[str, Any]) -> list[str]:
    """What would come next, and what to type for it."""
    rung = result["next_rung"]
    if rung is None:
        return []
    command = f"{_without(result['command'])} --effort {rung['effort']} --resume"
    return [f"\nFurther up: {rung['name']}, about {rough_duration(rung['seconds'])}:", f"  {command}"]


def _without(command: str) -> str:
    """A command without its effort and time limit."""
    words = shlex.split(command)
    for option in ("--effort", "--time-limit"):
        words = [w for w in words if not w.startswith(f"{option}=")]
        while option in words:
            at = words.index(option)
            del words[at : at + 2]
    return shlex.join(words)


def _choices(choices: list[dict[str, Any]], by: str = "") -> list[str]:
    """One line per automatic choice: what was tried, with its leave-one-out error, and what was kept."""
    heading = f"\nChosen out of sample{by and f' ({by})'}:"
    return [heading, *(_wrapped(_choice_line(c), 4) for c in choices)] if choices else []


def _wrapped(line: str, further: int) -> str:
    """A line that begins after two spaces; where it goes on, after more."""
    return textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent=" " * further)


def _choice_line(choice: dict[str, Any]) -> str:
    tried, kept = choice["tried"], choice["kept"]
    if isinstance(tried, dict):
        shown = ", ".join(f"{name} {percent(t['loo_error'])}" for name, t in tried.items())
        why = f" ({choice['why']})" if choice.get("why") else ""
        return f"{choice['what']}: {shown}; kept {kept}{why}{_more(choice)}"
    decays, errors = [t["weight_decay"] for t in tried], [t["loo_error"] for t in tried]
    ends = f"{choice['what']}: {min(decays):.2g}–{max(decays):.2g}"
    at_end = f" ({choice['at_end']})" if choice.get("at_end") else ""
    line = f"{ends}: {' '.join(f'{100 * e:.1f}' for e in errors)}%; kept {kept:.2g}{at_end}"
    if len(line) <= WIDTH - 2:
        return line
    at = percent(errors[decays.index(kept)])
    return f"{ends}: {100 * min(errors):.1f}–{percent(max(errors))}; kept {kept:.2g}{at_end}, {at}"


def _more(choice: dict[str, Any]) -> str:
    """How much the second of two poolings counts; from which stage on a network is linearised."""
    share, first = choice.get("share"), choice.get("first", "all")
    counts = "" if share is None else f", the second {share:g} times the first"
    return counts + ("" if first == "all" else f", linearised from {first} on")


def _solver(result: dict[str, Any]) -> str:
    where = result["device"] if result["processes"] == 1 else f"{result['processes']} processes"
    return f"{result['solver']} on {where}, {counted(result['unknowns'], 'unknown')}"


def _leave_one_out(result: dict[str, Any]) -> str:
    if result["loo_error"] is None:
        return "not known for this many images and classes; evaluate on labelled test images"
    level = ", ".join(filter(None, [result["loo_level"], result["loo_note"]]))
    return f"{percent(result['loo_error'])} ± {100 * result['loo_standard_error']:.1f} ({how(result, level)})"


def _moved(how: dict[str, Any] | None) -> str:
    """Where the network was moved to, if it was."""
    if not how:
        return ""
    rate = f", at a learning rate of {how['rate']:.1e}" if "rate" in how else ""
    tuned = f"after {counted(how['epochs'], 'epoch')} of fine-tuning{rate}" if "epochs" in how else ""
    steps = how.get("steps", [])
    lengths = ", ".join(f"{length:.2g}" for length in steps)
    walked = f"after {counted(len(steps), 'step')} of length {lengths}" if steps else ""
    return ", ".join(filter(None, [tuned, walked]))


def _residual(result: dict[str, Any]) -> str:
    if result["relative_residual"] is None:
        return ""
    text = f"{result['relative_residual']:.1e} after {counted(result['passes'], 'pass')} over the data"
    if result["output_gap"] is not None:
        text += f"; outputs within {percent(result['output_gap'], 2)} of the optimum's"
    return text if result["converged"] else f"{text}: not converged; try a larger --max-passes or --epochs"


def _weight_decay(result: dict[str, Any]) -> str:
    body = result["body_weight_decay"]
    if body is None or body == result["weight_decay"]:
        return number(result["weight_decay"])
    return f"{number(result['weight_decay'])} (head), {number(body)} (body)"
