"""How much may be used of a GPU that others use too."""

import pytest
import torch

from lqf.errors import LQFError
from lqf.runtime.memory import available_bytes, limit_gpu, using_share
from lqf.runtime.out_of_memory import free_memory
from lqf.utils.text import byte_count

GPU = torch.device("cuda")
SEGMENTS = [
    {"device": 3, "segment_pool_id": (0, 0), "total_size": 20, "allocated_size": 13},
    {"device": 3, "segment_pool_id": (0, 1), "total_size": 10, "allocated_size": 7},
    {"device": 1, "segment_pool_id": (0, 1), "total_size": 10, "allocated_size": 2},
]


@pytest.mark.parametrize(
    ("free", "reserved", "allocated", "fraction", "expected"),
    [
        (50, 30, 20, 1.0, 57),  # free, and what the allocator holds without use, but for 3 within recordings
        (50, 30, 20, 0.5, 27),  # half of 100, of which 23 are used
        (50, 30, 20, 0.1, 0),
    ],
)
def test_free_is_what_this_process_may_still_have(
    free: int, reserved: int, allocated: int, fraction: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (free, 100))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda device: reserved)
    monkeypatch.setattr("torch.cuda.memory_allocated", lambda device: allocated)
    monkeypatch.setattr("torch.cuda.get_per_process_memory_fraction", {3: fraction}.__getitem__)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 3)
    monkeypatch.setattr("torch.cuda.memory_snapshot", lambda: SEGMENTS)
    assert available_bytes(GPU) == available_bytes(torch.device("cuda", 3)) == expected


@pytest.mark.parametrize(("gigabytes", "fraction"), [(20, 0.25), (80, 1.0), (500, 1.0)])
def test_a_limit_is_a_share_of_the_gpu(gigabytes: float, fraction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (1, int(80e9)))
    monkeypatch.setattr("torch.cuda.set_per_process_memory_fraction", lambda *args: seen.append(args))
    monkeypatch.setattr("torch.cuda.current_device", lambda: 3)
    limit_gpu(gigabytes, GPU)
    assert seen == [(fraction, 3)]


@pytest.mark.gpu
@pytest.mark.parametrize("device", [GPU, torch.device("cuda", 0)])
def test_a_gpu_says_what_is_free(device: torch.device) -> None:
    limit_gpu(1e6, device)
    assert 0 < available_bytes(device) <= torch.cuda.get_device_properties(device).total_memory


@pytest.mark.gpu
def test_what_lies_between_the_tensors_of_a_recording_is_not_free() -> None:
    free_memory()  # recordings of tests before this one
    x, graph = torch.zeros(1 << 28, device="cuda"), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    before = available_bytes(GPU)
    with torch.cuda.graph(graph):
        y = (x + 1).sum()  # 1 GiB that only a replay uses
    assert before - available_bytes(GPU) >= 1 << 30
    del graph, y


def test_a_share_of_what_is_free_counts_while_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.runtime.memory.available_ram", lambda: 1000)
    cpu = torch.device("cpu")
    with using_share(0.5):
        assert available_bytes(cpu) == 500
        with using_share(0.25):
            assert available_bytes(cpu) == 250
        assert available_bytes(cpu) == 500
    assert available_bytes(cpu) == 1000


def test_a_cpu_takes_no_limit_of_a_gpu() -> None:
    with pytest.raises(LQFError, match="leave it out"):
        limit_gpu(4, torch.device("cpu"))


def test_bytes_for_a_person() -> None:
    assert [byte_count(n) for n in (1.3e9, 640e6, 2e12, 512)] == ["1.3 GB", "640 MB", "2 TB", "0.512 kB"]
