"""Moving the linearisation point: the network is stepped to w0 + δ, or fine-tuned, and linearised there.

    solve -> w0 ← w0 + η δ_body -> features, closed-form head, point -> solve again (`relinearize` times).

η = 1, halved as long as the network's features do not follow the linear model (`follows`): where it has no validity,
its solution is not a direction to go. Every step is a quadratic problem with the same solvers, penalised around its own
point. A moved network has seen the labels: leave-one-out around it is too low, whatever hides a row's label from its
own head. Therefore

- pooling, views and ridge strengths are chosen at the pretrained weights, and the strengths keep their size relative to
  the kernels (`lqf.fitting.strengths`);
- the error on unseen data comes from refits without each fold that begin at the pretrained weights (`replay`).
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.backbones.average_pool import acting
from lqf.backbones.state import moved, with_flat_state
from lqf.errors import LQFError
from lqf.fitting.checkpoint import State
from lqf.fitting.encoder import Encoder
from lqf.fitting.finetuned import finetuned
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.pose import outlined, pose, pose_again
from lqf.fitting.strengths import Strengths, Used
from lqf.fitting.training_problem import Moves, TrainingProblem
from lqf.fitting.training_set import TrainingSet
from lqf.linear.linearize import Linearization, linearized_body
from lqf.linear.ridge import Ridge
from lqf.solvers.planner import Plan
from lqf.solvers.solution import Solution

HALVINGS = 8
"""Lengths of a step that are tried: 1, ½, ¼, …"""
ROWS_LOOKED_AT = 512
"""Rows, per process, by which the length of a step is judged."""


def relinearize(head: HeadFit, state: State | None = None) -> tuple[TrainingProblem, Solution]:
    """All solves from the pretrained weights on, or from a checkpoint: the last problem and its solution."""
    problem = _begun(head, state) if state is None or "moved" not in state.vectors else _resumed(head, state)
    del head
    while True:
        assert problem.moves is not None
        solution = problem.solve(state=state and _of_solver(state))
        moves = replace(problem.moves, used=(*problem.moves.used, problem.used))
        if len(moves.used) > problem.context.settings.relinearize:
            return replace(problem, moves=moves), solution
        encoder, pooling = stepped_encoder(problem, problem.body(solution)), problem.head_fit.pooling
        _leave(problem)
        del problem, solution  # the next problem needs the memory of this one's kernels and recorded passes
        problem, state = _around(encoder, pooling, moves), None


def replay(data: TrainingSet, problem: TrainingProblem) -> tuple[TrainingProblem, Solution]:
    """The whole way of a fit on other samples, from the pretrained weights, with its ridge strengths and its solver."""
    moves, plan, pooling = problem.moves, problem.plan, problem.head_fit.pooling
    assert moves is not None
    assert plan is not None
    encoder = Encoder(data, moves.pretrained)
    if data.context.settings.finetune_first:
        encoder = finetuned_encoder(encoder, pooling)
    here, solution = _solved_at(encoder, pooling, moves.used[0], plan)
    for used in moves.used[1:]:
        encoder = stepped_encoder(here, here.body(solution))
        here, solution = _solved_at(encoder, pooling, used, plan)
    return here, solution


def _begun(head: HeadFit, state: State | None) -> TrainingProblem:
    """The problem at the pretrained weights, or after the fine-tuning that comes first."""
    problem = pose(head, state.ridge if state else None)
    under = problem.head_fit.acting.head.scale
    strengths = Strengths.of(problem.used, under, problem.head.scale, problem.unit)
    first = problem.head_fit
    moves = Moves(first.backbone, first.choice, strengths, problem.choices)
    if not problem.context.settings.finetune_first:
        return replace(problem, moves=moves)
    _leave(problem)
    del problem
    return _around(finetuned_encoder(first.encoder, first.pooling), first.pooling, moves)


def _resumed(head: HeadFit, state: State) -> TrainingProblem:
    """The problem at the moved weights of a checkpoint."""
    at = state.at
    backbone = with_flat_state(head.backbone, state.vectors["moved"].to(head.context.device), at["moved"])
    used = tuple(Used(**u) for u in at["used"])
    moves = Moves(head.backbone, head.choice, Strengths(**at["strengths"]), head.choices, used)
    return _around(Encoder(head.data, backbone), head.pooling, moves, state.ridge)


def _of_solver(state: State) -> State:
    return State({k: v for k, v in state.vectors.items() if k != "moved"}, state.at)


def _around(encoder: Encoder, pooling: str, moves: Moves, ridge: Ridge | None = None) -> TrainingProblem:
    """The problem around the weights that a network has now."""
    settings, total = encoder.context.settings, encoder.data.total_weight
    head = HeadFit.at(encoder, pooling, lambda scale: moves.strengths.point_at(scale, settings, total))
    return pose_again(head, moves, ridge)


def _solved_at(encoder: Encoder, pooling: str, used: Used, plan: Plan) -> tuple[TrainingProblem, Solution]:
    outline = outlined(HeadFit.at(encoder, pooling, used.point))
    problem = replace(outline, quadratic=outline.quadratic.with_ridge(used.ridge), plan=plan)
    solution = problem.solve()
    problem.release()
    return problem, solution


def _leave(problem: TrainingProblem) -> None:
    """Give up what was recorded for a problem that is solved."""
    problem.encoder.engine.clear()


# --- moving -----------------------------------------------------------------------------------------------------------


def stepped_encoder(problem: TrainingProblem, body: Tensor) -> Encoder:
    """The network moved by ``body`` (D,), or by a half, a quarter, … of it; what comes before the linearised stage
    stays.
    """
    problem.release()
    stage = problem.context.settings.linearize
    for halvings in range(HALVINGS):
        length = 0.5**halvings
        other = stepped(problem.head_fit.backbone, stage, body, length)
        if _follows(problem, linearized_body(acting(other).body, stage)[1], length * body):
            return problem.head_fit.encoder.with_backbone(other)
    raise LQFError(
        f"the network does not follow its linear model over {length:.1g} of the step either; "
        "give no relinearize, or a larger body_weight_decay"
    )


def stepped(backbone: Backbone, stage: str, delta: Tensor, length: float = 1.0) -> Backbone:
    """The network at w0 + ηδ, for the change ``delta`` (D,) of the weights linearised from ``stage`` on."""
    body = copy.deepcopy(backbone.body)
    rest = linearized_body(body, stage)[1]
    own = dict(rest.module.named_parameters())
    with torch.no_grad():
        for name, change in rest.layout.views(delta).items():
            own[name].add_(change.to(own[name]), alpha=length)
    return moved(backbone, body, {"steps": [*backbone.spec.get("moved", {}).get("steps", []), length]})


def _follows(problem: TrainingProblem, other: Linearization, change: Tensor) -> bool:
    """Whether the features of the moved network are nearer to the linear model's than those of the old one."""
    world = problem.context.world
    sums, seen = torch.zeros(2, dtype=torch.float64, device=problem.context.device), 0
    for _, x in problem.encoder.inputs.batches():
        sums += follows(*problem.model.body.jvp(x, change), other.value(x))
        seen += len(x)
        if seen >= ROWS_LOOKED_AT:
            break
    gap, linear = world.all_reduce_(sums).tolist()
    return bool(world.agree(float(gap <= linear)))


def follows(before: Tensor, linear: Tensor, after: Tensor) -> Tensor:
    """‖z − z0 − Jδ‖² and ‖Jδ‖², to be added up over rows; a network follows where the first is at most the second.

    Args:
        before: (B, p) features z0.
        linear: (B, p) their change Jδ in the linear model.
        after: (B, p) features z of the moved network.
    """
    gap = (after - before - linear).double().square().sum()
    return torch.stack([gap, linear.double().square().sum()])


def finetuned_encoder(encoder: Encoder, pooling: str = "avg") -> Encoder:
    """The network after a few epochs of fine-tuning from its closed-form head, through the pooling it has.

    All weights change, those before the first linearised stage too (`lqf.fitting.finetuned`).

    Args:
        encoder: of the network as it is.
        pooling: the name of its features.
    """
    settings = encoder.context.settings
    tuned = finetuned(
        encoder.data, encoder.backbone, pooling, epochs=settings.finetune_first, rate=settings.learning_rate
    )
    return tuned.encoder
