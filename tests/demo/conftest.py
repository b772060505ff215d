"""A made-up result, as `run_demo` returns it."""

from typing import Any

import pytest

from stacks import kept_head


def tested(entry: dict[str, Any], test: float | None) -> dict[str, Any]:
    """A rung with its standard error, and with a test of its model."""
    known = {"standard_error": None if entry["error"] is None else 0.0183}
    return {**entry, **known, "test_error": test, "test_standard_error": None if test is None else 0.0171}


def suspect(number: int, annotated: str = "1/3", **other: Any) -> dict[str, Any]:
    return {
        "id": f"images/cell{number:04d}.png",
        "kind": "poly",
        "label": "functional",
        "annotated": annotated,
        "annotated_probability": 1 / 3,
        "unsure": annotated != "0",
        "loo_probability": 0.97,
        **other,
    }


@pytest.fixture
def result() -> dict[str, Any]:
    return {
        "format": "lqf-demo",
        "version": "0.1.0",
        "backbone": "efficientnet_lite0",
        "size": 128,
        "seed": 0,
        "device": "cpu",
        "threads": 2,
        "train": {"n": 400, "defective": 125, "unsure": 61},
        "test": {"n": 500, "defective": 156, "unsure": 76},
        "effort": "best",
        "error": 0.153,
        "error_standard_error": 0.018,
        "error_note": "all choices made again without each of 5 folds",
        "next_rung": {"name": "LQF", "seconds": 267.0, "effort": "standard"},
        "fit_seconds": 75.0,
        "rungs": [tested(r, {"head": 0.176, "head, 8 views": 0.172}.get(r["name"])) for r in kept_head()],
        "model": {
            "name": "head, 8 views",
            "test_error": 0.172,
            "test_standard_error": 0.0171,
            "unknowns": 32897,
            "loo_error": 0.146,
            "loo_standard_error": 0.0177,
            "loo_level": "exact",
            "loo_note": "a measured bias of 0.4 points, " * 5 + "is in it",
            "solver": "head",
            "weight_decay": 1e-2,
            "body_weight_decay": None,
            "relative_residual": 2.3e-14,
            "converged": True,
            "certificate": "closed form: relative residual 2.30e-14 after one pass over the data",
        },
        "repaired": 41,
        "spoilt": 30,
        "suspicious": [suspect(i, "0" if i % 3 else "1/3") for i in range(1, 13)],
        "stages": [
            {"name": "start", "seconds": 3.3},
            {"name": "fit", "seconds": 71.4, "parts": {"head": 3.1, "head, 8 views": 17.2}},
            {"name": "test: head, 8 views", "seconds": 31.0},
        ],
        "seconds": 123.4,
        "out": "demo",
    }
