"""1×1 convolutions (of stride 1) as the matrix products they are, for activations with channels last.

    y = x Wᵀ,     J·v:  dy = dx Wᵀ + x dWᵀ,     Jᵀ·u:  x ← g W,   W ← gᵀx        with x (M, c), one row per pixel.

The second product of dy adds to the first where it lies, instead of in a pass of its own, and in float32 the matrix
library has faster kernels than the one for convolutions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Pointwise(torch.autograd.Function):
    """(M, c) and (o, c) -> (M, o)."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        """y."""
        return x @ weight.T

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep what both derivatives need."""
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Gradients at x and W."""
        x, weight = ctx.saved_tensors
        return g @ weight if ctx.needs_input_grad[0] else None, g.T @ x if ctx.needs_input_grad[1] else None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dweight: Tensor | None) -> Tensor:
        """dy."""
        x, weight = ctx.saved_tensors
        if dx is None:
            return x.new_zeros(len(x), len(weight)) if dweight is None else x @ dweight.T
        dy = dx @ weight.T
        return dy if dweight is None else dy.addmm_(x, dweight.T)


def as_products(module: nn.Module) -> int:
    """Let the plain 1×1 convolutions of ``module`` run as products; returns how many there are."""
    found = [m for m in module.modules() if type(m) is nn.Conv2d and _is_pointwise(m)]
    for conv in found:
        conv.forward = _forward(conv)  # type: ignore[method-assign]
    return len(found)


def _is_pointwise(conv: nn.Conv2d) -> bool:
    plain = conv.stride == (1, 1) and conv.groups == 1 and conv.padding in ((0, 0), "valid")
    return conv.kernel_size == (1, 1) and plain and conv.bias is None


def _forward(conv: nn.Conv2d) -> Any:
    def forward(x: Tensor) -> Tensor:
        rows = x.permute(0, 2, 3, 1)
        b, h, w, c = rows.shape
        y = Pointwise.apply(rows.reshape(-1, c), conv.weight.flatten(1))
        return y.view(b, h, w, -1).permute(0, 3, 1, 2)

    return forward
