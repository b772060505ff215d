"""Depthwise convolutions: every channel has a filter of its own.

    y = W * x + b,     J·v:  dy = W * dx + dW * x + db,     Jᵀ·u:  x ← Wᵀ * g,   W[i, j] ← Σ g x[· + (i, j)],   b ← Σ g.

They do little arithmetic for every number they read. PyTorch makes a pass for each of the two terms of dy and one to
add them, and on a GPU its gradient at the weights, with channels last, is most of a ConvNeXt's Jᵀ·u. Here each is one
pass (`depthwise_kernels`), or plain operations where those kernels do not run.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lqf.fast.patch import set_forward
from lqf.fast.primal_cache import remembered
from lqf.fast.triton.depthwise import LARGEST, Window, kernels_for


class Depthwise(torch.autograd.Function):
    """y (B, C, H', W') of x (B, C, H, W), W (C, 1, K, K), b (C,) or None; their derivatives both ways."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, window: Window) -> Tensor:
        """y; ``window``: stride and padding."""
        by = kernels_for(x, weight)
        return _plain(x, weight, bias, window) if by is None else remembered(by.value, x, weight, bias, window)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what both derivatives need."""
        x, weight, _, ctx.window = inputs
        ctx.set_materialize_grads(False)  # an absent tangent is None, not zeros that would be read
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients at x, W and b."""
        if g is None:
            return None, None, None, None
        x, weight = ctx.saved_tensors
        needs, by = tuple(ctx.needs_input_grad[:3]), kernels_for(x, weight)
        if by is None:
            return *_vjp(x, weight, ctx.window, g, needs), None
        dx = by.pull_input(x, weight, ctx.window, g) if needs[0] else None
        if not (needs[1] or needs[2]):
            return dx, None, None, None
        dweight, dbias = by.pull_weight(x, weight, ctx.window, g, bias=needs[2])
        return dx, dweight if needs[1] else None, dbias, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dweight: Tensor | None, dbias: Tensor | None, _: None) -> Tensor:
        """dy."""
        x, weight = ctx.saved_tensors
        by = kernels_for(x, weight)
        return (_tangent if by is None else by.tangent)(x, weight, ctx.window, dx, dweight, dbias)


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None, window: Window) -> Tensor:
    return F.conv2d(x, weight, bias, *window, 1, len(weight))


def _tangent(
    x: Tensor, weight: Tensor, window: Window, dx: Tensor | None, dweight: Tensor | None, dbias: Tensor | None
) -> Tensor:
    pairs = [(a, b) for a, b in ((dx, weight), (x, dweight)) if a is not None and b is not None]
    if not pairs:
        return _plain(x, torch.zeros_like(weight), dbias, window)
    dy = _plain(*pairs[0], dbias, window)
    return dy if len(pairs) == 1 else dy + _plain(*pairs[1], None, window)


def _vjp(
    x: Tensor, weight: Tensor, window: Window, g: Tensor, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    (stride, pad), c = window, len(weight)
    fixed = ([stride] * 2, [pad] * 2, [1, 1], False, [0, 0], c)
    return torch.ops.aten.convolution_backward(g, x, weight, [c], *fixed, list(needs))


# --- in a network -------------------------------------------------------------------------------------------------


def as_depthwise(module: nn.Module) -> int:
    """Give the plain depthwise convolutions of ``module`` these derivatives; returns how many there are."""
    found = [(m, w) for m in module.modules() if (w := window_of(m)) is not None]
    for conv, window in found:
        set_forward(conv, partial(_forward, window=window))
    return len(found)


def window_of(conv: nn.Module) -> Window | None:
    """Stride and padding of a depthwise convolution as `Depthwise` knows them; None of any other module."""
    if type(conv) is not nn.Conv2d or conv.padding_mode != "zeros" or conv.dilation != (1, 1):
        return None
    k, stride, alone = conv.kernel_size[0], conv.stride[0], conv.groups == conv.in_channels == conv.out_channels > 1
    pads = conv.padding if isinstance(conv.padding, tuple) else _padding(conv.padding, k)
    square = all(a == b for a, b in (conv.kernel_size, conv.stride, pads))
    return (stride, pads[0]) if alone and square and 2 <= k <= LARGEST else None


def _padding(name: str, k: int) -> tuple[int, int]:
    """Before and behind."""
    return (0, 0) if name == "valid" else ((k - 1) // 2, k // 2)


def _forward(conv: Any, x: Tensor, *, window: Window) -> Tensor:
    return Depthwise.apply(x, conv.weight, conv.bias, window)
