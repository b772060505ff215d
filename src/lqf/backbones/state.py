"""A backbone whose weights are no longer the published ones: moved by a step, or fine-tuned.

Such weights cannot be found again by a name and a hash. `state_of` gives them for saving, `with_state` puts them back.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lqf.backbones.base import Backbone, freeze
from lqf.errors import LQFError


def moved(backbone: Backbone, body: nn.Module, how: Mapping[str, Any]) -> Backbone:
    """The backbone with another body of the same kind; ``how`` (JSON) says in its spec what was done."""
    spec = {**backbone.spec, "moved": {**backbone.spec.get("moved", {}), **how}}
    return replace(backbone, body=freeze(body), spec=spec, classifier=None)


def is_moved(backbone: Backbone) -> bool:
    """Whether its weights are no longer those that its name stands for."""
    return "moved" in backbone.spec


def state_of(body: nn.Module) -> dict[str, Tensor]:
    """All floating-point weights and statistics by name."""
    return {k: v for k, v in body.state_dict().items() if v.is_floating_point()}


def flat_state(body: nn.Module) -> Tensor:
    """The same as one vector."""
    return torch.cat([v.detach().reshape(-1) for v in state_of(body).values()])


def with_flat_state(backbone: Backbone, flat: Tensor, how: Mapping[str, Any]) -> Backbone:
    """The inverse of `flat_state`, in a copy of the backbone."""
    own = state_of(backbone.body)
    parts = flat.split([v.numel() for v in own.values()])
    state = {k: p.view(v.shape) for (k, v), p in zip(own.items(), parts, strict=True)}
    return moved(backbone, _loaded(copy.deepcopy(backbone.body), state), how)


def with_state(backbone: Backbone, state: Mapping[str, Tensor]) -> Backbone:
    """The backbone with saved weights, in their floating-point type; its spec stays."""
    own = state_of(backbone.body)
    if own.keys() != state.keys() or any(own[k].shape != v.shape for k, v in state.items()):
        raise LQFError(f"the saved weights are not those of a `{backbone.name}`; use the lqf that wrote them")
    kinds = {v.dtype for v in state.values()}
    body = backbone.body.to(kinds.pop()) if len(kinds) == 1 else backbone.body
    return replace(backbone, body=freeze(_loaded(body, state)), classifier=None)


def _loaded(body: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    body.load_state_dict(state, strict=False)
    return body
