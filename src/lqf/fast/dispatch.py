"""Functions of PyTorch whose derivatives are slow or wrong in a narrow type, replaced wherever a network calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lqf.fast.ops.layer_norm import LayerNorm
from lqf.fast.ops.pointwise import Pointwise
from lqf.fast.ops.products import product
from lqf.fast.ops.softmax import Softmax
from lqf.fast.primal_cache import keeping

OUT_OF_PLACE: dict[Any, Callable[..., Tensor]] = {
    Tensor.__iadd__: torch.add,
    Tensor.__isub__: torch.sub,
    Tensor.__imul__: torch.mul,
    Tensor.add_: torch.add,
    Tensor.mul_: torch.mul,
}
"""Activations that are kept must not be overwritten; `CachedBatch` checks that nothing relies on it."""

MATMUL: set[Any] = {torch.matmul, torch.bmm, Tensor.__matmul__, Tensor.matmul, Tensor.bmm}
SOFTMAX: set[Any] = {F.softmax, torch.softmax, Tensor.softmax}


class FastOps(TorchFunctionMode):
    """Inside, `F.layer_norm` is `LayerNorm` and softmax is `Softmax`.

    If they are ``merged``, linear layers are `Pointwise`, and batched products `BatchedProduct`.

    Args:
        kernels: whether Triton kernels may be used, which a tracer cannot follow.
        merged: whether the products of a tangent add to each other where they lie.
    """

    def __init__(self, *, kernels: bool, merged: bool):
        super().__init__()
        self.kernels, self.merged = kernels, merged

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called for every function of PyTorch."""
        kwargs = kwargs or {}
        if func in OUT_OF_PLACE and keeping():
            return OUT_OF_PLACE[func](*args, **kwargs)
        if func is F.layer_norm:
            return self._layer_norm(*args, **kwargs)
        if func is F.linear and self.merged:
            return self._linear(*args, **kwargs)
        if func in SOFTMAX:
            return self._softmax(func, *args, **kwargs)
        if func in MATMUL and self.merged and len(args) == 2 and not kwargs and (out := product(*args)) is not None:
            return out
        return func(*args, **kwargs)

    def _layer_norm(
        self,
        input: Tensor,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        return LayerNorm.apply(input.contiguous(), weight, bias, tuple(normalized_shape), eps, self.kernels)[0]

    @staticmethod
    def _softmax(func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        dim = args[0] if args else kwargs.get("dim")
        same_type = len(args) <= 1 and kwargs.get("dtype") is None
        plain = same_type and isinstance(dim, int) and not set(kwargs) - {"dim", "dtype", "_stacklevel"}
        return Softmax.apply(input, dim) if plain else func(input, *args, **kwargs)

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        y = Pointwise.apply(input.reshape(-1, input.shape[-1]), weight, bias)
        return y.view(*input.shape[:-1], len(weight))
