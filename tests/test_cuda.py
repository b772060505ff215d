"""The same fit, and the same answers about it, on the GPU; skipped where there is none."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cases import CASES
from lqf import LQFClassifier
from lqf.analysis import Analysis
from recorder import Recorder

pytestmark = pytest.mark.gpu
SOLVERS = ["head", "dense", "pcg"]


def pictures(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(seed).normal(size=(n, 2, 6, 6)).astype(np.float32), np.arange(n) % 3


def fitted(device: str, solver: str, dtype: torch.dtype, **options: Any) -> LQFClassifier:
    torch.manual_seed(0)
    net = nn.Sequential(CASES["convnet"](), nn.Linear(4, 3)).eval().to(dtype)
    fixed = {"solver": solver, "weight_decay": 0.1, "body_weight_decay": 1.0, "tol": 1e-6, "max_passes": 500}
    return LQFClassifier(net, tensors="normalized", device=device, **fixed, **options).fit(*pictures(30, 0))


@pytest.mark.parametrize("solver", SOLVERS)
def test_cuda_equals_cpu(solver: str) -> None:
    x = pictures(30, 0)[0]
    scores = [fitted(d, solver, torch.float32).decision_function(x) for d in ("cpu", "cuda")]
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_answers_on_cuda_equal_those_on_the_cpu(solver: str) -> None:
    (x, y), others = pictures(30, 0), pictures(6, 1)
    both: list[Analysis] = [fitted(d, solver, torch.float64, loo="none").analyse(x, y) for d in ("cpu", "cuda")]
    asked = [a.queries(*others) for a in both]
    here, there = ([a.information(q).values, a.information().values] for a, q in zip(both, asked, strict=True))
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-8)
    for most in (False, True):
        orders = [(a.leaving(q, most=most), a.leaving(most=most)) for a, q in zip(both, asked, strict=True)]
        for one, other in zip(*orders, strict=True):
            assert one.tolist() == other.tolist()


# --- a GPU that others use, too ------------------------------------------------------------------------------------


class Neighbour(Recorder):
    """Takes all memory but ``left`` bytes of a GPU when a stage begins to advance, as another program might."""

    def __init__(self, stage: str, left: int):
        super().__init__()
        self.name, self.left, self.taken = stage, left, torch.empty(0)

    def advanced(self, stage: str, info: dict[str, float | str]) -> None:
        super().advanced(stage, info)
        if stage == self.name and len(self.taken) == 0:
            torch.cuda.empty_cache()
            free = LIMIT - torch.cuda.memory_reserved()
            self.taken = torch.empty(max(1, free - self.left), dtype=torch.uint8, device="cuda")


LIMIT = 8 << 30


@pytest.fixture
def limited() -> Iterator[None]:
    """An allocator with so many bytes, and not more."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(LIMIT / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def wide() -> nn.Module:
    """A network whose activations take 13 MB for a row, so that 128 rows need much of the limit."""
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3)]
    return nn.Sequential(*layers, nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(), *pool).eval()


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize(("stage", "left"), [("features", 300 << 20), ("refits without a fold", 24 << 20)])
def test_a_fit_goes_on_when_a_neighbour_takes_the_memory(stage: str, left: int) -> None:
    x = np.random.default_rng(0).integers(0, 255, (200, 128, 128, 3), dtype=np.uint8)
    y = np.arange(200) % 3
    x[..., 0] //= 1 + y[:, None, None].astype(np.uint8)
    neighbour = Neighbour(stage, left)
    options: dict[str, Any] = {"size": 128, "device": "cuda", "effort": "standard", "views": "none"}
    model = LQFClassifier(wide(), **options).fit(x, y, progress=neighbour)
    assert len(neighbour.taken) > 1, neighbour.said
    lines = [line for line in neighbour.said if "out of memory" in line or "more memory" in line]
    assert lines or stage != "features"  # kernels are planned by what is free when they are made
    assert model.report_["error"] is not None
    assert len(model.predict(x[:20])) == 20
