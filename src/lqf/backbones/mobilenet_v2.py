"""MobileNetV2 (width 1.0) with torchvision's padding, eps and preprocessing."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from lqf.backbones.blocks import conv_bn, inverted_residual, named

FEATURES = 1280

# channels, blocks, stride of the first block, expansion
STAGES = ((16, 1, 1, 1), (24, 2, 2, 6), (32, 3, 2, 6), (64, 4, 2, 6), (96, 3, 1, 6), (160, 3, 2, 6), (320, 1, 1, 6))


def mobilenet_v2() -> nn.Sequential:
    """(B, 3, s, s) -> (B, 1280): `stem`, `stage1` … `stage7`, `final` (1×1 to 1280 channels), `pool`, `flatten`."""
    stages, c_in = {}, 32
    for i, (c, blocks, stride, expansion) in enumerate(STAGES, start=1):
        stage = nn.Sequential()
        for j in range(blocks):
            stage.append(inverted_residual(c_in, c, 3, 1 if j else stride, expansion))
            c_in = c
        stages[f"stage{i}"] = stage
    return named(
        stem=conv_bn(3, 32, 3, 2, act=nn.ReLU6()),
        **stages,
        final=conv_bn(c_in, FEATURES, act=nn.ReLU6()),
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
    )


def names() -> dict[str, str]:
    """Module names in torchvision's state dict -> ours."""
    table = {
        "features.0.0": "stem.conv",
        "features.0.1": "stem.bn",
        "features.18.0": "final.conv",
        "features.18.1": "final.bn",
        "classifier.1": "classifier",
    }
    widened = ("expand.conv", "expand.bn", "depthwise.conv", "depthwise.bn", "project.conv", "project.bn")
    for i, (ours, expansion) in enumerate(_blocks(), start=1):
        inner = zip(_theirs(expansion), widened if expansion > 1 else widened[2:], strict=True)
        table |= {f"features.{i}.conv.{theirs}": f"{ours}.branch.{name}" for theirs, name in inner}
    return table


def _theirs(expansion: int) -> tuple[str, ...]:
    return ("0.0", "0.1", "1.0", "1.1", "2", "3") if expansion > 1 else ("0.0", "0.1", "1", "2")


def _blocks() -> Iterator[tuple[str, int]]:
    for i, (_, blocks, _, expansion) in enumerate(STAGES, start=1):
        yield from ((f"stage{i}.{j}", expansion) for j in range(blocks))
