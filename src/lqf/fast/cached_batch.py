"""The passes over one batch whose primal is kept: tangents forward, gradients backward, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
from torch import Tensor

from lqf.fast.primal_cache import CannotCache, PrimalCache
from lqf.fast.replay import Bound, aside, cuda_graph

if TYPE_CHECKING:
    from lqf.fast.linearization import FastLinearization


class SharedBuffers:
    """Memory that the recordings of all batches use in turn: the gradients, and everything on the way to them."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device):
        self.grads = torch.zeros(size, dtype=dtype, device=device)
        self.pool: Any = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.warm = False


class CachedBatch:
    """J·v and Jᵀ·u of one batch.

    Args:
        body: makes the passes.
        given: the batch as it is asked for; kept, so that it is recognised.
        x: the same in the body's own type and layout.
        shared: by all batches of the body.
    """

    def __init__(self, body: FastLinearization, given: Tensor, x: Tensor, shared: SharedBuffers):
        self._body = ref(body)  # which holds this: no cycle, so that all of it is freed with the body
        self.given, self.x, self.shared = given, x, shared
        self.primal = PrimalCache([x, *body.module.parameters(), *body.module.buffers()])
        z = self.primal.watch(lambda: body.call(body.weights(), x))
        again = body.call(body.weights(), x)
        if float((z - again).abs().max()) > 64 * torch.finfo(z.dtype).eps * float(again.abs().max()):
            raise CannotCache("the network relies on overwriting an activation")
        self.u = torch.zeros_like(z)
        self._recorded: tuple[Bound, Bound] | None = None
        if x.is_cuda:
            self._record()

    def _record(self) -> None:
        if not self.shared.warm:  # libraries choose kernels and allocate their workspaces outside of the recording
            with aside(self.x.device):
                self._tangents(), self._gradients()
            self.shared.warm = True
        pool = self.shared.pool
        self._recorded = cuda_graph(self._tangents, pool), cuda_graph(self._gradients, pool)

    @property
    def bytes(self) -> int:
        """What is held for the batch: its primal, and the batch itself."""
        held = {t.data_ptr(): t.nbytes for t in (self.given, self.x)}
        return self.primal.bytes + sum(held.values())

    def forward(self) -> tuple[Tensor, ...]:
        """z and J·v for the v that the body has loaded."""
        return self._recorded[0]() if self._recorded else self._tangents()

    def backward(self, u: Tensor) -> tuple[Tensor, ...]:
        """Jᵀ·u, until the next call for any batch."""
        self.u.copy_(u)
        return self._recorded[1]() if self._recorded else self._gradients()

    @property
    def body(self) -> FastLinearization:
        """Makes the passes."""
        body = self._body()
        assert body is not None
        return body

    def _tangents(self) -> tuple[Tensor, Tensor]:
        return self.body.forward_pass(self.x, self.primal)

    def _gradients(self) -> tuple[Tensor]:
        (grads,) = self.body.backward_pass(self.x, self.u, self.primal)
        return (self.shared.grads.copy_(grads),)
