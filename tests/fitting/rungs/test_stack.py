"""The stack of a climb: weights by what members say out of sample, judged by the weights of the other folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from fits import CPU, SMALL, classifier, convnet, pictures
from lqf.backbones import load_backbone
from lqf.data import load_samples, open_images
from lqf.evaluation.calibration import calibrate
from lqf.evaluation.stacking import LEAST, PRIOR, shares, stack_coefficients
from lqf.fitting import Context, FittedModel, Stack, TrainingSet
from lqf.fitting.rungs.finetuned import FINETUNED
from lqf.fitting.rungs.heads import CROPS
from lqf.fitting.rungs.linear import LQF
from lqf.fitting.rungs.moved import MOVED
from lqf.fitting.rungs.rung import Attempt, Ground, NotNow
from lqf.fitting.rungs.stack import StackRung, _cross_fitted
from lqf.settings import Settings

N = 30
X, Y = pictures(N)
S = torch.linspace(0.5, 2, N, dtype=torch.float64)
NAMES = (CROPS, LQF, MOVED, FINETUNED)
"""Of which a stack takes one each."""
PACE: Any = SimpleNamespace(seconds=lambda kind, rows, *_: {"linear": 0.2}[kind] * rows)


def outputs(*signals: float, seed: int = 0) -> list[Tensor]:
    """(N, 3) of models that see the labels through noise."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.nn.functional.one_hot(torch.tensor(Y), 3).double()
    return [s * truth + torch.randn(N, 3, dtype=torch.float64, generator=generator) for s in signals]


def ground(found: Sequence[Tensor], y: np.ndarray = Y, finish: Any = None, **models: FittedModel) -> Ground:
    """After attempts of so many kinds; finished ``models`` are called a, b, … here."""
    images = open_images(load_samples(X, y, sample_weight=S.numpy()), SMALL)
    data = TrainingSet.of(images, SMALL, Context(Settings(dtype="float64"), CPU))
    names = NAMES[: len(found)]
    made = {n: Attempt(n, o, lambda n=n: finish(n), {}) for n, o in zip(names, found, strict=True)}
    finished = {NAMES["abcd".index(n)]: model for n, model in models.items()}
    return Ground(data, load_backbone(convnet()), PACE, made, finished, names[0])


def weights_without(found: Sequence[Tensor], keep: Tensor, y: np.ndarray = Y) -> Tensor:
    c = stack_coefficients([o[keep] for o in found], torch.tensor(y)[keep], S[keep])
    return c / c.sum()


def test_a_fold_is_added_up_by_the_weights_of_the_others() -> None:
    found = outputs(1.5, 1.0, 0.7)
    there = ground(found)
    attempt, fold = StackRung().attempt(there), there.data.folds
    assert len(fold.unique()) == 5
    for k in range(5):
        w, here = weights_without(found, fold != k), fold == k
        expected = torch.stack([w[j] * o[here] for j, o in enumerate(found)]).sum(0)
        torch.testing.assert_close(attempt.outputs[here], expected, rtol=1e-9, atol=1e-9)


