"""A training problem with more samples, at the same strengths.

The point is kept: samples that come later are linearised around the mean of its heads, as images are that are
predicted. Of the kernel only the blocks of new samples are made,

    K₊ = [K  Xᵀ]     X = J_new M⁻¹ Jᵀ·μ_head,   N = J_new M⁻¹ J_newᵀ·μ_head,
         [X  N ],

and of the features the new rows. K-FAC, which shapes the steps of conjugate gradients and decides nothing, stays that
of the samples before as long as the others are few. Where there are new classes, the outputs are others: the point is
made again, of all samples, in the way and with the strength of the fit.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lqf.changes.samples.newcomers import everyone
from lqf.data import Images
from lqf.fitting import HeadFit, TrainingProblem
from lqf.fitting.encoder import Encoder
from lqf.fitting.point import Point, no_point
from lqf.fitting.pose import outlined
from lqf.fitting.remembered import Remembered
from lqf.kernels.cross import body_cross, head_cross
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.tangent import exact_kernels
from lqf.linear.encoded import EncodedInputs
from lqf.linear.problem import subproblem
from lqf.solvers.planner import jacobian_bytes

MOST_GROWTH = 1.25
"""Of the rows that K-FAC was made of; beyond, it is made again."""


def with_images(
    problem: TrainingProblem, new: Images, classes: tuple[str, ...], *, head_alone: bool
) -> TrainingProblem:
    """The problem with further samples behind its own.

    Args:
        problem: as it was solved.
        new: opened in the same views, with labels by ``classes``.
        classes: of all samples; those of the problem where there is no new one.
        head_alone: whether nothing but the head is solved for.
    """
    same = classes == problem.data.classes
    asked, old = problem.encode(new), problem.head_fit
    features = torch.cat([problem.features, asked.features.to(problem.features)])
    encoder = Encoder(replace(old.data, images=everyone(problem.data.images, new)), old.backbone)
    head = HeadFit.known(encoder, old.pooling, features, old.point_ridge, None)
    if head_alone:
        point: Point | None = no_point(head.acting.head)
    else:
        point = _kept(problem.point, len(asked.features)) if same else None
    outline = outlined(head, point)
    grown = replace(outline, quadratic=outline.quadratic.with_ridge(problem.ridge))
    if head_alone or not same:
        return grown
    if problem.kept is None:
        return replace(grown, remembered=_remembered(problem, len(features)))
    return replace(grown, kept=_bordered(problem, grown, asked, problem.kept))


def _remembered(problem: TrainingProblem, rows: int) -> Remembered:
    """What iterations knew that holds for more rows as well: a preconditioner need not be exact."""
    old = problem.remembered
    made_of = old.curvature_of or len(problem.features)
    if not old.curvature or rows > MOST_GROWTH * made_of:
        return Remembered(strengths=old.strengths)
    return Remembered(curvature=old.curvature, curvature_of=made_of, strengths=old.strengths)


def _kept(point: Point, rows: int) -> Point:
    """The point with so many more rows, which use the mean of its heads."""
    heads, index = with_mean_head(point.heads)
    more = torch.full((rows,), index, dtype=point.fold.dtype)
    return Point(point.kind, heads, torch.cat([point.fold.cpu(), more]))


def with_mean_head(heads: Tensor) -> tuple[Tensor, int]:
    """The heads (K, C, p+1) with their mean as the last one, which leaves the mean of all as it is; and its number."""
    last = len(heads) - 1
    if last == 0 or torch.allclose(heads[-1], heads[:-1].mean(0), rtol=1e-9, atol=0):
        return heads, last
    return torch.cat([heads, heads.mean(0, keepdim=True)]), last + 1


def _bordered(
    problem: TrainingProblem, grown: TrainingProblem, asked: EncodedInputs, known: KernelRidge
) -> KernelRidge:
    """The kernel over all (row, output) pairs, factorised."""
    c, n, progress = problem.model.n_outputs, len(problem.data), problem.context.progress
    part = subproblem(grown.quadratic, torch.arange(n, len(grown.data)))
    pairs = len(asked.features) * c
    budget = jacobian_bytes(part, pairs, problem.context.free_bytes())
    eye = torch.eye(c, dtype=torch.float64, device=asked.features.device)
    cross = body_cross(problem.quadratic, asked.inputs, budget=budget, progress=progress)
    cross = cross + torch.kron(head_cross(asked.features, problem.features), eye)
    groups = grown.data.groups[-len(asked.features) :]
    block = exact_kernels(part, asked.features, groups, budget=budget, progress=progress).whole(grown.ridge)
    root = known.weights.sqrt()
    own = (known.q * known.lam) @ known.q.T / root[:, None] / root
    kernel = torch.cat([torch.cat([own, cross.T.to(own)], 1), torch.cat([cross.to(own), block.to(own)], 1)])
    data = grown.data
    return KernelRidge.from_kernel(kernel, data.weights.repeat_interleave(c), data.groups.repeat_interleave(c))
