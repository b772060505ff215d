"""Weight decay by the gradient of a validation loss, through the linear system.

Both ridge strengths are multiplied by e^τ. With V(δ) = (1/n) Σ ½‖t − f(x; δ)‖² over validation images and u its
derivative by their outputs f,

    dδ*/dτ = −H⁻¹ M δ*,     dV/dτ = −⟨H⁻¹ J_xᵀu, M δ*⟩ = −⟨P, e⟩,     P = (uᵀJ_x) H⁻¹ Jᵀ S,

because Mδ* = JᵀSe at the optimum, e being the training residuals. P is one more linear solve with the same matrix
(`lqf.analysis.responses`), so the exact slope costs about as much as the solution itself. Products of both are fast
ones; right-hand sides, residuals e and P, and the residuals of the solves are measured by exact passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from lqf.analysis.responses import Responses
from lqf.data import Images
from lqf.errors import MissingDependency
from lqf.fitting import TrainingProblem
from lqf.linear.encoded import EncodedInputs
from lqf.linear.targets import encode, error_rate
from lqf.runtime.precision import matmul_precision

STRIDE, CLOSE, FLAT = 10.0, 0.3, 5e-3
"""Factor between weight decays while the slope keeps its sign; how well log λ is found after that; and the relative
slope dV/dτ/V from which on there is nothing to gain."""
REDUCTION = 0.1
"""Of the body's residual, in the solve for a slope, at the least."""


@dataclass(frozen=True)
class Tried:
    """One weight decay.

    Attributes:
        scale: e^τ.
        loss: V.
        slope: dV/dτ.
        error: share of wrong predictions on the validation images.
        passes: over the training data, for the solution.
        residual: relative residual of the solution.
        slope_residual: relative residual of the solve for the slope.
    """

    scale: float
    loss: float
    slope: float
    error: float
    passes: int
    residual: float
    slope_residual: float


@dataclass
class Search:
    """Solutions of one problem along its weight decay, each from where the last one ended.

    Attributes:
        problem: at e^τ = 1.
        validation: labelled images that it is not trained on.
        tol: relative residual of all solves.
        max_products: of the solve for a slope.
    """

    problem: TrainingProblem
    validation: Images
    tol: float = 1e-2
    max_products: int = 100
    tried: list[Tried] = field(default_factory=list)
    _start: Tensor | None = None

    def at(self, scale: float) -> Tried:
        """Loss and slope at e^τ = ``scale``."""
        problem = self.problem.with_ridge(self.problem.ridge.scaled(scale))
        solution = problem.solve(self._start, tol=self.tol)
        self._start = problem.body(solution)
        outputs = problem.outputs(self.validation, solution.delta)
        labels = torch.tensor(self.validation.samples.labels)
        targets = encode(labels, len(self.validation.samples.classes), problem.context.settings.alpha)
        gap = outputs - targets.to(outputs)
        proof = solution.certificate
        slope, worst = self._slope(problem, solution.delta, gap / len(gap))
        loss, error = float(gap.square().sum() / 2 / len(gap)), error_rate(outputs, labels)
        found = Tried(scale, loss, slope, error, proof.passes, proof.relative_residual, worst)
        self.tried.append(found)
        return found

    def _slope(self, problem: TrainingProblem, delta: Tensor, u: Tensor) -> tuple[float, float]:
        """−⟨P, e⟩ for the derivative u (N, C) of V by the validation outputs, and the residual of its solve."""
        v, progress = self.validation.n_views, problem.context.progress
        curvature = problem.curvature  # before activations take the memory
        responses = Responses(problem.schur(fast=True), curvature, self.tol, self.max_products, progress, REDUCTION)
        with matmul_precision(fast=False):
            p, worst = responses.of(self._asked, (u / v).repeat_interleave(v, 0)[None])
            e = problem.measured.residuals(delta).double()
        return -float((p[0].to(e) * e).sum()), worst

    @cached_property
    def _asked(self) -> EncodedInputs:
        """The validation images with their features, which no weight decay changes."""
        return self.problem.encode(self.validation)


def descend(
    search: Search, *, low: float = 1e-3, high: float = 1e3, flat: float = FLAT, close: float = CLOSE
) -> list[Tried]:
    """Follow the slope downhill by factors of `STRIDE` until its sign changes, then close in on where it is zero.

    Between the scales ``low`` and ``high``, until the slope is ``flat`` or log λ is known to ``close``; every one that
    was tried, in turn.
    """
    try:
        from scipy.optimize import brentq
    except ImportError as e:
        raise MissingDependency("scipy", "the search for a weight decay") from e
    seen: dict[float, Tried] = {}

    def slope(tau: float) -> float:
        if tau not in seen:
            seen[tau] = search.at(math.exp(tau))
        here = seen[tau]
        return 0.0 if abs(here.slope) <= flat * here.loss else here.slope

    here = 0.0
    stride = -math.copysign(math.log(STRIDE), slope(here))
    while slope(here) * stride < 0:
        there = min(max(here + stride, math.log(low)), math.log(high))
        if there == here:
            return list(seen.values())  # the best is at the end of the range
        if slope(there) * stride >= 0:
            brentq(slope, here, there, xtol=close, maxiter=10, disp=False)
            break
        here = there
    return list(seen.values())
