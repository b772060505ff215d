"""Whether a model can be believed when it is used: its numbers and its answers are finite, and it was solved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from lqf.errors import LQFError
from lqf.fitting.stack import Model


def about_convergence(model: Model) -> list[str]:
    """What is to be said at every prediction of a model that was kept without having converged."""
    reports = [m.report for m in model.members]
    return [
        f"this model did not reach its optimum: {report.solver} {report.certificate}; its predictions are not those of "
        "the problem's solution"
        for report in reports
        if not report.converged
    ]


def check_outputs(outputs: Tensor, ids: Sequence[str]) -> None:
    """Refuse predictions that are not numbers."""
    finite = torch.isfinite(outputs).all(1)
    if not bool(finite.all()):
        first = ids[int((~finite).nonzero()[0])]
        raise LQFError(
            f"what the model says about `{first}` is not a finite number; give finite inputs, or fit the model again"
        )


def check_model(
    path: Path, tensors: Mapping[str, Tensor], outputs: int, features: int, numbers: Mapping[str, float]
) -> None:
    """Refuse a saved model with numbers that are not finite, or with tensors that do not fit its network."""
    if tensors["head"].shape != (outputs, features + 1) or tensors["point"].shape != (outputs, features):
        raise LQFError(f"`{path}` is damaged: its weights do not fit {features} features and {outputs} outputs")
    if tensors["delta"].ndim != 1:
        raise LQFError(f"`{path}` is damaged: its change of the network is not a vector")
    for name, values in tensors.items():
        if name != "loo" and not bool(torch.isfinite(values).all()):
            raise LQFError(f"`{path}` holds a model that is not finite (`{name}`); fit again")
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise LQFError(f"`{path}` holds a model that is not finite (`{name}` is {number}); fit again")
