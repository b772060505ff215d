"""A model that may be released: the optimum of a bounded problem, with noise that hides every single training image.

Rows are scaled to length one (or clipped), the ridge regression on them is solved anew at a strength that no image has
chosen, and Gaussian noise is added that is calibrated to the optimum's sensitivity (`lqf.changes.privacy.sensitivity`,
`lqf.changes.privacy.gaussian`): output perturbation. Two data sets are neighbours when one has another image in the
place of one of the other's (*replace one*); their number is public.

Only what is private, or public, or named in the report as neither, is in the released model: no table of samples, no
leave-one-out, no scores of what was tried, no residuals, nothing kept for questions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lqf.backbones.average_pool import reduction_of
from lqf.changes.privacy.bounded import Bounded
from lqf.changes.privacy.gaussian import check_budget, noise_multiplier, normal
from lqf.changes.privacy.sensitivity import RESIDUAL, sensitivity
from lqf.data import Images
from lqf.errors import LQFError
from lqf.fitting import Context, FittedModel, TrainingProblem, TrainingTable
from lqf.fitting.out_of_sample import PRIOR_SPREAD
from lqf.fitting.reopen import reopen
from lqf.linear.model import with_one
from lqf.linear.ridge import Ridge
from lqf.linear.targets import n_outputs
from lqf.settings import Settings

Part = Literal["head", "all"]
NOISE = 0.01
"""Standard deviation of the noise in an output, relative to the targets, at which the strength is chosen."""
STRENGTHS = tuple(10 ** (k / 8) for k in range(-32, 25))
"""Weight decays among which it is chosen, for rows of length one."""
ROUNDING = 1e-9
"""By how much a row may be longer than allowed, for rounding; the sensitivity counts it."""


@dataclass(frozen=True)
class Budget:
    """What a release may give away, and how.

    Attributes:
        epsilon, delta: of differential privacy.
        part: "head": a head on the pretrained features; "all": with the change of the linearised network.
        clip: length to which rows are cut; None: every row is scaled to length one.
        weight_decay: per image and for rows of length one; None: by the budget, the number of images and the targets.
        seed: of the noise, for experiments; None: secure.
        releases: models that are released together and share the budget: Gaussian noise of √k times the size in each of
            k spends as much as in one, since their noises are independent.
    """

    epsilon: float
    delta: float
    part: Part = "head"
    clip: float | None = None
    weight_decay: float | None = None
    seed: int | None = None
    releases: int = 1

    @property
    def multiplier(self) -> float:
        """σ for a sensitivity of 1."""
        return noise_multiplier(self.epsilon, self.delta) * math.sqrt(self.releases)

    def strength(self, n: int, target: float, noise: float = NOISE) -> float:
        """λ: as given, or the smallest one at which the noise in an output is this part of the targets."""
        if self.weight_decay is not None:
            return self.weight_decay
        sigma = self.multiplier
        enough = (s for s in STRENGTHS if sigma * sensitivity(n, s * n, target=target) <= noise * target)
        return next(enough, STRENGTHS[-1])


def released(model: FittedModel, budget: Budget, train: Images, context: Context) -> FittedModel:
    """The model that may be released.

    Args:
        model: fitted; its network has its pretrained weights.
        budget: of privacy.
        train: the training images.
        context: device, progress and rows per batch.
    """
    check_suitable(model, budget)
    problem = reopen(model, train, context)
    bounded, scales = (_head if budget.part == "head" else _all)(problem, budget)
    mu = budget.strength(bounded.n, bounded.target) * bounded.n * bounded.row**2
    exact = sensitivity(bounded.n, mu, row=bounded.row * (1 + ROUNDING), target=bounded.target * (1 + ROUNDING))
    tau = RESIDUAL * exact
    a = bounded.solve(mu)
    bounded.check(a, mu, tau)
    noise = budget.multiplier * (exact + 2 * tau)
    head, body = _weights(problem, budget, a, scales, noise)
    unit = 1.0 if budget.clip is not None else 1 / math.sqrt(head.shape[1])
    proof = _proof(model, budget, bounded, mu, exact, noise)
    return _released(model, problem, unit * head, unit * body, proof)


# --- the bounded problem ----------------------------------------------------------------------------------------------


def _head(problem: TrainingProblem, budget: Budget) -> tuple[Bounded, Tensor]:
    """Of the head alone: rows z̃ scaled; and by how much."""
    z = with_one(problem.features.double().cpu())
    scale = _scales(z.norm(dim=1), budget.clip)
    rows = scale[:, None] * z / math.sqrt(problem.data.n_views)
    _check_rows((scale * z.norm(dim=1)).max(), _length(budget))
    return _bounded(problem, budget, _targets(problem), rows=rows), scale


def _all(problem: TrainingProblem, budget: Budget) -> tuple[Bounded, Tensor]:
    """Of head and body: Jacobians, where the ridge is round, scaled by their largest singular value."""
    c, v = problem.model.n_outputs, problem.data.n_views
    kernels = problem.exact_kernels("release the head alone, or use a machine with more memory")
    kernel = kernels.whole(problem.ridge).double().cpu()
    n = len(kernel) // c
    blocks = kernel.view(n, c, n, c).diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # (n, C, C)
    lengths = torch.linalg.eigvalsh(blocks)[:, -1].clamp_min(0).sqrt()
    scale = _scales(lengths, budget.clip)
    _check_rows((scale * lengths).max(), _length(budget))
    each = (scale / math.sqrt(v)).repeat_interleave(c)
    return _bounded(problem, budget, _targets(problem).reshape(-1, 1), gram=each[:, None] * kernel * each), scale


def _targets(problem: TrainingProblem) -> Tensor:
    """(n, C) t − c, with the weight of a view."""
    centred = (problem.data.targets - problem.data.constant).double().cpu()
    if not float(centred.norm(dim=1).max()) <= _target(problem) * (1 + ROUNDING):
        raise LQFError("a target is larger than its bound; this is a fault of lqf, and nothing was released")
    return centred / math.sqrt(problem.data.n_views)


def _target(problem: TrainingProblem) -> float:
    """T: of targets ±α/2, or α·onehot − α/C."""
    alpha, k = problem.context.settings.alpha, len(problem.data.classes)
    return alpha / 2 if n_outputs(k) == 1 else alpha * math.sqrt(1 - 1 / k)


def _bounded(
    problem: TrainingProblem,
    budget: Budget,
    residual: Tensor,
    *,
    gram: Tensor | None = None,
    rows: Tensor | None = None,
) -> Bounded:
    return Bounded(gram, rows, residual, len(problem.data), _length(budget), _target(problem))


def _length(budget: Budget) -> float:
    return 1.0 if budget.clip is None else budget.clip


def _scales(lengths: Tensor, clip: float | None) -> Tensor:
    """What every row is multiplied by."""
    if clip is None:
        return 1 / lengths.clamp_min(1e-12)
    return (clip / lengths.clamp_min(1e-300)).clamp_max(1.0)


def _check_rows(longest: Tensor, allowed: float) -> None:
    if not float(longest) <= allowed * (1 + ROUNDING):
        raise LQFError("a row is longer than its bound or not finite; nothing was released")


# --- the weights ------------------------------------------------------------------------------------------------------


def _weights(
    problem: TrainingProblem, budget: Budget, a: Tensor, scales: Tensor, noise: float
) -> tuple[Tensor, Tensor]:
    """V (C, p+1) and the body (D,), with noise of this standard deviation where the ridge is round."""
    c, per_view = problem.model.n_outputs, scales[:, None] / math.sqrt(problem.data.n_views)
    u = per_view * a.view(-1, c)  # (n, C)
    if budget.part == "head":
        head = u.T @ with_one(problem.features.double().cpu())
        return head + noise * normal(head.numel(), budget.seed).view_as(head), head.new_zeros(0)
    quadratic = problem.measured
    flat = quadratic.ridge.head * quadratic.from_dual(u.to(quadratic.targets)).double().cpu()
    stretch = torch.ones_like(flat)
    body = torch.as_tensor(quadratic.body_ridge, dtype=torch.float64).cpu()
    stretch[quadratic.model.head_size :] = (quadratic.ridge.head / body).sqrt()
    v, change = problem.model.split(flat + noise * stretch * normal(len(flat), budget.seed))
    return v, change


# --- what is released -------------------------------------------------------------------------------------------------


def check_suitable(model: FittedModel, budget: Budget) -> None:
    """Refuse what the proof does not cover, before any work is done."""
    check_budget(budget.epsilon, budget.delta)
    if model.report.not_the_fit:
        raise LQFError(f"{model.report.not_the_fit}; release the model that it was made from")
    if budget.part not in ("head", "all"):
        raise LQFError(f"part is {budget.part!r}; choose head or all")
    if "moved" in model.backbone.spec:
        raise LQFError("the network's weights were trained on the images, without privacy; fit one that keeps them")
    check_weights(model.train.weights, model.settings, budget)
    for name in ("clip", "weight_decay"):
        value = getattr(budget, name)
        if value is not None and not 0 < value < math.inf:
            raise LQFError(f"{name} is {value!r}; give a positive number")
    if budget.part == "all":
        check_linear("head" if model.head_alone else model.report.solver, model.settings)


def check_weights(weights: np.ndarray, settings: Settings, budget: Budget) -> None:
    """Refuse images that do not count alike, and a δ that publishing one of them would satisfy."""
    if len(weights) < 2 or settings.class_weight is not None or not np.allclose(weights, 1.0):
        raise LQFError("privacy needs images that all have weight 1; fit without weights and class weights")
    if budget.delta >= 1 / len(weights):
        raise LQFError(
            f"delta is {budget.delta:g}, and with {len(weights)} images publishing one of them would satisfy it; "
            f"give far less than {1 / len(weights):.1g}"
        )


def check_linear(solver: str, settings: Settings) -> None:
    """Refuse a model whose network's change has no bound."""
    if solver != "dense":
        raise LQFError(
            "the change of the network is bounded by the dense solver's kernel; fit with it, or release the head"
        )
    if settings.form != "centred" or settings.dtype != "float64":
        raise LQFError("to release more than the head, fit with form centred and dtype float64; or release the head")


