"""Derivatives f'(x) of smooth activations, from x and y = f(x)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def between(x: Tensor, low: float, high: float) -> Tensor:
    """1 where low < x < high."""
    return ((x > low) & (x < high)).to(x.dtype)


def gelu_slope(x: Tensor, y: Tensor, approximate: str = "none") -> Tensor:
    """Of either form."""
    if approximate == "none":
        density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return 0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * density
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    t = torch.tanh(inner)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)


def silu_slope(x: Tensor, y: Tensor) -> Tensor:
    """Of x·σ(x), by y."""
    s = torch.sigmoid(x)
    return s + y * (1 - s)


def hardswish_slope(x: Tensor, y: Tensor) -> Tensor:
    """0, x/3 + ½ and 1."""
    inside = between(x, -3, 3)
    return inside * (x / 3 + 0.5) + (x >= 3).to(x.dtype)


def elu_slope(x: Tensor, y: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """Of ELU and SELU, by y."""
    return torch.where(x > 0, torch.full_like(x, scale), input_scale * (y + scale * alpha))


def mish_slope(x: Tensor, y: Tensor) -> Tensor:
    """Of x·tanh(softplus(x))."""
    t = torch.tanh(F.softplus(x))
    return t + x * (1 - t * t) * torch.sigmoid(x)
