"""How outputs answer to the training targets, by one solve for each of them: P = J_x H⁻¹ Jᵀ S.

With the head eliminated (`lqf.solvers.schur`), Z̃ the training rows' features and C = I − H of the head alone, an
output uᵀf(x) with features z̃ answers by

    h = S Z̃ (Z̃ᵀSZ̃ + μ_head)⁻¹ z̃ uᵀ                                 what the head alone would do,
    (J_bodyᵀ S C J_body + μ_body) v = J_body(x)ᵀu − J_bodyᵀ h         one solve,
    P = h + S C J_body v                                              one forward pass over all training rows.

Any weighted sum of outputs of any images is one right-hand side; several are solved side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.curvature import KFAC
from lqf.errors import LQFError
from lqf.kernels.ridge import KernelRidge
from lqf.linear import head_products
from lqf.linear.encoded import EncodedInputs
from lqf.linear.problem import Problem
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.solvers.block_cg import solve_many
from lqf.solvers.pcg import COHERENCE
from lqf.utils.progress import SILENT, Progress

MOST_AT_ONCE = 32


@dataclass(frozen=True)
class Responses:
    """Solves for a problem with its head eliminated.

    Attributes:
        problem: the training problem.
        features: (n, p) of its rows.
        head: the factorised kernel of the head.
        curvature: K-FAC of the body, as preconditioner.
        tol: relative residual of every solve.
        max_products: after which a solve gives up; the residual is returned, whatever it is.
        progress: where to report.
        fast: the same problem with a faster body, for the products; right-hand sides, residuals and answers are the
            problem's own.
        reduction: None: residuals are relative to the right-hand side with the head eliminated. A number: relative to
            that of head and body together, as a solution's certificate is, and a solve does not end before the former
            has become this many times smaller, or the head alone might do.
    """

    problem: Problem
    features: Tensor
    head: KernelRidge
    curvature: KFAC | None
    tol: float
    max_products: int = 200
    progress: Progress = SILENT
    fast: Problem | None = None
    reduction: float | None = None

    @property
    def at_once(self) -> int:
        """Right-hand sides that are solved side by side: eight vectors each fit into an eighth of the memory.

        Their inner products take half as much again, and passes that are recorded now take the most.
        """
        one = 8 * self.problem.model.body.size * self.problem.targets.element_size()
        return max(1, min(MOST_AT_ONCE, available_bytes(self.problem.targets.device) // (8 * max(one, 1))))

    def of(self, side: EncodedInputs, u: Tensor) -> tuple[Tensor, float]:
        """P (k, n, C), float64, of the sums of outputs with weights u (k, rows, C); and the worst relative residual."""
        parts = [self._some(side, part) for part in u.split(self.at_once)]
        return torch.cat([p for p, _ in parts]), max(worst for _, worst in parts)

    def every_output(self, side: EncodedInputs) -> tuple[Tensor, float]:
        """P (Q·C, n, C) of every output of every image, averaged over its views."""
        c, v, n = self.problem.model.n_outputs, side.inputs.n_views, len(side.features)
        pairs = torch.arange(n // v * c)
        self._check_memory(len(pairs))
        parts = []
        for some in pairs.split(self.at_once):
            u = torch.zeros(len(some), n, c, dtype=torch.float64)
            for k, pair in enumerate(some.tolist()):
                u[k, pair // c * v : (pair // c + 1) * v, pair % c] = 1 / v
            parts.append(self._some(side, u))
        return torch.cat([p for p, _ in parts]), max(worst for _, worst in parts)

    def _check_memory(self, answers: int) -> None:
        need, free = 8 * answers * self.problem.targets.numel(), available_bytes(self.problem.targets.device)
        if need > free // 2:
            raise LQFError(
                f"the effects on {answers} outputs need {need / 2**30:.1f} GB and {free / 2**30:.1f} GB are free; "
                "ask about fewer images at a time"
            )

    def _some(self, side: EncodedInputs, u: Tensor) -> tuple[Tensor, float]:
        mu, s = self.problem.ridge.head, self.problem.weights.double()
        with matmul_precision(fast=False):
            pulled = head_products.pull(columns(u), side.features)  # (kC, p+1)
            h = self.head.dual(head_products.apply(self.features, pulled), mu)  # (n, kC)
            back = self._in_range(self.problem, lambda: self._side_back(side, u))
            b = back - self._in_range(self.problem, lambda: self._back(stack(h, len(u))))
            unit, size = self._units(pulled.unflatten(0, (len(u), -1)), back, b)
            v, residuals = solve_many(
                lambda p: self._product(p, self.fast),
                self._precondition,
                b,
                tol=self.tol,
                max_products=self.max_products,
                exact=None if self.fast is None else self._product,
                size=size,
                progress=self.progress,
            )
            moved = self.head.residual(columns(self._in_range(self.problem, lambda: self._forward(v))), mu)
        return stack(h + s.to(h)[:, None] * moved, len(u)), float((residuals * size / unit).max())

    def _units(self, head: Tensor, body: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """(k,) what residuals are relative to, and what a solve goes by, for right-hand sides of head and body."""
        reduced = torch.linalg.vector_norm(b, dim=1, dtype=torch.float64).clamp_min(1e-300)
        if self.reduction is None:
            return reduced, reduced
        whole = (head.double().square().sum((1, 2)) + body.double().square().sum(1)).sqrt().clamp_min(1e-300)
        return whole, torch.minimum(whole, self.reduction * reduced / self.tol)

    def _product(self, v: Tensor, by: Problem | None = None) -> Tensor:
        problem = by or self.problem

        def pulled() -> Tensor:
            e = self.head.residual(columns(self._forward(v, problem)), problem.ridge.head)
            s = problem.weights.double().to(e)[:, None]
            return self._back(stack(s * e, len(v)), problem) + problem.ridge.body * v

        return self._in_range(problem, pulled)

    @staticmethod
    def _in_range(problem: Problem, compute: Callable[[], Tensor]) -> Tensor:
        """What ``compute`` gives when the problem's products stay in the range of their floating-point type."""
        while not bool(torch.isfinite(out := compute()).all()):
            if not problem.model.body.retreat():
                raise FloatingPointError("a product is not finite")
        return out

    def _precondition(self, r: Tensor) -> Tensor:
        if self.curvature is None:
            return r
        damping = self.problem.ridge.body / COHERENCE
        return torch.stack([self.curvature.solve(one, damping) for one in r])

    def _forward(self, v: Tensor, by: Problem | None = None) -> Tensor:
        """J_body v (k, n, C); a batch is fetched once for all k."""
        problem = by or self.problem
        out = problem.targets.new_empty(len(v), *problem.targets.shape)
        for rows, x in problem.inputs.batches():
            for k, one in enumerate(v):
                out[k, rows] = problem.model.body_apply(x, one, problem.fold[rows])
        return out

    def _back(self, u: Tensor, by: Problem | None = None) -> Tensor:
        """J_bodyᵀ u (k, D) for u (k, n, C)."""
        problem = by or self.problem
        u = u.to(problem.targets)
        out = u.new_zeros(len(u), problem.model.body.size)
        for rows, x in problem.inputs.batches():
            for k, one in enumerate(u):
                out[k] += problem.model.body_adjoint(x, one[rows], problem.fold[rows])
        return out

    def _side_back(self, side: EncodedInputs, u: Tensor) -> Tensor:
        """J_body(x)ᵀu (k, D), only through rows whose weights are not all zero."""
        u = u.to(self.problem.targets)
        out = u.new_zeros(len(u), self.problem.model.body.size)
        for k, one in enumerate(u):
            for rows in (one != 0).any(1).nonzero()[:, 0].split(side.inputs.batch_size):
                fold = None if side.fold is None else side.fold[rows]
                out[k] += self.problem.model.body_adjoint(side.inputs.fetch(rows), one[rows], fold)
        return out


def columns(u: Tensor) -> Tensor:
    """(k, rows, C) -> (rows, kC)."""
    return u.transpose(0, 1).flatten(1)


def stack(u: Tensor, k: int) -> Tensor:
    """(rows, kC) -> (k, rows, C)."""
    return u.unflatten(1, (k, -1)).transpose(0, 1)
