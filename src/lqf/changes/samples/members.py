"""A change of a model that may be a stack: every member is solved again.

A fine-tuned network is no optimum of a quadratic problem, and cannot lose or gain samples exactly. It is dropped, and
the weights of the other members are chosen again; or it is trained again where that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lqf.backbones import rebuild_backbone
from lqf.backbones.average_pool import reduction_of
from lqf.changes.samples.outcome import DROPPED, RETRAINED, Changed, Outcome
from lqf.data import Images, has_pixels, with_views
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.evaluation.stacking import shares, stack_coefficients
from lqf.fitting import Context, FittedModel, Model, Stack, TrainingSet, TrainingTable
from lqf.fitting.assemble import assemble_finetuned
from lqf.fitting.context import Clock
from lqf.fitting.finetuned import finetuned
from lqf.fitting.fitted_model import SUM
from lqf.fitting.report import out_of_sample
from lqf.fitting.rungs.finetuned import LOWER
from lqf.fitting.stack import answering, outputs_left_out
from lqf.utils import naming
from lqf.utils.text import listed

Change = Callable[[FittedModel, str], Changed]
"""What is done to a model that was solved, and its name."""


@dataclass(frozen=True)
class After:
    """A model after a change.

    Attributes:
        model: the changed one.
        outcomes: what became of every member.
        changed: those that were solved again, in the order of the model's members; None: others.
        chosen_again: whether a stack's weights were.
    """

    model: Model
    outcomes: tuple[Outcome, ...]
    changed: tuple[Changed | None, ...]
    chosen_again: bool = False


@dataclass(frozen=True)
class Now:
    """The training set after a change.

    Attributes:
        images: opens all of it.
        table: its samples.
        kept: (N,) number of every sample in the training set before, −1 for a new one.
    """

    images: Callable[[], Images]
    table: TrainingTable
    kept: np.ndarray


def check_trained(model: Model, retrain: bool) -> None:
    """LQFError where a model solves no problem of samples that could come or go.

    A network was trained and nothing else is left; or there is none to train again; or the model was made from another.
    """
    is_sum = model.report.solver == SUM
    why = "a sum of models is the optimum of no training set" if is_sum else model.report.not_the_fit
    if why:
        raise LQFError(f"{why}; change the model that it was made from")
    trained = [m for m in model.members if not m.solved]
    again = naming.given("retrain")
    if retrain and not trained:
        raise LQFError(f"{again} trains fine-tuned networks again, and this model has none; leave it out")
    if not retrain and len(trained) == len(model.members):
        raise LQFError(
            f"the model is a fine-tuned network, which no change can be solved for; give {again} to train it again, or "
            "fit again"
        )


def change_model(model: Model, change: Change, now: Now, context: Context, *, retrain: bool = False) -> After:
    """The model after a change of its training set."""
    check_trained(model, retrain)
    if isinstance(model, Stack):
        after = _of_stack(model, change, now, context, retrain)
    elif model.solved:
        changed = change(model, "model")
        after = After(changed.model, (changed.outcome,), (changed,))
    else:
        again = retrained(model, now, context, model.setup.backbone)
        after = After(again, (Outcome("model", RETRAINED),), (None,))
    report = replace(after.model.report, class_weights=model.report.class_weights)
    return replace(after, model=replace(after.model, train=now.table, setup=model.setup, report=report))


def retrained(member: FittedModel, now: Now, context: Context, own: Any) -> FittedModel:
    """A network trained again, as its rung does it but without networks for each fold; what it would say of its own
    samples is not known then. ``own``: the network where it was given as an object.
    """
    spec = {key: value for key, value in member.backbone.spec.items() if key != "moved"}
    module = own if isinstance(own, nn.Module) else None
    backbone = rebuild_backbone(spec, module=module, reduction=reduction_of(member.backbone))
    context = replace(context, clock=Clock(), settings=replace(member.settings, linearize="all"))
    preprocess = replace(member.preprocess, views="none")
    images = now.images()
    images = with_views(images, preprocess) if has_pixels(images) else images
    share = 1.0 if member.report.pooling == "avg" else LOWER
    tuned = finetuned(TrainingSet(images, preprocess, context), backbone, member.report.pooling, share)
    model = assemble_finetuned(tuned, None, member.preprocess.views)
    return replace(model, train=now.table, setup=member.setup, settings=member.settings)


def _of_stack(stack: Stack, change: Change, now: Now, context: Context, retrain: bool) -> After:
    members, outcomes, done, which = list[FittedModel](), list[Outcome](), list[Changed | None](), list[int]()
    for k, (member, name) in enumerate(zip(stack.members, stack.names, strict=True)):
        context.progress.note(f"{name}:")
        if member.solved:
            changed = change(member, name)
            members.append(changed.model)
            outcomes.append(changed.outcome)
            done.append(changed)
        elif retrain:
            members.append(retrained(member, now, context, stack.setup.backbone))
            outcomes.append(Outcome(name, RETRAINED))
            done.append(None)
        else:
            why = "a fine-tuned network is no optimum of a quadratic problem"
            outcomes.append(Outcome(name, DROPPED, note=f"{why}; {naming.given('retrain')} trains it again"))
            continue
        which.append(k)
    if len(members) == 1:
        return After(replace(members[0], settings=stack.settings), tuple(outcomes), tuple(done), True)
    again = len(members) < len(stack.members)
    c = _weights(stack, members, which, now) if again else torch.tensor(stack.weights, dtype=torch.float64)
    return After(_stacked(stack, members, which, c / c.sum(), again), tuple(outcomes), tuple(done), again)


def _weights(stack: Stack, members: Sequence[FittedModel], which: Sequence[int], now: Now) -> Tensor:
    """By out-of-sample outputs: of the changed members where they are known, else of the fit; else as they were."""
    found = [_known(stack, member, k, now) for member, k in zip(members, which, strict=True)]
    outputs = [o for o in found if o is not None]
    old = torch.tensor([stack.weights[k] for k in which], dtype=torch.float64)
    if len(outputs) < len(found) or len({o.shape[1] for o in outputs}) > 1:
        return old
    rows = torch.stack([~o.isnan().any(1) for o in outputs]).all(0)
    if int(rows.sum()) < 2:
        return old
    labels, weights = torch.tensor(now.table.labels)[rows], torch.tensor(now.table.weights)[rows]
    c = stack_coefficients([o[rows] for o in outputs], labels, weights)
    return c if float(c.sum()) > 0 else old


def _known(stack: Stack, member: FittedModel, k: int, now: Now) -> Tensor | None:
    """(N, C) out-of-sample outputs of a member."""
    if member.loo is not None:
        return member.loo.outputs
    before = stack.tried.get(stack.names[k])
    if before is None:
        return None
    out = before.new_full((len(now.kept), before.shape[1]), torch.nan)
    there = torch.from_numpy(now.kept >= 0)
    out[there] = before[torch.from_numpy(now.kept)[there]]
    return out


def _stacked(stack: Stack, members: list[FittedModel], which: Sequence[int], w: Tensor, again: bool) -> Stack:
    names = tuple(stack.names[k] for k in which)
    loo, part = _leave_one_out(members, w), [stack.shares[k] for k in which]
    if loo is not None and again:
        part = shares(w, [m.loo.outputs[loo.known] for m in members if m.loo is not None]).tolist()
    part = [p / sum(part) for p in part]
    main = answering(members, part)
    return replace(
        stack,
        members=tuple(members),
        weights=tuple(w.tolist()),
        names=names,
        shares=tuple(part),
        beta=stack.beta if loo is None else loo.temperature(),
        train=main.train,
        loo=loo,
        report=replace(main.report, solver="stack", level="estimated", **out_of_sample(loo)),
        tried={},
    )


def _leave_one_out(members: Sequence[FittedModel], w: Tensor) -> LeaveOneOut | None:
    """Of the sum, where it is known of every member; with weights that have seen all samples."""
    outputs, first = outputs_left_out(members, w.tolist()), members[0].loo
    if outputs is None or first is None:
        return None
    return replace(first, value=outputs, level="estimated", note="with weights that have seen all samples")


def about(outcomes: Sequence[Outcome]) -> str:
    """One sentence on members that were not solved again; empty where there is none."""
    dropped = [o.name for o in outcomes if o.fate == DROPPED]
    trained = [o.name for o in outcomes if o.fate == RETRAINED]
    parts = [f"{listed(dropped)} left the stack, whose weights were chosen again"] if dropped else []
    parts += [f"{listed(trained)} was trained again"] if trained else []
    return "; ".join(parts)
