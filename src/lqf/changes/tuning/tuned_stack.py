"""A stack some of whose members were tuned; their weights stay as they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, Stack
from lqf.fitting.report import out_of_sample
from lqf.fitting.stack import outputs_left_out
from lqf.utils.exactness import least_exact


def tuned_stack(stack: Stack, new: Mapping[int, FittedModel], main: FittedModel) -> Stack:
    """With other members.

    Args:
        stack: as it was.
        new: members at other strengths, by number.
        main: the one whose report stands for the stack, as it was.
    """
    members = tuple(new.get(k, m) for k, m in enumerate(stack.members))
    loo = _left_out(replace(stack, members=members))
    report = replace(new[stack.members.index(main)].report, solver="stack", level="estimated", **out_of_sample(loo))
    beta = stack.beta if loo is None else loo.temperature()
    return replace(stack, members=members, loo=loo, report=report, beta=beta, tried={})


def _left_out(stack: Stack) -> LeaveOneOut | None:
    """Σ w_k of the members', as exact as the least exact of them."""
    outputs, found = outputs_left_out(stack.members, stack.weights), [m.loo for m in stack.members if m.loo is not None]
    if outputs is None:
        return None
    level = least_exact(loo.level for loo in found)
    notes = dict.fromkeys(["the members' added up", *(loo.note for loo in found if loo.note)])
    return replace(found[0], value=outputs, level=level, note="; ".join(notes))
