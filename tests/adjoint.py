"""Forward against reverse mode."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp


def assert_adjoint(net: nn.Module, x: Tensor, rel: float) -> Tensor:
    """⟨u, Jv⟩ = ⟨Jᵀu, v⟩ for random u and v, J by all weights; returns the outputs."""
    weights = {n: p.detach() for n, p in net.named_parameters()}
    v = {n: torch.randn_like(p) for n, p in weights.items()}

    def call(w: dict[str, Tensor]) -> Tensor:
        return functional_call(net, w, (x,))

    z, jv = jvp(call, (weights,), (v,))
    u = torch.randn_like(z)
    jtu = vjp(call, weights)[1](u)[0]
    assert float((u * jv).sum()) == pytest.approx(float(sum((jtu[n] * v[n]).sum() for n in v)), rel=rel)
    return z
