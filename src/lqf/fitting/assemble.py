"""The end of a fit: a solved problem becomes a fitted model with its report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.choices import choice_of_weight_decay
from lqf.fitting.finetuned import Tuned
from lqf.fitting.fitted_model import FINETUNING, FittedModel, TrainingTable
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.knowledge import Known, of_head, of_problem
from lqf.fitting.out_of_sample import prior_temperature, temperature
from lqf.fitting.report import FitReport, of_solution, out_of_sample
from lqf.fitting.select_ridge import Choice
from lqf.fitting.sound import check_solution
from lqf.fitting.training_problem import TrainingProblem
from lqf.fitting.training_set import TrainingSet
from lqf.linear.ridge import Ridge
from lqf.settings import view_count
from lqf.solvers.head import Head
from lqf.solvers.solution import Certificate, Solution

HEAD_TOLERANCE = 1e-4
"""Relative residual up to which a closed-form head counts as solved; it usually has 1e-10."""


def assemble(
    problem: TrainingProblem, solution: Solution, loo: LeaveOneOut | None, shown: str | None = None
) -> FittedModel:
    """The linear model at its optimum; predictions go through the mean of its heads.

    ``shown``: views of predictions, where these are not all that were trained on.
    """
    check_solution(solution, problem.context.settings)
    if not solution.certificate.converged:
        solution, loo = _roughly(solution), loo and replace(loo, level="estimated")
    model = problem.model
    v, body = model.split(solution.delta)
    mean = model.of_all_features(model.heads.mean(0))
    assert problem.plan is not None
    report = _report(
        problem.head_fit,
        solution,
        loo,
        choices=problem.choices,
        plan=problem.plan.sentence,
        point=problem.point.kind,
        # the choice was made at the pretrained weights, the point of a moved network is its last one
        head_loo_error=_error(problem.moves.head if problem.moves else problem.head_fit.choice, problem.data, shown),
    )
    beta = temperature(problem, loo, shown)
    head = v + mean if model.around_w0 else v
    views = problem.data.n_views if shown is None else view_count(shown)
    known = of_problem(problem, solution, loo, views)
    return _fitted(problem.head_fit, head, mean[:, :-1], body, loo, beta, report, shown, known)


def assemble_head(head: HeadFit, shown: str | None = None) -> FittedModel:
    """The closed-form head alone, V (C, p+1); ``shown`` as of `assemble`."""
    data, choice = head.data, head.choice
    solution = head_solution(head.head, choice.mu)
    check_solution(solution, data.context.settings)
    first = None if shown is None else view_count(shown)
    loo = None if data.alone else data.left_out(data.judge.outputs(choice.e_loo, first), "exact")
    choices = (*head.choices, *choice_of_weight_decay(choice, data.total_weight, "head"))
    plan, error = "head: closed form", _error(choice, data, shown)
    report = _report(head, solution, loo, choices=choices, plan=plan, point=None, head_loo_error=error)
    v = solution.delta.view(head.head.residual.shape[1], -1)
    beta = prior_temperature(data) if loo is None else loo.temperature()
    return _fitted(head, v, torch.zeros_like(v[:, :-1]), v.new_zeros(0), loo, beta, report, shown, of_head(head))


def assemble_finetuned(tuned: Tuned, loo: LeaveOneOut | None, shown: str) -> FittedModel:
    """A fine-tuned network under its own head; ``shown`` as of `assemble`."""
    head = tuned.start
    mu, moved = head.choice.mu, tuned.backbone.spec["moved"]
    sentence = f"fine-tuned in {moved['epochs']} epochs, at a learning rate of {tuned.rate:.1e} to begin with"
    if "networks" in moved:
        sentence += f"; the mean of {moved['networks']} networks, all but one without a fold"
    proof = Certificate(float("nan"), float("nan"), moved["epochs"], True, sentence)
    weights = sum(w.numel() for w in tuned.backbone.body.parameters()) + tuned.head.numel()
    solution = Solution(tuned.head.reshape(-1), Ridge(mu, mu), FINETUNING, "estimated", proof)
    fit = replace(head, encoder=tuned.encoder)
    choices = choice_of_weight_decay(head.choice, head.data.total_weight, "head")
    error = head.choice.best.error
    report = _report(fit, solution, loo, choices=choices, plan=sentence, point=None, head_loo_error=error)
    report = replace(report, unknowns=weights, relative_residual=None)
    beta = prior_temperature(head.data) if loo is None else loo.temperature()
    v = tuned.head
    return _fitted(fit, v, torch.zeros_like(v[:, :-1]), v.new_zeros(0), loo, beta, report, shown)


def head_solution(head: Head, mu: float) -> Solution:
    """The closed-form head as a `Solution`."""
    v = head.solve(mu)
    relative = head.relative_residual(v, mu)
    sentence = f"closed form: relative residual {relative:.1e} after one pass over the data"
    certificate = Certificate(relative, float("nan"), 1, relative <= HEAD_TOLERANCE, sentence)
    return Solution(v.reshape(-1), Ridge(mu, mu), "head", "exact", certificate)


def _roughly(solution: Solution) -> Solution:
    """A solution that did not converge is not exact, whatever solved it."""
    return replace(solution, level="solved") if solution.level == "exact" else solution


def _error(choice: Choice, data: TrainingSet, shown: str | None) -> float:
    """Leave-one-out error of a closed-form head in the views of predictions."""
    same = shown in (None, data.preprocess.views)
    if same and data.judge.weights is data.judge.counted:
        return choice.best.error
    return data.judge.error(choice.e_loo, None if same else view_count(str(shown)))


def _report(
    head: HeadFit,
    solution: Solution,
    loo: LeaveOneOut | None,
    *,
    choices: tuple[dict[str, Any], ...],
    plan: str,
    point: str | None,
    head_loo_error: float,
) -> FitReport:
    data, context = head.data, head.context
    return FitReport(
        n=len(data),
        classes=data.classes,
        backbone=head.backbone.name,
        plan=plan,
        point=point,
        form=context.settings.form,
        pooling=head.pooling,
        views=data.preprocess.views,
        moved=head.backbone.spec.get("moved"),
        choices=choices,
        **of_solution(solution, data.total_weight, alone=solution.solver in ("head", FINETUNING)),
        **out_of_sample(loo),
        head_loo_error=head_loo_error,
        point_ridge=head.point_ridge if point else head.choice.mu,
        device=str(context.device),
        processes=context.world.size,
        skipped=data.images.skipped,
        stages={name: round(seconds, 3) for name, seconds in context.clock.seconds.items()},
        seconds=context.clock.total(),
        weighted=bool((data.sample_weights != data.sample_weights[0]).any()),
        choose_by=context.settings.choose_by,
    )


def _fitted(
    head: HeadFit,
    v: Tensor,
    point: Tensor,
    delta: Tensor,
    loo: LeaveOneOut | None,
    beta: float,
    report: FitReport,
    shown: str | None,
    known: Known | None = None,
) -> FittedModel:
    data, settings = head.data, head.context.settings
    trained = data.preprocess.views
    same = shown in (None, trained)
    s = data.images.samples
    v, point, delta = (t.detach().to("cpu", head.context.dtype) for t in (v, point, delta))
    return FittedModel(
        backbone=head.backbone,
        preprocess=data.preprocess if shown is None else replace(data.preprocess, views=shown),
        classes=s.classes,
        alpha=settings.alpha,
        constant=data.constant,
        head=v,
        point=point,
        stage=settings.linearize if len(delta) else "all",
        delta=delta,
        beta=beta,
        train=TrainingTable(s.ids, s.labels, s.weights, s.groups, data.images.hashes),
        loo=loo,
        report=report if same else replace(report, predict_views=shown),
        settings=settings,
        trained_views=None if same else trained,
        known=known,
    )
