"""Eigendecompositions side by side."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from lqf.curvature import parallel_eigh as module
from lqf.curvature.parallel_eigh import run_parallel

CPU = torch.device("cpu")


class Stream:
    """A stream of a GPU that is not there."""

    def __init__(self, *_: Any) -> None: ...

    def record_event(self) -> None: ...

    def wait_event(self, event: None) -> None: ...

    def synchronize(self) -> None: ...


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    monkeypatch.setattr("torch.cuda.Stream", Stream)
    monkeypatch.setattr("torch.cuda.current_stream", Stream)
    monkeypatch.setattr("torch.cuda.stream", lambda own: nullcontext())
    monkeypatch.setattr(Tensor, "record_stream", lambda tensor, stream: None)
    return torch.device("cuda")


def tasks(order: list[int]) -> list[Any]:
    def number(i: int) -> list[Tensor]:
        order.append(i)
        return [torch.full((2,), float(i))]

    return [lambda i=i: number(i) for i in range(5)]


def test_results_come_in_order_and_the_longest_task_begins(
    pretended_gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_A_TIME", 1)
    order: list[int] = []
    results = run_parallel(tasks(order), [1, 5, 2, 4, 3], pretended_gpu)
    assert [float(r[0][0]) for r in results] == [0, 1, 2, 3, 4]
    assert order == [1, 3, 4, 2, 0]


def test_threads_give_what_one_gives(pretended_gpu: torch.device) -> None:
    matrices = [torch.randn(n, n).double() for n in (20, 30, 40)]
    jobs = [lambda m=m: list(torch.linalg.eigh(m @ m.T)) for m in matrices]
    for one, many in zip(run_parallel(jobs, [1, 2, 3], CPU), run_parallel(jobs, [1, 2, 3], pretended_gpu), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, many, strict=True))


def test_an_error_of_a_task_is_raised(pretended_gpu: torch.device) -> None:
    def fails() -> list[Tensor]:
        raise torch.linalg.LinAlgError("no convergence")

    with pytest.raises(torch.linalg.LinAlgError, match="no convergence"):
        run_parallel([fails], [1.0], pretended_gpu)


@pytest.mark.gpu
def test_streams_of_a_gpu_give_the_same_eigenvalues() -> None:
    matrices = [torch.randn(n, n).cuda() for n in (100, 200, 300, 400)]
    jobs = [lambda m=m: list(torch.linalg.eigh(m @ m.T)) for m in matrices]
    costs = [1.0, 2.0, 3.0, 4.0]
    for one, many in zip(run_parallel(jobs, costs, CPU), run_parallel(jobs, costs, torch.device("cuda")), strict=True):
        torch.testing.assert_close(one[0], many[0])
