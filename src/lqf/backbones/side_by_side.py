"""Several networks of one kind as one backbone, whose features are those of all of them.

A linear head over the features z = (z₁, …, z_K), V = (V₁, …, V_K)/K, is the mean of the K networks' own heads, so that
an average of networks is a model like any other: it is saved, predicts and is asked as one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from lqf.backbones.base import Backbone, freeze
from lqf.backbones.state import moved


class SideBySide(nn.Module):
    """x -> (z₁, …, z_K), (B, K·p).

    Args:
        networks: x -> z, (B, p) each.
    """

    def __init__(self, networks: Sequence[nn.Module]):
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        return torch.cat([network(x) for network in self.networks], 1)


def side_by_side(backbones: Sequence[Backbone]) -> Backbone:
    """One backbone; all that is said about it but its weights is what is said about the last."""
    last, n = backbones[-1], len(backbones)
    body = freeze(SideBySide([b.body for b in backbones]))
    return replace(moved(last, body, {"networks": n}), features=n * last.features, stages=())


def copies(backbone: Backbone, n: int) -> Backbone:
    """``n`` copies side by side, to be given their weights."""
    return side_by_side([replace(backbone, body=copy.deepcopy(backbone.body)) for _ in range(n)])


def networks_of(body: nn.Module) -> list[nn.Module]:
    """The networks that stand side by side, or the one that there is."""
    return list(body.networks) if isinstance(body, SideBySide) else [body]
