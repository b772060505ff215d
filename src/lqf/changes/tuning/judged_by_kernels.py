"""Models at any strengths judged in closed form: by leaving their own samples out, or on validation images.

Nothing is solved for one of them alone: outputs, and their derivatives by both strengths, come from the factorised
kernel of the training rows, and, for other images, from their kernel with these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lqf.changes.tuning.strength_kernels import StrengthKernels
from lqf.data import Images
from lqf.fitting import TrainingProblem
from lqf.fitting.select_ridge import Judge
from lqf.kernels.cross import body_cross, head_cross
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.ridge_slopes import RidgeSlopes
from lqf.linear.inputs import average_views
from lqf.linear.ridge import Ridge


class Outputs(Protocol):
    """What models at other strengths say of some images, none of which they have seen."""

    def at(self, kernels: StrengthKernels, ridge: Ridge) -> Tensor:
        """(N, C)."""
        ...

    def slopes(self, kernels: StrengthKernels, ridge: Ridge) -> tuple[Tensor, Tensor | None]:
        """Their derivatives by log μ_head with ω fixed, and by log ω with μ_head fixed; None: a head alone."""
        ...


@dataclass(frozen=True)
class LeftOut:
    """The training samples, each left out.

    Attributes:
        judge: of the samples that the kernels cover.
        first: so many views speak for a sample; None: all.
    """

    judge: Judge
    first: int | None = None

    def at(self, kernels: StrengthKernels, ridge: Ridge) -> Tensor:
        """t − e^loo."""
        return self.judge.outputs(self.residuals(kernels, ridge), self.first)

    def residuals(self, kernels: StrengthKernels, ridge: Ridge) -> Tensor:
        """(n, C) e^loo of the rows."""
        return self._rows(kernels.at(ridge).loo(kernels.residual, ridge.head))

    def slopes(self, kernels: StrengthKernels, ridge: Ridge) -> tuple[Tensor, Tensor | None]:
        """Of the outputs: minus those of e^loo."""
        here = RidgeSlopes(kernels.at(ridge), ridge.head, kernels.residual)
        by_omega = None if kernels.body is None else here.loo_along(kernels.by_omega(ridge))
        return self._averaged(-here.loo_by_mu()), None if by_omega is None else self._averaged(-by_omega)

    def _rows(self, e: Tensor) -> Tensor:
        return e.view(len(self.judge.targets), -1)

    def _averaged(self, e: Tensor) -> Tensor:
        return average_views(self._rows(e), self.judge.n_views, self.first)


@dataclass(frozen=True)
class Validated:
    """Labelled images that no model was fitted on.

    Attributes:
        base: (N, C) outputs at δ = 0.
        head: (N, n) z̃·z̃_i, or over pairs (NC, nC).
        body: (NC, nC) the body's kernel at ω = 1; None for a head alone.
    """

    base: Tensor
    head: Tensor
    body: Tensor | None

    @classmethod
    def of(cls, problem: TrainingProblem, images: Images, *, head_alone: bool) -> Validated:
        """By a pass over them and, below a body, one over the training rows."""
        asked = problem.encode(images)
        views, c = asked.inputs.n_views, problem.model.n_outputs
        base = average_views(problem.model.base(asked.features), views).double()
        head, body = average_views(head_cross(asked.features, problem.features), views), None
        if not head_alone:
            problem.encoder.prepare()
            rows = body_cross(problem.quadratic, asked.inputs, progress=problem.context.progress)
            body = average_views(rows.view(len(asked.inputs), -1), views).view(len(images) * c, -1)
            body *= problem.ridge.body / problem.ridge.head
            head = torch.kron(head, torch.eye(c).to(head))
        return cls(base, head, body)

    def at(self, kernels: StrengthKernels, ridge: Ridge) -> Tensor:
        """c + (K_head + K_body/ω) a."""
        return self._outputs(self._kernel(ridge) @ self._dual(kernels, ridge)) + self.base

    def slopes(self, kernels: StrengthKernels, ridge: Ridge) -> tuple[Tensor, Tensor | None]:
        """K a′ along μ; K a′ − (K_body/ω) a along ω."""
        kernel, here = self._kernel(ridge), RidgeSlopes(kernels.at(ridge), ridge.head, kernels.residual)
        by_mu = self._outputs(kernel @ here.dual_by_mu())
        if self.body is None:
            return by_mu, None
        omega = ridge.body / ridge.head
        moved = kernel @ here.dual_along(kernels.by_omega(ridge)) - self.body @ self._dual(kernels, ridge) / omega
        return by_mu, self._outputs(moved)

    def _kernel(self, ridge: Ridge) -> Tensor:
        return self.head if self.body is None else torch.add(self.head, self.body, alpha=ridge.head / ridge.body)

    def _dual(self, kernels: StrengthKernels, ridge: Ridge) -> Tensor:
        factor: KernelRidge = kernels.at(ridge)
        return factor.dual(kernels.residual, ridge.head)

    def _outputs(self, f: Tensor) -> Tensor:
        return f.view(self.base.shape)


@dataclass(frozen=True)
class ByKernels:
    """Outputs of one model at any strengths, in closed form.

    Attributes:
        kernels: of the training rows.
        images: those that judge.
    """

    kernels: StrengthKernels
    images: Outputs
    passes: int = 0

    def outputs(self, ridge: Ridge) -> Tensor:
        """(N, C)."""
        return self.images.at(self.kernels, ridge)

    def slope(self, ridge: Ridge, u: Tensor) -> tuple[float, float]:
        """Along log μ_head, with which ω falls, and log μ_body, of a loss with derivatives u (N, C) by the outputs."""
        by_mu, by_omega = self.images.slopes(self.kernels, ridge)
        along, body = (0.0 if d is None else float((u.to(d) * d).sum()) for d in (by_mu, by_omega))
        return along - body, body
