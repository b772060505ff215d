"""The paper's approximation: K-FAC in place of H, in the corrected removal formula; every answer is `estimated`.

P ≈ J_x B⁻¹ Jᵀ S with B block-diagonal (the head's exact block, K-FAC for each layer of the body): no solve, one pass
over the data per output. Leverages H_SS = J_S B⁻¹ J_Sᵀ S come from the same B; their eigenvalues, which B does not keep
below 1, are cut off there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lqf.analysis import seconds
from lqf.analysis.by_iteration import ByIteration
from lqf.analysis.counterfactual import Change
from lqf.analysis.method import FIXED_POINT
from lqf.analysis.queries import Queries
from lqf.analysis.responses import Responses
from lqf.analysis.units import Units
from lqf.curvature import Preconditioner, precondition
from lqf.errors import LQFError
from lqf.linear import head_products
from lqf.linear.encoded import EncodedInputs
from lqf.linear.model import with_one
from lqf.linear.problem import rows_of
from lqf.runtime.precision import matmul_precision
from lqf.solvers.schur import columns, stacked
from lqf.solvers.solution import Certificate, Solution
from lqf.utils.exactness import Answer, Level

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


@dataclass(eq=False)
class ByKFAC(ByIteration):
    """Effects and information by K-FAC, at the solution as it was fitted."""

    level: Level = "estimated"

    @cached_property
    def note(self) -> str:
        """What stands behind the level."""
        return f"{FIXED_POINT}; K-FAC in place of H"

    @cached_property
    def solution(self) -> Solution:
        """As it was fitted."""
        proof = Certificate(float("nan"), float("nan"), 0, True, "as fitted")
        return Solution(self._fitted, self.problem.ridge, "kfac", "estimated", proof)

    @cached_property
    def responses(self) -> Factored:
        """By the curvature, factored once."""
        self.problem.encoder.prepare()
        context, settings = self.problem.context, self.problem.context.settings
        with matmul_precision(fast=True):
            blocks = precondition(
                self.problem.quadratic,
                self.problem.features,
                draws=settings.draws,
                moment_samples=0,
                seed=settings.seed,
                progress=context.progress,
            )
        return Factored(self.problem.schur(), None, 1.0, 0, context.progress, blocks=blocks)

    @property
    def leverage_note(self) -> str:
        """Where leverages come from."""
        return "leverages by K-FAC"

    def effects(self, queries: Queries, units: Units, chosen: Tensor | None) -> Answer:
        """−P_S e_S^loo, both by K-FAC."""
        every = super().effects(queries, units, None).value
        return Answer(every if chosen is None else every[chosen], "estimated", self.note)

    def effects_on_sums(self, queries: Queries, weights: Tensor, units: Units, *, quick: bool = False) -> Answer:
        """Likewise, with or without haste."""
        asked, n = self._asked(queries), len(units.ids)
        p, _ = self.responses.of(asked, asked.sums(weights))
        by_sample = -(p.view(len(p), n, -1) * self._estimated(units).view(n, -1)).sum(-1).T  # (N, Q)
        return Answer(units.add_up(by_sample).cpu(), "estimated", self.note)

    def seconds(self, images: int, *, quick: bool) -> float:
        """Of two passes for every image."""
        return seconds.of_curvature(self.model) + images * seconds.QUICK_PASSES * seconds.of_product(self.model)

    def out_of_sample(self, units: Units, samples: Tensor | None) -> Answer:
        """(N, C) t − e^loo by K-FAC's leverages."""
        e = self._estimated(units)
        every = self._shown(self.problem.quadratic.targets.to(e) - e)
        return Answer(every if samples is None else every[samples], "estimated", self.note)

    def information(self, queries: Queries | None, units: Units) -> Answer:
        """Sketched; on the training samples with what a sample does to itself."""
        asked = Queries.of(self.problem.data.images) if queries is None else queries
        return super().information(asked, units)

    def leaving(self, queries: Queries | None, units: Units, *, most: bool, steps: int) -> Tensor:
        """Not offered: K-FAC knows no joint effect of several samples."""
        raise LQFError("method 'kfac' does not give the order of elimination; use method='dense' or method='pcg'")

    def prepare(self, queries: Queries) -> None:
        """Outputs."""
        self.outputs(queries)

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
        out, factored = torch.zeros_like(self._e), self.responses
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
