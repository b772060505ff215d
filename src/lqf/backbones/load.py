"""Find a backbone by name, list what there is, and build one again from what a saved model says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lqf.backbones.average_pool import with_pooling
from lqf.backbones.base import Backbone
from lqf.backbones.builtin import BUILTIN, load_builtin
from lqf.backbones.imports import missing
from lqf.backbones.libraries import load_module, load_timm, load_torchvision
from lqf.backbones.side_by_side import copies
from lqf.backbones.state import with_state
from lqf.errors import LQFError
from lqf.utils import naming

FAMILIES = {"timm": load_timm, "torchvision": load_torchvision}


def load_backbone(
    name: str | nn.Module, *, weights: str | Path | None = None, leaky: bool = True, seed: int = 0
) -> Backbone:
    """Load a backbone, frozen and in eval mode.

    Args:
        name: A built-in name (`available()` lists them), `timm:NAME`, `torchvision:NAME`, or a network of your own
            whose last nn.Linear makes its output (it is copied, and that layer taken off).
        weights: A weights file (.safetensors, or .pth with plain tensors); "random" for random weights. By default the
            published weights: from an installed package for built-in names, through the library (which may download
            them) for the others.
        leaky: replace ReLU by LeakyReLU(0.01) and ReLU6 by its leaky form on both sides.
        seed: for random weights.

    Raises:
        LQFError: with what is missing and what to do about it.
    """
    if isinstance(name, nn.Module):
        return load_module(name, weights, leaky=leaky)
    if name in BUILTIN:
        return load_builtin(name, weights, leaky=leaky, seed=seed)
    family, _, model = name.partition(":")
    if family in FAMILIES and model:
        return FAMILIES[family](model, weights, leaky=leaky, seed=seed)
    known = ", ".join([*BUILTIN, *(f"{family}:NAME" for family in FAMILIES)])
    raise LQFError(f"there is no backbone `{name}`; there are {known}, and in Python any nn.Module")


def rebuild_backbone(
    spec: dict[str, Any],
    *,
    weights: str | Path | None = None,
    module: nn.Module | None = None,
    reduction: Tensor | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> Backbone:
    """Make the backbone a spec describes and verify that it has the same weights, or give it its moved ones.

    Args:
        spec: `Backbone.spec` of the original.
        weights: where the weights file is now, if it has moved.
        module: the network, where the original was given as an nn.Module.
        reduction: of a bilinear pooling that reduces its channels.
        state: weights of a network that was moved away from those its name stands for; these are not needed then.
    """
    backbone = _as_moved(spec, module) if "moved" in spec else _as_published(spec, weights, module)
    pooling = spec.get("pooling")
    if pooling is not None:
        backbone = with_pooling(backbone, pooling, reduction)
    if "moved" not in spec:
        return backbone
    networks = spec["moved"].get("networks", 1)
    return replace(with_state(copies(backbone, networks) if networks > 1 else backbone, state or {}), spec=spec)


def _as_moved(spec: dict[str, Any], module: nn.Module | None) -> Backbone:
    """The architecture, with any weights."""
    given = {"leaky": spec["leaky"], "seed": spec.get("seed", 0)}
    if spec["source"] == "module" or spec["name"].startswith("module:"):
        return load_backbone(_own_network(spec, module), **given)
    return load_backbone(spec["name"], weights="random", **given)


def _own_network(spec: dict[str, Any], module: nn.Module | None) -> nn.Module:
    if module is None:
        raise LQFError(f"this model stands on a network of your own ({spec['name'][7:]}): give it again with module=")
    return module


def _as_published(spec: dict[str, Any], weights: str | Path | None, module: nn.Module | None) -> Backbone:
    """The network under its name, with the weights it had."""
    given = {"leaky": spec["leaky"], "seed": spec.get("seed", 0)}
    name = spec["name"]
    if spec["source"] == "module" or name.startswith("module:"):
        backbone = load_backbone(_own_network(spec, module), weights=weights, **given)
    elif module is not None:
        raise LQFError(f"this model stands on `{name}`, which is loaded by its name; give no network of your own")
    elif spec["source"] == "random":
        backbone = load_backbone(name, weights="random", **given)
    else:
        backbone = load_backbone(name, weights=weights or _last_place(spec), **given)
    same_file = "sha256" in spec and spec["sha256"] == backbone.spec.get("sha256")
    if not same_file and spec["state_sha256"] != backbone.spec["state_sha256"]:
        wanted = f"the file `{spec['file']}` with sha256 {spec['sha256']}" if "sha256" in spec else "the weights it had"
        raise LQFError(f"`{name}` has other weights than the saved model was fitted with; it needs {wanted}")
    return backbone


def _last_place(spec: dict[str, Any]) -> str | None:
    if spec["source"] != "file":
        return None  # the package, or the library's own cache
    if not Path(spec["path"]).is_file():
        raise LQFError(
            f"the backbone's weights file `{spec['file']}` is no longer at `{spec['path']}`; say where it is with "
            f"weights= (its sha256 is {spec['sha256']})"
        )
    return spec["path"]


@dataclass(frozen=True)
class BackboneInfo:
    """One line of the list of backbones.

    Attributes:
        name: as `load_backbone` takes it.
        available: whether the name alone is enough here and now.
        note: what it is.
        install: what to do where it is not available; empty otherwise.
    """

    name: str
    available: bool
    note: str
    install: str


def available() -> list[BackboneInfo]:
    """All backbones there are, with what those need that cannot be loaded here. timm and torchvision are imported to
    know it (installed is not enough); nothing is downloaded.
    """
    return [_builtin_info(name) for name in BUILTIN] + [_family_info(family) for family in FAMILIES]


def _builtin_info(name: str) -> BackboneInfo:
    net = BUILTIN[name]
    if net.package is None:
        return BackboneInfo(name, False, net.note, f"name its weights file: {naming.given('weights', 'FILE')}")
    here = net.package.find() is not None
    return BackboneInfo(name, here, net.note, "" if here else net.package.install)


def _family_info(family: str) -> BackboneInfo:
    note = f"any image classifier of {family}; its weights are downloaded unless {naming.name('weights')} names a file"
    to_do = missing(family)
    return BackboneInfo(f"{family}:NAME", not to_do, note, to_do)
