"""Average and bilinear pooling side by side: z = (mean of the last map, scale · root of its covariance).

Two heads with a ridge strength each are one head on these features, μ_average = μ and μ_bilinear = μ/scale². The
network's weights act on the outputs through the average alone: the derivative of the root is left out, which makes the
products of average pooling, and the network is linearised under the head that leaks least of the labels into it. A
network that is fine-tuned may have it go through the root as well.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lqf.backbones.bilinear_pool import BilinearPool


class BothPool(nn.Module):
    """(B, c, H, W) -> (B, c + k(k+1)/2).

    Args:
        bilinear: the second half.
        scale: its factor.
        through: whether derivatives go through it, too.
    """

    def __init__(self, bilinear: BilinearPool, scale: float, through: bool = False):
        super().__init__()
        self.bilinear, self.scale, self.through = bilinear, scale, through

    @property
    def rows(self) -> Tensor | None:
        """(k, c) of the reduction."""
        return self.bilinear.rows

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        return torch.cat([x.mean((2, 3)), self.scale * self.bilinear(x if self.through else x.detach())], 1)

    def extra_repr(self) -> str:
        """Shown by print."""
        return f"scale={self.scale:.3g}"


class MeanPool(nn.Module):
    """(B, c, H, W) -> (B, c): the first half of `BothPool` alone."""

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        return x.mean((2, 3))
