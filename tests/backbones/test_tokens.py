"""The last tokens of a network: found by what its features depend on, and none where they depend on something else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from lqf.backbones import load_backbone
from lqf.backbones.prefix import split_at
from lqf.backbones.token_pool import Tokens
from lqf.backbones.tokens import find_tokens
from token_networks import LIBRARY, SIDE, VIT, WIDTH, images, library, made, own, timm_model, vision_swin

NORM = Tokens("norm", "output", "tokens", 1, WIDTH, 9, "class")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, NORM),
        ({"prefix": 8}, replace(NORM, prefix=8)),  # of 17 tokens 16 would be a square, too
        ({"after": nn.Sequential(nn.LayerNorm(WIDTH), nn.Dropout())}, NORM),
        ({"pool": "mean", "after": nn.LayerNorm(WIDTH)}, replace(NORM, own="mean")),
        ({"pool": "mean", "prefix": 0}, replace(NORM, own="mean", prefix=0)),
        ({"pool": "all", "prefix": 3}, replace(NORM, own="mean", prefix=3)),
    ],
    ids=["class", "registers", "class and norm", "mean and norm", "no prefix", "mean of all"],
)
def test_tokens_of_a_transformer(options: dict[str, object], expected: Tokens) -> None:
    body = own(**options).body
    assert find_tokens(body, images()) == expected
    assert find_tokens(body, images(1)) == expected
    assert not any(w.requires_grad or w.grad is not None for w in body.parameters())


@pytest.mark.parametrize(
    "options",
    [
        {"pool": "max"},
        {"pool": "mixed"},
        {"after": nn.Linear(WIDTH, WIDTH)},
        {"pool": "mean", "after": nn.Linear(8, 8)},
    ],
    ids=["max", "class and mean", "linear", "mean and linear"],
)
def test_features_that_are_made_otherwise(options: dict[str, object]) -> None:
    assert find_tokens(own(**options).body, images()) is None


def test_a_part_of_a_network_has_the_same_tokens() -> None:
    """The patches are then told by their number, for all tokens depend on the image."""
    body, x = own(prefix=3).body, images()
    prefix, suffix = split_at(body, "blocks.1")
    assert find_tokens(suffix, prefix(x)) == replace(NORM, prefix=3)
    prefix, suffix = split_at(own(prefix=3, pool="mean").body, "blocks.1")  # or by what is averaged
    assert find_tokens(suffix, prefix(x)) == replace(NORM, prefix=3, own="mean")


def test_one_patch_has_no_covariance() -> None:
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.patch, self.norm = nn.Parameter(torch.randn(1, 1, 4)), nn.Linear(5, 4), nn.LayerNorm(4)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), self.patch(x)], 1)
            return self.norm(x)[:, 0]

    assert find_tokens(One().eval(), torch.randn(2, 1, 5)) is None
    assert find_tokens(One().eval(), torch.randn(2, 4, 5)).prefix == 1


# --- maps -------------------------------------------------------------------------------------------------------------


class Overwrites(nn.Module):
    """What `conv` makes is not what is averaged, by a module or by a function."""

    def __init__(self, pool: nn.Module | None = None) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 5, 3), nn.LayerNorm(5)
        self.pool = pool or (lambda x: x.mean((2, 3)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = x.add_(x.sigmoid())
        return self.norm(self.pool(x).flatten(1))


class Branches(nn.Module):
    """Not to be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 5, 3), nn.LayerNorm(5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.norm((x if x.sum() > 0 else x + 1).mean((2, 3)))


class PastTheMap(nn.Module):
    """Features that are not made of the last map alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3), nn.LayerNorm(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x).mean((2, 3)) + x.mean((2, 3)))


def ending(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.Tanh(), *layers)


AVERAGE, FLAT = nn.AdaptiveAvgPool2d(1), nn.Flatten()


def test_maps_with_a_norm_after_their_average() -> None:
    x = torch.randn(2, 3, 9, 9)
    assert find_tokens(ending(AVERAGE, FLAT, nn.LayerNorm(5)).eval(), x) == Tokens(
        "1", "output", "map", 0, 5, 49, "mean"
    )
    assert find_tokens(Overwrites(AVERAGE).eval(), x) == Tokens("pool", "input", "map", 0, 5, 49, "mean")


@pytest.mark.parametrize(
    "body",
    [
        ending(AVERAGE, FLAT),
        ending(AVERAGE, FLAT, nn.Linear(5, 5)),
        ending(nn.AdaptiveMaxPool2d(1), FLAT),
        ending(nn.AdaptiveAvgPool2d(2), FLAT),
        ending(nn.Conv2d(5, 5, 7), AVERAGE, FLAT, nn.LayerNorm(5)),
        ending(FLAT),
        Branches(),
        PastTheMap(),
        Overwrites(),
    ],
    ids=["average", "linear", "max", "2x2", "one position", "flat", "untraceable", "past the map", "overwritten"],
)
def test_networks_without_tokens(body: nn.Module) -> None:
    assert find_tokens(body.eval(), torch.randn(2, 3, 9, 9)) is None


def test_vectors_have_no_tokens() -> None:
    assert find_tokens(nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)).eval(), torch.randn(2, 4)) is None


# --- libraries --------------------------------------------------------------------------------------------------------


@pytest.mark.timm
@pytest.mark.parametrize("name", LIBRARY)
def test_tokens_of_library_networks(name: str) -> None:
    backbone, x, expected = made(name)
    assert find_tokens(backbone.body, x) == expected


@pytest.mark.timm
def test_library_networks_without_tokens() -> None:
    assert find_tokens(library(vision_swin, "head").body, images(2, 32)) is None  # pooled in the place of its average
    assert find_tokens(library(timm_model("test_resnet")).body, images(2, 64)) is None
    pools = library(timm_model("vit_base_patch16_siglip_224", **VIT))  # by attention
    assert find_tokens(pools.body, images(2, 32)) is None
    assert find_tokens(load_backbone("mobilenet_v2", weights="random").body, torch.randn(2, 3, 64, 64)) is None


def test_the_side_of_pictures_may_change() -> None:
    body = ending(AVERAGE, FLAT, nn.LayerNorm(5)).eval()
    found = [find_tokens(body, torch.randn(2, 3, side, side)) for side in (SIDE, 2 * SIDE)]
    assert [t.positions for t in found if t] == [100, 484]
