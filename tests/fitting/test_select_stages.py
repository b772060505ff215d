"""A ridge strength for the head and for every stage: minima of the nested cross-entropy, and what is said of them."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dense import ridge_regression
from lqf.evaluation.calibration import fit_temperature, log_loss
from lqf.fitting.select_ridge import Judge
from lqf.fitting.select_stages import BOUND, LEFT, RATIOS, REACH, SPREAD, StageChoice, _Search, choose_stages
from lqf.kernels.nested import NestedKernels
from lqf.linear.ridge import Ridge
from lqf.linear.stages import REST
from lqf.linear.targets import centre, decide, encode, logits

N, C, FOLDS, ALPHA = 36, 3, 4, 15.0
LABELS = torch.arange(N) % C
FOLD = torch.arange(N) // C % FOLDS
NAMES = (("early",), ("middle",), ("late",))
HEAD = 20.0
"""Strength of the head with which searches begin."""


def features(width: int, signal: float, seed: int, labels: Tensor = LABELS) -> Tensor:
    """(n, width) noise around a mean per class."""
    g = torch.Generator().manual_seed(seed)
    means, noise = (torch.randn(rows, width, generator=g, dtype=torch.float64) for rows in (C, len(labels)))
    return signal * means[labels] + noise


def kernels(*signals: float | None, head: float = 0.4, names: Any = None, n_views: int = 1) -> NestedKernels:
    """One stage per signal, None: it cannot move the outputs at all; the same features for every fold."""
    y = LABELS.repeat_interleave(n_views)
    z = features(5, head, 0, y)
    nothing = torch.zeros(len(y), 8, dtype=torch.float64)
    stages = [nothing if s is None else features(8, s, 1 + i, y) for i, s in enumerate(signals)]
    body = torch.stack([j @ j.T for j in stages]).repeat(FOLDS, 1, 1, 1)
    names = NAMES[: len(signals)] if names is None else names
    rows, weights = FOLD.repeat_interleave(n_views), torch.linspace(0.5, 1.5, len(y)).double() / n_views
    return NestedKernels(z @ z.T, body, encode(y, C, ALPHA) - centre(C, ALPHA), weights, rows, torch.arange(N), names)


def judge(n_views: int = 1) -> Judge:
    targets = encode(LABELS, C, ALPHA).repeat_interleave(n_views, 0)
    return Judge(targets, LABELS, torch.linspace(0.5, 1.5, N).double(), n_views)


def chosen(made: NestedKernels, **how: Any) -> StageChoice:
    return choose_stages(made, judge(), HEAD, **how)


MIXED = kernels(0.0, 0.7, 0.3)


@pytest.fixture(scope="module")
def choice() -> StageChoice:
    """Of a useless stage, a good one and one between."""
    return chosen(MIXED)


def loss_at(made: NestedKernels, log_mu: Any, n_views: int = 1) -> float:
    """Cross-entropy of the outputs at their best temperature."""
    rows = made.outputs(torch.as_tensor(log_mu, dtype=torch.float64)).view(N, n_views, C).mean(1)
    return fit_temperature(rows, LABELS, judge().weights)[1]


# --- what is minimised ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Penalised:
    """Σ s_i CE + ½ Σ(θ_s − θ̄)²/σ² + ½ ‖x − begin‖²/BOUND² over x = (θ, log β), as a function of θ at its best β.

    ``one``: θ are the strengths of the head and of the whole body.
    """

    begin: tuple[float, ...]
    one: bool = False

    def __call__(self, *theta: float) -> float:
        x, begin = (torch.tensor([*t, log_beta(self.log_mu(t))], dtype=torch.float64) for t in (theta, self.begin))
        for _ in range(6):  # Newton's method in log β
            b = x[-1].clone().requires_grad_()
            (slope,) = torch.autograd.grad(self._value(torch.cat([x[:-1], b[None]]), begin), b, create_graph=True)
            x[-1] -= (slope / torch.autograd.grad(slope, b)[0]).detach()
        return float(self._value(x, begin))

    def log_mu(self, theta: Sequence[float]) -> list[float]:
        return [theta[0], *[theta[1]] * 3] if self.one else [*theta]

    def _value(self, x: Tensor, begin: Tensor) -> Tensor:
        outputs = MIXED.outputs(torch.tensor(self.log_mu(x[:-1].tolist()), dtype=torch.float64))
        fit = judge().weights @ F.cross_entropy(x[-1].exp() * logits(outputs), LABELS, reduction="none")
        prior = 0.0 if self.one else 0.5 * (x[1:-1] - x[1:-1].mean()).square().sum() / SPREAD**2
        return fit + prior + 0.5 * (x - begin).square().sum() / BOUND**2


def log_beta(log_mu: Sequence[float]) -> float:
    """Of the best temperature."""
    outputs = MIXED.outputs(torch.tensor(log_mu, dtype=torch.float64))
    return math.log(fit_temperature(outputs, LABELS, judge().weights)[0])


def is_minimum(loss: Penalised, theta: Sequence[float]) -> bool:
    """Whether any strength, made a third weaker or stronger, has a higher loss."""
    steps = [(i, change) for i in range(len(theta)) for change in (-0.3, 0.3)]
    others = [loss(*(x + change * (i == at) for i, x in enumerate(theta))) for at, change in steps]
    return min(others) > loss(*theta)


def test_no_other_strength_of_head_or_stage_has_a_lower_penalised_loss(choice: StageChoice) -> None:
    loss = Penalised(choice.one.log_mu)
    assert is_minimum(loss, choice.stages.log_mu)
    assert loss(*choice.stages.log_mu) < loss(*choice.one.log_mu) - 0.1
    assert not is_minimum(loss, choice.one.log_mu)


def test_one_strength_is_the_best_of_the_minima_from_several_starts(choice: StageChoice) -> None:
    assert len(set(choice.one.log_mu[1:])) == 1
    unit = float(MIXED.mean_eigenvalues()[1:].sum() / MIXED.mean_eigenvalues()[0])
    starts = [(math.log(HEAD), math.log(HEAD * ratio * unit)) for ratio in RATIOS]
    assert any(is_minimum(Penalised(start, one=True), choice.one.log_mu[:2]) for start in starts)
    assert all(choice.one.loss < loss_at(MIXED, [head, body, body, body]) for head, body in starts)


def test_of_several_starts_the_best_end_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    made, ends = kernels(1.2, None, 0.0), []
    for ratio in RATIOS:
        monkeypatch.setattr("lqf.fitting.select_stages.RATIOS", (ratio,))
        ends.append(chosen(made, by_stage=False).one)
    monkeypatch.undo()
    assert chosen(made, by_stage=False).one == min(ends, key=lambda found: found.loss)
    assert max(found.loss for found in ends) > 1.02 * min(found.loss for found in ends)


@pytest.mark.parametrize("signals", [(0.0, 0.7, 0.3), (0.5, None, 0.0), (0.3, 0.3, 0.3)])
def test_a_strength_for_each_stage_is_no_worse_than_one_and_one_no_worse_than_the_head(signals: Any) -> None:
    found = chosen(kernels(*signals))
    assert found.stages.loss <= found.one.loss + 1e-5
    assert found.one.loss <= found.head.loss + 1e-5
    if signals[0] != 0.3:
        assert found.stages.loss < found.one.loss - 1e-3


def test_losses_and_errors_are_those_of_the_outputs_at_these_strengths(choice: StageChoice) -> None:
    for found in (choice.head, choice.one, choice.stages):
        outputs, s = MIXED.outputs(torch.tensor(found.log_mu, dtype=torch.float64)), judge().weights
        assert found.loss == pytest.approx(loss_at(MIXED, found.log_mu), rel=1e-12)
        assert found.loss <= log_loss(outputs, LABELS, 0.2, s)
        wrong = (decide(outputs) != LABELS).to(s)
        assert found.error == pytest.approx(float((s * wrong).sum() / s.sum()), rel=1e-6)


def test_the_head_alone_is_the_body_under_an_infinite_strength(choice: StageChoice) -> None:
    z, out = features(5, 0.4, 0), torch.zeros(N, C, dtype=torch.float64)
    for k in range(FOLDS):
        keep = FOLD != k
        out[~keep] = z[~keep] @ ridge_regression(z[keep], MIXED.residual[keep], MIXED.weights[keep], HEAD)
    assert choice.head.loss == pytest.approx(fit_temperature(out, LABELS, judge().weights)[1], rel=1e-9)
    assert choice.head.log_mu[0] == pytest.approx(math.log(HEAD))


def test_views_of_a_sample_are_judged_together() -> None:
    made = kernels(0.0, 0.7, n_views=2)
    found = choose_stages(made, judge(2), HEAD)
    assert found.stages.loss == pytest.approx(loss_at(made, found.stages.log_mu, 2), rel=1e-12)
    assert found.samples == N


def test_only_the_samples_that_the_kernels_cover_judge() -> None:
    some = torch.tensor([i for i in range(N) if i % 5])
    part = replace(
        MIXED,
        head=MIXED.head[some][:, some],
        body=MIXED.body[:, :, some][..., some],
        residual=MIXED.residual[some],
        weights=MIXED.weights[some],
        fold=FOLD[some],
        samples=some,
    )
    found = chosen(part)
    outputs = part.outputs(torch.tensor(found.stages.log_mu, dtype=torch.float64))
    assert found.samples == len(some)
    expected = fit_temperature(outputs, LABELS[some], judge().weights[some])[1]
    assert found.stages.loss == pytest.approx(expected, rel=1e-12)


# --- the strengths ----------------------------------------------------------------------------------------------------


def test_a_stage_that_helps_is_held_less_than_one_that_does_not(choice: StageChoice) -> None:
    early, middle, late = choice.stages.log_mu[1:]
    assert early > late > middle
    assert early - middle > 1.0


def test_ridge_and_factor_are_those_that_were_found(choice: StageChoice) -> None:
    head, *body = (math.exp(x) for x in choice.stages.log_mu)
    assert choice.ridge.head == pytest.approx(head)
    assert choice.factor == pytest.approx(head / HEAD)
    assert choice.ridge.stages == tuple((name, pytest.approx(mu)) for (name,), mu in zip(NAMES, body, strict=True))
    assert choice.ridge.body == pytest.approx(math.prod(body) ** (1 / 3))


def test_the_unit_is_the_ratio_of_traces_where_stages_count_by_their_strengths(choice: StageChoice) -> None:
    traces = [MIXED.body[:, s].diagonal(dim1=1, dim2=2).sum() / FOLDS for s in range(3)]
    whole = sum(choice.ridge.body / mu * t for (_, mu), t in zip(choice.ridge.stages, traces, strict=True))
    assert choice.unit == pytest.approx(float(whole / MIXED.head.trace()))
    one = chosen(MIXED, by_stage=False)
    assert one.unit == pytest.approx(float(sum(traces) / MIXED.head.trace()))


def test_stages_of_a_group_share_a_strength_and_the_rest_is_the_body() -> None:
    groups = (("stem", "early", REST), ("late",))
    found = chosen(kernels(0.0, 0.7, names=groups))
    first, second = (math.exp(x) for x in found.stages.log_mu[1:])
    assert dict(found.ridge.stages) == pytest.approx({"stem": first, "early": first, "late": second})
    assert found.ridge.body == pytest.approx(first)


@pytest.mark.parametrize("made", [MIXED, kernels(0.5)], ids=["asked for", "one stage"])
def test_one_strength_has_no_stages(made: NestedKernels) -> None:
    found = chosen(made, by_stage=len(made.stages) == 1)
    assert found.stages == found.one
    assert found.ridge == Ridge(
        pytest.approx(math.exp(found.one.log_mu[0])), pytest.approx(math.exp(found.one.log_mu[1]))
    )
    assert found.ridge.stages == ()


def test_the_prior_pulls_a_stage_that_cannot_matter_towards_the_others() -> None:
    """To where its two priors balance, (θ − θ̄)/σ² + (θ − begin)/BOUND² = 0: nothing else acts on it."""
    made = kernels(0.0, None, 0.5)
    found = chosen(made)
    theta, search = found.stages.log_mu[1:], _Search(made, judge())
    begins = [found.one.log_mu[2], *(float(search.alike(HEAD, ratio)[2]) for ratio in RATIOS)]
    mean = sum(theta) / 3
    weights = 1 / SPREAD**2, 1 / BOUND**2
    expected = [(weights[0] * mean + weights[1] * begin) / sum(weights) for begin in begins]
    assert max(theta) - min(theta) > 1.0
    assert min(abs(theta[1] - e) for e in expected) < 0.02 < min(abs(a - b) for a, b in pairwise(expected))


def test_stages_are_found_where_one_strength_for_all_is_best_off() -> None:
    """A loud stage that misleads hides a good one: with one strength the body is best left alone."""
    made = kernels(0.0, 0.8)
    made.body[:, 0] *= 1e4
    found, search = chosen(made), _Search(made, judge())
    at_head = search.tensor([found.one.log_mu[0], 99.0, 99.0])
    assert found.one.loss == pytest.approx(search.at(at_head).loss, rel=1e-2)
    assert found.stages.loss < 0.9 * found.one.loss


def test_a_line_search_does_not_go_where_kernels_cannot_be_factorised() -> None:
    """Where samples are nearly separable, the loss is flat over many powers of ten."""
    made = kernels(0.0, None, 0.9)
    found = chosen(made)
    assert found.stages.loss < 0.2 * found.head.loss
    assert max(abs(x - math.log(HEAD)) for x in found.stages.log_mu) < 2 * REACH


# --- where the network is cut -----------------------------------------------------------------------------------------


def first_of(*signals: float | None, **how: Any) -> str:
    return chosen(kernels(*signals, **how)).first


def test_first_stages_that_do_nothing_are_left_as_they_are() -> None:
    assert first_of(None, 0.7, 0.0) == "middle"
    assert first_of(None, None, 0.7) == "late"
    assert first_of(0.7, None, 0.0) == "all"
    assert first_of(0.7) == "all"
    assert first_of(None, None, None) == "late"  # something has to be linearised


def test_a_stage_after_one_that_helps_stays_whatever_it_does() -> None:
    assert first_of(0.5, None, 0.5) == "all"
    assert first_of(None, 0.5, None) == "middle"


def test_a_group_begins_with_its_first_stage() -> None:
    names = (("stem", REST), ("a", "b"), ("c",))
    assert first_of(None, 0.7, 0.0, names=names) == "a"
    assert first_of(0.7, 0.0, 0.0, names=names) == "all"


def test_what_is_left_out_costs_next_to_nothing() -> None:
    """And one stage more would cost something."""
    for made in (MIXED, kernels(None, 0.3, 0.7), kernels(0.1, 0.1, 0.7)):
        found = chosen(made)
        order = [name for (name,) in NAMES]
        left = 0 if found.first == "all" else order.index(found.first)

        def without(count: int, at: StageChoice = found, of: NestedKernels = made) -> float:
            return loss_at(of, [x + 60.0 * (0 < i <= count) for i, x in enumerate(at.stages.log_mu)])

        assert without(left) <= (1 + LEFT) * found.stages.loss
        assert left == 2 or without(left + 1) > (1 + LEFT) * found.stages.loss


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_stage", [True, False])
def test_a_choice_comes_back_from_json(by_stage: bool) -> None:
    found = chosen(MIXED, by_stage=by_stage)
    assert StageChoice.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert StageChoice.from_dict(found.to_dict()) == found


def test_the_report_has_weight_decays_and_what_less_comes_to(choice: StageChoice) -> None:
    entry = choice.entry(50.0)
    assert (entry["what"], entry["kept"], entry["first"]) == ("weight decay (stages)", "one per stage", choice.first)
    assert entry["head"] == choice.ridge.head / 50
    assert entry["strengths"] == {name: mu / 50 for name, mu in choice.ridge.stages}
    founds = {"head alone": choice.head, "one for the body": choice.one, "one per stage": choice.stages}
    assert entry["tried"] == {name: {"loo_error": f.error, "loss": f.loss} for name, f in founds.items()}
    assert json.loads(json.dumps(entry)) == entry


def test_the_report_of_one_strength_says_so() -> None:
    found = chosen(MIXED, by_stage=False)
    entry = found.entry(50.0)
    assert entry["strengths"] == {"all": found.ridge.body / 50}
    assert entry["kept"] == "one for the body"
    assert list(entry["tried"]) == ["head alone", "one for the body"]
