"""Conjugate gradients from a solution that a few samples less, or more, have made slightly wrong.

The samples that leave or come give the first step before any pass over the others: at the old optimum the gradient of
the others is that of the samples with the opposite sign, and with the curvature P that K-FAC estimates it is along

    p = P⁻¹ (g ∓ J_bodyᵀ s e)        over the samples alone, e their residuals; g what the old solution left.

What the old solution leaves of every row, r − J_body x, is known from its residuals. So J_body p, a pass forward, gives
the best length of the step and what the new point leaves; a pass backward, the residual there, measured on all data.
That is one product, and often shows that nothing else is to be done: the tolerance is that of the fit, and so is the
ratio by which the residual tells the distance. Otherwise the iteration goes on from there: by exact products, so that
the residual that is carried on is the true one up to rounding; on a GPU by fast ones, as in a fit, and the residual
where it ends is measured again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.changes.samples.followed import Followed, Quick
from lqf.data import Images
from lqf.fitting import FittedModel, TrainingProblem
from lqf.linear import head_products
from lqf.linear.targets import encode
from lqf.runtime.precision import matmul_precision
from lqf.solvers.block_cg import conjugate_gradients
from lqf.solvers.pcg import COHERENCE, body_preconditioner, first, trusted_from
from lqf.solvers.schur import SchurComplement
from lqf.solvers.solution import Certificate, Solution, norm

RATIO = 1.0
"""‖x − x*‖²_A / rᵀM⁻¹r before a step has measured it, of models that did not keep that of their fit. M is a
`COHERENCE`-th of the curvature K-FAC expects: a third is what there is where K-FAC is right; EfficientNet-Lite0 ended
its fits at 0.35 (Flowers) and 0.95 (hand signs)."""


@dataclass(frozen=True, eq=False)
class Before:
    """The solution before, as the changed problem sees it.

    Attributes:
        body: (D,) x.
        gradient: (D,) the body's negative gradient there, as far as it is known; None where nothing is.
        left: (n, C) r − J_body x of all rows; None where that is not known.
        ratio: of the solution before (`lqf.solvers.energy`); None likewise.
    """

    body: Tensor
    gradient: Tensor | None = None
    left: Tensor | None = None
    ratio: float | None = None


def corrected(problem: TrainingProblem, before: Before) -> Solution:
    """The optimum of a changed problem."""
    curvature, schur = problem.curvature, problem.schur()  # curvature before activations take the memory
    precondition = body_preconditioner(curvature, problem.quadratic)
    p = None if before.gradient is None or curvature is None else precondition(before.gradient[None])[0]
    began = _began(schur, before, p)
    prior = before.ratio or (None if p is None else RATIO)
    least = trusted_from(curvature)
    followed = Followed(schur, began[0])
    if not is_quick(problem):
        return _from(problem, followed, began, precondition, prior, least)
    try:
        return _from(problem, Quick(problem, schur), began, precondition, prior, least)
    except FloatingPointError:
        problem.context.progress.say(
            "the fast products left the range of their floating-point type; beginning again without them"
        )
        return _from(problem, followed, began, precondition, prior, least)


def is_quick(problem: TrainingProblem) -> bool:
    """Whether fast products save more than the further one costs by which the last residual is measured."""
    return problem.context.device.type == "cuda" and problem.context.settings.precision != "float32"


def _from(
    problem: TrainingProblem,
    operator: Followed | Quick,
    began: tuple[Tensor, Tensor],
    precondition: Callable[[Tensor], Tensor],
    prior: float | None,
    least: int,
) -> Solution:
    """From a point whose residual was measured; that of the last one is, too, except where the steps are `Followed`."""
    settings, quadratic, schur, (x, r) = problem.context.settings, problem.quadratic, operator.schur, began
    b_norm = schur.unit()
    reached = conjugate_gradients(
        operator,
        precondition,
        x[None],
        r[None],
        torch.tensor([b_norm], dtype=torch.float64, device=x.device),
        tol=settings.tol,
        energy=torch.tensor([schur.output_norm()], dtype=torch.float64, device=x.device),
        least=least,
        prior=prior,
        ridge=quadratic.body_ridge,
        max_passes=settings.max_passes,
        passes=1,
        certify=isinstance(operator, Quick),
        keep=operator.keep,
        progress=problem.context.progress,
    )
    delta, head_gap, e = operator.complete(reached.x[0])
    relative = (norm(reached.r) ** 2 + norm(head_gap) ** 2) ** 0.5 / (b_norm or 1.0)
    gap, bound, ratio = (first(t) for t in (reached.energy, reached.bound, reached.ratio))
    proof = Certificate.of(
        quadratic,
        relative,
        b_norm,
        tol=settings.tol,
        passes=reached.passes,
        output_gap=gap,
        output_bound=bound,
    )
    return Solution(delta, quadratic.ridge, "pcg", "solved", proof, reached.history, e, ratio, reached.r[0])


def _began(schur: SchurComplement, before: Before, p: Tensor | None) -> tuple[Tensor, Tensor]:
    """A point and its residual, measured by one product, or by a pass backward where no step is made."""
    x, left = before.body, before.left
    if left is None:
        x = x if p is None else x + p / COHERENCE
        return x, schur.residual(x)
    if p is not None:
        x, left = schur.best_step(x, left, p)
    return x, schur.residual_of(x, left)


def added(gap: Tensor | None, change: Tensor | None) -> Tensor | None:
    """The body's negative gradient: what the old solution left of it, and what the change adds, as far as known."""
    return change if gap is None else gap if change is None else gap + change


