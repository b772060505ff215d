"""Piecewise linear activations and how they let a derivative through, in few operations.

PyTorch has each way through as one operation; a graph for other programs is written in comparisons that all have.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

aten = torch.ops.aten


def leaky6(x: Tensor, slope: float) -> Tensor:
    """`LeakyReLU6`: ReLU6(x) + slope · (x − ReLU6(x)), by `lerp` the same to the last bit."""
    inside = F.relu6(x)
    return inside + slope * (x - inside) if _written() else torch.lerp(inside, x, slope)


def join_leaky6(graph: fx.Graph) -> None:
    """Interpolations between ReLU6 and the identity become one operation, `leaky6`."""
    for node in [n for n in graph.nodes if n.target is aten.lerp.Scalar]:
        inside, x, slope = node.args
        joins = isinstance(inside, fx.Node) and inside.target is aten.relu6.default and inside.args[0] is x
        if not joins or len(inside.users) != 1 or not 0 <= slope < 0.5:
            continue
        node.target, node.args = leaky6, (x, slope)
        graph.erase_node(inside)


def through_relu(dx: Tensor, x: Tensor) -> Tensor:
    """dx where x > 0."""
    return torch.where(x > 0, dx, 0.0) if _written() else aten.threshold_backward(dx, x, 0)


def through_leaky(dx: Tensor, x: Tensor, slope: float = 0.01) -> Tensor:
    """dx where x > 0, slope · dx elsewhere."""
    return torch.where(x > 0, dx, slope * dx) if _written() else aten.leaky_relu_backward(dx, x, slope, False)


def through_between(dx: Tensor, x: Tensor, low: float | None = -1.0, high: float | None = 1.0) -> Tensor:
    """dx where low < x < high."""
    low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
    return torch.where((x > low) & (x < high), dx, 0.0) if _written() else aten.hardtanh_backward(dx, x, low, high)


def through_leaky6(dx: Tensor, x: Tensor, slope: float) -> Tensor:
    """dx where 0 < x < 6, slope · dx elsewhere."""
    if _written():
        return torch.where((x > 0) & (x < 6), dx, slope * dx)
    return torch.lerp(aten.hardtanh_backward(dx, x, 0.0, 6.0), dx, slope)


def _written() -> Any:
    """Whether a graph is being written instead of a number computed."""
    return torch.compiler.is_exporting()
