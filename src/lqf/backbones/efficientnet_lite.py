"""EfficientNet-Lite0 as converted from TensorFlow: SAME padding, batch norm eps 1e-3, ReLU6, no squeeze-excite.

Inputs are (pixel − 127) / 128 with pixels 0 to 255, images resized bicubically: TensorFlow's values for the Lites.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from lqf.backbones.blocks import conv_bn, inverted_residual, named

FEATURES = 1280
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3
EPS = 1e-3

# channels, blocks, kernel, stride of the first block, expansion
STAGES = (
    (16, 1, 3, 1, 1),
    (24, 2, 3, 2, 6),
    (40, 2, 5, 2, 6),
    (80, 3, 3, 2, 6),
    (112, 3, 5, 1, 6),
    (192, 4, 5, 2, 6),
    (320, 1, 3, 1, 6),
)


def efficientnet_lite0() -> nn.Sequential:
    """(B, 3, s, s) -> (B, 1280): `stem`, `stage1` … `stage7`, `final` (1×1 to 1280 channels), `pool`, `flatten`."""
    stages, c_in = {}, 32
    for i, (c, blocks, kernel, stride, expansion) in enumerate(STAGES, start=1):
        stage = nn.Sequential()
        for j in range(blocks):
            stage.append(inverted_residual(c_in, c, kernel, 1 if j else stride, expansion, eps=EPS, same=True))
            c_in = c
        stages[f"stage{i}"] = stage
    return named(
        stem=conv_bn(3, 32, 3, 2, act=nn.ReLU6(), eps=EPS, same=True),
        **stages,
        final=conv_bn(c_in, FEATURES, act=nn.ReLU6(), eps=EPS),
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
    )


def names() -> dict[str, str]:
    """Module names in the published file -> ours."""
    table = {
        "_conv_stem": "stem.conv",
        "_bn0": "stem.bn",
        "_conv_head": "final.conv",
        "_bn1": "final.bn",
        "_fc": "classifier",
    }
    inner = {
        "_expand_conv": "expand.conv",
        "_bn0": "expand.bn",
        "_depthwise_conv": "depthwise.conv",
        "_bn1": "depthwise.bn",
        "_project_conv": "project.conv",
        "_bn2": "project.bn",
    }
    for i, ours in enumerate(_blocks()):
        table |= {f"_blocks.{i}.{theirs}": f"{ours}.branch.{name}" for theirs, name in inner.items()}
    return table


def _blocks() -> Iterator[str]:
    for i, (_, blocks, *_rest) in enumerate(STAGES, start=1):
        yield from (f"stage{i}.{j}" for j in range(blocks))
