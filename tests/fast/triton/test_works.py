"""Triton that is installed and does not work is not used."""

import warnings

import pytest
import torch

from lqf.fast.triton import works as module
from lqf.fast.triton.works import triton_works

GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    module._tried.cache_clear()
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    yield
    module._tried.cache_clear()


def test_a_kernel_that_runs_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    monkeypatch.setattr(module, "_one_more", lambda number: tried.append(number) or 1.0)
    assert triton_works(GPU)
    assert triton_works(GPU)
    assert tried == [0]
    assert triton_works(torch.device("cuda", 1))
    assert tried == [0, 1]


@pytest.mark.parametrize(
    "error", [RuntimeError("Failed to find C compiler"), OSError("no Python.h"), ValueError("old")]
)
def test_a_kernel_that_fails_is_reported_once(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(number: int) -> float:
        raise error

    monkeypatch.setattr(module, "_one_more", fails)
    with pytest.warns(UserWarning, match=str(error)):
        assert not triton_works(GPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not triton_works(GPU)


def test_a_wrong_number_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_one_more", lambda number: 2.0)
    with pytest.warns(UserWarning, match="wrong number"):
        assert not triton_works(GPU)


def test_without_triton_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(module, "_one_more", lambda number: pytest.fail("tried"))
    assert not triton_works(GPU)


@pytest.mark.gpu
def test_triton_works_on_this_gpu() -> None:
    assert triton_works(torch.device("cuda"))
