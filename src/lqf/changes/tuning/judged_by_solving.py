"""Models at any strengths judged on validation images where the kernel is too large: each is solved by iteration.

With u the derivative of the loss by the validation outputs and M = diag(μ_head, M_body),

    dδ*/dlog μ_g = −H⁻¹ M_g δ*,     dL/dlog μ_g = −⟨x_g, M_g δ*_g⟩,     x = H⁻¹ J_xᵀu:

one more solve with the same matrix gives both derivatives; Mδ* = JᵀSe makes their sum −⟨J x, S e⟩, e the training
residuals. Every solve begins at the solution before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from lqf.analysis.responses import Responses
from lqf.data import Images
from lqf.fitting import TrainingProblem
from lqf.linear.encoded import EncodedInputs
from lqf.linear.ridge import Ridge
from lqf.runtime.precision import matmul_precision
from lqf.solvers.solution import Solution

SLOPE_TOL = 1e-2
"""Relative residual of the solve for a slope; that of the solutions is the settings'."""
SLOPE_PRODUCTS = 100
REDUCTION = 0.1
"""Of the body's residual, in the solve for a slope, at the least."""


@dataclass(eq=False)
class BySolving:
    """Judges strengths by solutions.

    Attributes:
        problem: at the strengths of the model.
        validation: labelled images that it was not fitted on.
        start: (D,) the model's body.
        tol: relative residual of all solves; None: the settings' tolerance for outputs, and `SLOPE_TOL` of slopes.
        last: the solution that was reached last, and its strengths.
        passes: over the training data, of all solutions so far.
    """

    problem: TrainingProblem
    validation: Images
    start: Tensor
    tol: float | None = None
    last: tuple[Ridge, Solution] | None = field(default=None, repr=False)
    passes: int = 0

    def outputs(self, ridge: Ridge) -> Tensor:
        """(N, C), by a solve from where the last one ended."""
        problem = self.problem.with_ridge(ridge)
        return problem.outputs(self.validation, self._solved(problem).delta)

    def slope(self, ridge: Ridge, u: Tensor) -> tuple[float, float]:
        """Of a loss with derivatives u (N, C) by these outputs, along log μ_head and log μ_body."""
        problem = self.problem.with_ridge(ridge)
        delta = self._solved(problem).delta
        curvature = problem.curvature  # before activations take the memory
        responses = Responses(
            problem.schur(fast=True),
            curvature,
            tol=self.tol or SLOPE_TOL,
            max_products=SLOPE_PRODUCTS,
            progress=problem.context.progress,
            reduction=REDUCTION,
        )
        views = self.validation.n_views
        rows = (u / views).repeat_interleave(views, 0)[None].to(problem.features)
        p, x = responses.with_bodies(self._asked, rows)
        with matmul_precision(fast=False):
            e = problem.measured.residuals(delta).double()
        both = -float((p[0].to(e) * e).sum())
        body = -float((x[0] * problem.quadratic.body_ridge * problem.model.split(delta)[1]).double().sum())
        problem.release()
        return both - body, body

    def _solved(self, problem: TrainingProblem) -> Solution:
        """The optimum, from where the last solve ended."""
        if self.last is None or self.last[0] != problem.ridge:
            self.last = problem.ridge, problem.solve(self.start.to(problem.quadratic.targets), tol=self.tol)
            self.start = problem.body(self.last[1])
            self.passes += self.last[1].certificate.passes
            problem.release()
        return self.last[1]

    @cached_property
    def _asked(self) -> EncodedInputs:
        """The validation images with their features, which no strength changes."""
        return self.problem.encode(self.validation)
