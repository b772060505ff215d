"""Softmax with a forward derivative in one pass: its Jacobian is symmetric, so J·v is what the way back computes.

    p = softmax(s),     dp = p (ds − Σ p ds),     and the same for gradients.

PyTorch's own forward derivative makes the exponentials again and six passes over what in attention is the largest of
all activations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Softmax(torch.autograd.Function):
    """p of s, along a dimension."""

    @staticmethod
    def forward(s: Tensor, dim: int) -> Tensor:
        """p."""
        return torch.softmax(s, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        """Keep what both derivatives need."""
        ctx.dim = inputs[1]
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        """The gradient at s."""
        return _derivative(ctx, g), None

    @staticmethod
    def jvp(ctx: Any, ds: Tensor, _: Any) -> Tensor:
        """dp."""
        return _derivative(ctx, ds)


def _derivative(ctx: Any, v: Tensor) -> Tensor:
    (p,) = ctx.saved_tensors
    return torch.ops.aten._softmax_backward_data(v.contiguous(), p, ctx.dim, p.dtype)
