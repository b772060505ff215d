"""`--solver sgd` where the paper has it: around w0 with a random head, λ = 1e-4, η = 0.1, with and without crops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fits import classifier, convnet, pictures
from lqf import LQFClassifier

X, Y = pictures(36, side=12)
PAPER: dict[str, Any] = {
    "form": "w0",
    "head": "random",
    "weight_decay": 1e-4,
    "pooling": "avg",
    "views": "none",
    "loo": "none",
    "size": 10,
}


def fitted(**options: Any) -> LQFClassifier:
    how = {"solver": "sgd", "learning_rate": 0.1, "minibatch": 6, **PAPER, **options}
    return classifier(backbone=convnet(), **how).fit(X, Y)


def loss(model: LQFClassifier) -> float:
    """½‖f − 15·onehot(y)‖², the mean over the training images."""
    outputs = torch.as_tensor(model.decision_function(X))
    return float(0.5 * (outputs - 15 * F.one_hot(torch.tensor(Y), 3)).square().sum(1).mean())


@pytest.mark.parametrize("augment", ["none", "crop"])
@pytest.mark.parametrize("rate", [0.1, 0.01])
def test_the_loss_falls_and_ends_below_that_of_zero_output(augment: str, rate: float) -> None:
    few, many = (loss(fitted(augment=augment, learning_rate=rate, epochs=k)) for k in (2, 12))
    assert many < few < 0.5 * 15**2


def test_many_epochs_arrive_at_the_exact_solution() -> None:
    near, far = (
        fitted(epochs=k, weight_decay=0.1, damping=0.3, learning_rate=r) for k, r in ((120, 0.006), (3, 0.006))
    )
    exact = fitted(solver="pcg", learning_rate=None, weight_decay=0.1, tol=1e-6, max_passes=400)
    a, b, c = (torch.as_tensor(m.decision_function(X)) for m in (near, far, exact))
    assert float((a - c).norm() / c.norm()) < 0.03
    assert float((a - c).norm()) < 0.2 * float((b - c).norm())
