"""The average pooling at the end of a network: found by what it does, and replaced by bilinear pooling.

Under average pooling the features are the mean of the last feature map (B, c, H, W), perhaps flattened, and nothing
else: no layer follows. Networks that end in another way (a class token, a norm after the pooling) are the business of
`lqf.backbones.tokens`.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lqf.backbones.base import Backbone
from lqf.backbones.bilinear_pool import BilinearPool, may_be_average
from lqf.backbones.both_pool import BothPool, MeanPool
from lqf.backbones.side_by_side import networks_of
from lqf.backbones.token_pool import TokenPool, Tokens
from lqf.backbones.with_token_pool import with_pool_of_spec


@dataclass(frozen=True)
class AveragePool:
    """Where a network averages.

    Attributes:
        name: of the module.
        channels: c of the map it averages.
        positions: H·W of that map, for the images that it was looked at with.
    """

    name: str
    channels: int
    positions: int


@torch.no_grad()
def find_average_pool(body: nn.Module, example: Tensor) -> AveragePool | None:
    """The last module that averages a map into the features; None where there is none.

    Args:
        body: images -> features.
        example: a few images as it takes them.
    """
    counts = Counter(id(m) for _, m in body.named_modules(remove_duplicate=False))
    maps: dict[str, list[Tensor]] = {n: [] for n, m in body.named_modules() if may_be_average(m) and counts[id(m)] == 1}

    def see(name: str) -> Callable[..., None]:
        return lambda _, inputs, __: maps[name].append(inputs[0])

    z = _with_hooks(body, example, {name: see(name) for name in maps})
    for name, seen in reversed(maps.items()):
        if len(seen) == 1 and seen[0].ndim == 4 and _same(seen[0].mean((2, 3)), z) and _passes_on(body, example, name):
            return AveragePool(name, seen[0].shape[1], seen[0][0, 0].numel())
    return None


def _passes_on(body: nn.Module, example: Tensor, name: str) -> bool:
    """Whether the body gives out unchanged, and in any number, what its module ``name`` makes."""
    made = torch.randn(len(example), 3, generator=torch.Generator().manual_seed(0)).to(example)
    try:
        z = _with_hooks(body, example, {name: lambda *_: made})
    except (RuntimeError, IndexError, ValueError, TypeError):  # it is not made for features of another number
        return False
    return _same(made, z)


def _with_hooks(body: nn.Module, x: Tensor, hooks: dict[str, Callable[..., Any]]) -> Any:
    handles = [body.get_submodule(name).register_forward_hook(hook) for name, hook in hooks.items()]
    try:
        return body(x)
    finally:
        for handle in handles:
            handle.remove()


def _same(a: Tensor, z: Any) -> bool:
    if not isinstance(z, Tensor) or a.shape != z.shape:
        return False
    size = float(a.abs().max())
    return bool(torch.allclose(a.double(), z.double(), rtol=0, atol=1e-4 * size + 1e-30))


def with_bilinear_pool(
    backbone: Backbone, name: str, reduction: Tensor | None, channels: int, *, linearised: bool = False
) -> Backbone:
    """A copy of the backbone that pools bilinearly.

    Args:
        backbone: stays as it is.
        name: of its average pooling.
        reduction: (k, c) rows; None keeps all channels.
        channels: k.
        linearised: whether the reduction is one of the weights that may change.
    """
    pool = BilinearPool(reduction, channels, linearised=linearised)
    pooling = {"kind": "bilinear", "module": name, "channels": channels}
    return _pooled(backbone, pool, pool.n_features, pooling | ({"linearised": True} if linearised else {}))


def with_both_pools(
    backbone: Backbone,
    name: str,
    reduction: Tensor | None,
    channels: int,
    average: int,
    scale: float,
    *,
    through: bool = False,
) -> Backbone:
    """A copy of the backbone that pools both ways (`lqf.backbones.both_pool`).

    Args:
        backbone: stays as it is.
        name: of its average pooling.
        reduction: (k, c) rows; None keeps all channels.
        channels: k.
        average: c, the number of features of the average.
        scale: of the bilinear ones.
        through: whether its weights act through these as well.
    """
    pool = BothPool(BilinearPool(reduction, channels), scale, through)
    pooling: dict[str, Any] = {"kind": "both", "module": name, "channels": channels, "average": average, "scale": scale}
    pooling |= {"through": True} if through else {}
    return _pooled(backbone, pool, average + pool.bilinear.n_features, pooling)


def acting_features(backbone: Backbone) -> int | None:
    """How many of the first features the network's weights act through; None: all of them."""
    pooling = backbone.spec.get("pooling", {})
    return int(pooling["average"]) if pooling.get("kind") == "both" and not pooling.get("through") else None


def acting(backbone: Backbone) -> Backbone:
    """The backbone with those features alone that its weights act through: itself, or a copy."""
    own = acting_features(backbone)
    if own is None:
        return backbone
    pooling = backbone.spec["pooling"]
    if "tokens" not in pooling:
        return _pooled(backbone, MeanPool(), own, {"kind": "mean", "module": pooling["module"]})
    alone = _pooled(backbone, TokenPool(Tokens(**pooling["tokens"]), "own"), own, pooling)
    spec = {key: value for key, value in backbone.spec.items() if key != "pooling"}
    return replace(alone, spec=spec)  # which is that of the network as it is


def acting_through_all(backbone: Backbone) -> Backbone:
    """The backbone with the same features, all of which its weights act through: itself, or a copy."""
    if acting_features(backbone) is None:
        return backbone
    pooling, body = {**backbone.spec["pooling"], "through": True}, copy.deepcopy(backbone.body)
    pool = body.get_submodule(pooling["module"])
    assert isinstance(pool, BothPool | TokenPool)
    pool.through = True
    return replace(backbone, body=body, spec={**backbone.spec, "pooling": pooling})


def with_pooling(backbone: Backbone, pooling: dict[str, Any], reduction: Tensor | None) -> Backbone:
    """A copy of the backbone that pools as an entry of a spec says."""
    if "tokens" in pooling:
        return with_pool_of_spec(backbone, pooling, reduction)
    if pooling["kind"] == "both":
        name, channels, average, scale = (pooling[key] for key in ("module", "channels", "average", "scale"))
        through = pooling.get("through", False)
        return with_both_pools(backbone, name, reduction, channels, average, scale, through=through)
    if pooling["kind"] == "mean":
        return _pooled(backbone, MeanPool(), backbone.features, pooling)
    linearised = pooling.get("linearised", False)
    return with_bilinear_pool(backbone, pooling["module"], reduction, pooling["channels"], linearised=linearised)


def _pooled(backbone: Backbone, pool: nn.Module, features: int, pooling: dict[str, Any]) -> Backbone:
    body = copy.deepcopy(backbone.body)
    pool.to(next(body.parameters(), torch.zeros(())).device)
    body.set_submodule(pooling["module"], pool.eval())
    return replace(backbone, body=body, features=features, spec={**backbone.spec, "pooling": pooling}, classifier=None)


def reduction_of(backbone: Backbone) -> Tensor | None:
    """(k, c) rows of a bilinear pooling, to be saved; None where there is nothing to save."""
    kept = backbone.spec.get("pooling")
    pool = networks_of(backbone.body)[0].get_submodule(kept["module"]) if kept else None
    return pool.rows if isinstance(pool, BilinearPool | BothPool | TokenPool) else None
