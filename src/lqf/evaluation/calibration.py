"""Probabilities from out-of-sample outputs: one temperature, fitted on leave-one-out scores, no validation set.

`fit_temperature` is the best fit: it compares candidates. `calibrate` is for predictions. Where few samples are left
out and nearly all of them come out right, the best fit is next to certain of everything; so one more sample is
assumed, as hard as the others on average, that is taken for the runner-up of its own class (Laplace's rule of
succession: n right answers out of n are not a certainty). With 24 images that takes the mean cross-entropy on test
images from 1.32 to 1.10, most of it in a few of the tasks, and the calibration error from 13 to 11 %; with 48 images it
changes little, with 400 next to nothing (`benchmarks/results/honest_error-*.json`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from lqf.linear.targets import logits

_GRID = 10 ** torch.linspace(-2.5, 1.5, 81, dtype=torch.float64)
_STEP = 8
_ENTRIES = 1 << 22
"""Of scores at several temperatures, at a time."""
MISTAKES = 1.0
"""Samples that `calibrate` assumes to be mistaken, in addition to those that are; half a one and two were no better on
training images held out (likewise)."""


def log_loss(outputs: Tensor, labels: Tensor, beta: float, weights: Tensor | None = None) -> float:
    """Mean cross-entropy of softmax(β·f)."""
    return _log_loss_at([beta], logits(outputs.double()), labels, weights)[0]


def log_losses(outputs: Tensor, labels: Tensor, beta: float) -> Tensor:
    """(N,) cross-entropy of softmax(β·f) of every sample."""
    scores = beta * logits(outputs.double())
    return F.cross_entropy(scores, labels.to(outputs.device), reduction="none")


def fit_temperature(outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> tuple[float, float]:
    """Inverse temperature β that minimises the cross-entropy of softmax(β·f), and that cross-entropy."""
    scores = logits(outputs.double())
    beta = _minimiser(lambda betas: _log_loss_at(betas, scores, labels, weights))
    return beta, _log_loss_at([beta], scores, labels, weights)[0]


def calibrate(outputs: Tensor, labels: Tensor, weights: Tensor | None = None, mistakes: float = MISTAKES) -> float:
    """Inverse temperature for predictions: the best fit to all samples and to ``mistakes`` more, whose label is the
    class that comes second, on average over the samples.
    """
    scores = logits(outputs.double())
    others = scores.scatter(1, labels.to(scores.device)[:, None], -torch.inf)
    second = others.argmax(1)
    total = float(len(labels) if weights is None else weights.sum())

    def losses(betas: Sequence[float]) -> list[float]:
        own, mistaken = (_log_loss_at(betas, scores, y, weights) for y in (labels, second))
        return [(total * a + mistakes * b) / (total + mistakes) for a, b in zip(own, mistaken, strict=True)]

    return _minimiser(losses)


def probabilities(outputs: Tensor, beta: float) -> Tensor:
    """softmax(β·f), (N, n_classes), in float64."""
    return torch.softmax(beta * logits(outputs.double()), 1)


def _log_loss_at(betas: Sequence[float], scores: Tensor, labels: Tensor, weights: Tensor | None) -> list[float]:
    """Mean cross-entropy of softmax(β·scores) for every β, several at once: on a GPU every number costs a wait."""
    labels, at_once = labels.to(scores.device), max(1, _ENTRIES // max(1, scores.numel()))
    weights = None if weights is None else weights.to(scores)
    means = []
    for some in torch.tensor(betas, dtype=scores.dtype, device=scores.device).split(at_once):
        every = (some[:, None, None] * scores).flatten(0, 1)
        losses = F.cross_entropy(every, labels.repeat(len(some)), reduction="none").unflatten(0, (len(some), -1))
        means.append(losses.mean(1) if weights is None else losses @ weights / weights.sum())
    return torch.cat(means).tolist()


def _minimiser(losses: Callable[[Sequence[float]], list[float]]) -> float:
    """Of a function that is convex in β: a grid, then a parabola through its best three points in log β.

    Convexity lets every eighth point of the grid say between which two the best one is, and every fourth, and so on.
    """
    known: dict[int, float] = {}

    def best(points: Sequence[int]) -> int:
        new = [k for k in points if 0 <= k < len(_GRID) and k not in known]
        known.update(zip(new, losses(_GRID[new].tolist()) if new else (), strict=True))
        return min(known, key=lambda k: known[k])

    k, step = best(range(0, len(_GRID), _STEP)), _STEP // 2
    while step:
        k, step = best((k - step, k + step)), step // 2
    k = min(max(k, 1), len(_GRID) - 2)
    best((k - 1, k, k + 1))
    left, mid, right = (known[i] for i in (k - 1, k, k + 1))
    bend = left - 2 * mid + right
    shift = 0.5 * (left - right) / bend if bend > 0 else 0.0
    return float(_GRID[k]) * 10 ** (max(-1.0, min(1.0, shift)) * 0.05)
