"""Where to compute, and from where one may ask for it."""

from typing import Any

import numpy as np
import pytest
import torch

from fits import classifier, data
from lqf.errors import LQFError
from lqf.runtime.device import computing, computing_on, resolve_device


@pytest.mark.parametrize("name", ["mps", "xpu", "meta", "vulkan:3", "gpu"])
def test_other_devices_are_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(LQFError, match="use `auto`, `cpu` or `cuda`"):
        resolve_device(name)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(LQFError, match="sees 2, numbered from 0"):
        resolve_device("cuda:2")


def test_the_gpu_asked_for_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []

    class Current:
        def __init__(self, device: torch.device):
            self.device = device

        def __enter__(self) -> None:
            entered.append(self.device)

        def __exit__(self, *_: object) -> None:
            entered.append("left")

    class Model:
        device = "cuda:1"

        @computing
        def fit(self, x: int) -> int:
            entered.append("fit")
            return x + 1

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.device", Current)
    assert Model().fit(2) == 3
    assert entered == [torch.device("cuda", 1), "fit", "left"]


@pytest.mark.parametrize("solver", ["dense", "pcg"])
def test_inference_mode_around_a_fit_changes_nothing(solver: str) -> None:
    x, y = data(18)
    model = classifier(solver=solver, loo="none").fit(x, y)
    with torch.inference_mode():
        inside = classifier(solver=solver, loo="none").fit(x, y)
        outputs = inside.decision_function(x)
        assert torch.isfinite(inside.analyse(x, y).leave_one_out().outputs).all()
    np.testing.assert_array_equal(outputs, model.decision_function(x))


def test_derivatives_are_possible_inside_inference_mode() -> None:
    with torch.inference_mode(), computing_on(torch.device("cpu")):
        assert not torch.is_inference_mode_enabled()
        x = torch.tensor(3.0, requires_grad=True)
        (slope,) = torch.autograd.grad(x * x, x)
    assert float(slope) == 6
