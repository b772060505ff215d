"""H⁻¹g for right-hand sides of a change, by the means of the fit: closed form, factorised dual, conjugate gradients.

With K = J M⁻¹ Jᵀ·μ_head factorised, rows weighted by √s, Woodbury's identity is two passes over the training rows,

    H⁻¹g = M⁻¹ (g − μ_head Jᵀ √s (K + μ_head)⁻¹ √s J M⁻¹ g);

of the head alone all of it is products with the features. Where the kernel does not fit, the head is eliminated
(`lqf.solvers.schur`) and the body's part solved by conjugate gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lqf.analysis.responses import Shifted
from lqf.changes.constraints.asked import Directions
from lqf.fitting import FittedModel, TrainingProblem
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.ridge_at import Elimination
from lqf.linear import head_products
from lqf.runtime.precision import matmul_precision
from lqf.solvers.block_cg import conjugate_gradients
from lqf.solvers.pcg import body_preconditioner
from lqf.solvers.schur import in_range
from lqf.utils.exactness import Level

TOL = {torch.float32: 1e-5, torch.float64: 1e-8}
"""Relative residual of every iterative solve here."""
MOST_PRODUCTS = 400


class Inverse(Protocol):
    """Applies H⁻¹."""

    @property
    def level(self) -> Level:
        """How exact that is."""
        ...

    def solve(self, g: Directions) -> Directions:
        """H⁻¹g_j."""
        ...


def inverse_of(model: FittedModel, problem: TrainingProblem) -> Inverse:
    """As the model was solved."""
    if model.head_alone:
        return HeadInverse(problem, problem.head.ridge)
    problem.encoder.prepare()
    return DenseInverse(problem, _dual(problem)) if model.report.solver == "dense" else IterativeInverse(problem)


@dataclass(frozen=True)
class HeadInverse:
    """Of the head's block (Z̃ᵀSZ̃ + μ_head) ⊗ I, in float64, refined once."""

    problem: TrainingProblem
    ridge: Elimination
    level: Level = "exact"

    def solve(self, g: Directions) -> Directions:
        """Of the head alone; a body has no part in it."""
        rows = g.head.flatten(0, 1)
        x = self.once(rows)
        x = x + self.once(rows - self.product(x))
        return Directions(x.view_as(g.head), g.body)

    def once(self, g: Tensor) -> Tensor:
        """For rows g (m, p+1)."""
        mu, z = self.problem.ridge.head, self.problem.features
        return (g - head_products.vjp(self.ridge.dual(head_products.jvp(z, g), mu), z)) / mu

    def product(self, x: Tensor) -> Tensor:
        """H x of rows x (m, p+1)."""
        z, s = self.problem.features, self.problem.quadratic.weights.double()[:, None]
        return head_products.vjp(s * head_products.jvp(z, x), z) + self.problem.ridge.head * x


@dataclass(frozen=True)
class DenseInverse:
    """From the kernel of all (row, output) pairs, refined once."""

    problem: TrainingProblem
    ridge: KernelRidge
    level: Level = "exact"

    def solve(self, g: Directions) -> Directions:
        """By two rounds of two passes."""
        with matmul_precision(fast=False):
            x = self._once(g)
            return x.plus(self._once(g.plus(self._product(x), -1.0)))

    def _once(self, g: Directions) -> Directions:
        mu, start = self.problem.ridge.head, self._over_ridge(g)
        y = self._jvp(start)  # (k, n, C)
        a = self.ridge.dual(y.flatten(1).T, mu).T.view_as(y)
        return start.plus(self._over_ridge(self._vjp(a)), -mu)

    def _product(self, x: Directions) -> Directions:
        quadratic = self.problem.quadratic
        out = self._vjp(quadratic.weights.double()[:, None] * self._jvp(x))
        return out.plus(Directions(self.problem.ridge.head * x.head, quadratic.body_ridge * x.body))

    def _jvp(self, x: Directions) -> Tensor:
        head = head_products.jvp(self.problem.features, x.head.flatten(0, 1)).unflatten(1, (len(x), -1))
        return head.transpose(0, 1) + self.problem.measured.body_jvp(x.body).double()

    def _vjp(self, u: Tensor) -> Directions:
        head = head_products.vjp(u.transpose(0, 1).flatten(1), self.problem.features).unflatten(0, (len(u), -1))
        return Directions(head, self.problem.measured.body_vjp(u.to(self.problem.quadratic.targets)))

    def _over_ridge(self, g: Directions) -> Directions:
        quadratic = self.problem.quadratic
        return Directions(g.head / quadratic.ridge.head, g.body / quadratic.body_ridge)


class IterativeInverse:
    """By conjugate gradients with the head eliminated; several right-hand sides share every pass."""

    level: Level = "solved"

    def __init__(self, problem: TrainingProblem):
        self.problem, self.curvature = problem, problem.curvature
        self.schur = problem.schur()
        self.head = HeadInverse(problem, self.schur.ridge)

    def solve(self, g: Directions) -> Directions:
        """x_body from (S C-weighted normal equations) x_body = g_body − J_bodyᵀh, then the best head."""
        problem, mu, s = self.schur.problem, self.schur.problem.ridge.head, self.schur.problem.weights.double()
        with matmul_precision(fast=False):
            h = self.schur.ridge.dual(head_products.jvp(self.schur.features, g.head.flatten(0, 1)), mu)
            h = h.unflatten(1, (len(g), -1)).transpose(0, 1).to(problem.targets)  # (k, n, C)
            b = g.body - in_range(problem, lambda: problem.body_vjp(h), tf32=False)
            reached = conjugate_gradients(
                Shifted(self.schur, b),
                body_preconditioner(self.curvature, problem),
                torch.zeros_like(b),
                b,
                torch.minimum(g.norms(), torch.linalg.vector_norm(b, dim=1, dtype=torch.float64)).to(b.device),
                tol=TOL[b.dtype],
                max_passes=MOST_PRODUCTS,
                progress=self.problem.context.progress,
            )
            moved = in_range(problem, lambda: problem.body_jvp(reached.x), tf32=False).double()
            explained = head_products.vjp((s[:, None] * moved).transpose(0, 1).flatten(1), self.schur.features)
        rest = Directions(g.head - explained.view_as(g.head), g.body)
        return Directions(self.head.solve(rest).head, reached.x)


def _dual(problem: TrainingProblem) -> KernelRidge:
    """The kernel of all (row, output) pairs, as the fit kept it or made again."""
    if problem.factorised is not None:
        return problem.factorised
    return problem.exact_kernels("constrain it on a machine with more memory").factorise(problem.ridge)
