"""Every rung of a quick climb on a small task, whether it gains or not, and what each says about images held out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from common.tasks import Task
from lqf.evaluation.calibration import log_loss
from lqf.evaluation.paired import Gain
from lqf.fitting.rungs.heads import CROPS, MANY_VIEWS, MIRRORED, HeadRung, ViewsRung
from lqf.fitting.rungs.pace import Pace
from lqf.fitting.rungs.rung import Ground
from lqf.fitting.stack import Stack
from lqf.fitting.whole_choice import chosen
from lqf.linear.targets import error_rate

Rule = Callable[[Gain], bool]
Scores = dict[str, float]
RUNGS = (HeadRung(), ViewsRung(MIRRORED, "flip"), ViewsRung(CROPS, MANY_VIEWS))
"""Those of `lqf fit --effort quick`."""


class Climbed:
    """The models of all rungs.

    Args:
        task: what to learn.
        seed: of the folds.
        rungs: so many of the first; None: all.
    """

    def __init__(self, task: Task, seed: int, rungs: int | None = None):
        self.task, self.data = task, task.data(seed)
        self.ground = Ground(self.data, task.backbone, Pace(row=1e-3, flops=1e9, device="cpu"))
        self.held: dict[str, Tensor] = {}
        for rung in RUNGS[:rungs]:
            attempt = rung.attempt(self.ground)
            model = attempt.finish()
            assert not isinstance(model, Stack)
            self.ground = self.ground.with_attempt(attempt).with_model(rung.name, model)
            self.held[rung.name] = task.outputs(model)

    def kept(self, rule: Rule) -> str:
        """Name of the rung at which a climb ends if ``rule`` says which gains count."""
        attempts = self.ground.attempts
        best, *others = attempts
        for name in others:
            if rule(self.ground.gain(attempts[name].outputs, attempts[best].outputs)):
                best = name
        return best

    @property
    def candidates(self) -> dict[str, Tensor]:
        """(N, C) by models without each fold, of all that was tried, in order."""
        found: dict[str, Tensor] = {}
        for name, attempt in self.ground.attempts.items():
            found |= {name: attempt.outputs, **attempt.alternatives}
        return found

    def whole_choice(self) -> tuple[Tensor, Tensor]:
        """What would be chosen without each fold says about the fold: outputs (N, C), and losses (N,)."""
        outputs = list(self.candidates.values())
        losses, heads = [self.ground.losses(f) for f in outputs], len(outputs) - len(self.ground.attempts) + 1
        weights, folds = torch.ones(len(self.data), dtype=torch.float64), self.data.folds
        f, loss = torch.full_like(outputs[0], torch.nan), torch.full_like(losses[0], torch.nan)
        for k in folds.unique().tolist():
            here = folds == k
            best = chosen(losses, heads, weights, ~here)
            f[here], loss[here] = outputs[best][here], losses[best][here]
        return f, loss

    def left_out(self, name: str) -> Tensor:
        """(N, C) exact leave-one-out of a rung's model."""
        loo = self.ground.models[name].loo
        assert loo is not None
        return loo.outputs.double()

    def held_out(self, name: str) -> Scores:
        """Of a rung's model at its own temperature."""
        f, y = self.held[name], self.task.labels
        return scores(f, y, log_loss(f, y, self.ground.models[name].beta))


def scores(outputs: Tensor, labels: Tensor, loss: float) -> Scores:
    """Error beside a cross-entropy."""
    return {"error": error_rate(outputs, labels), "cross_entropy": loss}
