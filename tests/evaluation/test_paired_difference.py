"""The difference of two models: Tango's interval against a search by scipy, McNemar against scipy, laws of weights."""

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binomtest, norm

from lqf.evaluation.paired_difference import difference, mcnemar, of_errors, tango


def _score(delta: float, b: int, c: int, n: int) -> float:
    """Tango's score with the nuisance parameter from a numerical search of the likelihood, not from its formula."""

    def against(q: float) -> float:
        cells = ((b, q + delta), (c, q), (n - b - c, 1 - 2 * q - delta))
        return -sum(k * np.log(max(p, 1e-300)) for k, p in cells if k)

    low, high = max(0.0, -delta), (1 - delta) / 2
    q = minimize_scalar(against, bounds=(low, high), method="bounded", options={"xatol": 1e-13}).x
    return (b - c - n * delta) / np.sqrt(n * (2 * q + delta * (1 - delta)))


@pytest.mark.parametrize(("b", "c", "n"), [(12, 2, 80), (3, 9, 40), (7, 7, 50), (1, 0, 30), (0, 4, 25)])
def test_the_interval_holds_what_tangos_score_test_does_not_refuse(b: int, c: int, n: int):
    z, d = norm.ppf(0.975), (b - c) / n
    low = brentq(lambda x: _score(x, b, c, n) - z, -0.999, d - 1e-9, xtol=1e-12)
    high = brentq(lambda x: _score(x, b, c, n) + z, d + 1e-9, 0.999, xtol=1e-12)
    np.testing.assert_allclose(tango(b / n, c / n, n), (low, high), atol=2e-6)


def test_without_any_difference_the_interval_is_that_of_the_score():
    low, high = tango(0.0, 0.0, 50)
    expected = norm.ppf(0.975) ** 2 / (50 + norm.ppf(0.975) ** 2)
    np.testing.assert_allclose((low, high), (-expected, expected), atol=1e-9)


@pytest.mark.parametrize(("b", "c"), [(0, 0), (5, 1), (12, 12), (3, 40)])
def test_mcnemar_is_the_exact_binomial_test(b: int, c: int):
    expected = binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    assert mcnemar(b, c) == pytest.approx(expected, rel=1e-10)


def test_the_interval_covers_the_truth():
    rng, hits, rounds = np.random.default_rng(0), 0, 600
    for _ in range(rounds):
        b, c, _ = rng.multinomial(60, [0.12, 0.05, 0.83])
        low, high = tango(b / 60, c / 60, 60)
        hits += low <= 0.07 <= high
    assert 0.93 <= hits / rounds <= 0.98


@pytest.fixture
def answers() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(1)
    return rng.random(40) < 0.3, rng.random(40) < 0.2, rng.exponential(size=40), rng.exponential(size=40)


def test_swapped_models_swap_the_signs(answers: tuple[np.ndarray, ...]):
    a, b, la, lb = answers
    one, other = (difference(w, l, np.ones(40), np.arange(40)) for w, l in (((a, b), (la, lb)), ((b, a), (lb, la))))
    for mine, theirs in ((one.error, other.error), (one.log_loss, other.log_loss)):
        assert mine.interval is not None
        assert theirs.interval is not None
        np.testing.assert_allclose(
            (mine.value, *mine.interval), (-theirs.value, -theirs.interval[1], -theirs.interval[0]), atol=1e-9
        )
    assert one.p_value == other.p_value


def test_equal_weights_of_any_size_are_no_weights_and_groups_widen(answers: tuple[np.ndarray, ...]):
    a, b, la, lb = answers
    plain = difference((a, b), (la, lb), np.ones(40), np.arange(40))
    scaled = difference((a, b), (la, lb), np.full(40, 7.0), np.arange(40))
    np.testing.assert_allclose(scaled.error.interval, plain.error.interval, atol=1e-12)
    assert plain.error.interval == pytest.approx(tango(float((~a & b).mean()), float((a & ~b).mean()), 40), abs=1e-9)
    twice = [np.repeat(x, 2) for x in answers]
    copied = difference((twice[0], twice[1]), (twice[2], twice[3]), np.ones(80), np.repeat(np.arange(40), 2))
    assert copied.p_value is None  # McNemar's test is for independent images
    widths = [np.diff(d.log_loss.interval)[0] for d in (plain, copied)]
    assert widths[1] >= widths[0]  # copies of an image say no more than the image


def test_images_without_weight_on_either_side_leave_an_interval():
    of = of_errors(np.full(10, 0.1), np.zeros(10, bool), np.zeros(10, bool), np.arange(10))
    assert of.value == 0
    assert of.low is not None
    assert of.low < 0 < of.high
