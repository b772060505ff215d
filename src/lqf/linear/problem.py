"""The quadratic objective, over all rows of the training data.

    L(δ) = ½ Σ s_i ‖r_i − J_i δ‖² + ½ μ_head ‖V‖² + ½ Σ_s μ_s ‖δ_s‖²,     r_i = t_i − f(x_i; δ = 0),

    H = Σ s_i J_iᵀJ_i + M,  b = Σ s_i J_iᵀ r_i,  δ* = H⁻¹ b,     M = diag(μ_head, μ_1, …, μ_S),

with one ridge strength for all of the body's weights or one for each of its stages (`lqf.linear.ridge`).

Sums, not means: removing a sample leaves every other term as it was. λ = μ/N is the weight decay per sample. Where many
processes share the rows, each sweeps its own, and every result is added up over the processes once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.model import LinearModel
from lqf.linear.ridge import Ridge, spread


@dataclass(frozen=True)
class QuadraticProblem:
    """min_δ L(δ) for a linear model and a training set.

    Attributes:
        model: gives J.
        inputs: the rows' network inputs.
        targets: (n, C) t_i.
        weights: (n,) s_i; the V views of an image share its weight, 1/V each.
        fold: (n,) which of the model's heads each row uses.
        ridge: the ridge strengths.
    """

    model: LinearModel
    inputs: Inputs
    targets: Tensor
    weights: Tensor
    fold: Tensor
    ridge: Ridge

    def with_ridge(self, ridge: Ridge) -> QuadraticProblem:
        """The same data and model with other ridge strengths."""
        return replace(self, ridge=ridge)

    def with_body(self, body: Linearization) -> QuadraticProblem:
        """The same problem with its Jacobian computed in another way."""
        return replace(self, model=replace(self.model, body=body))

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return self.model.size

    def zero(self) -> Tensor:
        """δ = 0."""
        return torch.zeros(self.size, dtype=self.targets.dtype, device=self.targets.device)

    def zero_body(self) -> Tensor:
        """The body's part of `zero`."""
        return self.zero()[self.model.head_size :]

    @cached_property
    def body_ridge(self) -> float | Tensor:
        """μ of every entry of the body (D,); a number where all have the same."""
        layout = self.model.body.layout
        return spread(self.ridge.along(layout), layout, self.targets)

    def penalty_gradient(self, delta: Tensor) -> Tensor:
        """Mδ."""
        h = self.model.head_size
        return torch.cat([self.ridge.head * delta[:h], self.body_ridge * delta[h:]])

    def initial_residual(self, features: Tensor) -> Tensor:
        """r (n, C) from the features of all rows (n, p)."""
        return self.targets - self.model.base(features, self.fold)

    def rhs(self) -> Tensor:
        """b = Σ s_i J_iᵀ r_i."""
        out = self.zero()
        for rows, x in self.inputs.batches():
            out += self.model.vjp(x, self._weighted_initial(rows), self.fold[rows])
        return self._sum(out)

    def product(self, v: Tensor) -> Tensor:
        """H v, one pass over the data."""
        out = self.zero()
        for rows, x in self.inputs.batches():
            out += self.model.fused(x, v, self._weighted(rows), self.fold[rows])[1]
        return self._sum(out).add_(self.penalty_gradient(v))

    def negative_gradient(self, delta: Tensor) -> Tensor:
        """b − Hδ from the data's own residuals (no cancellation against a stored b), one pass."""
        return self.measure(delta)[0]

    def measure(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """b − Hδ, and the residuals e_i = r_i − J_i δ of all rows (n, C), in one pass."""
        out, e = self.zero(), torch.zeros_like(self.targets)

        def cotangent(rows: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
            def weighted(z: Tensor, jd: Tensor) -> Tensor:
                e[rows] = self._initial(rows, z) - jd
                return self.weights[rows, None] * e[rows]

            return weighted

        for rows, x in self.inputs.batches():
            out += self.model.fused(x, delta, cotangent(rows), self.fold[rows])[1]
        return self._sum(out).sub_(self.penalty_gradient(delta)), self._sum(e)

    def batch_negative_gradient(self, rows: Tensor, x: Tensor, delta: Tensor) -> Tensor:
        """Σ s_i J_iᵀ(r_i − J_i δ) over some rows, whose inputs x may be augmented; without the ridge term."""
        s = self.weights[rows, None]
        return self.model.fused(x, delta, lambda z, jd: s * (self._initial(rows, z) - jd), self.fold[rows])[1]

    def from_dual(self, u: Tensor) -> Tensor:
        """M⁻¹ Jᵀ u for u (n, C), one pass."""
        out = self.zero()
        for rows, x in self.inputs.batches():
            out += self.model.vjp(x, constant(u[rows]), self.fold[rows])
        self._sum(out)
        h = self.model.head_size
        out[:h] /= self.ridge.head
        out[h:] /= self.body_ridge
        return out

    def body_jvp(self, v: Tensor) -> Tensor:
        """J_i v of all rows, (n, C), for a body v (D,), by a forward-mode pass; (k, n, C) for several (k, D), which
        share every batch.
        """
        many = v.view(-1, v.shape[-1])
        out = self.targets.new_zeros(len(many), *self.targets.shape)
        for rows, x in self.inputs.batches():
            for k, one in enumerate(many):
                out[k, rows] = self.model.body_jvp(x, one, self.fold[rows])
        return self._sum(out).view(*v.shape[:-1], *self.targets.shape)

    def body_vjp(self, u: Tensor) -> Tensor:
        """The body's part of Jᵀu, (D,), for u (n, C), one pass; (k, D) for several (k, n, C), sharing every batch."""
        many = u.view(-1, *self.targets.shape)
        out = u.new_zeros(len(many), self.model.body.size)
        for rows, x in self.inputs.batches():
            for k, one in enumerate(many):
                out[k] += self.model.body_vjp(x, one[rows], self.fold[rows])
        return self._sum(out).view(*u.shape[:-2], -1)

    def residuals(self, delta: Tensor) -> Tensor:
        """e_i = r_i − J_i δ for all rows, (n, C), by a forward pass."""
        e = torch.zeros_like(self.targets)
        for rows, x in self.inputs.batches():
            z, jd = self.model.jvp(x, delta, self.fold[rows])
            e[rows] = self._initial(rows, z) - jd
        return self._sum(e)

    def value(self, delta: Tensor) -> float:
        """L(δ), in float64."""
        e = self.residuals(delta).double()
        fit = (self.weights.double()[:, None] * e.square()).sum()
        return float(0.5 * fit + 0.5 * (delta.double() * self.penalty_gradient(delta).double()).sum())

    def _sum(self, out: Tensor) -> Tensor:
        """Over all processes, in place; rows of other processes are zero."""
        return self.inputs.world.all_reduce_(out)

    def _weighted(self, rows: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        s = self.weights[rows, None]
        return lambda _, jv: s * jv

    def _weighted_initial(self, rows: Tensor) -> Callable[[Tensor], Tensor]:
        s = self.weights[rows, None]
        return lambda z: s * self._initial(rows, z)

    def _initial(self, rows: Tensor, z: Tensor) -> Tensor:
        return self.targets[rows] - self.model.base(z, self.fold[rows])


def subproblem(problem: QuadraticProblem, samples: Tensor) -> QuadraticProblem:
    """The same problem over some of the samples, with all of their views."""
    rows = rows_of(problem, samples)
    return replace(
        problem,
        inputs=problem.inputs.take(samples),
        targets=problem.targets[rows],
        weights=problem.weights[rows],
        fold=problem.fold[rows],
    )


def without_weight(problem: QuadraticProblem, rows: Tensor) -> QuadraticProblem:
    """The same problem with weight on these rows alone; every row is still passed over."""
    return replace(problem, weights=torch.zeros_like(problem.weights).index_copy_(0, rows, problem.weights[rows]))


def rows_of(problem: QuadraticProblem, samples: Tensor) -> Tensor:
    """Row numbers of all views of some samples."""
    v = problem.inputs.n_views
    return (samples[:, None] * v + torch.arange(v)).flatten().to(problem.targets.device)


def constant(u: Tensor) -> Callable[[Tensor], Tensor]:
    """The cotangent u, whatever the features are."""
    return lambda _: u
