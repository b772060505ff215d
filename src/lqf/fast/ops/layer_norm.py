"""Layer normalisation with a forward derivative of its own, in one pass and in float32 arithmetic.

    x̂ = (x − mean x) ρ,   y = γ x̂ + β,       over the last dimensions, ρ = 1/√(var x + ε),

    J·v:  dy = γ ρ (dx − mean dx − x̂ mean(x̂ dx)) + dγ x̂ + dβ.

PyTorch's own makes many passes, leaves the range of float16, and for narrow types on a GPU gives a float32 tangent that
the next layer refuses. Values and gradients are PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lqf.fast.triton.norm import kernels_for_rows


class LayerNorm(torch.autograd.Function):
    """y of x, γ and β (either may be None); also the rows' means and ρ, which have no derivatives here."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int], eps: float, kernels: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """y, mean, ρ; ``kernels``: the tangent by them where they run."""
        return torch.native_layer_norm(x, list(shape), weight, bias, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        """Keep what both derivatives need."""
        x, weight, bias, ctx.shape, ctx.eps, ctx.kernels = inputs
        _, mean, rho = output
        ctx.mark_non_differentiable(mean, rho)
        ctx.set_materialize_grads(False)  # an absent tangent is None, not zeros that would be read
        ctx.save_for_backward(x, weight, bias, mean, rho)
        ctx.save_for_forward(x, weight, bias, mean, rho)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        """Gradients at x, γ and β."""
        if g is None:
            return (None,) * 6
        x, weight, bias, mean, rho = ctx.saved_tensors
        mask = [bool(needed) for needed in ctx.needs_input_grad[:3]]
        shape = list(ctx.shape)
        grads = torch.ops.aten.native_layer_norm_backward(g.contiguous(), x, shape, mean, rho, weight, bias, mask)
        return *grads, None, None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dweight: Tensor | None, dbias: Tensor | None, *_: Any) -> Any:
        """dy."""
        x, weight, _, _, _ = ctx.saved_tensors
        rows = x.reshape(-1, math.prod(ctx.shape))
        drows = None if dx is None else dx.reshape(rows.shape)
        weight, dweight, dbias = (None if t is None else t.reshape(-1) for t in (weight, dweight, dbias))
        by = kernels_for_rows(rows) if ctx.kernels else None
        dy = (_tangent if by is None else by.row_tangent)(rows, drows, weight, dweight, dbias, ctx.eps)
        return dy.view(x.shape), None, None


def _tangent(
    x: Tensor, dx: Tensor | None, weight: Tensor | None, dweight: Tensor | None, dbias: Tensor | None, eps: float
) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    own, x = x.dtype, x.to(wide)
    x = x - x.mean(1, keepdim=True)
    rho = torch.rsqrt(x.square().mean(1, keepdim=True) + eps)
    x = x * rho
    dy = torch.zeros_like(x)
    if dx is not None:
        dx = dx.to(wide)
        dx = rho * (dx - dx.mean(1, keepdim=True) - x * (x * dx).mean(1, keepdim=True))
        dy = dy + (dx if weight is None else dx * weight)
    dy = dy if dweight is None else dy + x * dweight
    return (dy if dbias is None else dy + dbias).to(own)
