"""The same fit on the GPU; skipped where there is none."""

import numpy as np
import pytest
import torch
from torch import nn

from cases import CASES
from lqf import LQFClassifier

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("solver", ["head", "dense", "pcg"])
def test_cuda_equals_cpu(solver: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(CASES["convnet"](), nn.Linear(4, 3)).eval()
    x, y = np.random.default_rng(0).normal(size=(30, 2, 6, 6)).astype(np.float32), np.arange(30) % 3
    fixed = {"solver": solver, "weight_decay": 0.1, "body_weight_decay": 1.0, "tol": 1e-6, "max_passes": 500}
    scores = [LQFClassifier(net, device=d, **fixed).fit(x, y).decision_function(x) for d in ("cpu", "cuda")]
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-3)
