"""Laws of the optimum, on problems that Hypothesis draws: order, copies, classes, scale and strength."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fits import classifier, network
from lqf import LQFClassifier

FEW = settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=int(os.environ.get("LQF_EXAMPLES", "60")))
NEW = np.random.default_rng(77).normal(size=(4, 3, 4))


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Images, labels of two to four classes, weights, strengths and a solver that is exact."""
    n, classes = draw(st.integers(8, 16)), draw(st.integers(2, 4))
    numbers = np.random.default_rng(draw(st.integers(0, 10**6)))
    x = numbers.normal(size=(n, 3, 4)) * draw(st.sampled_from([0.1, 1.0, 5.0]))
    weights = numbers.uniform(0.2, 5, n) if draw(st.booleans()) else np.ones(n)
    strength = st.floats(-3, 2).map(lambda e: 10.0**e)
    params = {
        "solver": draw(st.sampled_from(["head", "dense"])),
        "weight_decay": draw(strength),
        "body_weight_decay": draw(strength),
        "batch_size": draw(st.integers(1, n)),
        "head": "probe",
        "loo": "none",
    }
    return {"X": x, "y": np.arange(n) % classes, "w": weights, "params": params, "seed": draw(st.integers(0, 99))}


def fitted(p: dict[str, Any], X: np.ndarray, y: np.ndarray, w: np.ndarray, **other: Any) -> LQFClassifier:
    return classifier(backbone=network(), tensors="normalized", **{**p["params"], **other}).fit(X, y, sample_weight=w)


def said(model: LQFClassifier) -> np.ndarray:
    return model.decision_function(NEW)


def same(one: np.ndarray, other: np.ndarray) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * max(1.0, np.abs(other).max()))


def order_and_batches(p: dict[str, Any]) -> None:
    """The order of the images and how many are taken at a time change nothing."""
    mixed = np.random.default_rng(p["seed"]).permutation(len(p["X"]))
    other = fitted(p, p["X"][mixed], p["y"][mixed], p["w"][mixed], batch_size=3)
    same(said(other), said(fitted(p, p["X"], p["y"], p["w"])))


def a_copy_is_weight_two(p: dict[str, Any]) -> None:
    """An image given twice is one of twice the weight."""
    i = p["seed"] % len(p["X"])
    twice, w = [*range(len(p["X"])), i], p["w"].copy()
    w[i] *= 2
    total = {name: p["params"][name] for name in ("weight_decay", "body_weight_decay")}
    same(said(fitted(p, p["X"][twice], p["y"][twice], p["w"][twice], **total)), said(fitted(p, p["X"], p["y"], w)))


def weight_zero_is_absence(p: dict[str, Any]) -> None:
    """An image of weight zero is not there."""
    x, y = np.concatenate([p["X"], NEW[:1]]), np.append(p["y"], 0)
    same(said(fitted(p, x, y, np.append(p["w"], 0.0))), said(fitted(p, p["X"], p["y"], p["w"])))


def weights_have_no_unit(p: dict[str, Any]) -> None:
    """All weights times a factor are the same problem."""
    same(said(fitted(p, p["X"], p["y"], 7.5 * p["w"])), said(fitted(p, p["X"], p["y"], p["w"])))


def classes_have_no_order(p: dict[str, Any]) -> None:
    """Other numbers of the classes permute the outputs."""
    k = p["y"].max() + 1
    to = np.random.default_rng(p["seed"]).permutation(k)
    one, other = said(fitted(p, p["X"], p["y"], p["w"])), said(fitted(p, p["X"], to[p["y"]], p["w"]))
    if k == 2:
        same(other if to[0] == 0 else -other, one)
    else:
        same(other[:, to], one)


def a_strong_body_ridge_is_the_head_alone(p: dict[str, Any]) -> None:
    """μ_body → ∞ leaves the network at w0: what remains is the closed-form head."""
    strong = {"solver": "dense", "body_weight_decay": 1e9 * p["params"]["weight_decay"]}
    one = said(fitted(p, p["X"], p["y"], p["w"], **strong))
    np.testing.assert_allclose(one, said(fitted(p, p["X"], p["y"], p["w"], solver="head")), rtol=1e-3, atol=1e-3)


LAWS = [
    *(order_and_batches, a_copy_is_weight_two, weight_zero_is_absence, weights_have_no_unit),
    *(classes_have_no_order, a_strong_body_ridge_is_the_head_alone),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_law(law: Callable[[dict[str, Any]], None], count: Callable[..., None]) -> None:
    check(law, FEW, count)


@pytest.mark.faults
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_law_many_times(law: Callable[[dict[str, Any]], None], count: Callable[..., None]) -> None:
    check(law, MANY, count)


def check(law: Callable[[dict[str, Any]], None], how: settings, count: Callable[..., None]) -> None:
    @how
    @given(problems())
    def holds(problem: dict[str, Any]) -> None:
        law(problem)
        count(f"laws: {law.__name__.replace('_', ' ')}", "held")

    holds()
