"""Stacks of fitted models without a climb, and made-up rungs as a climb reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lqf import LQFClassifier
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, Stack

ABOUT: dict[str, Any] = {"views": "none", "pooling": "avg", "stage": None, "solver": "head"}


def rung(name: str, error: float | None, loss: float | None, gain: float | None = None, **other: Any) -> dict[str, Any]:
    """One that was tried; ``kept`` by default."""
    se = None if gain is None else 0.012
    scores = {"error": error, "loss": loss, "gain": gain, "gain_standard_error": se}
    own = {"name": name, "predicted_seconds": 3.0, "seconds": 4.2, **scores, "kept": True, "why": ""}
    return {**own, **ABOUT, **other}


def left_out(name: str, why: str) -> dict[str, Any]:
    """One that was not tried."""
    return {**rung(name, None, None), "seconds": None, "kept": False, "why": why}


def kept_head() -> tuple[dict[str, Any], ...]:
    """A climb that keeps the head, of which the last stage gains nothing and LQF takes too long."""
    nothing = {"kept": False, "why": "gains nothing"}
    return (
        rung("head", 0.16, 0.394),
        rung("head, mirror images", 0.163, 0.404, -0.011, views="flip", **nothing),
        rung("head, 8 views", 0.148, 0.387, 0.007, views="crops8"),
        rung("last stage", 0.162, 0.392, -0.005, stage="stage7", solver="dense", **nothing),
        left_out("LQF", "needs about 4 min"),
    )


def stacked(models: Mapping[str, LQFClassifier], weights: tuple[float, ...]) -> Stack:
    """Models of the same samples, added up."""
    members = tuple(m.fitted_ for m in models.values())
    assert all(isinstance(m, FittedModel) and m.loo is not None for m in members)
    main = members[max(range(len(weights)), key=lambda k: weights[k])]
    parts = zip(weights, members, strict=True)
    outputs = sum(w * m.loo.outputs for w, m in parts)
    loo = LeaveOneOut(outputs, "estimated", "by folds", labels=main.loo.labels, weights=main.loo.weights)
    shares = dict(zip(models, weights, strict=True))
    climb = (*kept_head()[:2], rung("stack", 0.12, 0.37, 0.017, solver="stack", members=shares))
    own = {"solver": "stack", "level": "estimated", "rungs": climb, "effort": "best", "loo_error": loo.error}
    whole = {"error": 0.153, "error_standard_error": 0.018, "error_note": "all choices made again without each fold"}
    report = replace(main.report, **own, **whole)
    about = {"names": tuple(models), "shares": weights, "beta": loo.temperature(), "train": main.train, "loo": loo}
    return Stack(members, weights, report=report, settings=main.settings, setup=main.setup, **about)