def left_for_the_head(problem: TrainingProblem, model: FittedModel, residuals: Tensor) -> Tensor:
    """(n, C) r − J_body x of a model of the problem's point, from its residuals t − f of all rows."""
    v = _head_of(problem, model)
    return residuals + head_products.jvp(problem.features, v).to(residuals)


def gradient_of(
    problem: TrainingProblem,
    model: FittedModel,
    images: Images,
    fold: Tensor | None,
    left: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """(D,) Σ s J_bodyᵀe of some samples at the solution of a model, and their residuals e (rows, C).

    Args:
        problem: around the same point.
        model: its solution.
        images: of the samples, in the views of the training.
        fold: (rows,) the head of every row; None: the mean of all.
        left: rows and their e -> what is to count of it; default: all.
    """
    linear, like = problem.model, problem.quadratic.targets
    inputs = problem.encoder.inputs.showing(images, model.trained_on)
    delta = torch.cat([_head_of(problem, model).reshape(-1), model.delta.to(like)])
    labels, views, alpha = torch.tensor(images.samples.labels), images.n_views, problem.context.settings.alpha
    targets = encode(labels, len(model.classes), alpha).repeat_interleave(views, 0).to(like)
    weights = torch.tensor(images.samples.weights).repeat_interleave(views).to(like) / views
    out, residuals = problem.quadratic.zero_body(), torch.zeros_like(targets)
    with matmul_precision(fast=False):
        for rows, x in inputs.batches():
            own = None if fold is None else fold.to(like.device)[rows]
            z, jd = linear.jvp(x, delta, own)
            e = residuals[rows] = targets[rows] - linear.base(z, own) - jd
            out += linear.body_vjp(x, weights[rows, None] * (e if left is None else left(rows, e)), own)
    return out, residuals


def _head_of(problem: TrainingProblem, model: FittedModel) -> Tensor:
    """(C, p+1) the head's part of the model's δ."""
    linear, v = problem.model, model.head.to(problem.quadratic.targets)
    return v - linear.of_all_features(linear.heads.mean(0)).to(v) if linear.around_w0 else v


def beside_the_head(problem: TrainingProblem, first: int) -> Callable[[Tensor, Tensor], Tensor]:
    """What is left of residuals of the rows from ``first`` on once the best head has explained what it can of them.

    The others' residuals then change, too, by little each; that needs a pass, and is left to the iteration.
    """
    head, mu = problem.head.at(problem.ridge.head), problem.ridge.head

    def left(rows: Tensor, e: Tensor) -> Tensor:
        every = problem.quadratic.targets.new_zeros(problem.quadratic.targets.shape, dtype=torch.float64)
        every[first + rows] = e.double()
        return head.residual(every, mu)[first + rows].to(e)

    return left
