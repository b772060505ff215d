"""The last tokens of a network, pooled in other ways than its own: their mean, their covariance, beside its features.

Vision transformers end in tokens (B, T, D): k prefix tokens (class, register, distillation), then one for every patch.
Their own features are the class token or the mean of the patches, perhaps normalised. ConvNeXt and Swin end in a map
that is averaged and normalised. Without its prefix every one of these is a map of L positions, (B, D, T − k, 1) or
(B, D, H, W), and with m its mean and S the root of its covariance (`lqf.backbones.bilinear_pool`) the features are

    own: z,    tokens_mean: m,    own_mean: (z, scale · m),    bilinear: S,    both: (z, scale · S).

Beside z the network's weights do not act through S unless asked to (``through``), as in `lqf.backbones.both_pool`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lqf.backbones.bilinear_pool import BilinearPool, ChannelMoment

Layout = Literal["tokens", "channels_last", "map"]
Side = Literal["output", "input"]
TOKEN_POOL = "lqf_token_pool"
"""Name of the `TokenPool` in a body that has one."""
BESIDE = ("own", "own_mean", "both")
"""Kinds that need the network's own features."""
COVARIANCES = ("bilinear", "both")
"""Kinds that need the covariance, and its reduction."""


@dataclass(frozen=True)
class Tokens:
    """Where a network has its last tokens.

    Attributes:
        name: of a module.
        side: whether the tokens are its "output" or its "input".
        layout: "tokens" (B, T, D), "channels_last" (B, H, W, D) or "map" (B, D, H, W).
        prefix: k, tokens that are no patches.
        channels: D.
        positions: L, for the images that it was looked at with.
        own: what the network's own features are made of: its "class" token (or several), or the "mean".
    """

    name: str
    side: Side
    layout: Layout
    prefix: int
    channels: int
    positions: int
    own: Literal["class", "mean"]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of features to choose between; the mean is no other kind where the network's own features are it."""
        means = ("tokens_mean", "own_mean") if self.own == "class" else ()
        return ("own", *means, *COVARIANCES)

    def as_map(self, x: Tensor) -> Tensor:
        """The tokens without their prefix as a map (B, D, H, W), or (B, D, L, 1)."""
        if self.layout == "tokens":
            return x[:, self.prefix :].transpose(1, 2)[..., None]
        return x.permute(0, 3, 1, 2) if self.layout == "channels_last" else x


class TokenPool(nn.Module):
    """Tokens, and the network's own features (B, p) -> features.

    Args:
        tokens: their layout.
        kind: of the features.
        bilinear: makes S, where it is needed.
        scale: factor of what stands beside the own features.
        through: whether derivatives go through S beside z.
    """

    def __init__(
        self,
        tokens: Tokens,
        kind: str,
        bilinear: BilinearPool | None = None,
        scale: float = 1.0,
        through: bool = False,
    ):
        super().__init__()
        self.tokens, self.kind, self.bilinear, self.scale, self.through = tokens, kind, bilinear, scale, through

    @property
    def rows(self) -> Tensor | None:
        """(k, c) of the reduction."""
        return self.bilinear.rows if self.bilinear is not None else None

    def forward(self, x: Tensor, own: Tensor | None = None) -> Tensor:
        """The features."""
        if own is None:
            return self._pooled(self.tokens.as_map(x))
        if self.kind == "own":
            return own
        x = self.tokens.as_map(x.detach() if self.kind == "both" and not self.through else x)
        return torch.cat([own, self.scale * self._pooled(x)], 1)

    def _pooled(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) if self.bilinear is None else self.bilinear(x)

    def extra_repr(self) -> str:
        """Shown by print."""
        return f"{self.kind}, scale={self.scale:.3g}" if self.kind in BESIDE else self.kind


class TokenMoment(ChannelMoment):
    """The moment of the channels of patch tokens, as `ChannelMoment` makes it, and their means on the way.

    Args:
        pool: a `TokenPool` of any kind.
        room: bytes of maps that are kept; where they do not suffice none are.
    """

    def __init__(self, pool: nn.Module, room: int = 0):
        assert isinstance(pool, TokenPool)
        super().__init__(pool, room)
        self._tokens = pool.tokens
        self.means: list[Tensor] = []

    def add(self, weights: Tensor) -> None:
        """Count the tokens that the module has seen last, with the weights (B,) of their images."""
        self.means.append(self._map.mean((2, 3)))
        super().add(weights)

    def _see(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._map = self._tokens.as_map(inputs[0].detach())
