"""Batched matrix products of activations, as in attention.

    c = a b,     J·v:  dc = da b + a db,     Jᵀ·u:  a ← g bᵀ,   b ← aᵀ g,      a (…, m, k), b (…, k, n).

PyTorch makes both terms of dc and adds them in a pass of its own, over what in attention is the largest of all
activations; here the second product adds to the first where it lies.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class BatchedProduct(torch.autograd.Function):
    """(B, m, k) and (B, k, n) -> (B, m, n)."""

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        """c."""
        return torch.bmm(a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep what both derivatives need."""
        ctx.set_materialize_grads(False)  # an absent tangent is None, not zeros that would be multiplied
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Gradients at a and b."""
        if g is None:
            return None, None
        a, b = ctx.saved_tensors
        da, db = ctx.needs_input_grad
        return torch.bmm(g, b.mT) if da else None, torch.bmm(a.mT, g) if db else None

    @staticmethod
    def jvp(ctx: Any, da: Tensor | None, db: Tensor | None) -> Tensor:
        """dc; at least one of the two has a tangent."""
        a, b = ctx.saved_tensors
        if da is None or db is None:
            return torch.bmm(a if da is None else da, b if db is None else db)
        return torch.bmm(da, b).baddbmm_(a, db)


def product(a: Tensor, b: Tensor) -> Tensor | None:
    """a b for operands with the same leading dimensions, of which there are some; None for any others."""
    if a.ndim < 3 or a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2] or a.dtype != b.dtype:
        return None
    c = BatchedProduct.apply(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]))
    return c.view(*a.shape[:-1], b.shape[-1])
