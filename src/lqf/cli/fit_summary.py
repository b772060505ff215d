"""What `lqf fit` says at its end: the answer, what was tried and what comes next; with -v how it was solved."""

from __future__ import annotations

import shlex
import textwrap
from typing import Any

from lqf.cli.next_steps import audit_command
from lqf.reports.weighting import balanced, class_weights, counting, how
from lqf.utils.exactness import how_sure
from lqf.utils.text import WIDTH, byte_count, counted, duration, facts, number, percent, rough_duration


def show(result: dict[str, Any]) -> str:
    """The error to expect, what was tried, and what to type next."""
    n, classes = counted(result["n"], "image"), counted(len(result["classes"]), "class")
    given = f" (of {result['images_given']:,}: the time limit)" if result["images_given"] else ""
    climbed = bool(result["rungs"])
    lines = facts(
        [
            ("expected error on new images", _expected(result)),
            ("  mean of the classes", balanced(result, "" if climbed else "loo_")),
            *_privacy(result.get("privacy")),
            ("model", _model(result)),
            ("network", _moved(result["moved"])),
            ("relative residual", "" if result["converged"] else _residual(result)),
            ("class weights", class_weights(result)),
            ("skipped", counted(len(result["skipped"]), "image") if result["skipped"] else ""),
            ("written to", str(result["run"])),
        ]
    )
    return "\n".join(
        [
            f"Fitted {n}{given} of {classes} in {duration(result['seconds'])}.\n",
            *lines,
            *_rungs(result["rungs"], counting(result)),
            *_about_the_body(result["rungs"]),
            *_further(result),
            *_next(result["run"], asked="privacy" not in result),
        ]
    )


def details(result: dict[str, Any]) -> str:
    """How the problem was solved, and what was compared on the way."""
    climbed = bool(result["rungs"])
    lines = facts(
        [
            ("expected error", result["error_note"] or ""),
            ("leave-one-out error", _leave_one_out(result) if climbed else ""),
            ("  mean of the classes", balanced(result, "loo_") if climbed else ""),
            ("  of the head alone", "" if _is_head(result) or climbed else percent(result["head_loo_error"])),
            ("solver", _solver(result)),
            ("relative residual", _residual(result)),
            ("weight decay", _weight_decay(result)),
            ("kept for questions", byte_count(result["kept_bytes"]) if result["kept_bytes"] else "nothing"),
        ]
    )
    return "\n".join(["Details", *lines, *_choices(result["choices"], counting(result))])


def _expected(result: dict[str, Any]) -> str:
    """The error, or why it is not known."""
    if "privacy" in result:
        return "not known: it would tell about the images; evaluate on others"
    return _unseen(result) if result["rungs"] else _leave_one_out(result)


def _privacy(proof: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The guarantee, and what it does not cover."""
    if proof is None:
        return []
    return [
        ("privacy", f"({proof['epsilon']:g}, {proof['delta']:g})-differentially private: {proof['neighbours']}"),
        ("noise", f"{number(proof['noise'])} in every weight, at weight decay {number(proof['weight_decay'])}"),
        ("not private", ", ".join(proof["not_private"]) or "nothing that is in the folder"),
    ]


def _next(out: Any, *, asked: bool = True) -> list[str]:
    """Commands, and what each says; without those that ask about training images, which a private model has not."""
    run = shlex.quote(str(out))
    commands = {
        f"lqf evaluate {run} TEST": "error on labelled images",
        f"lqf predict {run} IMAGE…": "labels of new images",
    }
    if asked:
        commands |= {
            f"lqf explain {run} IMAGE… -o why.html": "the training images behind them",
            audit_command(out): "labels that look wrong, copies",
            f"lqf report {run} -o report.html": "all of it on one page",
        }
    width = max(map(len, commands))
    return ["\nNext:", *(f"  {command:<{width}}  # {what}" for command, what in commands.items())]


def _is_head(result: dict[str, Any]) -> bool:
    return result["solver"] == "head"


def _unseen(result: dict[str, Any]) -> str:
    """The error of the whole choice; for one model that was named, leave-one-out says it."""
    if result["error"] is None:
        return "" if not result["rungs"] else "not known: nothing could be left out"
    weighted = " (weighted)" if result["weighted"] else ""
    return f"{percent(result['error'])} ± {100 * result['error_standard_error']:.1f}{weighted}"


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
        why = (
            "not asked for (--loo none)"
            if result.get("loo") == "none"
            else "not known for this many images and classes"
        )
        return f"{why}; evaluate on labelled test images"
    return of_leave_one_out(result)


def of_leave_one_out(result: dict[str, Any]) -> str:
    """The error, with its standard error and how it is known."""
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
        text += how_sure(result["output_gap"], result["output_bound"], lambda v: percent(v, 2))
    return text if result["converged"] else f"{text}: not converged; try a larger --max-passes or --epochs"


def _weight_decay(result: dict[str, Any]) -> str:
    body = result["body_weight_decay"]
    if body is None or body == result["weight_decay"]:
        return number(result["weight_decay"])
    return f"{number(result['weight_decay'])} (head), {number(body)} (body)"
