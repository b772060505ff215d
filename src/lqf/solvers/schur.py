"""The problem with its head eliminated: for every body, the best head is known in closed form.

With Z̃ the features of all rows and S their weights, minimising L over the head leaves a quadratic in the body alone,
the Schur complement of the head's block:

    min_V L(V, δ) = ½ (r − J_body δ)ᵀ Q (r − J_body δ) + ½ δᵀ M_body δ,     Q = S − S Z̃ (Z̃ᵀSZ̃ + μ_head)⁻¹ Z̃ᵀ S,

    A δ = b,     A = J_bodyᵀ Q J_body + M_body,     b = J_bodyᵀ Q r.

Head and body explain largely the same things (class means above all), so a preconditioner that treats them as
independent blocks converges slowly; without the head the body's problem is far better conditioned. Q mixes all rows, so
a product makes two sweeps over the data, one forward (J_body v) and one backward (J_bodyᵀ u): six units of arithmetic
instead of the fused product's five, and no more memory than an ordinary gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lqf.kernels.ridge_at import Elimination
from lqf.linear import head_products
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.precision import matmul_precision


class SchurComplement:
    """The body's normal equations A δ = b, for `conjugate_gradients`; A acts on several bodies (k, D) at once.

    Args:
        problem: head and body together.
        features: (n, p) of all rows.
        ridge: the factorised kernel z̃z̃ᵀ of the head.
        fast: the same problem with a faster body, for products and right-hand sides; default: the problem itself.
        tf32: whether they may use TF32; true residuals never do.
    """

    def __init__(
        self,
        problem: QuadraticProblem,
        features: Tensor,
        ridge: Elimination,
        fast: QuadraticProblem | None = None,
        *,
        tf32: bool = True,
    ):
        self.problem, self.features, self.ridge = problem, features, ridge
        self.fast, self.tf32 = fast or problem, tf32
        self._measured: tuple[Tensor, Tensor] | None = None

    def product(self, v: Tensor) -> Tensor:
        """A v; FloatingPointError where it leaves the range of the fast type."""
        return in_range(self.fast, lambda: self._product(self.fast, v), tf32=self.tf32)

    def exact_product(self, v: Tensor) -> Tensor:
        """A v by passes of the problem itself."""
        return in_range(self.problem, lambda: self._product(self.problem, v), tf32=False)

    def exact_parts(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """A v by passes of the problem itself, and J_body v."""
        moved = in_range(self.problem, lambda: self.problem.body_jvp(v), tf32=False)
        back = in_range(self.problem, lambda: self._weighted_vjp(self.problem, moved), tf32=False)
        return self.problem.body_ridge * v + back, moved

    def rhs(self) -> Tensor:
        """b (D,)."""
        r = self.problem.initial_residual(self.features)
        return in_range(self.fast, lambda: self._weighted_vjp(self.fast, r), tf32=self.tf32)

    def unit(self) -> float:
        """The norm of the whole problem's right-hand side: the unit of the relative residual."""
        sr = self.problem.weights[:, None] * self.problem.initial_residual(self.features)
        body = in_range(self.fast, lambda: self.fast.body_vjp(sr), tf32=self.tf32)
        head = head_products.vjp(sr, self.features)
        return float((body.double().square().sum() + head.square().sum()).sqrt())

    def output_norm(self) -> float:
        """√Σ s_i ‖f_i‖² of the training outputs under the best head alone: the unit of their distance to the optimum's.

        Where the head explains next to nothing, a tenth of the targets' own norm.
        """
        r = self.problem.initial_residual(self.features).double()
        root = self.problem.weights.double().sqrt()[:, None]
        explained = root * (r - self.eliminated(r).to(r))
        return float(torch.maximum(explained.norm(), 0.1 * (root * r).norm()))

    def residual(self, x: Tensor, which: Tensor | None = None) -> Tensor:
        """b − A x of one body x, (D,) or (1, D): the body's part of the negative gradient at (best head, x), whose
        head's part is zero.
        """
        self.problem.inputs.world.broadcast_(x)  # processes that round differently come together again here
        one = x.view(-1)
        with matmul_precision(fast=False):
            return (self._weighted_vjp(self.problem, self._left(one)) - self.problem.body_ridge * one).view_as(x)

    def residual_of(self, x: Tensor, left: Tensor) -> Tensor:
        """b − A x of a body (D,) whose r − J_body x (n, C) is known: the pass backward alone."""
        self.know(x, left)
        with matmul_precision(fast=False):
            return self._weighted_vjp(self.problem, left) - self.problem.body_ridge * x

    def know(self, x: Tensor, left: Tensor) -> None:
        """A body (D,) whose r − J_body x (n, C) is known, so that `complete` needs no pass for it."""
        self._measured = x, left

    def best_step(self, x: Tensor, left: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """x + αp of the least energy and its r − J_body (x + αp), from ``left``, that of x: a pass forward alone.

        α = ((J_body p)ᵀQ left − pᵀM x) / ((J_body p)ᵀQ J_body p + pᵀM p).
        """
        moved = in_range(self.problem, lambda: self.problem.body_jvp(p), tf32=False)
        weighed = self.problem.weights[:, None].double() * self.eliminated(moved).double()
        shrunk = (self.problem.body_ridge * p).double()
        along = (weighed * left.double()).sum() - (shrunk * x.double()).sum()
        curved = (weighed * moved.double()).sum() + (shrunk * p.double()).sum()
        alpha = torch.where(curved > 0, along / curved, 0.0).to(x)
        return x + alpha * p, left - alpha * moved

    def quick_residual(self, x: Tensor) -> Tensor:
        """b − A x of one body x (D,) by fast passes: one product, and b itself is not needed."""
        r = self.problem.initial_residual(self.features)

        def compute() -> Tensor:
            return self._weighted_vjp(self.fast, r - self.fast.body_jvp(x)) - self.problem.body_ridge * x

        return in_range(self.fast, compute, tf32=self.tf32)

    def complete(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """δ = (best head, x) for a body x (D,), the head's part of the negative gradient there, which only rounding
        leaves, and the residuals (n, C) of all rows.

        Where ``x`` is not the body whose `residual` was measured last it takes a pass forward.
        """
        r, mu = self.left(x), self.problem.ridge.head
        v = head_products.vjp(self.ridge.dual(r, mu), self.features).to(r)
        e = r - head_products.jvp(self.features, v)
        gap = head_products.vjp(self.problem.weights[:, None] * e, self.features) - mu * v
        return torch.cat([v.reshape(-1), x]), gap.reshape(-1), e

    def eliminated(self, y: Tensor) -> Tensor:
        """S⁻¹Q y for y (…, n, C): what is left of outputs once the best head has explained what it can."""
        e = self.ridge.residual(columns(y), self.problem.ridge.head).to(y)
        return stacked(e, y)

    def _product(self, problem: QuadraticProblem, v: Tensor) -> Tensor:
        return problem.body_ridge * v + self._weighted_vjp(problem, problem.body_jvp(v))

    def _weighted_vjp(self, problem: QuadraticProblem, y: Tensor) -> Tensor:
        """J_bodyᵀ Q y for y (…, n, C)."""
        return problem.body_vjp(problem.weights[:, None] * self.eliminated(y))

    def left(self, x: Tensor) -> Tensor:
        """r − J_body x (n, C) of a body (D,), what is left for the head: a pass forward where it is not known."""
        if self._measured is None or not torch.equal(self._measured[0], x):
            self._left(x)
        assert self._measured is not None
        return self._measured[1]

    def _left(self, x: Tensor) -> Tensor:
        left = self.problem.initial_residual(self.features) - self.problem.body_jvp(x)
        self._measured = x, left
        return left


def in_range(problem: QuadraticProblem, compute: Callable[[], Tensor], *, tf32: bool) -> Tensor:
    """What ``compute`` gives when the problem's products stay in the range of their floating-point type."""
    with matmul_precision(tf32):
        while not bool(torch.isfinite(out := compute()).all()):
            if not problem.model.body.rescale():
                raise FloatingPointError("a product is not finite")
    return out


def columns(y: Tensor) -> Tensor:
    """(k, n, C) -> (n, kC); (n, C) as it is."""
    return y if y.ndim == 2 else y.transpose(0, 1).flatten(1)


def stacked(e: Tensor, like: Tensor) -> Tensor:
    """The inverse of `columns`, in the shape of ``like``."""
    return e if like.ndim == 2 else e.unflatten(1, (len(like), -1)).transpose(0, 1)
