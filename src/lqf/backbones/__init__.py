"""Pretrained networks to stand on: built in, from timm or torchvision, or the user's own."""

from lqf.backbones.activations import LeakyReLU6, make_leaky
from lqf.backbones.base import Backbone
from lqf.backbones.load import BackboneInfo, available, load_backbone, rebuild_backbone

__all__ = [
    "Backbone",
    "BackboneInfo",
    "LeakyReLU6",
    "available",
    "load_backbone",
    "make_leaky",
    "rebuild_backbone",
]
