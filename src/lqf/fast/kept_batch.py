"""The passes over one batch whose primal is kept: tangents forward, gradients backward, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lqf.fast.kept import CannotKeep, Primal
from lqf.fast.replay import Recording

if TYPE_CHECKING:
    from lqf.fast.linearization import FastLinearization


class Shared:
    """Memory that the recordings of all batches use in turn: the gradients, and everything on the way to them."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device):
        self.grads = torch.zeros(size, dtype=dtype, device=device)
        self.pool: Any = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.warm = False


class KeptBatch:
    """J·v and Jᵀ·u of one batch.

    Args:
        body: makes the passes.
        given: the batch as it is asked for; kept, so that it is recognised.
        x: the same in the body's own type and layout.
        shared: by all batches of the body.
    """

    def __init__(self, body: FastLinearization, given: Tensor, x: Tensor, shared: Shared):
        self.body, self.given, self.x, self.shared = body, given, x, shared
        self.primal = Primal([x, *body.module.parameters(), *body.module.buffers()])
        z = self.primal.watch(lambda: body.call(body.weights(), x))
        if not torch.equal(z, body.call(body.weights(), x)):
            raise CannotKeep("the network relies on overwriting an activation")
        self.u = torch.zeros_like(z)
        self._forward = self._backward = None
        if x.is_cuda:
            passes = 0 if shared.warm else 1
            self._forward = Recording(self._tangents, (), pool=shared.pool, warm_up=passes)
            self._backward = Recording(self._gradients, (self.u,), pool=shared.pool, warm_up=passes)
            shared.warm = True

    def forward(self) -> tuple[Tensor, ...]:
        """z and J·v for the v that the body has loaded."""
        return self._tangents() if self._forward is None else self._forward(())

    def backward(self, u: Tensor) -> tuple[Tensor, ...]:
        """Jᵀ·u, until the next call for any batch."""
        return self._gradients(u) if self._backward is None else self._backward((u,))

    def _tangents(self) -> tuple[Tensor, Tensor]:
        return self.body.forward_pass(self.x, self.primal)

    def _gradients(self, u: Tensor) -> tuple[Tensor]:
        (grads,) = self.body.backward_pass(self.x, u, self.primal)
        return (self.shared.grads.copy_(grads),)
