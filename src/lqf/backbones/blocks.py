"""The few blocks the built-in networks are made of: plain nn modules in nn.Sequential, nothing subclassed.

Curvature code asks a layer for its input, its output and its weights. A Conv2d that pads inside its forward would
answer with the wrong input; here padding that Conv2d cannot do is a module of its own in front of an ordinary Conv2d.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def named(**modules: nn.Module | None) -> nn.Sequential:
    """An nn.Sequential with named children; None is left out."""
    return nn.Sequential(OrderedDict((name, m) for name, m in modules.items() if m is not None))


class PadSame(nn.Module):
    """TensorFlow's SAME padding: the convolution behind it gives ceil(n / s) outputs for n inputs.

    Total padding k − s + (−n mod s) (for k ≥ s), the odd pixel at the right and the bottom. It depends on the size of
    the input; written as arithmetic without comparisons, so that torch.fx can trace it with the size unknown.
    """

    def __init__(self, kernel: int | tuple[int, int], stride: int | tuple[int, int]) -> None:
        super().__init__()
        self.kernel = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        self.stride = stride if isinstance(stride, tuple) else (stride, stride)
        if any(k < s for k, s in zip(self.kernel, self.stride, strict=True)):
            raise ValueError(f"PadSame needs kernel >= stride, got {self.kernel} and {self.stride}")

    def forward(self, x: Tensor) -> Tensor:
        (kh, kw), (sh, sw) = self.kernel, self.stride
        h = kh - sh + (-x.shape[-2]) % sh
        w = kw - sw + (-x.shape[-1]) % sw
        return F.pad(x, [w // 2, w - w // 2, h // 2, h - h // 2])

    def extra_repr(self) -> str:
        return f"kernel={self.kernel}, stride={self.stride}"


def conv_bn(
    c_in: int,
    c_out: int,
    kernel: int = 1,
    stride: int = 1,
    *,
    groups: int = 1,
    act: nn.Module | None = None,
    eps: float = 1e-5,
    same: bool = False,
) -> nn.Sequential:
    """Convolution, batch normalisation, activation: children `conv`, `bn`, `act`.

    With `same`, TensorFlow's SAME padding: at stride 1 it equals symmetric padding, and Conv2d does it; at a larger
    stride a child `pad` comes first.
    """
    pad = PadSame(kernel, stride) if same and stride > 1 else None
    padding = 0 if pad is not None else kernel // 2
    conv = nn.Conv2d(c_in, c_out, kernel, stride, padding, groups=groups, bias=False)
    return named(pad=pad, conv=conv, bn=nn.BatchNorm2d(c_out, eps=eps), act=act)


class Residual(nn.Module):
    """y = act(branch(x) + shortcut(x)); without the sum where there is no shortcut."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None = None, act: nn.Module | None = None) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        y = self.branch(x)
        if self.shortcut is not None:
            y = y + self.shortcut(x)
        return y if self.act is None else self.act(y)


def inverted_residual(
    c_in: int, c_out: int, kernel: int, stride: int, expansion: int, *, eps: float = 1e-5, same: bool = False
) -> Residual:
    """MobileNetV2's block: widen by 1×1, filter each channel (depthwise), project by 1×1 without an activation."""
    width = c_in * expansion
    branch = named(
        expand=conv_bn(c_in, width, act=nn.ReLU6(), eps=eps) if expansion > 1 else None,
        depthwise=conv_bn(width, width, kernel, stride, groups=width, act=nn.ReLU6(), eps=eps, same=same),
        project=conv_bn(width, c_out, eps=eps),
    )
    return Residual(branch, nn.Identity() if stride == 1 and c_in == c_out else None)


@torch.no_grad()
def initialise(module: nn.Module) -> None:
    """He initialisation by fan-in: activations keep their scale although batch normalisation has no statistics yet."""
    for m in module.modules():
        if isinstance(m, nn.Conv2d):
            fan_in = m.weight[0].numel()
            m.weight.normal_(0.0, (2.0 / fan_in) ** 0.5)
