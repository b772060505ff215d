"""A named network of a thousandth of a built-in one's work: what loads by its name is tested, not what it costs."""

from itertools import pairwise

from torch import nn

from lqf.backbones.blocks import conv_bn, inverted_residual, named
from lqf.backbones.builtin import BUILTIN, Builtin

NAME = "small"
CHANNELS = (8, 12, 16, 24, 24)
FEATURES = 128


def small() -> nn.Sequential:
    """MobileNetV2 in miniature: (B, 3, s, s) -> (B, 128), with its kinds of blocks, its stride of 32 and its stages."""
    steps = enumerate(pairwise(CHANNELS), start=1)
    return named(
        stem=conv_bn(3, CHANNELS[0], 3, 2, act=nn.ReLU6()),
        **{f"stage{i}": inverted_residual(c_in, c_out, 3, 2, 2) for i, (c_in, c_out) in steps},
        final=conv_bn(CHANNELS[-1], FEATURES, act=nn.ReLU6()),
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
    )


_wanted = 0


def register() -> None:
    """From now on `--backbone small --weights random` is this network, in this process."""
    global _wanted
    _wanted += 1
    BUILTIN[NAME] = Builtin(small, dict, FEATURES, "a network for tests")


def forget() -> None:
    """The built-in networks are what they were, once nobody else wants it."""
    global _wanted
    _wanted -= 1
    if not _wanted:
        BUILTIN.pop(NAME, None)
