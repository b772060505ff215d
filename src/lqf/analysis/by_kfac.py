"""The paper's approximation: K-FAC in place of H, in the corrected removal formula; every answer is `estimated`.

P ≈ J_x B⁻¹ Jᵀ S with B block-diagonal (the head's exact block, K-FAC for each layer of the body): no solve, one pass
over the data per output. Leverages H_SS = J_S B⁻¹ J_Sᵀ S come from the same B; their eigenvalues, which B does not keep
below 1, are cut off there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from lqf.analysis.by_iteration import ByIteration
from lqf.analysis.counterfactual import Change
from lqf.analysis.method import FIXED_POINT
from lqf.analysis.queries import Queries
from lqf.analysis.refit import Refit
from lqf.analysis.responses import Responses
from lqf.analysis.units import Units
from lqf.curvature import Preconditioner, precondition
from lqf.errors import LQFError
from lqf.fitting import FittedModel, TrainingProblem
from lqf.linear import head_products
from lqf.linear.encoded import EncodedInputs
from lqf.linear.model import with_one
from lqf.linear.problem import rows_of
from lqf.runtime.precision import matmul_precision
from lqf.solvers.schur import columns, stacked
from lqf.solvers.solution import Certificate, Solution
from lqf.utils.exactness import Answer

LARGEST = 0.98
"""Leverages above this are taken for errors of the approximation."""


@dataclass(frozen=True)
class Factored(Responses):
    """Responses by a block-diagonal approximation of H."""

    blocks: Preconditioner | None = None

    def inverse(self, head: Tensor, body: Tensor) -> tuple[Tensor, Tensor]:
        """B⁻¹ (head (C, p+1), body (D,)) with the problem's ridge strengths."""
        assert self.blocks is not None
        ridge = self.problem.ridge
        return self.blocks.head.solve(head[None], ridge.head)[0], self.blocks.body.solve(body, ridge)

    def _some(self, asked: EncodedInputs, u: Tensor) -> tuple[Tensor, float]:
        with matmul_precision(fast=False):
            heads = head_products.vjp(columns(u), asked.features).to(self.problem.targets).unflatten(0, (len(u), -1))
            bodies = asked.body_vjp(self.problem.model, u.to(self.problem.targets))
            solved = [self.inverse(h, b) for h, b in zip(heads, bodies, strict=True)]
            moved = self.problem.body_jvp(torch.stack([d for _, d in solved])).double()
            out = stacked(head_products.jvp(self.features, torch.cat([v for v, _ in solved])), moved) + moved
        return out * self.problem.weights.double()[:, None], float("nan")

    def leverage(self, rows: Tensor) -> Tensor:
        """J_S B⁻¹ J_Sᵀ (mC, mC) of m training rows, row-major in (row, output)."""
        c, model = self.problem.model.n_outputs, self.problem.model
        x, fold, z = self.problem.inputs.fetch(rows), self.problem.fold[rows], with_one(self.features[rows])
        out = []
        for i in range(len(rows)):
            for k in range(c):
                u = torch.zeros(len(rows), c).to(self.problem.targets)
                u[i, k] = 1
                v, d = self.inverse((u.T @ z).to(u), model.body_vjp(x, u, fold))
                out.append((z @ v.T + model.body_jvp(x, d, fold)).flatten().double())
        block = torch.stack(out)
        return (block + block.T) / 2


@dataclass
class ByKFAC(ByIteration):
    """Effects and information by K-FAC, at the solution as it was fitted."""

    @classmethod
    def of(cls, model: FittedModel, problem: TrainingProblem) -> ByKFAC:
        """Factor the curvature once."""
        problem.encoder.prepare()
        context, quadratic, settings = problem.context, problem.quadratic, problem.context.settings
        with matmul_precision(fast=True):
            blocks = precondition(
                quadratic,
                problem.features,
                draws=settings.draws,
                moment_samples=0,
                seed=settings.seed,
                progress=context.progress,
            )
        head = model.head.to(quadratic.targets)
        start = head - quadratic.model.heads.mean(0) if quadratic.model.around_w0 else head
        delta = torch.cat([start.reshape(-1), model.delta.to(quadratic.targets)])
        proof = Certificate(float("nan"), float("nan"), 0, True, "as fitted")
        solution = Solution(delta, quadratic.ridge, "kfac", "estimated", proof)
        responses = Factored(problem.schur(), None, 1.0, 0, context.progress, blocks=blocks)
        note = f"{FIXED_POINT}; K-FAC in place of H"
        return cls(model, problem, Refit(problem, None, 1.0), responses, solution, note, "estimated")

    def effects(self, queries: Queries, units: Units, chosen: Tensor | None) -> Answer:
        """−P_S e_S^loo, both by K-FAC."""
        every = super().effects(queries, units, None).value
        return Answer(every if chosen is None else every[chosen], "estimated", self.note)

    def effects_on_sums(self, queries: Queries, weights: Tensor, units: Units) -> Answer:
        """Likewise."""
        return replace(super().effects_on_sums(queries, weights, units), level="estimated", note=self.note)

    def out_of_sample(self, units: Units, samples: Tensor | None) -> Answer:
        """(N, C) t − e^loo by K-FAC's leverages."""
        every = self._by_leverage(units)
        return Answer(every if samples is None else every[samples], "estimated", self.note)

    def information(self, queries: Queries | None, units: Units) -> Answer:
        """Sketched; on the training samples with what a sample does to itself."""
        return super().information(queries or Queries.of(self.problem.data.images), units)

    def leaving(self, queries: Queries | None, units: Units, *, most: bool, steps: int) -> Tensor:
        """Not offered: K-FAC knows no joint effect of several samples."""
        raise LQFError("method 'kfac' does not give the order of elimination; use method='dense' or method='pcg'")

    def what_if(self, queries: Queries, change: Change) -> Answer:
        """Not offered: K-FAC knows no joint effect of several samples that would be worth a label."""
        raise LQFError("method 'kfac' does not answer what-if; use method='dense' or method='pcg', which solve it")

    def refitted(self, queries: Queries, keep: Tensor) -> Tensor:
        """Not offered."""
        raise LQFError("method 'kfac' does not refit; use method='dense' or method='pcg'")

    def covariance(self, queries: Queries, units: Units) -> Answer:
        """Not offered: K-FAC says too little about single directions to be taken for a variance."""
        raise LQFError("method 'kfac' does not give covariances; use method='dense' or method='pcg'")

    def _estimated(self, units: Units) -> Tensor:
        """(n, C) e^loo of all rows."""
        out, factored = torch.zeros_like(self._e), cast("Factored", self.responses)
        with self.problem.context.progress.stage("leverages (K-FAC)", total=len(units), unit="samples") as stage:
            for u in range(len(units)):
                rows = rows_of(self.problem.quadratic, units.samples(u))
                root = self.problem.quadratic.weights[rows].double().sqrt().repeat_interleave(out.shape[1])
                lam, q = torch.linalg.eigh(root[:, None] * factored.leverage(rows) * root)
                e = root * self._e[rows].flatten()
                left = q @ ((q.T @ e) / (1 - lam.clamp(0, LARGEST)))
                out[rows] = (left / root).view(len(rows), -1)
                stage.advance(1)
        return out
