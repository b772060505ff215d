"""The largest curvature of a loss at a network's weights: it says how long a step of gradient descent may be.

Gradient descent with momentum m on a quadratic function is stable for rates below 2(1 + m)/λ, λ the largest eigenvalue
of its second derivative. λ comes from power iteration; a product is a difference of two gradients,

    Hv ≈ (∇L(w + εv) − ∇L(w)) / ε,     ‖v‖ = 1,  ε = EPSILON·‖w‖,

which needs nothing of the network but gradients, and is that of the network as it is trained: batch normalisation by
batches included.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

EPSILON = 1e-4
STEPS = 8
LAST = 3
"""Of the last so many estimates the largest is taken: they have not settled everywhere after `STEPS`."""


def sharpness(network: nn.Module, loss: Callable[[], Tensor], steps: int = STEPS) -> float:
    """λ of ``loss`` at the network's weights; its statistics stay as they are.

    Args:
        network: in the mode in which it is trained.
        loss: of its outputs on some inputs, always the same.
        steps: of the power iteration.
    """
    weights = [w for w in network.parameters() if w.requires_grad]
    kept = {name: buffer.clone() for name, buffer in network.named_buffers()}
    before = [w.detach().clone() for w in weights]
    size = float(torch.stack([w.norm() for w in before]).norm())

    def gradient(v: list[Tensor] | None) -> list[Tensor]:
        with torch.no_grad():
            for k, w in enumerate(weights):
                w.copy_(before[k] if v is None else before[k] + EPSILON * size * v[k])
        found = torch.autograd.grad(loss(), weights, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            for name, buffer in network.named_buffers():
                buffer.copy_(kept[name])
        return list(found)

    at = gradient(None)
    v, estimates = _unit(at), []
    for _ in range(steps):
        product = [(a - b) / (EPSILON * size) for a, b in zip(gradient(v), at, strict=True)]
        estimates.append(abs(float(sum((a * b).sum() for a, b in zip(product, v, strict=True)))))
        v = _unit(product)
    with torch.no_grad():
        for w, old in zip(weights, before, strict=True):
            w.copy_(old)
    return max(estimates[-LAST:])


def _unit(v: list[Tensor]) -> list[Tensor]:
    norm = torch.stack([x.norm() for x in v]).norm().clamp_min(1e-30)
    return [x / norm for x in v]
