"""A ridge strength for the head and one for every stage, by nested folds.

With θ = log μ of head and stages and f(θ) the outputs of every sample by the problem without its fold
(`lqf.kernels.nested`),

    min over θ, β:   Σ_i s_i CE(softmax β f_i(θ), y_i) + (1/2σ²) Σ_s (θ_s − θ̄)²,

the cross-entropy at the best temperature and a prior towards equal strengths, σ = `SPREAD`. One strength for the whole
body comes first, then one for each stage: from there on, and also from strengths with which all stages count alike.
Where the best single strength is so high that the body does not change, no stage has a slope to follow from there.
Gradients are automatic; all is small and in float64.

Early stages often want no change at all. Those that can be left out without raising the loss by more than `LEFT` of it
are not linearised: what they make of an image is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lqf.evaluation.calibration import fit_temperature
from lqf.fitting.select_ridge import Judge
from lqf.kernels.nested import NestedKernels
from lqf.linear.inputs import average_views
from lqf.linear.ridge import Ridge
from lqf.linear.stages import REST, ridge_by_groups
from lqf.linear.targets import error_rate, logits

SPREAD = 1.0
"""σ of the prior: a stage's strength differs from the others' by a factor of e as soon as the data say so. A wider
prior lowers the nested loss further and, with few images, raises that of others: 3 costs 0.02 of cross-entropy against
1 with 100 images and 0.006 with 160, and gains 0.01 with 300 (hand signs and cars, EfficientNet-Lite0 at 160 px,
averaged kernels, judged by other training images)."""
BOUND = 8.0
"""σ of a prior around where the search begins, so that a strength that does not matter stays where it is."""
RATIOS = (0.3, 3.0, 30.0)
"""Strengths of the body with which the search begins, relative to the head's in units of their mean eigenvalues."""
LEFT = 0.002
"""Share of the loss that it may cost to leave the first stages as they are."""
REACH = 12.0
"""Farthest that a line search looks from where it began: far beyond, kernels cannot be factorised any more."""
STEPS = 40
GONE = 60.0
"""log of the factor by which a strength is raised to stand for infinity."""


@dataclass(frozen=True)
class Found:
    """Strengths with their nested cross-entropy and error.

    Attributes:
        log_mu: (1+S,) of the head and of every group of stages.
        loss: cross-entropy.
        error: share of wrong decisions.
    """

    log_mu: tuple[float, ...]
    loss: float
    error: float