def test_labels_of_a_fold_do_not_reach_its_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outputs(1.5, 1.0, 0.7)
    before = ground(found)
    fold = before.data.folds
    after = ground(found, np.where(fold == 2, (Y + 1) % 3, Y))
    monkeypatch.setattr(TrainingSet, "folds", fold)  # which are stratified by the labels
    a, b = (StackRung().attempt(g).outputs for g in (before, after))
    torch.testing.assert_close(b[fold == 2], a[fold == 2], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(b[fold != 2], a[fold != 2], atol=1e-3)


def test_the_finished_stack_has_the_weights_of_all_folds_and_every_member_of_all_samples() -> None:
    found = outputs(1.5, 1.0, -1.0, 0.7)  # the third says the opposite
    fits = {
        NAMES["abcd".index(n)]: classifier(backbone=convnet(), size=8, solver="head", weight_decay=w).fit(X, Y).fitted_
        for n, w in (("a", 0.1), ("b", 1.0), ("d", 10.0))
    }
    asked: list[str] = []
    there = ground(found, finish=lambda n: asked.append(n) or fits[n], a=fits[CROPS])
    attempt = StackRung().attempt(there)
    stack = attempt.finish()
    assert isinstance(stack, Stack)
    assert stack.names == (CROPS, LQF, FINETUNED)
    assert asked == [LQF, FINETUNED]  # the first was there
    assert stack.members == (fits[CROPS], fits[LQF], fits[FINETUNED])
    kept = [found[j] for j in (0, 1, 3)]
    c = stack_coefficients(kept, torch.tensor(Y), S)
    assert stack.weights == pytest.approx((c / c.sum()).tolist())
    assert sum(stack.weights) == pytest.approx(1)
    assert stack.shares == pytest.approx(shares(c, kept).tolist())
    assert attempt.about["members"] == {
        n: round(s, 3) for n, s in zip((CROPS, LQF, FINETUNED), stack.shares, strict=True)
    }
    assert stack.loo is not None
    assert torch.equal(stack.loo.outputs, attempt.outputs)
    assert (stack.report.solver, stack.report.level) == ("stack", "estimated")
    assert stack.report.loo_error == stack.loo.error
    assert stack.beta == stack.loo.temperature()


def test_what_carries_next_to_nothing_is_left_out_and_one_model_is_no_stack() -> None:
    left_out = 0
    for seed in range(6):
        found = outputs(1.2, 0.8, 0.0, seed=seed)
        first = shares(stack_coefficients(found, torch.tensor(Y), S), found)
        members = StackRung().attempt(ground(found)).about["members"]
        assert (MOVED in members) is bool(first[2] >= LEAST)
        assert sum(members.values()) == pytest.approx(1, abs=2e-3)
        left_out += MOVED not in members
    assert left_out > 0
    good = outputs(1.2)[0]
    with pytest.raises(NotNow, match=r"would be one model alone \(head, 8 views\)"):
        StackRung().attempt(ground([good, -100 * good]))
    with pytest.raises(NotNow, match="needs two models or more"):
        StackRung().attempt(ground([good]))


def test_samples_that_a_member_does_not_know_have_no_say_and_no_outputs() -> None:
    first, second = outputs(1.5, 1.0)
    fold = ground([first]).data.folds
    second[fold >= 3] = torch.nan
    attempt = StackRung().attempt(ground([first, second]))
    assert torch.equal(attempt.outputs.isnan().any(1), fold >= 3)
    w = weights_without([first, second], (fold < 3) & (fold != 1))
    expected = w[0] * first[fold == 1] + w[1] * second[fold == 1]
    torch.testing.assert_close(attempt.outputs[fold == 1], expected, rtol=1e-9, atol=1e-9)


def test_a_fold_is_not_left_out_because_no_member_is_any_good_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ground(outputs(1.0))
    fold = there.data.folds
    found = [torch.where((fold == 0)[:, None], 40 * o, -0.3 * o) for o in outputs(3.0, 2.5)]
    nothing = lambda outputs, *_: torch.zeros(len(outputs), dtype=torch.float64)  # noqa: E731
    monkeypatch.setattr("lqf.fitting.rungs.stack.stack_coefficients", nothing)
    out = _cross_fitted(list(ground(found).attempts.values()), ground(found))
    torch.testing.assert_close(out[fold == 0], (found[0] + found[1])[fold == 0] / 2)


def test_the_time_is_that_of_the_members_that_are_not_finished() -> None:
    there, rung = ground(outputs(1.0, 1.0)), StackRung()
    assert rung.seconds(there) == 1.0
    attempts = {n: replace(a, to_finish=7.0) for n, a in there.attempts.items()}
    finished: Any = {CROPS: SimpleNamespace()}
    assert rung.seconds(replace(there, attempts=attempts, models=finished)) == pytest.approx(1.0 + 7.0)


# --- the prior towards equal weights ----------------------------------------------------------------------------------


def nested(n: int, seed: int = 0) -> tuple[list[Tensor], np.ndarray]:
    """(n, 3) outputs of two models, of which the second knows nothing that the first does not know better."""
    y, generator = np.arange(n) % 3, torch.Generator().manual_seed(seed)
    one, two = torch.randn(2, n, 3, dtype=torch.float64, generator=generator)
    truth = torch.nn.functional.one_hot(torch.tensor(y), 3).double()
    return [1.5 * truth + one, 1.5 * truth + one + two], y


def of_samples(found: Sequence[Tensor], y: np.ndarray) -> Ground:
    """After attempts with these outputs, every sample counting once."""
    images = open_images(load_samples(np.resize(X, (len(y), *X.shape[1:])), y), SMALL)
    data = TrainingSet.of(images, SMALL, Context(Settings(dtype="float64"), CPU))
    made = {n: Attempt(n, o, lambda: pytest.fail("finished"), {}) for n, o in zip(NAMES, found, strict=False)}
    return Ground(data, load_backbone(convnet()), PACE, made, {}, NAMES[0])


def brute_force(found: Sequence[Tensor], y: np.ndarray) -> np.ndarray:
    """(K,) c_k/β_k of the minimum, by a search that knows the function alone."""
    beta = [calibrate(o, torch.tensor(y)) for o in found]

    def loss(u: np.ndarray) -> float:
        f = sum(float(uk) * b * o for uk, b, o in zip(u, beta, found, strict=True))
        entropy = torch.nn.functional.cross_entropy(f, torch.tensor(y), reduction="sum")
        return float(entropy) + 0.5 * PRIOR * float(((u - 1 / len(u)) ** 2).sum())

    best = minimize(loss, np.full(len(found), 0.5), method="Nelder-Mead", bounds=[(0, None)] * len(found))
    assert best.success
    return np.array(best.x)


def own_units(found: Sequence[Tensor], y: np.ndarray) -> np.ndarray:
    """Weights of the rung's stack in units of each model's own temperature, adding up to 1."""
    weights = StackRung().attempt(of_samples(found, y)).about["weights"]
    beta = [calibrate(o, torch.tensor(y)) for o in found]
    units = np.array([w / b for w, b in zip(weights.values(), beta, strict=True)])
    return units / units.sum()


@pytest.mark.parametrize("n", [9, 30, 300])
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_are_those_of_a_search_by_brute_force(n: int, seed: int) -> None:
    found, y = nested(n, seed)
    expected = brute_force(found, y)
    np.testing.assert_allclose(own_units(found, y), expected / expected.sum(), atol=4e-3)


def test_few_samples_leave_the_weights_equal_and_many_give_them_to_the_better_model() -> None:
    few, more = (float(own_units(*nested(n))[0]) for n in (9, 90))
    assert abs(few - 0.5) < 0.1
    assert more > 0.9
    with pytest.raises(NotNow, match=r"would be one model alone \(head, 8 views\)"):
        StackRung().attempt(of_samples(*nested(1500)))
