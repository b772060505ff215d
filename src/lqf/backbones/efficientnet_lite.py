"""EfficientNet-Lite0, 1 and 2 as converted from TensorFlow: SAME padding, batch norm eps 1e-3, ReLU6, no
squeeze-excite.

Lite1 and Lite2 are 1.1 and 1.2 times as deep, Lite2 is 1.1 times as wide; stem, `final` and the number of blocks in the
first and the last stage do not grow. Inputs are (pixel − 127) / 128 with pixels 0 to 255, images resized bicubically:
TensorFlow's values for the Lites.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from lqf.backbones.blocks import conv_bn, inverted_residual, named

FEATURES = 1280
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3
EPS = 1e-3

# channels, blocks, kernel, stride of the first block, expansion; of Lite0
STAGES = (
    (16, 1, 3, 1, 1),
    (24, 2, 3, 2, 6),
    (40, 2, 5, 2, 6),
    (80, 3, 3, 2, 6),
    (112, 3, 5, 1, 6),
    (192, 4, 5, 2, 6),
    (320, 1, 3, 1, 6),
)


@dataclass(frozen=True)
class Lite:
    """One of the family.

    Attributes:
        width, depth: factors of channels and blocks.
    """

    width: float = 1.0
    depth: float = 1.0

    @property
    def stages(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Channels, blocks, kernel, stride and expansion of every stage."""
        for i, (channels, blocks, kernel, stride, expansion) in enumerate(STAGES):
            deeper = blocks if i in (0, len(STAGES) - 1) else math.ceil(blocks * self.depth)
            yield _channels(channels * self.width), deeper, kernel, stride, expansion

    def build(self) -> nn.Sequential:
        """(B, 3, s, s) -> (B, 1280): `stem`, `stage1` … `stage7`, `final` (1×1 to 1280 channels), `pool`, `flatten`."""
        stages, c_in = {}, 32
        for i, (c, blocks, kernel, stride, expansion) in enumerate(self.stages, start=1):
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

    def names(self) -> dict[str, str]:
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
        for i, ours in enumerate(self._blocks()):
            table |= {f"_blocks.{i}.{theirs}": f"{ours}.branch.{name}" for theirs, name in inner.items()}
        return table

    def _blocks(self) -> Iterator[str]:
        for i, (_, blocks, *_rest) in enumerate(self.stages, start=1):
            yield from (f"stage{i}.{j}" for j in range(blocks))


def _channels(wanted: float) -> int:
    """The nearest multiple of eight, unless that takes away more than a tenth."""
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


LITE0, LITE1, LITE2 = Lite(), Lite(depth=1.1), Lite(width=1.1, depth=1.2)
