"""Batch normalisation in eval mode as the affine map that it is: its library kernels lack some second derivatives."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lqf.training.network import Network


class AffineNorm(nn.Module):
    """Batch normalisation with its running statistics, in terms that can be differentiated in every way."""

    mean: Tensor
    var: Tensor

    def __init__(self, norm: _BatchNorm):
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.register_buffer("mean", norm.running_mean)
        self.register_buffer("var", norm.running_var)

    def forward(self, x: Tensor) -> Tensor:
        """(x − mean)/√(var + ε) · weight + bias, channel by channel."""
        scale = self.weight * torch.rsqrt(self.var + self.eps)
        spread = (-1,) + (1,) * (x.ndim - 2)
        return x * scale.view(spread) + (self.bias - self.mean * scale).view(spread)


def with_affine_norms(network: Network) -> Network:
    """A copy in eval mode, batch normalisation as `AffineNorm`; its weights keep their names and their order."""
    made = copy.deepcopy(network).eval()
    for module in list(made.modules()):
        for name, child in module.named_children():
            if isinstance(child, _BatchNorm) and child.affine:
                setattr(module, name, AffineNorm(child))
    return made
