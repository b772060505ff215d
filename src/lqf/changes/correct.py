"""Conjugate gradients from a solution that a few samples less, or more, have made slightly wrong.

The samples that leave or come give the first step before any pass over the others: at the old optimum the gradient of
the others is that of the samples with the opposite sign, and with the curvature P that K-FAC estimates

    x = x_old ∓ P⁻¹ J_bodyᵀ s e        over the samples alone, e their residuals.

The residual there is measured on all data, which is one product, and often shows that nothing else is to be done: the
tolerance is that of the fit. Otherwise the iteration goes on from there. All products are exact, so that the residual
that is carried on is the true one up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lqf.data import Images
from lqf.fitting import FittedModel, TrainingProblem
from lqf.linear.targets import encode
from lqf.runtime.precision import matmul_precision
from lqf.solvers.block_cg import conjugate_gradients
from lqf.solvers.pcg import COHERENCE, body_preconditioner, trusted_from
from lqf.solvers.solution import Certificate, Solution, norm

RATIO = 1.0
"""‖x − x*‖²_A / rᵀM⁻¹r before a step has measured it. M is a `COHERENCE`-th of the curvature K-FAC expects: a third
is what there is where K-FAC is right; EfficientNet-Lite0 ended its fits at 0.35 (Flowers) and 0.95 (hand signs)."""


def corrected(problem: TrainingProblem, start: Tensor, gradient: Tensor | None) -> Solution:
    """The optimum of a changed problem.

    Args:
        problem: changed.
        start: (D,) the body before.
        gradient: (D,) what the change adds to the body's negative gradient there; None where that is not known: at
            least one product is made then.
    """
    settings, quadratic = problem.context.settings, problem.quadratic
    curvature, schur = problem.curvature, problem.schur()
    precondition = body_preconditioner(curvature, quadratic)
    x = start.to(quadratic.targets)
    if gradient is not None and curvature is not None:
        x = x + precondition(gradient.to(x)[None])[0] / COHERENCE
    b_norm, r = schur.unit(), schur.residual(x)
    known = curvature is not None and gradient is not None
    reached = conjugate_gradients(
        schur,
        precondition,
        x[None],
        r[None],
        torch.tensor([b_norm], dtype=torch.float64, device=x.device),
        tol=settings.tol,
        energy=torch.tensor([schur.output_norm()], dtype=torch.float64, device=x.device),
        least=trusted_from(curvature),
        prior=RATIO if known else None,
        max_passes=settings.max_passes,
        passes=1,
        certify=False,
        progress=problem.context.progress,
    )
    delta, head_gap, e = schur.complete(reached.x[0])
    relative = (norm(reached.r) ** 2 + norm(head_gap) ** 2) ** 0.5 / (b_norm or 1.0)
    gap = None if reached.energy is None else float(reached.energy[0])
    proof = Certificate.of(quadratic, relative, b_norm, tol=settings.tol, passes=reached.passes, output_gap=gap)
    return Solution(delta, quadratic.ridge, "pcg", "solved", proof, reached.history, e)


def gradient_of(
    problem: TrainingProblem,
    model: FittedModel,
    images: Images,
    fold: Tensor | None,
    left: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """(D,) Σ s J_bodyᵀe of some samples at the solution of a model.

    Args:
        problem: around the same point.
        model: its solution.
        images: of the samples, in the views of the training.
        fold: (rows,) the head of every row; None: the mean of all.
        left: rows and their e -> what is to count of it; default: all.
    """
    linear, like = problem.model, problem.quadratic.targets
    inputs = problem.encoder.inputs.showing(images, model.trained_on)
    v, body = model.head.to(like), model.delta.to(like)
    if linear.around_w0:
        v = v - linear.of_all_features(linear.heads.mean(0)).to(v)
    delta, views = torch.cat([v.reshape(-1), body]), images.n_views
    labels, settings = torch.tensor(images.samples.labels), problem.context.settings
    targets = encode(labels, len(model.classes), settings.alpha).repeat_interleave(views, 0).to(like)
    weights = torch.tensor(images.samples.weights).repeat_interleave(views).to(like) / views
    out = problem.quadratic.zero_body()
    with matmul_precision(fast=False):
        for rows, x in inputs.batches():
            own = None if fold is None else fold.to(like.device)[rows]
            z, jd = linear.jvp(x, delta, own)
            e = targets[rows] - linear.base(z, own) - jd
            out += linear.body_vjp(x, weights[rows, None] * (e if left is None else left(rows, e)), own)
    return out


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