def about(proof: Mapping[str, Any]) -> str:
    """The guarantee, and what it does not cover, in a line."""
    rest = ", ".join(proof["not_private"]) or "nothing that the model holds"
    return f"({proof['epsilon']:g}, {proof['delta']:g})-differentially private; not private: {rest}"


def not_private(model: FittedModel, part: Part) -> list[str]:
    """What the released model has from the images, and the guarantee does not cover."""
    chosen = {str(entry["what"]) for entry in model.report.choices}
    found = []
    if "pooling" in chosen:
        found.append("the choice of the pooling")
    if reduction_of(model.backbone) is not None:
        found.append("the principal channels of the pooling")
    if "scale" in model.backbone.spec.get("pooling", {}):
        found.append("the relative scale of two poolings")
    if "views" in chosen or model.trained_views is not None:
        found.append("the choice of the views")
    if part == "all":
        if model.settings.head != "random":
            found.append(f"the linearisation point ({model.settings.head}), a head that was fitted to the labels")
        if any("weight decay" in what for what in chosen):
            found.append("the ratio of the strengths of network and head")
    return found


def _proof(
    model: FittedModel, budget: Budget, bounded: Bounded, mu: float, exact: float, noise: float
) -> dict[str, Any]:
    """What is claimed, by which numbers; none of them is measured on the images."""
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "neighbours": "one image, with its label, replaced by another; the number of images is public",
        "mechanism": "output perturbation, analytic Gaussian mechanism",
        "part": budget.part,
        "rows": "scaled to length one" if budget.clip is None else f"clipped to length {budget.clip:g}",
        "row_bound": bounded.row,
        "target_bound": bounded.target,
        "strong_convexity": mu,
        "sensitivity": exact,
        "residual_bound": RESIDUAL * exact,
        "noise": noise,
        "weight_decay": mu / (bounded.n * bounded.row**2),
        "not_private": not_private(model, budget.part),
        "public": ["the number of images", "the names of the classes", "all settings that you gave"],
        "groups": model.train.groups is not None,
        "secure_noise": budget.seed is None,
    }


