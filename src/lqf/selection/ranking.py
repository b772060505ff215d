"""The backbones that were tried on some images, ranked: what each one's head says about images it has not seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lqf.evaluation.paired import Gain, gain
from lqf.utils.frames import Tabular
from lqf.utils.text import counted, percent


@dataclass(frozen=True, eq=False)
class Candidate:
    """A backbone whose head was tried.

    Attributes:
        name: as `load_backbone` takes it.
        weights: its weights file, where one was named.
        outputs: (N, C) of every sample by the head without it.
        ridge: strength of the head, by leave-one-out.
        losses: (N,) cross-entropy of every sample's leave-one-out output; NaN where that is not known.
        weighted: (N,) weights of the samples.
        error, error_standard_error: share of wrong leave-one-out decisions.
        log_me: evidence of a linear model on its features (`lqf.selection.log_me`).
        seconds: for reading the images in its size, the features and the head.
        parameters: weights of the network without its classifier.
        size: side of its input in pixels.
        features: width of its output.
    """

    name: str
    weights: str | None
    outputs: Tensor = field(repr=False)
    ridge: float
    losses: Tensor = field(repr=False)
    weighted: Tensor = field(repr=False)
    error: float
    error_standard_error: float
    log_me: float
    seconds: float
    parameters: int
    size: int
    features: int

    @property
    def loss(self) -> float:
        """Mean leave-one-out cross-entropy."""
        return self._mean.mean

    @property
    def loss_standard_error(self) -> float:
        """Of that mean."""
        return self._mean.standard_error

    @property
    def _mean(self) -> Gain:
        return gain(self.losses, torch.zeros_like(self.losses), self.weighted)

    def better_than(self, other: Candidate) -> Gain:
        """By how much its loss is lower, sample by sample."""
        return gain(other.losses, self.losses, self.weighted)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "weights": self.weights,
            "loss": self.loss,
            "loss_standard_error": self.loss_standard_error,
            "error": self.error,
            "error_standard_error": self.error_standard_error,
            "log_me": self.log_me,
            "seconds": self.seconds,
            "parameters": self.parameters,
            "size": self.size,
            "features": self.features,
        }


@dataclass(frozen=True)
class Failed:
    """A backbone that could not be tried, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Selection(Tabular):
    """The backbones that were tried, best first.

    Attributes:
        candidates: ranked by leave-one-out cross-entropy.
        failed: those that could not be tried.
        data: what the images are called.
        n: images.
        classes: names.
    """

    candidates: tuple[Candidate, ...]
    failed: tuple[Failed, ...]
    data: str
    n: int
    classes: tuple[str, ...]

    def __repr__(self) -> str:
        c = self.best
        return (
            f"Selection({len(self.candidates)} backbones on {counted(self.n, 'image')}; {c.name}, {percent(c.error)})"
        )

    @property
    def best(self) -> Candidate:
        """With the lowest loss."""
        return self.candidates[0]

    @property
    def lead(self) -> Gain | None:
        """By how much the best one's loss is below the next one's; None: there is no other."""
        return self.best.better_than(self.candidates[1]) if len(self.candidates) > 1 else None

    def rows(self) -> list[dict[str, Any]]:
        """One for every backbone, the best first."""
        return [c.to_dict() for c in self.candidates]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        lead = self.lead
        return {
            "data": self.data,
            "n": self.n,
            "classes": len(self.classes),
            "level": "exact",
            "best": self.best.name,
            "lead": None if lead is None else {"mean": lead.mean, "standard_error": lead.standard_error},
            "backbones": self.rows(),
            "failed": [{"name": f.name, "reason": f.reason} for f in self.failed],
        }
