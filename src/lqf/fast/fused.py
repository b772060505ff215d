"""The quick expansion with both products from one forward pass, for a caller that records more than the products.

`FastLinearization` keeps J·v and Jᵀ·u as two recordings, each with a forward pass of its own, because PCG needs either
alone. A step of mini-batch training always needs J·v, the cotangents it leads to, and Jᵀ·u: recorded as a whole
(`replay`), the two share the pass of the primal.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lqf.fast.linearization import LARGEST_COTANGENT, FastLinearization
from lqf.fast.tangents import flattened, narrowed
from lqf.linear.linearize import Linearization


class FusedLinearization(FastLinearization):
    """`FastLinearization` as it is, neither recorded nor compiled, whose `fused` runs the primal once."""

    def __init__(self, exact: Linearization, dtype: torch.dtype, example: Tensor, *, merges: bool | None = None):
        super().__init__(exact, dtype, example, recorded=False, merges=merges)

    def fused(self, x: Tensor, v: Tensor, cotangent: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """J·v and then Jᵀ·u with u = cotangent(z, J·v), as in `Linearization.fused`; sums are wide."""
        weights = {n: w.requires_grad_() for n, w in self.weights().items()}
        scale = self._scale(v, self._weight_norm / 8, torch.linalg.vector_norm)
        with torch.enable_grad():
            z, dz = self._dual(weights, narrowed(self.layout, weights, v * scale, self.dtype), self._cast(x))
        dz = dz.detach().to(x.dtype) / scale
        u = cotangent(z.detach().to(x.dtype), dz)
        scale = self._scale(u, LARGEST_COTANGENT, torch.amax)
        given = (u * scale).to(self.dtype)
        grads = torch.autograd.grad(z, list(weights.values()), given, materialize_grads=True, allow_unused=True)
        return dz, flattened(self.layout, grads, self._wide).to(u.dtype) / scale