def _released(
    model: FittedModel, problem: TrainingProblem, head: Tensor, body: Tensor, proof: dict[str, Any]
) -> FittedModel:
    """Nothing of the fit's tables, scores and residuals goes with it."""
    dtype, report, alone = model.head.dtype, model.report, proof["part"] == "head"
    of = f"({proof['epsilon']:g}, {proof['delta']:g})-differentially private"
    mu = proof["strong_convexity"]
    ratio = 1.0 if alone else report.ridge.body / report.ridge.head
    new = replace(
        report.without_climb(),
        images_given=None,
        output_gap=None,
        output_bound=None,
        relative_residual=None,
        class_weights=None,
        plan=of,
        point=None if alone else report.point,
        choices=(),
        history=(),
        skipped=(),
        stages={},
        seconds=0.0,
        passes=0,
        converged=True,
        solver="head" if alone else report.solver,
        level="exact",
        ridge=Ridge(mu, mu * ratio),
        weight_decay=proof["weight_decay"],
        body_weight_decay=None if alone else proof["weight_decay"] * ratio,
        certificate=f"{of}, noise of standard deviation {proof['noise']:.3g}",
        unknowns=head.numel() + body.numel(),
        head_loo_error=None,
        point_ridge=mu if alone else report.point_ridge,
        privacy=proof,
    )
    settings = replace(model.settings, weight_decay="auto", body_weight_decay="auto")
    return replace(
        model,
        head=head.to(dtype),
        point=torch.zeros_like(head[:, :-1]).to(dtype) if alone else model.point,
        stage="all" if alone else model.stage,
        delta=body.to(dtype),
        beta=PRIOR_SPREAD / model.alpha,
        train=TrainingTable((), np.zeros(0, np.int64), np.zeros(0), None, (), None, model.train.shape),
        loo=None,
        report=new,
        settings=settings,
        tried={},
        known=None,
    )
