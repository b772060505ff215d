"""How each solver is called for a training problem: with its kernels, its curvature, its checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch import Tensor

from lqf.backbones.state import flat_state
from lqf.curvature import precondition
from lqf.curvature.damping import DampedCurvature, Damping, DampingKind
from lqf.fitting.checkpoint import KernelKeeper, State, keeper, kernel_key
from lqf.kernels.tangent import Kernels, averaged_kernels, exact_kernels
from lqf.runtime.precision import matmul_precision
from lqf.solvers import PCG, SGD, Adam, Dense
from lqf.solvers.planner import MOST_SAMPLES, Plan
from lqf.solvers.solution import Solution
from lqf.solvers.stable_damping import BATCHES, stable_damping
from lqf.solvers.stochastic import StateCheckpoint

if TYPE_CHECKING:
    from lqf.fitting.training_problem import TrainingProblem

DAMPING: DampingKind = "factored"
"""Of K-FAC under mini-batches."""


def checkpoint_keeper(problem: TrainingProblem) -> StateCheckpoint:
    """Writes what a solver has reached, with all that another process needs to go on from there."""
    context, moves = problem.context, problem.moves
    checkpoint = context.checkpoint
    if checkpoint is not None:
        checkpoint = checkpoint.with_more({}, {"views": problem.data.preprocess.views})
        moved = problem.head_fit.backbone.spec.get("moved")
        if moves is not None and moved is not None:
            at = {"strengths": asdict(moves.strengths), "used": [asdict(u) for u in moves.used], "moved": moved}
            checkpoint = checkpoint.with_more({"moved": flat_state(problem.head_fit.backbone.body)}, at)
    return keeper(checkpoint, problem.ridge, context.world)


def kernel_keeper(problem: TrainingProblem) -> KernelKeeper | None:
    """Writes what is done of the dense dual's kernel, by all that it comes from."""
    checkpoint, q = problem.context.checkpoint, problem.quadratic
    if checkpoint is None:
        return None
    layout, relative = q.model.body.layout, q.ridge.stages and q.ridge.to_dict()
    body = flat_state(problem.head_fit.backbone.body)
    return checkpoint.kernel(kernel_key(problem.features, q.model.heads, body, q.fold, layout.names, relative))


def planned_kernels(problem: TrainingProblem, plan: Plan) -> Kernels:
    """What weight decay and leave-one-out are computed from: exact with the dense dual, averaged otherwise."""
    data, context = problem.data, problem.context
    if plan.solver == "dense":
        return exact_kernels(
            problem.quadratic,
            problem.features,
            data.groups,
            budget=plan.jacobian_bytes,
            keeper=kernel_keeper(problem),
            progress=context.progress,
        )
    return averaged_kernels(
        problem.quadratic,
        problem.features,
        data.groups,
        budget=plan.jacobian_bytes,
        most_samples=MOST_SAMPLES // data.n_views,
        seed=context.settings.seed,
        progress=context.progress,
    )


def solve_dense(problem: TrainingProblem) -> Solution:
    """From the exact kernels, refined until the passes over the data agree with them."""
    kernel, b_norm = problem.dual
    return Dense().solve(problem.measured, problem.features, kernel, b_norm=b_norm, progress=problem.context.progress)


def solve_pcg(
    problem: TrainingProblem, start: Tensor | None = None, *, tol: float | None = None, state: State | None = None
) -> Solution:
    """Conjugate gradients: residuals by exact passes, products by fast ones.

    It stops by the outputs' distance to the optimum's (the settings' tolerance), or at a relative residual of ``tol``.
    The residual of a ``start`` comes from one more fast product; that of a checkpoint is measured.
    """
    settings, context = problem.context.settings, problem.context
    curvature = problem.curvature  # before activations take the memory
    keep = checkpoint_keeper(problem)
    until: dict[str, Any] = {"output_tol": settings.tol} if tol is None else {"tol": tol}
    solver = PCG(max_passes=settings.max_passes, measure_start=state is not None, **until)
    return solver.solve(
        problem.measured,
        problem.features,
        problem.head.at(problem.ridge.head),
        curvature,
        state.vectors["body"].to(problem.quadratic.targets) if state else start,
        fast=problem.fast,
        tf32=settings.precision != "float32",
        passes=state.passes if state else 0,
        keep=lambda x, passes, last=False: keep({"body": x}, passes, last),
        progress=context.progress,
    )


def solve_stochastic(problem: TrainingProblem, state: State | None = None) -> Solution:
    """SGD with K-FAC of head and body, or Adam, which needs none."""
    context, s = problem.context, problem.context.settings
    rate: dict[str, Any] = {} if s.learning_rate is None else {"learning_rate": s.learning_rate}
    kind = SGD if s.solver == "sgd" else Adam
    solver = kind(epochs=s.epochs, batch_size=s.minibatch, augment=s.augment, seed=s.seed, **rate)
    return solver.solve(
        problem.quadratic,
        damped_curvature(problem, solver) if isinstance(solver, SGD) else None,
        {k: v.to(problem.quadratic.targets) for k, v in state.vectors.items()} if state else None,
        epoch=state.passes if state else 0,
        checkpoint=checkpoint_keeper(problem),
        progress=context.progress,
    )


def damped_curvature(problem: TrainingProblem, solver: SGD) -> DampedCurvature:
    """K-FAC of head and body, damped as the settings say or as little as the solver's own first batches allow."""
    context, s, quadratic = problem.context, problem.context.settings, problem.quadratic
    with context.timed("curvature"), matmul_precision(fast=True):
        curvature = precondition(quadratic, problem.features, draws=s.draws, seed=s.seed, progress=context.progress)
        if s.damping is not None:
            return Damping(s.damping, DAMPING, solver.batch_size).of(curvature, quadratic)
        damping = stable_damping(
            curvature,
            quadratic,
            islice(solver.batches(quadratic, 0), BATCHES),
            kind=DAMPING,
            learning_rate=solver.learning_rate,
            momentum=solver.momentum,
            batch=solver.batch_size,
        )
    context.progress.say(f"K-FAC damped with ρ = {damping.rho:.2g}, the least whose steps do not overshoot a batch")
    return damping.of(curvature, quadratic)
