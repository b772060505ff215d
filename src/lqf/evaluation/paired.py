"""Comparing models by what they say about the same samples, none of which they have seen.

Every sample's loss is its cross-entropy at a temperature that the other samples chose, so that neither the outputs nor
their scale have seen its label. The difference of two models is taken sample by sample: what is hard for both drops
out, and the mean difference has a standard error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.evaluation.balance import effective_number
from lqf.evaluation.calibration import calibrate, log_losses

LEAST_GAIN = 0.005
"""Share of the loss that a model must gain to count as a better one: less is not worth its time."""
PARTS = 5
"""Among which temperatures are cross-fitted where there are no folds to do so."""


@dataclass(frozen=True)
class Gain:
    """By how much the mean loss of one model is below another's, the standard error of that, and the other's loss."""

    mean: float
    standard_error: float
    before: float = 0.0

    def counts(self, doubt: float = 0.0) -> bool:
        """Whether it is enough to prefer the model: an expected gain of `LEAST_GAIN`, not a certain one.

        ``doubt``: so many standard errors by which a model may seem worse and is preferred all the same, where
        experience speaks for it. With 24 to 96 images a threshold of one standard error gives away a third of what more
        views gain, and a doubt of one gains a quarter more than none (`benchmarks/results/honest_error-*.json`).
        """
        if doubt > 0 and math.isfinite(self.standard_error):
            return self.mean > -doubt * self.standard_error
        return self.mean > LEAST_GAIN * self.before

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.standard_error:.3f}"


def cross_fitted_losses(outputs: Tensor, labels: Tensor, weights: Tensor, parts: Tensor) -> Tensor:
    """(N,) cross-entropy of every sample at the temperature of the other parts; NaN where its outputs are not known.

    Args:
        outputs: (N, C) out-of-sample outputs, NaN where they are not known.
        labels: (N,).
        weights: (N,).
        parts: (N,) number of the part that every sample is in.
    """
    known = ~outputs.isnan().any(1)
    out = torch.full((len(outputs),), torch.nan, dtype=torch.float64)
    parts = _at_least_two(parts, known)
    for k in parts[known].unique().tolist():
        here, there = known & (parts == k), known & (parts != k)
        beta = calibrate(outputs[there], labels[there], weights[there])
        out[here] = log_losses(outputs[here], labels[here], beta)
    return out


def mean_loss(losses: Tensor, weights: Tensor) -> float:
    """Of the samples whose losses (N,) are known, weighted; infinite where none is."""
    known = ~losses.isnan()
    w = weights[known].to(losses)
    return float((w * losses[known]).sum() / w.sum()) if len(w) else math.inf


def _at_least_two(parts: Tensor, known: Tensor) -> Tensor:
    """The parts themselves, or, where only one of them is known, its samples dealt out in turn."""
    if len(parts[known].unique()) > 1:
        return parts
    out = parts.clone()
    out[known] = torch.arange(int(known.sum())) % PARTS
    return out


def gain(before: Tensor, after: Tensor, weights: Tensor) -> Gain:
    """Of the losses ``after`` (N,) over those ``before`` (N,), over the samples that both know."""
    known = ~(before.isnan() | after.isnan())
    if not bool(known.any()):
        return Gain(0.0, math.inf)
    d, w = (before - after)[known], weights[known].to(before)
    w = w / w.sum()
    mean, loss = float((w * d).sum()), float((w * before[known]).sum())
    effective = effective_number(w)
    if effective <= 1:
        return Gain(mean, math.inf, loss)
    variance = float((w * (d - mean).square()).sum()) / (effective - 1)
    return Gain(mean, math.sqrt(variance), loss)
