"""A module's own forward, replaced by a function of the module and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from torch import nn


def set_forward(module: nn.Module, function: Callable[..., Any]) -> None:
    """Let ``module(x)`` be ``function(module, x)``.

    The module holds the function, and the function not the module: a network is freed when it is let go, not when
    cycles are next sought, and its weights with it.
    """
    own = ref(module)

    def forward(*inputs: Any) -> Any:
        return function(own(), *inputs)

    module.forward = forward
