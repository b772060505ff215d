"""The error of everything that was chosen: no fold has a say in the model that speaks for it."""

import pytest
import torch
from torch import Tensor

from lqf.evaluation.calibration import log_losses
from lqf.evaluation.paired import LEAST_GAIN
from lqf.fitting.whole_choice import choice_outputs, chosen
from lqf.linear.targets import error_rate

N, FOLDS = 20, 5
FOLD = torch.arange(N) % FOLDS
ONES = torch.ones(N, dtype=torch.float64)
EVERY = torch.ones(N, dtype=torch.bool)


def losses(*means: float, best_on: tuple[int, int] | None = None) -> list[Tensor]:
    """Of candidates with the same loss on every sample; one may be far better on a fold: (candidate, fold)."""
    found = [torch.full((N,), m, dtype=torch.float64) for m in means]
    if best_on is not None:
        found[best_on[0]][best_on[1] == FOLD] = -100.0
    return found


def spoken(found: list[Tensor], heads: int, weights: Tensor = ONES) -> list[int]:
    """The candidate that speaks for every sample: the outputs of candidate j are j, its losses found[j]."""
    outputs = {str(j): torch.full((N, 1), float(j), dtype=torch.float64) for j in range(len(found))}
    return choice_outputs(outputs, heads, lambda o: found[int(o[0, 0])], weights, FOLD)[:, 0].int().tolist()


def test_the_only_candidate_speaks_for_all() -> None:
    outputs = torch.randn(N, 3, dtype=torch.float64)
    out = choice_outputs({"head": outputs}, 1, lambda o: o.square().sum(1), ONES, FOLD)
    assert torch.equal(out, outputs)


@pytest.mark.parametrize("heads", [1, 3])
def test_the_best_everywhere_speaks_for_all(heads: int) -> None:
    assert spoken(losses(1.0, 0.8, 0.9), heads) == [1] * N


@pytest.mark.parametrize("heads", [1, 2], ids=["a later rung", "an alternative"])
def test_a_candidate_that_is_best_on_one_fold_alone_does_not_speak_for_it(heads: int) -> None:
    found = losses(1.0, 1.1, best_on=(1, 2))
    assert chosen(found, heads, ONES, EVERY) == 1  # that fold decides where it is asked
    assert spoken(found, heads) == [0 if k == 2 else 1 for k in FOLD.tolist()]


def test_what_a_fold_says_does_not_matter_for_it() -> None:
    generator = torch.Generator().manual_seed(0)
    found = [torch.rand(N, dtype=torch.float64, generator=generator) for _ in range(6)]
    before = spoken(found, 3)
    for k in range(FOLDS):
        here = k == FOLD
        changed = [torch.where(here, 100 * torch.rand(N, dtype=torch.float64, generator=generator), f) for f in found]
        assert [a for a, h in zip(spoken(changed, 3), here, strict=True) if h] == [
            b for b, h in zip(before, here, strict=True) if h
        ]


def test_the_best_head_is_taken_and_a_later_rung_only_where_it_gains_enough() -> None:
    little, enough = 1 - 0.9 * LEAST_GAIN, 1 - 1.1 * LEAST_GAIN
    assert chosen(losses(1.0, little), 2, ONES, EVERY) == 1  # alternatives: the lowest
    assert chosen(losses(1.0, little), 1, ONES, EVERY) == 0  # a rung: not worth its time
    assert chosen(losses(1.0, enough), 1, ONES, EVERY) == 1
    assert chosen(losses(1.0, 0.5, 0.5 * little, 0.5 * enough), 1, ONES, EVERY) == 3  # over the best before it
    assert chosen(losses(2.0, 1.0, little), 2, ONES, EVERY) == 1


def test_weights_count_and_samples_that_are_not_known_do_not() -> None:
    first, second = losses(1.0, 1.0)
    second[FOLD < 2], second[FOLD >= 2] = 0.0, 3.0
    assert chosen([first, second], 2, ONES, EVERY) == 0
    assert chosen([first, second], 2, torch.where(FOLD < 2, 10.0, 1.0), EVERY) == 1
    assert chosen([first, second], 1, torch.where(FOLD < 2, 10.0, 1.0), EVERY) == 1
    second[FOLD >= 2] = torch.nan
    assert chosen([first, second], 2, ONES, EVERY) == 1
    assert chosen([first, second], 1, ONES, EVERY) == 1
    assert chosen([first, torch.full_like(first, torch.nan)], 2, ONES, EVERY) == 0


def test_where_the_chosen_one_does_not_know_a_sample_nobody_speaks_for_it() -> None:
    good, some = torch.ones(N, 1, dtype=torch.float64), torch.zeros(N, 1, dtype=torch.float64)
    some[FOLD == 4] = torch.nan
    out = choice_outputs({"head": good, "LQF": some}, 1, lambda o: o[:, 0], ONES, FOLD)
    assert torch.equal(out.isnan()[:, 0], FOLD == 4)


def test_choosing_among_noise_does_not_flatter_the_error() -> None:
    """Of candidates that guess, the one that looks best has an error below a half; the whole choice has not."""
    n, candidates, looks, whole = 40, 12, [], []
    fold, weights = torch.arange(n) % FOLDS, torch.ones(n, dtype=torch.float64)
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 2, (n,), generator=generator)
        guesses = torch.randn(candidates, n, 1, dtype=torch.float64, generator=generator)
        ce = lambda o, y=labels: log_losses(o, y, 1.0)  # noqa: E731
        found = [ce(g) for g in guesses]
        best = guesses[chosen(found, candidates, weights, torch.ones(n, dtype=torch.bool))]
        looks.append(error_rate(best, labels))
        by_name = {str(i): g for i, g in enumerate(guesses)}
        whole.append(error_rate(choice_outputs(by_name, candidates, ce, weights, fold), labels))
    means = [torch.tensor(values, dtype=torch.float64) for values in (looks, whole)]
    errors = [float(m.std() / len(m) ** 0.5) for m in means]
    assert float(means[0].mean()) < 0.5 - 5 * errors[0]
    assert float(means[1].mean()) > 0.5 - 3 * errors[1]
    assert float(means[1].mean()) < 0.6
