"""Downhill along the exact slope of a loss by the logarithms of a few strengths: quasi-Newton steps (BFGS)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

STEPS = 20
FLAT = 1e-5
"""Slope, relative to the loss, from which on there is nothing to gain."""
LONGEST = math.log(10.0)
"""Step of any strength's logarithm at most."""
FARTHEST = math.log(1e4)
"""From where it began, at most."""
ARMIJO, HALVINGS = 1e-4, 12

At = Callable[[Tensor], tuple[float, Tensor]]
"""Loss and slope (k,) at logarithms (k,)."""


def descend(at: At, start: Tensor, *, steps: int = STEPS, flat: float = FLAT) -> list[Tensor]:
    """The way: logarithms (k,), float64, with a lower loss each."""
    x = start.double()
    loss, g = at(x)
    way, inverse = [x], _unknown(g)
    for _ in range(steps):
        inwards = _within(x, start, -g).abs() > 0
        if not bool(inwards.any()) or float(g[inwards].abs().max()) <= flat * abs(loss):
            break
        step = _within(x, start, -inverse @ g)
        if float(step @ g) >= 0:  # at an end of the range, or a curvature that misleads
            inverse = _unknown(g)
            step = _within(x, start, -inverse @ g)
        found = _downhill(at, x, loss, g, step)
        if found is None:
            break
        there, loss, g_there = found
        inverse = _updated(inverse, there - x, g_there - g)
        x, g = there, g_there
        way.append(x)
    return way


def _unknown(g: Tensor) -> Tensor:
    """Before the curvature is known: a first step of e to the strength with the steepest slope."""
    return torch.eye(len(g), dtype=torch.float64) / g.abs().max().clamp_min(1e-300)


def _within(x: Tensor, start: Tensor, step: Tensor) -> Tensor:
    """Not too long, and not out of the range."""
    step = step * min(1.0, LONGEST / max(float(step.abs().max()), 1e-300))
    return (x + step).clamp(start - FARTHEST, start + FARTHEST) - x


def _downhill(at: At, x: Tensor, loss: float, g: Tensor, step: Tensor) -> tuple[Tensor, float, Tensor] | None:
    """The first of the step, its half, … at which the loss has fallen; None: it does not."""
    for _ in range(HALVINGS):
        if float(step.abs().max()) < 1e-6:
            return None
        there = x + step
        found, slope = at(there)
        if found <= loss + ARMIJO * float(step @ g):
            return there, found, slope
        step = step / 2
    return None


def _updated(inverse: Tensor, s: Tensor, y: Tensor) -> Tensor:
    """BFGS, where the slope has risen along the step."""
    sy = float(s @ y)
    if sy <= 1e-12 * float(s.norm() * y.norm()):
        return inverse
    left = torch.eye(len(s), dtype=s.dtype) - torch.outer(s, y) / sy
    return left @ inverse @ left.T + torch.outer(s, s) / sy
