"""Linear layers, and 1×1 convolutions (of stride 1, with channels last) as what they are.

    y = x Wᵀ + b,     J·v:  dy = dx Wᵀ + x dWᵀ + db,     Jᵀ·u:  x ← g W,   W ← gᵀx,   b ← Σ g,      x (M, c).

The second product of dy adds to the first where it lies, instead of in a pass of its own, and in float32 the matrix
library has faster kernels than the one for convolutions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lqf.fast.patch import set_forward


class Pointwise(torch.autograd.Function):
    """(M, c), (o, c) and perhaps (o,) -> (M, o)."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """y."""
        return x @ weight.T if bias is None else torch.addmm(bias, x, weight.T)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keep what both derivatives need."""
        ctx.set_materialize_grads(False)  # an absent tangent is None, not zeros that would be multiplied
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients at x, W and b."""
        if g is None:
            return None, None, None
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = (*ctx.needs_input_grad, False)[:3]
        return g @ weight if dx else None, g.T @ x if dweight else None, g.sum(0) if dbias else None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dweight: Tensor | None, dbias: Tensor | None = None) -> Tensor:
        """dy."""
        x, weight = ctx.saved_tensors
        pairs = [(a, b) for a, b in ((dx, weight), (x, dweight)) if a is not None and b is not None]
        if not pairs:
            return (x.new_zeros(1) if dbias is None else dbias).expand(len(x), len(weight)).clone()
        (a, b), *rest = pairs
        dy = a @ b.T if dbias is None else torch.addmm(dbias, a, b.T)
        return dy.addmm_(rest[0][0], rest[0][1].T) if rest else dy


def as_products(module: nn.Module) -> int:
    """Let the plain 1×1 convolutions of ``module`` run as products; returns how many there are."""
    found = [m for m in module.modules() if type(m) is nn.Conv2d and _is_pointwise(m)]
    for conv in found:
        set_forward(conv, _forward)
    return len(found)


def _is_pointwise(conv: nn.Conv2d) -> bool:
    plain = conv.stride == (1, 1) and conv.groups == 1 and conv.padding in ((0, 0), "valid")
    return conv.kernel_size == (1, 1) and plain


def _forward(conv: nn.Conv2d, x: Tensor) -> Tensor:
    rows = x.permute(0, 2, 3, 1)
    b, h, w, c = rows.shape
    y = Pointwise.apply(rows.reshape(-1, c), conv.weight.flatten(1), conv.bias)
    return y.view(b, h, w, -1).permute(0, 3, 1, 2)
