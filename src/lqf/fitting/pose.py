"""From a closed-form head to a training problem: linearisation point, plan, kernels, ridge strengths.

features, head -> point -> quadratic problem -> plan -> kernels -> ridge strengths
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from lqf.curvature.preconditioner import draws_for
from lqf.errors import LQFError
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.point import Point, blind_point, make_point
from lqf.fitting.select_ridge import Choice, choose_strengths
from lqf.fitting.select_shown import given_shown
from lqf.fitting.select_views import too_expensive, without_views
from lqf.fitting.solve import planned_kernels
from lqf.fitting.sound import check_strengths
from lqf.fitting.strengths import Strengths
from lqf.fitting.training_problem import Moves, TrainingProblem
from lqf.fitting.without_fold import nested_choice
from lqf.kernels.tangent import Kernels
from lqf.linear.model import LinearModel
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.runtime.timings import recall, remember
from lqf.settings import Settings
from lqf.solvers.planner import MOST_SAMPLES, Plan, Rates, jacobian_bytes, plan
from lqf.utils.text import rough_duration

DENSE_PAIRS = {"cpu": 600, "cuda": 3000}
"""Pairs of a row and an output up to which a climb makes the kernel of all of them, once without each fold."""


def pose(head: HeadFit, ridge: Ridge | None = None) -> TrainingProblem:
    """The problem at the pretrained weights; all that is chosen is chosen here.

    Args:
        head: features and closed-form head. Views that were chosen automatically are given up where they cost too much.
        ridge: ridge strengths of a checkpoint, in place of leave-one-out's choice.
    """
    outline = _affordable(head)
    assert outline.plan is not None
    given_shown(outline.data.preprocess.views, head.context.settings)  # before anything is solved
    head.context.progress.note(outline.plan.sentence)
    return with_strengths(outline, ridge)


def pose_again(head: HeadFit, moves: Moves, ridge: Ridge | None = None) -> TrainingProblem:
    """The problem around the weights that a moved network has; nothing is chosen by its labels.

    Args:
        head: features and closed-form head at these weights.
        moves: how it came there.
        ridge: ridge strengths of a checkpoint, or of the fit that is being replayed.
    """
    outline = planned(outlined(head))
    assert outline.plan is not None
    head.context.progress.note(f"linearised again: {outline.plan.sentence}")
    return with_strengths(replace(outline, moves=moves), ridge or moves.strengths)


def pose_unplanned(head: HeadFit, ridge: Ridge | None = None) -> TrainingProblem:
    """The problem to be solved by conjugate gradients, several times perhaps, without a plan of its cost.

    Kernels are made only where they have to choose a ridge strength.
    """
    outline, settings = outlined(head), head.context.settings
    ridge = ridge or given_strengths(settings, head.data.total_weight)
    if ridge is not None:
        return replace(outline, quadratic=outline.quadratic.with_ridge(ridge))
    kernels = outline.averaged_kernels(MOST_SAMPLES // head.data.n_views)
    choice = choose(outline, kernels)
    return replace(outline, quadratic=outline.quadratic.with_ridge(choice.ridge), kernels=kernels, choice=choice)


def given_strengths(settings: Settings, total_weight: float) -> Ridge | None:
    """Ridge strengths that the settings fix; None where one of them has to be chosen."""
    head, body = settings.weight_decay, settings.body_weight_decay
    if settings.form == "w0" and body == "auto":
        body = head  # one λ for all
    if head == "auto" or body == "auto":
        return None
    return Ridge(float(head) * total_weight, float(body) * total_weight)


# --- the steps --------------------------------------------------------------------------------------------------------


def outlined(head: HeadFit, point: Point | None = None) -> TrainingProblem:
    """The problem around the settings' linearisation point, or another one, still without ridge strengths."""
    data, context, settings = head.data, head.context, head.context.settings
    if point is None:
        kind = "probe" if data.alone and settings.head == "crossfit" else settings.head  # no fold shows its own classes
        point = make_point(kind, head.acting.head, head.point_ridge, data.folds, settings.seed)
    heads = context.world.broadcast_(point.heads.to(device=context.device, dtype=context.dtype))
    model = LinearModel(head.acting.encoder.body, heads, settings.form == "w0", data.constant)
    if head.acting is not head:
        model = replace(model, reader=head.encoder.reader, read=head.features.shape[1])
    quadratic = QuadraticProblem(
        model,
        head.encoder.inputs,
        data.targets.to(context.dtype),
        data.weights.to(context.dtype),
        point.fold.to(context.device),
        Ridge(1.0, 1.0),
    )
    return TrainingProblem(context, head, point, quadratic)


