"""The problem with its head eliminated: for every body, the best head is known in closed form.

With Z̃ the features of all rows and S their weights, minimising L over the head leaves a quadratic in the body alone:

    min_V L(V, δ) = ½ (r − J_body δ)ᵀ Q (r − J_body δ) + ½ μ_body ‖δ‖²,     Q = S − S Z̃ (Z̃ᵀSZ̃ + μ_head)⁻¹ Z̃ᵀ S,

    (J_bodyᵀ Q J_body + μ_body I) δ = J_bodyᵀ Q r.

Head and body explain largely the same things (class means above all), so a preconditioner that treats them as
independent blocks converges slowly; without the head the body's problem is far better conditioned. Q mixes all rows, so
a product makes two sweeps over the data, one forward (J_body v) and one backward (J_bodyᵀ u): six units of arithmetic
instead of the fused product's five, and no more memory than an ordinary gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.kernel_ridge import KernelRidge
from lqf.model import with_one
from lqf.objective import Problem


@dataclass(frozen=True)
class Reduced:
    """The body's normal equations A δ = b, for `conjugate_gradients`.

    Attributes:
        problem: head and body together.
        features: (n, p) of all rows.
        ridge: the factorised kernel z̃z̃ᵀ of the head.
    """

    problem: Problem
    features: Tensor
    ridge: KernelRidge

    def product(self, v: Tensor) -> Tensor:
        """A v."""
        return self.problem.ridge.body * v + self._pull(self.problem.body_forward(v))

    def residual(self, x: Tensor) -> Tensor:
        """b − A x: the body's part of the negative gradient at (best head, x); the head's part is zero."""
        return self._pull(self._unexplained(x)) - self.problem.ridge.body * x

    def rhs(self) -> Tensor:
        """b: `residual` at zero, by one sweep."""
        return self._pull(self.problem.initial_residual(self.features))

    def complete(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """δ = (best head, x), and the head's part of the negative gradient there, which only rounding leaves."""
        r, mu = self._unexplained(x), self.problem.ridge.head
        z = with_one(self.features).double()
        v = (self.ridge.dual(r, mu).T @ z).to(r)
        e = self.problem.weights[:, None] * (r - with_one(self.features) @ v.T)
        return torch.cat([v.reshape(-1), x]), (e.T.double() @ z - mu * v).reshape(-1)

    def _unexplained(self, x: Tensor) -> Tensor:
        """r − J_body x (n, C), what is left for the head; processes that round differently come together again here."""
        self.problem.inputs.world.spread_(x)
        return self.problem.initial_residual(self.features) - self.problem.body_forward(x)

    def _pull(self, y: Tensor) -> Tensor:
        """J_bodyᵀ Q y."""
        e = self.ridge.residual(y, self.problem.ridge.head).to(y)
        return self.problem.body_back(self.problem.weights[:, None] * e)