@dataclass(frozen=True)
class StageChoice:
    """Strengths that were chosen by nested folds.

    Attributes:
        ridge: of head and stages.
        factor: the head's strength over that which is best for it alone.
        first: the first stage that is worth changing, "all" where it is the first of the network.
        head, one, stages: the head alone, with one strength for the body, with one for each stage.
        unit: tr K_body / tr K_head, where the kernels of the stages count by μ_body/μ_s: of the ratio μ_body/μ_head.
        samples: so many judged.
    """

    ridge: Ridge
    factor: float
    first: str
    head: Found
    one: Found
    stages: Found
    unit: float
    samples: int

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self) | {"ridge": self.ridge.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> StageChoice:
        """The inverse of `to_dict`."""
        found = {name: Found(tuple(v["log_mu"]), v["loss"], v["error"]) for name, v in _founds(values).items()}
        return cls(**values | found | {"ridge": Ridge.from_dict(values["ridge"])})

    def entry(self, total_weight: float) -> dict[str, Any]:
        """For the report: weight decay of every stage, or of the body, and what less than that comes to."""
        decays = {name: mu / total_weight for name, mu in self.ridge.stages} or {"all": self.ridge.body / total_weight}
        tried = {"head alone": self.head, "one for the body": self.one}
        if self.ridge.stages:
            tried["one per stage"] = self.stages
        return {
            "what": "weight decay (stages)",
            "kept": [*tried][-1],
            "tried": {name: {"loo_error": f.error, "loss": f.loss} for name, f in tried.items()},
            "head": self.ridge.head / total_weight,
            "strengths": decays,
            "first": self.first,
        }


def choose_stages(kernels: NestedKernels, judge: Judge, head_ridge: float, *, by_stage: bool = True) -> StageChoice:
    """By the nested cross-entropy of the samples that the kernels cover.

    Args:
        kernels: without each fold.
        judge: of all training samples.
        head_ridge: the best strength of the head alone, with which the search begins.
        by_stage: whether every stage has a strength of its own; otherwise all have the same.
    """
    search = _Search(kernels, judge.of(kernels.samples))
    alone = search.at(search.log_mu(head_ridge, torch.inf))
    starts = [search.one(search.log_mu(head_ridge, ratio)) for ratio in RATIOS]
    one = min(starts, key=lambda found: found.loss)
    stages = search.each(one, head_ridge) if by_stage and len(kernels.stages) > 1 else one
    first = search.first_stage(stages)
    mus = [math.exp(x) for x in stages.log_mu]
    middle = math.exp(sum(stages.log_mu[1:]) / len(stages.log_mu[1:]))
    ridge = ridge_by_groups(mus[0], mus[1:], kernels.stages, middle) if stages is not one else Ridge(mus[0], middle)
    weighted = search.units[1:] * (ridge.body / search.tensor(stages.log_mu)[1:].exp())
    unit = float(weighted.sum() / search.units[0].clamp_min(1e-300))
    return StageChoice(ridge, mus[0] / head_ridge, first, alone, one, stages, unit, len(kernels.samples))


class _Search:
    """The loss over strengths, and its minima."""

    def __init__(self, kernels: NestedKernels, judge: Judge):
        self.kernels, device = kernels, kernels.head.device
        self.labels = judge.labels.to(device)
        self.weights = judge.weights.double().to(device)
        self.units, self.n_views = kernels.mean_eigenvalues(), judge.n_views

    def log_mu(self, head: float, ratio: float) -> Tensor:
        """One strength for the body, ``ratio`` times the head's in units of the mean eigenvalues."""
        unit = self.units[1:].sum() / self.units[0].clamp_min(1e-300)
        body = head * min(ratio, torch.e**GONE) * float(unit.clamp_min(1e-300))
        return self.tensor((head, *[body] * (len(self.units) - 1))).log()

    def alike(self, head: float, ratio: float) -> Tensor:
        """Strengths with which all stages count alike, each ``ratio`` times the head's in units of the eigenvalues."""
        units = self.units.clamp_min(1e-12 * float(self.units.max()))
        return torch.cat([units.new_ones(1), ratio * units[1:] / units[0]]).log() + math.log(head)

    def tensor(self, values: Sequence[float]) -> Tensor:
        """In float64, where the kernels are."""
        return torch.tensor(values, dtype=torch.float64, device=self.units.device)

    def at(self, log_mu: Tensor) -> Found:
        """Evaluate."""
        with torch.no_grad():
            outputs = self._outputs(log_mu)
        loss = fit_temperature(outputs, self.labels, self.weights)[1]
        return Found(tuple(log_mu.tolist()), loss, error_rate(outputs, self.labels, self.weights))

    def _outputs(self, log_mu: Tensor) -> Tensor:
        return average_views(self.kernels.outputs(log_mu), self.n_views)

    def one(self, start: Tensor) -> Found:
        """The best strengths of the head and of the whole body."""
        count = len(start) - 1

        def spread(x: Tensor) -> Tensor:
            return torch.cat([x[:1], x[1:2].expand(count)])

        return self.at(spread(self._minimised(start[:2], spread)))

    def each(self, one: Found, head_ridge: float) -> Found:
        """The best strengths of the head and of every stage, from several starts."""

        def prior(x: Tensor) -> Tensor:
            return 0.5 * (x[1:] - x[1:].mean()).square().sum() / SPREAD**2

        starts = [self.tensor(one.log_mu), *(self.alike(head_ridge, ratio) for ratio in RATIOS)]
        found = [self.at(self._minimised(start, lambda x: x, prior)) for start in starts]
        total = float(self.weights.sum())
        return min(found, key=lambda f: total * f.loss + float(prior(self.tensor(f.log_mu))))

    def first_stage(self, found: Found) -> str:
        """Name of the first stage that cannot be left as it is."""
        log_mu, names = self.tensor(found.log_mu), self.kernels.stages
        for k, group in enumerate(names[:-1]):
            log_mu[1 + k] += GONE
            if self.at(log_mu).loss > (1 + LEFT) * found.loss:
                return "all" if k == 0 else _beginning(group)
        return _beginning(names[-1]) if len(names) > 1 else "all"

    def _minimised(
        self,
        start: Tensor,
        log_mu: Callable[[Tensor], Tensor],
        prior: Callable[[Tensor], Tensor] = lambda x: x.new_zeros(()),
    ) -> Tensor:
        with torch.no_grad():
            beta = fit_temperature(self._outputs(log_mu(start)), self.labels, self.weights)[0]
        begin = torch.cat([start, start.new_tensor([beta]).log()])
        x, total = begin.clone().requires_grad_(), float(self.weights.sum())

        def loss() -> Tensor:
            near = begin + (x - begin).clamp(-REACH, REACH)
            scores = near[-1].exp() * logits(self._outputs(log_mu(near[:-1])))
            fit = self.weights @ F.cross_entropy(scores, self.labels, reduction="none")
            return (fit + prior(x[:-1]) + 0.5 * (x - begin).square().sum() / BOUND**2) / total

        optimiser = torch.optim.LBFGS([x], max_iter=STEPS, line_search_fn="strong_wolfe", tolerance_change=1e-6)

        def closure() -> Tensor:
            optimiser.zero_grad()
            value = loss()
            value.backward()
            return value

        optimiser.step(closure)
        return (begin + (x.detach() - begin).clamp(-REACH, REACH))[:-1]


def _founds(values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in ("head", "one", "stages")}


def _beginning(group: tuple[str, ...]) -> str:
    """The first stage of a group."""
    return next(name for name in group if name != REST)
