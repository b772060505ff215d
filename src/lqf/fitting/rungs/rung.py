"""What a rung is: a better model for more time.

A rung is *attempted* first: that gives the outputs of every sample by models that were fitted without its fold, on the
folds that all rungs share. Where these are better than those of the best model so far, it is *finished*: fitted to all
samples, from where the attempts of the folds have come to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.evaluation.paired import Gain, cross_fitted_losses, gain
from lqf.fitting.checkpoint import State
from lqf.fitting.context import Context
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.rungs.pace import Pace
from lqf.fitting.stack import Model
from lqf.fitting.training_problem import TrainingProblem
from lqf.fitting.training_set import TrainingSet


class NotNow(Exception):
    """A rung cannot be attempted here; the reason is a phrase that follows its name.

    ``seconds``: its predicted time, where that is the reason.
    """

    def __init__(self, reason: str, seconds: float | None = None):
        super().__init__(reason)
        self.seconds = seconds


@dataclass(frozen=True, eq=False)
class Linear:
    """What linear rungs hand on.

    Attributes:
        problem: the training problem, with its ridge strengths and curvature.
        unit: of the ratio of its ridge strengths, tr K_body / tr K_head.
        bodies: (D,) of every refit, on the CPU; none where they were not made by iteration.
        factor: the head's ridge strength over that which is best for it alone.
    """

    problem: TrainingProblem
    unit: float
    bodies: tuple[Tensor, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True, eq=False)
class Attempt:
    """A model out of sample, and the way to the model itself.

    Attributes:
        name: of its rung.
        outputs: (N, C) of every sample by a model without its fold, float64; NaN in folds that were not refitted.
        finish: fits all samples.
        about: views, pooling and the like, for the report.
        head: features and closed-form head; None for a stack.
        alternatives: outputs of what was tried on the way and not taken, by name.
        linear: for the next linear rung; None for heads and stacks.
        strengths: ridge strength of the head without each fold.
        to_finish: predicted seconds of that.
        doubt: benefit of it when it is judged (`lqf.evaluation.paired.Gain.counts`).
    """

    name: str
    outputs: Tensor
    finish: Callable[[], Model]
    about: Mapping[str, Any]
    head: HeadFit | None = None
    alternatives: Mapping[str, Tensor] = field(default_factory=dict)
    linear: Linear | None = None
    strengths: tuple[float, ...] = ()
    to_finish: float = 0.0
    doubt: float = 0.0

    def release(self) -> None:
        """Give up what was recorded for its passes; where it is finished later, it is made again."""
        if self.linear is not None:
            self.linear.problem.encoder.engine.clear()


@dataclass(frozen=True, eq=False)
class EarlierAttempt:
    """What is left of an attempt in a model of an earlier climb; attributes as of `Attempt`."""

    outputs: Tensor
    about: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Ground:
    """Where a climb stands.

    Attributes:
        data: the training set, in the views that the settings name or in one.
        backbone: the network, on the CPU.
        pace: how fast it is here.
        attempts: so far, by name.
        models: those that were finished.
        best: name of the best one.
        state: of a checkpoint, where a rung was interrupted in the middle of its solution.
    """

    data: TrainingSet
    backbone: Backbone
    pace: Pace
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)
    best: str = ""
    state: State | None = None

    @property
    def context(self) -> Context:
        """Of the fit."""
        return self.data.context

    @property
    def outputs(self) -> int:
        """C, numbers that a model says about an image."""
        return self.data.targets.shape[1]

    def with_attempt(self, attempt: Attempt) -> Ground:
        """After an attempt."""
        return replace(self, attempts={**self.attempts, attempt.name: attempt})

    def without_attempt(self, name: str) -> Ground:
        """Where an attempt came to nothing: it cannot be finished, and no stack may count on it."""
        return replace(self, attempts={n: a for n, a in self.attempts.items() if n != name})

    def with_model(self, name: str, model: Model) -> Ground:
        """After a finished model, which is the best."""
        return replace(self, models={**self.models, name: model}, best=name)

    def with_settings(self, **changed: Any) -> Ground:
        """With other settings from here on."""
        return replace(self, data=replace(self.data, context=self.context.with_settings(**changed)))

    def gains(self, name: str, over: str) -> bool:
        """Whether one attempt is better out of sample than another; not, where it was not made."""
        if name not in self.attempts:
            return False
        one, other = self.attempts[name], self.attempts[over]
        return self.gain(one.outputs, other.outputs).counts(one.doubt)

    def gain(self, outputs: Tensor, over: Tensor) -> Gain:
        """Of out-of-sample outputs over others, paired."""
        return gain(self.losses(over), self.losses(outputs), self.data.judging)

    @property
    def best_head(self) -> str:
        """Name of the best closed-form head so far."""
        best = ""
        for name, attempt in self.attempts.items():
            if attempt.linear is None and attempt.head is not None and (not best or self.gains(name, best)):
                best = name
        return best

    def losses(self, outputs: Tensor) -> Tensor:
        """(N,) cross-entropies of out-of-sample outputs, NaN where they are not known or say nothing."""
        data = self.data
        known = outputs.masked_fill(data.single[:, None], torch.nan)
        return cross_fitted_losses(known, data.labels, data.judging, data.folds[:: data.n_views])


class Rung(Protocol):
    """One step of a climb."""

    @property
    def name(self) -> str:
        """For people and for the report."""
        ...

    @property
    def effort(self) -> str:
        """The least effort that includes it."""
        ...

    @property
    def kind(self) -> str:
        """Under which its times are predicted and remembered (`lqf.fitting.rungs.pace`)."""
        ...

    def seconds(self, ground: Ground) -> float:
        """Predicted, of the attempt and of finishing it."""
        ...

    def attempt(self, ground: Ground) -> Attempt:
        """Out of sample; `NotNow` where it cannot be."""
        ...

    def again(self, ground: Ground, tried: EarlierAttempt) -> Attempt:
        """An attempt that an earlier climb has made, with its outputs and with what later rungs stand on."""
        ...


def repeated(rung: Rung, ground: Ground, tried: EarlierAttempt) -> Attempt:
    """By another attempt, of which the outputs are not needed."""
    return replace(rung.attempt(ground), outputs=tried.outputs)
