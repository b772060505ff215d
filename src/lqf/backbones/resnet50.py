"""The original ResNet-50: in stages 2 to 4 the stride of 2 sits on the first block's first 1×1 convolution.

torchvision moved that stride to the 3×3 convolution ("v1.5"). Both have the same state dict, and weights of one in the
other lose many points without an error, so torchvision's own files, which we can tell by their hash, are refused here.
"""

from __future__ import annotations

from torch import nn

from lqf.backbones.blocks import Residual, conv_bn, named

FEATURES = 2048

# inner width, blocks, stride of the first block
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))

# first eight digits of the sha256 of torchvision's (and PyTorch's earlier) resnet50 files: stride on the 3×3
STRIDE_ON_3X3 = ("19c8e357", "0676ba61", "11ad3fa6")


def resnet50() -> nn.Sequential:
    """(B, 3, s, s) -> (B, 2048): `stem`, `layer1` … `layer4`, `pool`, `flatten`."""
    layers, c_in = {}, 64
    for i, (width, blocks, stride) in enumerate(STAGES, start=1):
        layer = nn.Sequential()
        for j in range(blocks):
            layer.append(bottleneck(c_in, width, 1 if j else stride))
            c_in = 4 * width
        layers[f"layer{i}"] = layer
    stem = conv_bn(3, 64, 7, 2, act=nn.ReLU())
    stem.add_module("maxpool", nn.MaxPool2d(3, 2, 1))
    return named(stem=stem, **layers, pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten())


def bottleneck(c_in: int, width: int, stride: int) -> Residual:
    """1×1 (with the stride), 3×3, 1×1 to four times the width; a projected shortcut where the shape changes."""
    branch = named(
        reduce=conv_bn(c_in, width, 1, stride, act=nn.ReLU()),
        spatial=conv_bn(width, width, 3, act=nn.ReLU()),
        expand=conv_bn(width, 4 * width),
    )
    same_shape = stride == 1 and c_in == 4 * width
    return Residual(branch, nn.Identity() if same_shape else conv_bn(c_in, 4 * width, 1, stride), nn.ReLU())


def names() -> dict[str, str]:
    """Module names in torchvision's state dict -> ours."""
    table = {"conv1": "stem.conv", "bn1": "stem.bn", "fc": "classifier"}
    for i, (_, blocks, _) in enumerate(STAGES, start=1):
        for j in range(blocks):
            for k, part in enumerate(("reduce", "spatial", "expand"), start=1):
                table[f"layer{i}.{j}.conv{k}"] = f"layer{i}.{j}.branch.{part}.conv"
                table[f"layer{i}.{j}.bn{k}"] = f"layer{i}.{j}.branch.{part}.bn"
        table[f"layer{i}.0.downsample.0"] = f"layer{i}.0.shortcut.conv"
        table[f"layer{i}.0.downsample.1"] = f"layer{i}.0.shortcut.bn"
    return table
