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

from collections.abc import Callable

import torch
from torch import Tensor

from lqf.kernels.ridge import KernelRidge
from lqf.linear import head_products
from lqf.linear.problem import Problem
from lqf.runtime.precision import matmul_precision


class Reduced:
    """The body's normal equations A δ = b, for `conjugate_gradients`.

    Args:
        problem: head and body together.
        features: (n, p) of all rows.
        ridge: the factorised kernel z̃z̃ᵀ of the head.
        fast: the same problem with a faster body, for products and the right-hand side; default: the problem itself.
        tf32: whether they may use TF32; true residuals never do.
    """

    def __init__(
        self,
        problem: Problem,
        features: Tensor,
        ridge: KernelRidge,
        fast: Problem | None = None,
        *,
        tf32: bool = True,
    ):
        self.problem, self.features, self.ridge = problem, features, ridge
        self.fast, self.tf32 = fast or problem, tf32
        self._measured: tuple[Tensor, Tensor] | None = None

    def product(self, v: Tensor) -> Tensor:
        """A v; FloatingPointError where it leaves the range of the fast type."""
        shrunk = self.problem.ridge.body * v
        return self._in_range(lambda: shrunk + self._pull(self.fast, self.fast.body_forward(v)))

    def rhs(self) -> Tensor:
        """b."""
        r = self.problem.initial_residual(self.features)
        return self._in_range(lambda: self._pull(self.fast, r))

    def unit(self) -> float:
        """The norm of the whole problem's right-hand side: the unit of the relative residual."""
        sr = self.problem.weights[:, None] * self.problem.initial_residual(self.features)
        body, head = self._in_range(lambda: self.fast.body_back(sr)), head_products.pull(sr, self.features)
        return float((body.double().square().sum() + head.square().sum()).sqrt())

    def residual(self, x: Tensor) -> Tensor:
        """b − A x: the body's part of the negative gradient at (best head, x); the head's part is zero."""
        self.problem.inputs.world.spread_(x)  # processes that round differently come together again here
        with matmul_precision(fast=False):
            return self._pull(self.problem, self._measure(x)) - self.problem.ridge.body * x

    def complete(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """δ = (best head, x), and the head's part of the negative gradient there, which only rounding leaves.

        Where ``x`` is not the body whose `residual` was measured last it takes a pass forward.
        """
        if self._measured is None or self._measured[0] is not x:
            self._measure(x)
        assert self._measured is not None
        r, mu = self._measured[1], self.problem.ridge.head
        v = head_products.pull(self.ridge.dual(r, mu), self.features).to(r)
        e = self.problem.weights[:, None] * (r - head_products.apply(self.features, v))
        return torch.cat([v.reshape(-1), x]), (head_products.pull(e, self.features) - mu * v).reshape(-1)

    def _measure(self, x: Tensor) -> Tensor:
        """r − J_body x, what is left for the head."""
        left = self.problem.initial_residual(self.features) - self.problem.body_forward(x)
        self._measured = x, left
        return left

    def _in_range(self, compute: Callable[[], Tensor]) -> Tensor:
        """What ``compute`` gives when its products stay in the range of their floating-point type."""
        with matmul_precision(self.tf32):
            while not bool(torch.isfinite(out := compute()).all()):
                if not self.fast.model.body.retreat():
                    raise FloatingPointError("a product is not finite")
        return out

    def _pull(self, problem: Problem, y: Tensor) -> Tensor:
        """J_bodyᵀ Q y."""
        e = self.ridge.residual(y, problem.ridge.head).to(y)
        return problem.body_back(problem.weights[:, None] * e)
