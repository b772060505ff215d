"""The best model of every kind that was tried, added up: weights by the cross-entropy of their out-of-sample outputs.

What judges the stack is cross-fitted once more: a fold's outputs are added up with the weights of the other folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.evaluation.stacking import LEAST, shares, stack_coefficients
from lqf.fitting.report import out_of_sample
from lqf.fitting.rungs.finetuned import FINETUNED, LOWER_RATE
from lqf.fitting.rungs.heads import CROPS
from lqf.fitting.rungs.linear import LAST_STAGE, LQF, LQF_CROPS
from lqf.fitting.rungs.moved import MOVED
from lqf.fitting.rungs.rung import Attempt, EarlierAttempt, Ground, NotNow, repeated
from lqf.fitting.stack import Stack, answering

STACK = "stack"


@dataclass(frozen=True)
class StackRung:
    """Of whatever is there."""

    name: str = STACK
    effort: str = "standard"
    kind: str = "stack"

    def seconds(self, ground: Ground) -> float:
        found = _kinds(ground) if ground.best else []
        return 1.0 + sum(a.to_finish for a in found if a.name not in ground.models)

    def attempt(self, ground: Ground) -> Attempt:
        if ground.data.alone or len(ground.attempts) < 2:
            raise NotNow("needs two models or more, and samples to weigh them by")
        found = _kinds(ground)
        if len(found) < 2:
            raise NotNow("needs two kinds of models or more")
        outputs = _cross_fitted(found, ground)
        members, c = _members(found, ground)
        if len(members) < 2:
            raise NotNow(f"would be one model alone ({members[0].name})")
        part = shares(c, [m.outputs[_known(members)] for m in members])
        text = {m.name: round(float(s), 3) for m, s in zip(members, part, strict=True)}
        weights = {m.name: float(w) for m, w in zip(members, c / c.sum(), strict=True)}
        about = {
            "views": None,
            "shown": None,
            "pooling": None,
            "stage": None,
            "solver": "stack",
            "members": text,
            "weights": weights,
        }
        return Attempt(self.name, outputs, lambda: _finished(ground, members, c, outputs), about)

    def again(self, ground: Ground, tried: EarlierAttempt) -> Attempt:
        return repeated(self, ground, tried)


def _kinds(ground: Ground) -> list[Attempt]:
    """The best head, the head in the most views, the linearised network in the most, moved, and fine-tuned ones."""
    linear = [name for name in (LQF_CROPS, LQF, LAST_STAGE) if name in ground.attempts][:1]
    names = dict.fromkeys((ground.best_head, CROPS, *linear, MOVED, FINETUNED, LOWER_RATE))
    return [ground.attempts[name] for name in names if name in ground.attempts]


def _cross_fitted(found: Sequence[Attempt], ground: Ground) -> Tensor:
    """(N, C) every fold by the weights of the others; NaN where a member does not know a sample."""
    data, known = ground.data, _known(found)
    fold, weights = data.folds[:: data.n_views], data.judging
    usable = known & ~data.single
    out = torch.full_like(found[0].outputs, torch.nan)
    parts = fold if len(fold[usable].unique()) > 1 else torch.arange(len(fold)) % 5
    for k in parts[known].unique().tolist():
        here, there = known & (parts == k), usable & (parts != k)
        c = stack_coefficients([a.outputs[there] for a in found], data.labels[there], weights[there])
        w = c / c.sum() if float(c.sum()) > 0 else torch.full_like(c, 1 / len(c))  # where none is any good
        out[here] = torch.stack([w[j] * a.outputs[here] for j, a in enumerate(found)]).sum(0)
    return out


def _members(found: Sequence[Attempt], ground: Ground) -> tuple[list[Attempt], Tensor]:
    """Those that carry weight, with their coefficients."""
    data, members = ground.data, list(found)
    while True:
        known = _known(members) & ~data.single
        outputs = [a.outputs[known] for a in members]
        c = stack_coefficients(outputs, data.labels[known], data.judging[known])
        part = shares(c, outputs)
        if len(members) == 1 or float(part.min()) >= LEAST:
            return members, c
        members.pop(int(part.argmin()))


def _known(found: Sequence[Attempt]) -> Tensor:
    return torch.stack([~a.outputs.isnan().any(1) for a in found]).all(0)


def _finished(ground: Ground, members: Sequence[Attempt], c: Tensor, outputs: Tensor) -> Stack:
    """With every member fitted to all samples."""
    models = []
    for attempt in members:
        known = ground.models.get(attempt.name)
        models.append(attempt.finish() if known is None else known)
        attempt.release()
    data, settings = ground.data, ground.context.settings
    loo = data.left_out(outputs, "estimated", "by folds, with the weights of the other folds")
    part = shares(c, [m.outputs[_known(members)] for m in members])
    fitted = tuple(m for m in models if not isinstance(m, Stack))
    main = answering(fitted, part.tolist())  # whose certificate is shown
    return Stack(
        members=fitted,
        weights=tuple((c / c.sum()).tolist()),
        names=tuple(m.name for m in members),
        shares=tuple(part.tolist()),
        beta=loo.temperature(),
        train=main.train,
        loo=loo,
        report=replace(
            main.report,
            solver="stack",
            level="estimated",
            **out_of_sample(loo),
        ),
        settings=settings,
    )
