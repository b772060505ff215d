"""Small networks that end in tokens, or in a map with a norm after its average."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lqf.backbones import Backbone, load_backbone
from lqf.backbones.base import Input, freeze, make_backbone
from lqf.backbones.canonicalize import canonicalize
from lqf.backbones.token_pool import Tokens

WIDTH, SIDE = 8, 12
"""Channels of the tokens, and pixels of the pictures: 3 × 3 patches."""


class Block(nn.Module):
    """Attention and one layer, each beside a way past it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Pictures of 12 × 12 pixels -> 2 outputs.

    Args:
        prefix: leading tokens that are no patches.
        pool: "class", "mean" (of the patches), "all" (the mean of all tokens), "max" or "mixed" (class and mean).
        after: a layer between the pooled tokens and the head.
    """

    def __init__(self, prefix: int = 1, pool: str = "class", after: nn.Module | None = None):
        super().__init__()
        self.prefix_tokens = nn.Parameter(torch.randn(1, prefix, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, prefix + 9, WIDTH))
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.after = nn.LayerNorm(WIDTH), after or nn.Identity()
        self.pool, self.prefix = pool, prefix
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.prefix_tokens.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.after(self._pooled(self.norm(self.blocks(x)))))

    def _pooled(self, x: Tensor) -> Tensor:
        patches = x[:, self.prefix :]
        return {
            "class": lambda: x[:, 0],
            "mean": lambda: patches.mean(1),
            "all": lambda: x.mean(1),
            "max": lambda: patches.amax(1),
            "mixed": lambda: x[:, 0] + patches.mean(1),
        }[self.pool]()


def transformer(seed: int = 0, **options: Any) -> nn.Module:
    """In float64, with the weights of this seed; other random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(**options).double()


def own(**options: Any) -> Backbone:
    """The small transformer without its head."""
    return load_backbone(transformer(**options))


def library(make: Callable[[], nn.Module], head: str | None = None, side: int = 32) -> Backbone:
    """A network of a library, made small, without its classifier and in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net: Any = make()
        for w in net.parameters():  # biases, layer scales and position embeddings begin as zeros
            nn.init.normal_(w, std=0.3 if w.ndim < 2 else 0.15)
    if head is None:
        net.reset_classifier(0)
    else:
        net.set_submodule(head, nn.Identity())
    canonicalize(freeze(net.double()))
    width = net(torch.zeros(1, 3, side, side, dtype=torch.float64)).shape[1]
    return make_backbone("small", net, None, width, Input(), {"source": "module"}, leaky=False)


def images(n: int = 3, side: int = SIDE, seed: int = 0) -> Tensor:
    """(n, 3, side, side) normal numbers."""
    return torch.randn(n, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# --- of the libraries, made small -------------------------------------------------------------------------------------

VIT = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 16, "num_heads": 2, "num_classes": 5}
SWIN = {"img_size": 32, "patch_size": 4, "window_size": 2, "embed_dim": 8, "depths": (1, 2), "num_heads": (2, 2)}


def timm_model(name: str, **options: object) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, **options)

    return make


def vision_vit() -> nn.Module:
    import torchvision

    return torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=3)


def vision_convnext() -> nn.Module:
    import torchvision
    from torchvision.models.convnext import CNBlockConfig

    return torchvision.models.ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 2)], num_classes=3)


def vision_swin() -> nn.Module:
    import torchvision

    return torchvision.models.SwinTransformer([4, 4], 8, [1, 2], [2, 2], [2, 2], num_classes=3)


CNX = {"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 16)}
CLASS = Tokens("norm", "output", "tokens", 1, 16, 16, "class")
LIBRARY: dict[str, tuple[Callable[[], nn.Module], str | None, int, Tokens]] = {
    "vit": (timm_model("vit_tiny_patch16_224", **VIT), None, 32, CLASS),
    "vit mean": (timm_model("vit_tiny_patch16_224", global_pool="avg", **VIT), None, 32, replace(CLASS, own="mean")),
    "vit registers": (timm_model("vit_small_patch14_reg4_dinov2", **VIT), None, 32, replace(CLASS, prefix=5)),
    "deit": (timm_model("deit_tiny_distilled_patch16_224", **VIT), None, 32, replace(CLASS, prefix=2)),
    "swin": (
        timm_model("swin_tiny_patch4_window7_224", **SWIN),
        None,
        32,
        Tokens("norm", "output", "channels_last", 0, 16, 16, "mean"),
    ),
    "convnext": (timm_model("convnext_atto", **CNX), None, 64, Tokens("norm_pre", "output", "map", 0, 16, 4, "mean")),
    "torchvision vit": (vision_vit, "heads", 32, replace(CLASS, name="encoder")),
    "torchvision convnext": (
        vision_convnext,
        "classifier.2",
        32,
        Tokens("features", "output", "map", 0, 16, 16, "mean"),
    ),
}


def made(name: str) -> tuple[Backbone, Tensor, Tokens]:
    """A network, images for it, and its tokens."""
    make, head, side, tokens = LIBRARY[name]
    return library(make, head, side), images(2, side), tokens
