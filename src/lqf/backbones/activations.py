"""Leaky activations: no unit has derivative zero, so no filter is lost to the linearised problem.

Only the derivative at w0 enters the Taylor expansion. Where a ReLU is off (or a ReLU6 saturated) that derivative is
zero and the weights behind it cannot learn; a small slope keeps them in play and makes the expansion more accurate.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.01


class LeakyReLU6(nn.Module):
    """y = slope·x + (1 − slope)·min(max(x, 0), 6): the identity on [0, 6], `slope` below and above.

    Two plain operations (an interpolation between ReLU6 and the identity), so that forward mode, vmap, torch.fx and
    torch.compile all have rules for it, and in bfloat16 nothing is rounded at the scale of 6.
    """

    def __init__(self, slope: float = SLOPE) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return torch.lerp(F.relu6(x), x, self.slope)

    def extra_repr(self) -> str:
        return f"slope={self.slope}"


def make_leaky(module: nn.Module, slope: float = SLOPE) -> nn.Module:
    """Replace every nn.ReLU by LeakyReLU(slope) and every nn.ReLU6 by `LeakyReLU6(slope)`, in place.

    Functional calls (``F.relu(x)`` inside somebody else's forward) are not modules and stay as they are.

    Returns:
        The module itself, or its replacement where the module is an activation.
    """
    own = _leaky_form(module, slope)
    if own is not None:
        return own
    for name, child in list(module.named_modules(remove_duplicate=False)):
        new = _leaky_form(child, slope)
        if new is not None:
            module.set_submodule(name, new)
    return module


def _leaky_form(module: nn.Module, slope: float) -> nn.Module | None:
    if isinstance(module, nn.ReLU):
        return nn.LeakyReLU(slope)
    if isinstance(module, nn.ReLU6):
        return LeakyReLU6(slope)
    return None
