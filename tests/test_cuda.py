"""The same fit, and the same answers about it, on the GPU; skipped where there is none."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cases import CASES
from lqf import LQFClassifier
from lqf.analysis import Analysis

pytestmark = pytest.mark.gpu
SOLVERS = ["head", "dense", "pcg"]


def pictures(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(seed).normal(size=(n, 2, 6, 6)).astype(np.float32), np.arange(n) % 3


def fitted(device: str, solver: str, dtype: torch.dtype, **options: Any) -> LQFClassifier:
    torch.manual_seed(0)
    net = nn.Sequential(CASES["convnet"](), nn.Linear(4, 3)).eval().to(dtype)
    fixed = {"solver": solver, "weight_decay": 0.1, "body_weight_decay": 1.0, "tol": 1e-6, "max_passes": 500}
    return LQFClassifier(net, device=device, **fixed, **options).fit(*pictures(30, 0))


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
