"""Conformal sets: of real refits, at their coverage, whatever the order of the samples."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fits import FIXED, classifier, convnet, data, pictures
from lqf import LQFClassifier
from lqf.errors import LQFError
from lqf.evaluation.calibration import probabilities
from lqf.uncertainty.scores import score
from real_refits import Refitted

CASES: dict[str, dict[str, Any]] = {
    "dense": {"solver": "dense", **FIXED},
    "dense, one output": {"solver": "dense", "n_classes": 2, **FIXED},
    "dense, prefix": {"solver": "dense", "linearize": "second", **FIXED},
    "head": {"solver": "head", "weight_decay": 0.1},
    "head, one output": {"solver": "head", "n_classes": 2, "weight_decay": 0.1},
}


def fitted(case: str, *, groups: bool = False) -> tuple[LQFClassifier, Refitted, np.ndarray]:
    params = dict(CASES[case])
    n_classes = params.pop("n_classes", 3)
    x, y = data(18, n_classes, signal=0.5)
    s = np.random.default_rng(3).uniform(0.5, 2, 18)
    model = classifier(**params).fit(x, y, s, groups=np.arange(18) // 3 if groups else None)
    return model, Refitted(model, x, torch.tensor(data(5, n_classes, seed=7)[0])), y


def by_refits(model: LQFClassifier, refit: Refitted, y: np.ndarray, units: list[list[int]]) -> Tensor:
    """p-values from their definition: a real refit without every unit, on the test images and on its own samples."""
    total, beta = torch.zeros(1), model.fitted_.beta
    for unit in units:
        own = (refit.problem.targets - refit.residuals(refit.all_but(unit)))[unit]  # each through its own head
        e = -probabilities(own, beta).log()[torch.arange(len(unit)), torch.tensor(y[unit])]
        total = total + (e[:, None, None] >= -probabilities(refit.without(unit), beta).log()).double().mean(0)
    return (1 + total) / (1 + len(units))


@pytest.mark.parametrize("case", CASES)
def test_jackknife_plus_is_that_of_real_refits(case: str) -> None:
    model, refit, y = fitted(case)
    sets = model.predict_set(refit.test.numpy(), 0.8)
    assert (sets.way, sets.level) == ("jackknife+", "exact")
    torch.testing.assert_close(sets.value, by_refits(model, refit, y, [[i] for i in range(18)]))


@pytest.mark.parametrize("case", ["dense", "head"])
def test_groups_leave_together_and_count_as_one(case: str) -> None:
    model, refit, y = fitted(case, groups=True)
    units = [[3 * u, 3 * u + 1, 3 * u + 2] for u in range(6)]
    sets = model.predict_set(refit.test.numpy(), 0.8)
    torch.testing.assert_close(sets.value, by_refits(model, refit, y, units))
