"""A made-up result, as `run_demo` returns it."""

from typing import Any

import pytest


def model(test: float, loo: float, **other: Any) -> dict[str, Any]:
    return {
        "test_error": test,
        "test_standard_error": 0.0135,
        "loo_error": loo,
        "loo_standard_error": 0.0193,
        "loo_level": "exact",
        "loo_note": "",
        "solver": "dense",
        "unknowns": 3372289,
        "weight_decay": 1e-2,
        "body_weight_decay": 3e-1,
        "relative_residual": 2.3e-7,
        "converged": True,
        "certificate": "reached the tolerance 1.0e-04: relative residual 2.30e-07 after 3 passes over the data",
        **other,
    }


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
        "test": {"n": 800, "defective": 250, "unsure": 122},
        "models": {
            "head": model(0.186, 0.19, solver="head", unknowns=1281, body_weight_decay=None),
            "bilinear": model(0.178, 0.181, solver="head", unknowns=32897, body_weight_decay=None),
            "lqf": model(0.172, 0.175, loo_note="a measured bias of 0.4 points, " * 5 + "is in it"),
        },
        "pooling": {
            "what": "pooling",
            "kept": "bilinear",
            "tried": {"avg": {"loo_error": 0.19, "loss": 0.42}, "bilinear": {"loo_error": 0.181, "loss": 0.387}},
        },
        "repaired": 41,
        "spoilt": 30,
        "suspicious": [suspect(i, "0" if i % 3 else "1/3") for i in range(1, 13)],
        "stages": [
            {"name": "closed-form head: fit", "seconds": 8.1},
            {"name": "LQF: fit", "seconds": 71.4, "parts": {"features": 5.9, "leave-one-out": 0.02}},
            {"name": "LQF: test", "seconds": 31.0},
        ],
        "seconds": 123.4,
        "out": "demo",
    }
