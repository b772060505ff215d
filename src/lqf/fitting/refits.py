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
from lqf.fitting.point import Point
from lqf.kernels.ridge import KernelRidge
from lqf.linear.problem import QuadraticProblem, rows_of, subproblem, without_weight
from lqf.solvers import Head
from lqf.solvers.block_cg import conjugate_gradients
from lqf.solvers.pcg import body_preconditioner
from lqf.solvers.planner import ENOUGH, MASKED, REFIT_PRODUCTS
from lqf.solvers.schur import SchurComplement
from lqf.solvers.solution import norm
from lqf.utils.progress import SILENT, Progress


def folds_needed(fold: Tensor) -> int:
    """So many folds hold `ENOUGH` rows: the error is then known to about a point, whatever the number of samples."""
    seen = torch.bincount(fold).cumsum(0)
    return min(len(seen), int((seen < ENOUGH).sum()) + 1)


@dataclass(frozen=True)
class Refits:
    """What all refits share.

    Attributes:
        problem: the whole problem, with the body that products are made with.
        head: the whole closed-form head problem.
        point: makes the linearisation point from a head problem over some rows and their folds.
        preconditioner: the whole problem's; it only decides how soon a refit is good.
    """

    problem: QuadraticProblem
    head: Head
    point: Callable[[Head, Tensor], Point]
    preconditioner: KFAC | None

    def outputs(self, fold: Tensor, folds: int | None = None, *, progress: Progress = SILENT) -> Tensor:
        """(n, C) outputs of the rows in the first ``folds`` (default: all), each from the model without its fold.

        Rows of the others are NaN. ``fold`` (n,) keeps samples whole.
        """
        out = torch.zeros_like(self.problem.targets)
        folds = int(fold.max()) + 1 if folds is None else folds
        with progress.stage("refits without a fold", total=folds, unit="folds") as stage:
            for k in range(folds):
                left_out = fold == k
                part, delta = self._fitted(fold, left_out)
                self._predict(part, delta, left_out, out)
                stage.advance(1)
        out = self.problem.inputs.world.sum_(out)
        if not bool(torch.isfinite(out).all()):
            raise FloatingPointError("an output is not finite")
        out[fold.to(out.device) >= folds] = torch.nan
        return out

    def _fitted(self, fold: Tensor, left_out: Tensor) -> tuple[QuadraticProblem, Tensor]:
        rows = (~left_out).nonzero()[:, 0].to(self.problem.targets.device)
        head = self.head.of(*(t[rows.to(t.device)] for t in self._head_rows()))
        _, renumbered = torch.unique(fold[rows.cpu()], return_inverse=True)
        point = self.point(head, renumbered)
        model = replace(self.problem.model, heads=point.heads.to(self.problem.model.heads))
        fold = point.fold.to(self.problem.fold)
        if min(self.problem.inputs.world.every(self.problem.inputs.held_share)) >= MASKED:
            part = without_weight(self.problem, rows)
            fold = torch.zeros_like(part.fold).index_copy_(0, rows, fold)
            features, ridge = self.head.features, head.ridge.among(rows.to(head.ridge.q.device), len(fold))
        else:
            part = subproblem(self.problem, self._samples(~left_out))
            features, ridge = head.features, head.ridge
        part = replace(part, model=model, fold=fold)
        return part, self._solved(part, features, ridge)

    def _solved(self, part: QuadraticProblem, features: Tensor, ridge: KernelRidge) -> Tensor:
        schur = SchurComplement(part, features, ridge)
        b = schur.rhs()
        reached = conjugate_gradients(
            schur,
            body_preconditioner(self.preconditioner, part.ridge.body),
            part.zero_body()[None],
            b[None],
            torch.tensor([norm(b)], dtype=torch.float64, device=b.device),
            tol=1e-9,
            max_passes=REFIT_PRODUCTS,
            refresh=REFIT_PRODUCTS + 1,
            agree=part.inputs.world.agree,
            certify=False,
        )
        return schur.complete(reached.x[0])[0]

    def _predict(self, part: QuadraticProblem, delta: Tensor, left_out: Tensor, out: Tensor) -> None:
        samples = self._samples(left_out)
        rows = rows_of(self.problem, samples)
        for index, x in self.problem.inputs.take(samples).batches():
            z, jd = part.model.jvp(x, delta)
            out[rows[index]] = part.model.base(z) + jd

    def _head_rows(self) -> tuple[Tensor, ...]:
        return self.head.features, self.head.residual, self.head.weights, self.head.groups

    def _samples(self, rows: Tensor) -> Tensor:
        return rows[:: self.problem.inputs.n_views].nonzero()[:, 0]
