"""Out-of-sample outputs by refits: every fold is predicted by a model that has not seen it.

Where the kernel of all (sample, output) pairs is too large, exact leave-one-out is out of reach, but the problem
without a fold is solved as quickly as the whole one. Nothing of a fold's labels enters the model that predicts it: the
point is cross-fitted again among the other folds, the solve starts from zero, and the ridge strengths stay as they are
(sums: removing samples leaves all other terms alone). Each model has seen fewer samples than the whole one, so what is
found is a little too pessimistic. A network that was moved has seen all labels: its refits begin at the pretrained
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.curvature import KFAC
from lqf.data import select_images
from lqf.evaluation.leave_one_out import BY_REFITS, LeaveOneOut
from lqf.fitting.folds import folds_needed
from lqf.fitting.point import Point
from lqf.fitting.relinearize import replay
from lqf.fitting.training_problem import TrainingProblem
from lqf.kernels.ridge_at import Elimination
from lqf.linear import sweep
from lqf.linear.inputs import average_views
from lqf.linear.problem import QuadraticProblem, rows_of, subproblem, without_weight
from lqf.solvers.block_cg import conjugate_gradients
from lqf.solvers.head import Head
from lqf.solvers.pcg import body_preconditioner, trusted_from
from lqf.solvers.planner import ENOUGH, MASKED, REFIT_PRODUCTS
from lqf.solvers.schur import SchurComplement
from lqf.solvers.solution import norm
from lqf.utils.progress import SILENT, Progress


def refit_folds(problem: TrainingProblem, *, every: bool, first: int | None = None) -> LeaveOneOut:
    """Outputs of models without each fold, or without each of as many as settle the error.

    ``first``: so many views speak for a sample; default: all.
    """
    data = problem.data
    total = int(data.folds.max()) + 1
    folds = total if every else folds_needed(data.folds, ENOUGH)
    if problem.moves is not None:
        outputs, after = _by_replays(problem, folds, first), ", from the pretrained weights on"
    else:
        outputs, after = _around_one_point(problem, folds, first), ""
    note = f"{BY_REFITS} each of {total} folds{after}"
    if folds < total:
        note = f"{BY_REFITS} {folds} of {total} folds{after}; with loo `folds`, without each of them"
    return data.left_out(outputs, "estimated", note)


# --- with the network's weights as they are ---------------------------------------------------------------------------


def _around_one_point(problem: TrainingProblem, folds: int, first: int | None) -> Tensor:
    """(N, C); fast products, and exact ones where those leave their range."""
    data, shared = problem.data, (problem.head, problem.point_of, problem.curvature)
    progress = problem.context.progress
    try:
        outputs = Refits(problem.fast, *shared).outputs(data.folds, folds, progress=progress)
    except FloatingPointError:
        outputs = Refits(problem.measured, *shared).outputs(data.folds, folds, progress=progress)
    return average_views(outputs, data.n_views, first).cpu()


REFIT_TOL = 0.02
"""Distance of a refit's outputs from the optimum's, relative to their norm, at which it is good enough to judge by."""


@dataclass(frozen=True)
class Refitted:
    """What came out of refits without each of some folds.

    Attributes:
        outputs: (n, C) of the rows, each from the model without its fold; NaN in folds that were not refitted.
        bodies: (D,) the body of every model, on the CPU.
    """

    outputs: Tensor
    bodies: tuple[Tensor, ...]


@dataclass(frozen=True)
class Refits:
    """What all refits share.

    Attributes:
        problem: the whole problem, with the body that products are made with.
        head: the whole closed-form head problem.
        point: makes the linearisation point of some rows, from their numbers, head problem and folds.
        preconditioner: the whole problem's; it only decides how soon a refit is good.
    """

    problem: QuadraticProblem
    head: Head
    point: Callable[[Tensor, Head, Tensor], Point]
    preconditioner: KFAC | None

    def outputs(self, fold: Tensor, folds: int | None = None, *, progress: Progress = SILENT) -> Tensor:
        """(n, C) outputs of the rows in the first ``folds`` (default: all), each from the model without its fold."""
        return self.run(fold, folds, progress=progress).outputs

    def run(
        self,
        fold: Tensor,
        folds: int | None = None,
        *,
        starts: Sequence[Tensor] = (),
        strengths: Sequence[float] = (),
        products: int | None = None,
        progress: Progress = SILENT,
    ) -> Refitted:
        """Refit without each of the first ``folds`` (default: all); ``fold`` (n,) keeps samples whole.

        Args:
            fold: of every row.
            folds: how many are left out, one after the other.
            starts: (D,) the body that each refit begins with, of a model that has not seen the fold either.
            strengths: of the head in each refit; default: the problem's own in all of them.
            products: of every refit; default: `REFIT_PRODUCTS`.
            progress: where to report.
        """
        out, bodies, products = torch.zeros_like(self.problem.targets), [], products or REFIT_PRODUCTS
        folds = int(fold.max()) + 1 if folds is None else folds
        with progress.stage("refits without a fold", total=folds, unit="folds") as stage:
            for k in range(folds):
                start, strength = starts[k] if starts else None, strengths[k] if strengths else None
                bodies.append(self.without(fold, k, out, start, strength, products))
                stage.advance(1)
        out[fold.to(out.device) >= folds] = torch.nan
        return Refitted(out, tuple(bodies))

    def without(
        self,
        fold: Tensor,
        k: int,
        out: Tensor,
        start: Tensor | None = None,
        strength: float | None = None,
        products: int = 0,
    ) -> Tensor:
        """Refit without one fold: its rows of ``out`` (n, C) are written; the body (D,), on the CPU."""
        left_out = fold == k
        whole = self if strength is None else self._with_head_strength(strength)
        part, delta = whole._fitted(fold, left_out, start, products or REFIT_PRODUCTS)
        self._predict(part, delta, left_out, out)
        if not bool(torch.isfinite(out[left_out.to(out.device)]).all()):
            raise FloatingPointError("an output is not finite")
        return part.model.split(delta)[1].cpu()

    def _with_head_strength(self, mu: float) -> Refits:
        return replace(self, problem=self.problem.with_ridge(self.problem.ridge.with_head(mu)))

    def _fitted(
        self, fold: Tensor, left_out: Tensor, start: Tensor | None, products: int
    ) -> tuple[QuadraticProblem, Tensor]:
        rows = (~left_out).nonzero()[:, 0].to(self.problem.targets.device)
        head, mu = self.head.among(rows), self.problem.ridge.head
        _, renumbered = torch.unique(fold[rows.cpu()], return_inverse=True)
        point = self.point(rows, head, renumbered)
        model = replace(self.problem.model, heads=point.heads.to(self.problem.model.heads))
        fold = point.fold.to(self.problem.fold)
        if min(self.problem.inputs.world.all_gather(self.problem.inputs.held_share)) >= MASKED:
            part = without_weight(self.problem, rows)
            fold = torch.zeros_like(part.fold).index_copy_(0, rows, fold)
            features, ridge = self.head.features, head.at(mu).among(rows.to(head.features.device), len(fold))
        else:
            part = subproblem(self.problem, self._samples(~left_out))
            features, ridge = head.features, head.at(mu)
        part = replace(part, model=model, fold=fold)
        return part, self._solved(part, features, ridge, start, products)

    def _solved(
        self, part: QuadraticProblem, features: Tensor, ridge: Elimination, start: Tensor | None, products: int
    ) -> Tensor:
        schur = SchurComplement(part, features, ridge)
        x = part.zero_body() if start is None else start.to(part.targets)
        r = schur.rhs() if start is None else schur.quick_residual(x)
        reached = conjugate_gradients(
            schur,
            body_preconditioner(self.preconditioner, part),
            x[None],
            r[None],
            torch.tensor([norm(r)], dtype=torch.float64, device=r.device),
            tol=REFIT_TOL,
            energy=torch.tensor([schur.output_norm()], dtype=torch.float64, device=r.device),
            least=trusted_from(self.preconditioner),
            max_passes=products,
            refresh=products + 1,
            agree=part.inputs.world.agree,
            certify=False,
        )
        return schur.complete(reached.x[0])[0]

    def _predict(self, part: QuadraticProblem, delta: Tensor, left_out: Tensor, out: Tensor) -> None:
        samples = self._samples(left_out)
        rows = rows_of(self.problem, samples)
        features = self.head.features[rows.to(self.head.features.device)]
        out[rows] = sweep.outputs(part.model, self.problem.inputs.take(samples), delta, features)

    def _samples(self, rows: Tensor) -> Tensor:
        return rows[:: self.problem.inputs.n_views].nonzero()[:, 0]


# --- from the pretrained weights on -----------------------------------------------------------------------------------


def _by_replays(problem: TrainingProblem, folds: int, first: int | None) -> Tensor:
    """(N, C); NaN for the samples of other folds."""
    data, context = problem.data, problem.context
    fold = data.folds[:: data.n_views]
    outputs = torch.full((len(fold), data.targets.shape[1]), torch.nan, dtype=context.dtype)
    with context.progress.stage("refits without a fold", total=folds, unit="folds") as stage:
        for k in range(folds):
            outputs[fold == k] = _without(problem, fold == k, first)
            stage.advance(1)
    return outputs


def _without(problem: TrainingProblem, left_out: Tensor, first: int | None) -> Tensor:
    """Outputs (N_out, C) of some samples from a fit without them."""
    quiet = replace(problem.data, context=problem.context.quiet())
    part, solution = replay(quiet.some((~left_out).numpy()), problem)
    images = select_images(problem.data.images, left_out.numpy())
    inputs = part.encoder.inputs.showing(images, problem.data.preprocess)
    return average_views(sweep.outputs(part.model, inputs, solution.delta), inputs.n_views, first).cpu()
