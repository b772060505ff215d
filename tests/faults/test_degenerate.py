"""Degenerate problems are solved, with finite numbers and a finite residual, or refused in a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fits import classifier, data
from lqf.errors import LQFError

X, Y = data(18)
NEW = data(5, seed=4)[0]
SOLVERS = ("head", "dense", "pcg")
NAN = float("nan")


def duplicates() -> dict[str, Any]:
    return {"X": np.repeat(X[:3], 6, axis=0), "y": np.repeat(Y[:3], 6)}


def contradicting() -> dict[str, Any]:
    return {"X": np.repeat(X[:6], 3, axis=0), "y": np.arange(18) % 3}


def constant() -> dict[str, Any]:
    return {"X": np.full_like(X, 0.5), "y": Y}


def black() -> dict[str, Any]:
    return {"X": np.zeros_like(X), "y": Y}


def almost_constant() -> dict[str, Any]:
    return {"X": 0.5 + 1e-9 * X, "y": Y}


def two_per_class() -> dict[str, Any]:
    return {"X": X[:6], "y": np.arange(6) % 3}


def one_per_class() -> dict[str, Any]:
    return {"X": X[:3], "y": np.arange(3)}


def one_class() -> dict[str, Any]:
    return {"X": X, "y": np.zeros(18, int)}


def one_large_class() -> dict[str, Any]:
    return {"X": X, "y": (np.arange(18) == 0).astype(int)}


def one_group() -> dict[str, Any]:
    return {"X": X, "y": Y, "groups": np.zeros(18, int)}


def huge_inputs() -> dict[str, Any]:
    return {"X": 1e150 * X, "y": Y}


def inputs_of_nan() -> dict[str, Any]:
    x = X.copy()
    x[3] = NAN
    return {"X": x, "y": Y}


def inputs_of_infinity() -> dict[str, Any]:
    x = X.copy()
    x[3, 0, 0] = math.inf
    return {"X": x, "y": Y}


def weighted(values: list[float]) -> Callable[[], dict[str, Any]]:
    def problem() -> dict[str, Any]:
        return {"X": X, "y": Y, "sample_weight": np.resize(np.array(values), 18)}

    problem.__name__ = f"weights {values}"
    return problem


PROBLEMS = (
    *(duplicates, contradicting, constant, black, almost_constant, two_per_class, one_per_class, one_class),
    *(one_large_class, one_group, huge_inputs, inputs_of_nan, inputs_of_infinity),
    *map(weighted, ([1e-300], [1e300], [1e-300, 1, 1, 1, 1], [1, 1, 1, 1, 1e300], [1e-300, 1e300], [NAN, 1], [0.0])),
    *map(weighted, ([-1.0, 1], [math.inf, 1], [1e-9, 1, 1, 1, 1], [1e9, 1, 1, 1, 1], [1e-15], [1e15], [1e-30], [1e38])),
    *map(weighted, ([5e-324, 1.0], [1.7e308], [0, 0, 1, 1, 1])),
)
STRENGTHS = (1e-300, 1e-12, 1e-9, 1e-6, 1e6, 1e9, 1e12, 1e300)


def solved_or_refused(fit: Callable[[], Any]) -> str:
    try:
        model = fit()
    except LQFError as error:
        return str(error) and "refused"
    assert model.report_["converged"]
    assert math.isfinite(model.report_["relative_residual"])
    assert np.isfinite(model.decision_function(NEW)).all()
    assert np.isfinite(model.predict_proba(NEW)).all()
    return "solved"


@pytest.mark.faults
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.__name__)
def test_a_degenerate_problem(
    problem: Callable[[], dict[str, Any]], solver: str, dtype: str, count: Callable[..., None]
) -> None:
    result = solved_or_refused(lambda: classifier(solver=solver, dtype=dtype).fit(**problem()))
    count(f"degenerate problems by {solver}", result)


@pytest.mark.faults
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("head", [*STRENGTHS, "auto"])
@pytest.mark.parametrize("body", [*STRENGTHS, "auto"])
def test_any_strengths(head: Any, body: Any, solver: str, dtype: str, count: Callable[..., None]) -> None:
    params = {"weight_decay": head, "body_weight_decay": body, "loo": "none", "dtype": dtype}
    count(f"strengths by {solver}", solved_or_refused(lambda: classifier(solver=solver, **params).fit(X, Y)))


@pytest.mark.parametrize("problem", [duplicates, two_per_class, one_large_class, one_group], ids=lambda p: p.__name__)
def test_what_is_odd_and_can_be_solved(problem: Callable[[], dict[str, Any]], count: Callable[..., None]) -> None:
    assert solved_or_refused(lambda: classifier(solver="dense").fit(**problem())) == "solved"
    count("degenerate problems by dense", "solved")


@pytest.mark.faults
@pytest.mark.parametrize("solver", ["head", "pcg"])
def test_1000_classes(solver: str, count: Callable[..., None]) -> None:
    x, y = np.random.default_rng(0).normal(size=(2000, 3, 4)), np.arange(2000) % 1000
    params = {"weight_decay": 1.0, "body_weight_decay": 10.0, "loo": "none", "dtype": "float32", "draws": 1}
    count("1,000 classes", solved_or_refused(lambda: classifier(solver=solver, **params).fit(x, y)))
