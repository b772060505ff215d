"""Out-of-sample outputs by refits: every fold is predicted by a model that has not seen it.

Where the kernel of all (sample, output) pairs is too large, exact leave-one-out is out of reach, but the problem
without a fold is solved as quickly as the whole one. Nothing of a fold's labels enters the model that predicts it: the
point is cross-fitted again among the other folds, the solve starts from zero, and the ridge strengths stay as they are
(sums: removing samples leaves all other terms alone). Each model has seen fewer samples than the whole one, so what is
found is a little too pessimistic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.curvature import KFAC
from lqf.objective import Problem, rows_of, subproblem
from lqf.point import Point
from lqf.progress import SILENT, Progress
from lqf.solvers import PCG, Head
from lqf.solvers.planner import REFIT_PRODUCTS


@dataclass(frozen=True)
class Refits:
    """What all refits share.

    Attributes:
        problem: the whole problem, with the body that products are made with.
        head: the whole closed-form head problem.
        point: makes the linearisation point from a head problem over some rows and their folds.
        preconditioner: the whole problem's; it only decides how soon a refit is good.
    """

    problem: Problem
    head: Head
    point: Callable[[Head, Tensor], Point]
    preconditioner: KFAC | None

    def outputs(self, fold: Tensor, *, progress: Progress = SILENT) -> Tensor:
        """(n, C) outputs of all rows, each from the model without its fold; ``fold`` (n,) keeps samples whole."""
        out = torch.zeros_like(self.problem.targets)
        folds = int(fold.max()) + 1
        with progress.stage("refits without a fold", total=folds, unit="folds") as stage:
            for k in range(folds):
                left_out = fold == k
                part, delta = self._fitted(fold, left_out)
                self._predict(part, delta, left_out, out)
                stage.advance(1)
        return self.problem.inputs.world.sum_(out)

    def _fitted(self, fold: Tensor, left_out: Tensor) -> tuple[Problem, Tensor]:
        rows = (~left_out).nonzero()[:, 0].to(self.problem.targets.device)
        head = self.head.of(*(t[rows.to(t.device)] for t in self._head_rows()))
        _, renumbered = torch.unique(fold[rows.cpu()], return_inverse=True)
        point = self.point(head, renumbered)
        part = subproblem(self.problem, self._samples(~left_out))
        model = replace(part.model, heads=point.heads.to(part.model.heads))
        part = replace(part, model=model, fold=point.fold.to(part.fold))
        solver = PCG(tol=1e-12, max_passes=1 + REFIT_PRODUCTS)
        return part, solver.solve(part, head.features, head.ridge, self.preconditioner).delta

    def _predict(self, part: Problem, delta: Tensor, left_out: Tensor, out: Tensor) -> None:
        samples = self._samples(left_out)
        rows = rows_of(self.problem, samples)
        for index, x in self.problem.inputs.take(samples).batches():
            z, jd = part.model.apply(x, delta)
            out[rows[index]] = part.model.base(z) + jd

    def _head_rows(self) -> tuple[Tensor, ...]:
        return self.head.features, self.head.residual, self.head.weights, self.head.groups

    def _samples(self, rows: Tensor) -> Tensor:
        return rows[:: self.problem.inputs.n_views].nonzero()[:, 0]