def planned(problem: TrainingProblem) -> TrainingProblem:
    """With solver and cost, by timing the first process."""
    with problem.context.timed("planning"):
        chosen = Plan(**problem.context.world.first(lambda: asdict(_plan(problem))))
    return replace(problem, plan=chosen)


def planned_by_size(problem: TrainingProblem, seconds: float) -> TrainingProblem:
    """With a plan for which nothing is timed, so that the same data are always solved in the same way.

    The dense dual where the pairs of a row and an output are few (`DENSE_PAIRS`), otherwise conjugate gradients; a
    solver that the settings name is planned as ever. ``seconds``: expected.
    """
    context = problem.context
    if context.settings.solver != "auto":
        return planned(problem)
    pairs = problem.quadratic.targets.numel()
    solver = "dense" if pairs <= DENSE_PAIRS[context.device.type] else "pcg"
    free = min(context.world.all_gather(context.free_bytes() - 6 * 8 * pairs**2 * (solver == "dense")))
    held = jacobian_bytes(problem.quadratic, pairs, free)
    return replace(problem, plan=Plan(solver, seconds, 0, held, f"{solver}, about {rough_duration(seconds)}"))


def _plan(problem: TrainingProblem) -> Plan:
    context, settings, engine = problem.context, problem.context.settings, problem.encoder.engine
    fast, exact = engine.fast(problem.quadratic), engine.measured(problem.quadratic)
    draws = draws_for(settings.draws, len(problem.quadratic.targets))
    rates = _rates(problem, fast, exact, draws).together(context.world.size)
    memory = context.free_bytes()
    return plan(
        problem.quadratic,
        settings.solver,
        rates,
        memory,
        epochs=settings.epochs,
        refits=settings.loo in ("auto", "folds"),
    )


def _rates(problem: TrainingProblem, fast: QuadraticProblem, exact: QuadraticProblem, draws: int) -> Rates:
    """Measured, or as they were measured before for such a problem on this machine."""
    context, settings, backbone = problem.context, problem.context.settings, problem.head_fit.backbone
    about = {
        "network": [backbone.name, backbone.spec.get("state_sha256"), settings.linearize],
        "head": [problem.head_fit.pooling, problem.quadratic.model.n_outputs, len(problem.quadratic.model.heads)],
        "rows": [list(problem.quadratic.inputs.example(1).shape[1:]), fast.inputs.batch_size, draws],
        "how": [settings.dtype, settings.precision, settings.compile, settings.batch_size],
    }
    key = f"rates {json.dumps(about, sort_keys=True)}"
    try:
        return Rates.from_dict(recall(key, context.device))
    except (TypeError, KeyError):  # nothing is known, or what an earlier version wrote
        rates = Rates.measure(problem.quadratic, fast, exact, draws=draws)
        remember(key, context.device, rates.to_dict())
        return rates


def _affordable(head: HeadFit) -> TrainingProblem:
    """The planned problem with the views that were chosen, or without them where it is too large or takes too long."""
    if head.one_view is None:
        return planned(outlined(head))
    try:
        outline = planned(outlined(head))
        assert outline.plan is not None
        if not too_expensive(outline.plan):
            return outline
        why = f"flip: {outline.plan.sentence.partition(' (')[0]}"
    except LQFError:
        why = "flip needs too much memory"
    return planned(outlined(without_views(head, why)))


