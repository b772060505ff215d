"""A copy of a network in another floating-point type and memory layout."""

from __future__ import annotations

import copy

import torch
from torch import nn

from lqf.fast.ops.norm import quicken


def converted(module: nn.Module, dtype: torch.dtype, *, kernels: bool) -> tuple[nn.Module, list[nn.Module]]:
    """A copy in ``dtype`` that overwrites none of its activations.

    Returns:
        The copy, and its batch normalisations: in float32 at the least, and with quicker derivatives.
    """
    module = copy.deepcopy(module)
    for part in module.modules():
        if getattr(part, "inplace", False) is True:
            part.inplace = False  # type: ignore[assignment]
    norms = quicken(module, kernels=kernels)
    kept = {id(t) for norm in norms for t in (*norm.parameters(), *norm.buffers())}
    for t in (*module.parameters(), *module.buffers()):
        if t.is_floating_point():
            t.data = t.data.to(torch.promote_types(dtype, torch.float32) if id(t) in kept else dtype)
    return module, norms


def reorder(module: nn.Module, format: torch.memory_format) -> None:
    """Lay out the weights of convolutions in place."""
    for w in module.parameters():
        if w.ndim == 4:
            w.data = w.data.contiguous(memory_format=format)
