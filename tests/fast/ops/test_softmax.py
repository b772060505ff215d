"""Softmax with one-pass derivatives equals PyTorch's, wherever a network calls it."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import jvp, vjp

from lqf.fast.dispatch import FastOps
from lqf.fast.ops.softmax import Softmax

WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "functional": lambda s: F.softmax(s, -1),
    "named": lambda s: F.softmax(s, dim=1),
    "torch": lambda s: torch.softmax(s, 2),
    "method": lambda s: s.softmax(dim=-1),
    "other type": lambda s: s.softmax(dim=-1, dtype=torch.float32),
}


@pytest.mark.parametrize("way", WAYS)
def test_values_and_derivatives(way: str) -> None:
    s, v = torch.randn(2, 2, 3, 4, 5, dtype=torch.float64)
    v = v.transpose(0, 1).contiguous().transpose(0, 1)  # any layout
    call = WAYS[way]
    p, dp = jvp(call, (s,), (v,))
    u = torch.randn_like(p)
    with FastOps(kernels=False, merged=False):
        q, dq = jvp(call, (s,), (v,))
        back = vjp(call, s)[1](u)[0]
    torch.testing.assert_close(q, p, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dq, dp, rtol=1e-6 if "type" in way else 1e-12, atol=1e-6 if "type" in way else 1e-12)
    torch.testing.assert_close(back, vjp(call, s)[1](u)[0], rtol=1e-12, atol=1e-12)


def test_fast_softmax_is_used_wherever_a_network_calls_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(Softmax, "apply", lambda s, dim: called.append(dim) or torch.softmax(s, dim))
    with FastOps(kernels=False, merged=False):
        for call in WAYS.values():
            call(torch.randn(2, 3, 4))
    assert called == [-1, 1, 2, -1]
