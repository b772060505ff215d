"""How outputs answer to the training targets, by one solve for each of them: P = J_x H⁻¹ Jᵀ S.

With the head eliminated (`lqf.solvers.schur`), Z̃ the training rows' features and C = I − H of the head alone, an
output uᵀf(x) with features z̃ answers by

    h = S Z̃ (Z̃ᵀSZ̃ + μ_head)⁻¹ z̃ uᵀ                                 what the head alone would do,
    (J_bodyᵀ S C J_body + μ_body) v = J_body(x)ᵀu − J_bodyᵀ h         one solve,
    P = h + S C J_body v                                              one forward pass over all training rows.

Any weighted sum of outputs of any images is one right-hand side; several are solved side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.curvature import KFAC
from lqf.errors import LQFError
from lqf.linear import head_products
from lqf.linear.encoded import EncodedInputs
from lqf.linear.inputs import average_views
from lqf.linear.model import with_one
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.solvers.block_cg import conjugate_gradients
from lqf.solvers.pcg import body_preconditioner
from lqf.solvers.schur import SchurComplement, columns, in_range
from lqf.utils.progress import SILENT, Progress

MOST_AT_ONCE = 32


@dataclass(frozen=True)
class Responses:
    """Solves for a problem with its head eliminated.

    Attributes:
        schur: the training problem without its head; right-hand sides, true residuals and answers are by exact passes.
        curvature: K-FAC of the body, as preconditioner.
        tol: relative residual of every solve.
        max_products: after which a solve gives up; the residual is returned, whatever it is.
        progress: where to report.
        reduction: None: residuals are relative to the right-hand side with the head eliminated. A number: relative to
            that of head and body together, as a solution's certificate is, and a solve does not end before the former
            has become this many times smaller, or the head alone might do.
    """

    schur: SchurComplement
    curvature: KFAC | None
    tol: float
    max_products: int = 200
    progress: Progress = SILENT
    reduction: float | None = None

    @property
    def problem(self) -> QuadraticProblem:
        """The training problem."""
        return self.schur.problem

    @property
    def features(self) -> Tensor:
        """(n, p) of its rows."""
        return self.schur.features

    @property
    def at_once(self) -> int:
        """Right-hand sides that are solved side by side: eight vectors each fit into an eighth of the memory.

        Their inner products take half as much again, and passes that are recorded now take the most.
        """
        one = 8 * self.problem.model.body.size * self.problem.targets.element_size()
        here = max(1, min(MOST_AT_ONCE, available_bytes(self.problem.targets.device) // (8 * max(one, 1))))
        return int(min(self.problem.inputs.world.all_gather(here)))

    def of(self, asked: EncodedInputs, u: Tensor) -> tuple[Tensor, float]:
        """P (k, n, C), float64, of the sums of outputs with weights u (k, rows, C); and the worst relative residual."""
        parts = [self._some(asked, part) for part in u.split(self.at_once)]
        return torch.cat([p for p, _ in parts]), max(worst for _, worst in parts)

    def every_output(self, asked: EncodedInputs) -> tuple[Tensor, float]:
        """P (Q·C, n, C) of every output of every image, averaged over its views."""
        self._check_memory(len(asked.features) // asked.inputs.n_views * self.problem.model.n_outputs)
        parts = [self._some(asked, u) for u in asked.every_output(self.problem.model.n_outputs).split(self.at_once)]
        return torch.cat([p for p, _ in parts]), max(worst for _, worst in parts)

    def covariance(self, asked: EncodedInputs) -> tuple[Tensor, float]:
        """J_x H⁻¹ J_xᵀ (Q, C, C) of every image, averaged over its views; and the worst relative residual.

        With h₀ the head's response to z̃, v the solution for output c: a row is z̃ᵀ(Z̃ᵀSZ̃ + μ)⁻¹z̃ e_c + J_x v − h₀ᵀJv.
        """
        c, n_views = self.problem.model.n_outputs, asked.inputs.n_views
        z = average_views(asked.features, n_views).to(self.features)
        k = head_products.jvp(self.features, with_one(z)).double()  # (n, Q)
        h = self.schur.ridge.dual(k, self.problem.ridge.head)  # (n, Q)
        head = (with_one(z).double().square().sum(1) - (k * h).sum(0)) / self.problem.ridge.head
        found = torch.zeros(len(z) * c, c, dtype=torch.float64, device=head.device)
        worst, u = 0.0, asked.every_output(c)
        for some in torch.arange(len(u), device=u.device).split(self.at_once):
            v, moved, residual = self._solve(asked, u[some])[1:]
            own = torch.stack([asked.body_jvp(self.problem.model, one, q) for one, q in zip(v, some // c, strict=True)])
            found[some] = own.double() - torch.einsum("nk,knc->kc", h[:, some // c], moved)
            worst = max(worst, residual)
        found = found.view(-1, c, c) + head[:, None, None] * torch.eye(c).to(head)
        return (found + found.mT) / 2, worst

    def _check_memory(self, answers: int) -> None:
        need, free = 8 * answers * self.problem.targets.numel(), available_bytes(self.problem.targets.device)
        if need > free // 2:
            raise LQFError(
                f"the effects on {answers} outputs need {need / 2**30:.1f} GB and {free / 2**30:.1f} GB are free; "
                "ask about fewer images at a time"
            )

    def with_bodies(self, asked: EncodedInputs, u: Tensor) -> tuple[Tensor, Tensor]:
        """P (k, n, C) of few sums of outputs, and the body's part (k, D) of H⁻¹J_xᵀu."""
        h, v, moved, _ = self._solve(asked, u)
        return self._products(h, moved), v

    def _some(self, asked: EncodedInputs, u: Tensor) -> tuple[Tensor, float]:
        h, _, moved, worst = self._solve(asked, u)
        return self._products(h, moved), worst

    def _products(self, h: Tensor, moved: Tensor) -> Tensor:
        """P (k, n, C)."""
        s = self.problem.weights.double()
        return h + s.to(h)[:, None] * self.schur.eliminated(moved)

    def _solve(self, asked: EncodedInputs, u: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
        """h (k, n, C), v (k, D), J_body v (k, n, C) in float64, and the worst relative residual."""
        problem, schur, k = self.problem, self.schur, len(u)
        mu = problem.ridge.head
        with matmul_precision(fast=False):
            gradient = head_products.vjp(columns(u), asked.features)  # (kC, p+1)
            h = schur.ridge.dual(head_products.jvp(self.features, gradient), mu)  # (n, kC)
            h = h.unflatten(1, (k, -1)).transpose(0, 1)  # (k, n, C)
            own = in_range(problem, lambda: asked.body_vjp(problem.model, u.to(problem.targets)), tf32=False)
            b = own - in_range(problem, lambda: problem.body_vjp(h.to(problem.targets)), tf32=False)
            unit, size = self._units(gradient.unflatten(0, (k, -1)), own, b)
            reached = conjugate_gradients(
                Shifted(schur, b),
                body_preconditioner(self.curvature, problem),
                torch.zeros_like(b),
                b,
                size,
                tol=self.tol,
                max_passes=self.max_products,
                agree=problem.inputs.world.agree,
                progress=self.progress,
            )
            moved = in_range(problem, lambda: problem.body_jvp(reached.x), tf32=False).double()
        residuals = torch.linalg.vector_norm(reached.r, dim=1, dtype=torch.float64)
        return h, reached.x, moved, float((residuals / unit).max())

    def _units(self, head: Tensor, body: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """(k,) what residuals are relative to, and what a solve goes by, for right-hand sides of head and body."""
        reduced = torch.linalg.vector_norm(b, dim=1, dtype=torch.float64).clamp_min(1e-300)
        if self.reduction is None:
            return reduced, reduced
        whole = (head.double().square().sum((1, 2)) + body.double().square().sum(1)).sqrt().clamp_min(1e-300)
        return whole, torch.minimum(whole, self.reduction * reduced / self.tol)


@dataclass(frozen=True)
class Shifted:
    """The same operator with right-hand sides b (k, D) of its own."""

    schur: SchurComplement
    b: Tensor

    def product(self, v: Tensor) -> Tensor:
        """Fast, perhaps."""
        return self.schur.product(v)

    def residual(self, x: Tensor, which: Tensor) -> Tensor:
        """By exact passes."""
        return self.b[which] - self.schur.exact_product(x)
