"""A copy of a backbone with other features made of its last tokens: its graph is traced, and goes on after them."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from lqf.backbones.base import Backbone
from lqf.backbones.bilinear_pool import BilinearPool
from lqf.backbones.prefix import Trace, as_module, stages, trace
from lqf.backbones.token_pool import BESIDE, COVARIANCES, TOKEN_POOL, TokenPool, Tokens
from lqf.errors import LQFError


def with_token_pool(
    backbone: Backbone,
    tokens: Tokens,
    kind: str,
    reduction: Tensor | None = None,
    channels: int | None = None,
    scale: float = 1.0,
    *,
    linearised: bool = False,
    through: bool = False,
) -> Backbone:
    """A copy of the backbone with features of one kind (`lqf.backbones.token_pool`); the backbone itself for "own".

    It can be cut at those of its stages that come before the tokens, which are then its stages.

    Args:
        backbone: stays as it is.
        tokens: of `find_tokens`, for this network.
        kind: one of ``tokens.kinds``.
        reduction: (k, D) rows, for "bilinear" and "both"; None keeps all channels.
        channels: k; None: as many as the reduction has, or as there are.
        scale: factor of what stands beside the own features, in "own_mean" and "both".
        linearised: whether the reduction is one of the weights that may change.
        through: whether, in "both", the weights act through the covariance as well.
    """
    if kind not in tokens.kinds:
        raise LQFError(f"`{backbone.name}` has no features of the kind `{kind}`; choose one of {tokens.kinds}")
    if kind == "own":
        return backbone
    bilinear = None
    if kind in COVARIANCES:
        k = len(reduction) if reduction is not None else channels or tokens.channels
        bilinear = BilinearPool(reduction, k, linearised=linearised)
    pool = TokenPool(tokens, kind, bilinear, scale, through)
    pooling: dict[str, Any] = {"kind": kind, "module": TOKEN_POOL, "tokens": asdict(tokens)}
    pooling |= {"channels": bilinear.channels} if bilinear else {}
    pooling |= {"average": backbone.features, "scale": scale} if kind in BESIDE else {}
    pooling |= {"linearised": True} if linearised and bilinear else {}
    pooling |= {"through": True} if through else {}
    features = (backbone.features if kind in BESIDE else 0) + (bilinear.n_features if bilinear else tokens.channels)
    body = _pooled(backbone.body, tokens, pool)
    spec = {**backbone.spec, "pooling": pooling}
    return replace(backbone, body=body, features=features, stages=stages(body), spec=spec, classifier=None)


def with_pool_of_spec(backbone: Backbone, pooling: dict[str, Any], reduction: Tensor | None) -> Backbone:
    """The same by an entry of a spec."""
    given = {key: pooling[key] for key in ("channels", "scale", "linearised", "through") if key in pooling}
    return with_token_pool(backbone, Tokens(**pooling["tokens"]), pooling["kind"], reduction, **given)


def with_tokens_in_sight(backbone: Backbone, tokens: Tokens) -> Backbone:
    """A copy with the same features and a `TokenPool` that sees the tokens, for a `TokenMoment`; not to be saved."""
    body = _pooled(backbone.body, tokens, TokenPool(tokens, "own"))
    return replace(backbone, body=body, stages=stages(body))


def _pooled(body: nn.Module, tokens: Tokens, pool: TokenPool) -> nn.Module:
    """A copy of the body that gives out what the pool makes of its tokens and, maybe, of its own features."""
    body = copy.deepcopy(body)
    traced = trace(body)
    node = node_of(traced, tokens.name, tokens.side)
    if node is None:
        raise LQFError(f"the network has no `{tokens.name}` that is called once; its pooling is of another network")
    pool.to(next(body.parameters(), torch.zeros(())).device)
    body.add_module(TOKEN_POOL, pool)
    graph, end = traced.graph, traced.nodes[-1]
    with graph.inserting_before(end):
        new = graph.call_module(TOKEN_POOL, (node, end.args[0]) if pool.kind in BESIDE else (node,))
    end.args = (new,)
    if pool.kind not in BESIDE:  # nothing needs what came after the tokens
        for later in reversed(traced.nodes[traced.nodes.index(node) + 1 : -1]):
            graph.erase_node(later)
    out = as_module(body, graph)
    _reorder(out, body)
    return out.eval().requires_grad_(False)


def _reorder(module: nn.Module, like: nn.Module) -> None:
    """Let weights follow each other as in the original, where torch.fx has them in the order of their use."""
    for own, order in ((module._parameters, like._parameters), (module._modules, like._modules)):
        for name in [name for name in order if name in own]:
            own[name] = own.pop(name)  # type: ignore[assignment]
    for name, child in module.named_children():
        if child is not like.get_submodule(name):
            _reorder(child, like.get_submodule(name))


def node_of(traced: Trace, name: str, side: str) -> fx.Node | None:
    """The tensor that a module makes or takes."""
    return (traced.made if side == "output" else traced.given).get(name)