def with_strengths(problem: TrainingProblem, fixed: Ridge | Strengths | None = None) -> TrainingProblem:
    """With its kernels and, by them, its ridge strengths; what is fixed is only evaluated."""
    context, data, plan = problem.context, problem.data, problem.plan
    assert plan is not None
    if fixed is None and by_stages(problem):
        stages = nested_choice(problem)
        problem = replace(problem, quadratic=problem.quadratic.with_ridge(stages.ridge), stages=stages)
        if plan.solver != "dense":
            return problem
        fixed = stages.ridge
    elif fixed is not None and fixed.stages:  # these count in the kernels by their strengths
        relative = fixed if isinstance(fixed, Ridge) else Ridge(1.0, 1.0, fixed.stages)
        problem = replace(problem, quadratic=problem.quadratic.with_ridge(relative))
    if isinstance(fixed, Ridge):
        check_strengths(fixed)
    with context.timed("kernel"):
        kernels = planned_kernels(problem, plan)
    with context.timed("weight decay"):
        if isinstance(fixed, Strengths):
            fixed = fixed.at(problem.head.scale, kernels.unit, context.settings, data.total_weight)
        choice = choose(problem, kernels, fixed)
    ridge = Ridge.from_dict(context.world.first(choice.ridge.to_dict))
    if fixed is not None:
        ridge = replace(ridge, stages=fixed.stages)
    return replace(problem, quadratic=problem.quadratic.with_ridge(ridge), kernels=kernels, choice=choice)


def with_kernels(problem: TrainingProblem) -> TrainingProblem:
    """With the kernels of its plan, and leave-one-out from them at its own strengths, where these came otherwise."""
    if problem.kernels is not None and problem.choice is not None:
        return problem
    assert problem.plan is not None
    kernels = planned_kernels(problem, problem.plan)
    return replace(problem, kernels=kernels, choice=choose(problem, kernels, problem.ridge))


def by_stages(problem: TrainingProblem) -> bool:
    """Whether every stage has a strength of its own, to be chosen by nested folds."""
    settings, data = problem.context.settings, problem.data
    assert problem.plan is not None
    chosen = settings.form == "centred" and settings.body_weight_decay == "auto" and settings.weight_decay == "auto"
    solved = problem.plan.solver in ("dense", "pcg")
    return chosen and solved and settings.by_stage and not data.alone


def choose(problem: TrainingProblem, kernels: Kernels, fixed: Ridge | None = None) -> Choice:
    """Ridge strengths by leave-one-out of the samples that the kernels cover."""
    data, context = problem.data, problem.context
    head_ridge = problem.head_fit.choice.mu
    return choose_strengths(
        context.settings, data.judge, data.total_weight, kernels, head_ridge, fixed, context.progress
    )


def loo_bias(problem: TrainingProblem, first: int | None = None) -> float | None:
    """How much a point that has seen the labels flatters leave-one-out: the error around its cross-fitted counterpart
    minus the error around it; None where it has not seen them. ``first``: so many views speak for a sample.
    """
    assert problem.choice is not None
    assert problem.plan is not None
    choice, head = problem.choice, problem.head_fit
    other = blind_point(problem.point, head.acting.head, head.point_ridge, problem.data.folds)
    if other is None:
        return None
    ridge = replace(choice.ridge, stages=problem.ridge.stages)
    blind = outlined(head, other)
    blind = replace(blind, quadratic=blind.quadratic.with_ridge(ridge))
    kernels = planned_kernels(blind, problem.plan)
    judge = problem.data.judge.of(kernels.samples)
    return judge.error(choose(blind, kernels, ridge).e_loo, first) - judge.error(choice.e_loo, first)
