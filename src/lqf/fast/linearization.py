"""The same Taylor expansion, made quick: a narrow floating-point type, channels last, recorded or compiled passes.

What is solved with is fast, what is reported is measured with the exact `Linearization`: conjugate gradients replace
their running residual by the true one, so a fast product decides how soon the optimum is reached, not which one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import jvp, vjp

from lqf.fast.capture import Captured
from lqf.fast.norm import absorb, quicken
from lqf.fast.pointwise import as_products
from lqf.fast.quick_ops import QuickOps
from lqf.fast.replay import Passes, Replayed
from lqf.linearize import Linearization

LARGEST_COTANGENT = 4.0
"""Size to which cotangents are scaled in float16: gradients of a batch then stay far from both ends of its range."""
RETREAT, RETREATS = 2.0**-5, 3
"""Where they do not, both kinds of products are made smaller by this factor, so many times at most."""


class FastLinearization(Linearization):
    """``exact`` in ``dtype``, with channels last; inputs and results keep their own floating-point type.

    Batches smaller than the first one are padded to its size where one recording or one compiled graph serves all.

    Args:
        exact: the expansion to imitate; it is not changed.
        dtype: of convolutions and matrix products. Batch normalisation keeps its statistics and weights in
            float32 at the least.
        example: a small batch, to find out whether the module can be run with channels last (a `view` of an activation
            cannot); if not, it keeps the usual order.
        recorded: keep the passes as CUDA graphs, with their memory, for many calls; on a CPU without effect.
        compiled: compile J·v and Jᵀ·u, at some twenty seconds of start-up each.
        merges: let batch normalisations do the sum and the activation behind them, and run 1×1 convolutions as
            matrix products; default: on a GPU, where it is not compiled.
        say: told why, where recording or compilation fails and plain passes are used instead.
    """

    def __init__(
        self,
        exact: Linearization,
        dtype: torch.dtype,
        example: Tensor,
        *,
        recorded: bool = True,
        compiled: bool = False,
        merges: bool | None = None,
        say: Callable[[str], None] = lambda _: None,
    ):
        module, norms = _converted(exact.module, dtype, kernels=not compiled)
        super().__init__(module, exact.layout.names)
        self.dtype, self._rows, self._fixed_size, self._room = dtype, 0, compiled, 1.0
        self.merged, merges = 0, example.is_cuda and not compiled if merges is None else merges
        self._ops = QuickOps(kernels=not compiled, merged=merges)
        self.format = self._layout(example)
        if merges:
            self.merged = absorb(module, norms, self._cast(example[:2]))
            if self.format == torch.channels_last:
                as_products(module)
        forward: Passes = self._forward
        backward: Passes = self._backward
        if compiled:
            forward = Captured(self._compilable_jvp, say, otherwise=forward)
            backward = Captured(self._compilable_pull, say, otherwise=backward)
        self._passes = (Replayed(forward, say), Replayed(backward, say)) if recorded else (forward, backward)

    def call(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        """The module with other values of some linearised weights."""
        with self._ops:
            return super().call(weights, x)

    def value(self, x: Tensor) -> Tensor:
        """z(x; w0), (B, O)."""
        return super().value(self._cast(x)).to(x.dtype)

    def jvp(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """z(x; w0) and J(x)·v, both (B, O)."""
        scale = self._scale(v, self._weight_norm / 8, torch.linalg.vector_norm)
        z, dz = self._passes[0](self._padded(self._cast(x)), v * scale)
        return z[: len(x)].to(x.dtype), dz[: len(x)].to(x.dtype) / scale

    def pull(self, x: Tensor, u: Tensor) -> Tensor:
        """J(x)ᵀ·u for u (B, O), summed over the batch, (D,)."""
        scale = self._scale(u, LARGEST_COTANGENT, torch.amax)
        (grads,) = self._passes[1](self._padded(self._cast(x)), self._padded((u * scale).to(self.dtype)))
        return grads.to(u.dtype) / scale

    def vjp(self, x: Tensor, cotangent: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """z(x; w0), (B, O), and J(x)ᵀ·u with u = cotangent(z), summed over the batch, (D,)."""
        z = self.value(x)
        return z, self.pull(x, cotangent(z))

    def fused(self, x: Tensor, v: Tensor, cotangent: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """J·v and then Jᵀ·u with u = cotangent(z, J·v); two passes here, which is no slower when compiled."""
        z, dz = self.jvp(x, v)
        return dz, self.pull(x, cotangent(z, dz))

    def retreat(self) -> bool:
        """Scale tangents and cotangents down, if they are float16 and it has not been done too often."""
        if self.dtype != torch.float16 or self._room <= RETREAT**RETREATS:
            return False
        self._room *= RETREAT
        return True

    # --- the passes, eager and for the compiler -----------------------------------------------------------------------

    def _forward(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = self.weights()
        with torch.no_grad():
            return self._dual(weights, self._tangents(weights, v), x)

    def _backward(self, x: Tensor, u: Tensor) -> tuple[Tensor]:
        weights = {n: w.requires_grad_() for n, w in self.weights().items()}
        with torch.enable_grad():
            z = self.call(weights, x)
        grads = torch.autograd.grad(z, list(weights.values()), u, materialize_grads=True, allow_unused=True)
        return (self.layout.flatten(g.to(self._wide) for g in grads),)

    def _compilable_jvp(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = self.weights()
        tangents = self._tangents(weights, v)
        return jvp(lambda w: self.call(w, x), (weights,), (tangents,))  # type: ignore[return-value]

    def _compilable_pull(self, x: Tensor, u: Tensor) -> tuple[Tensor]:
        grads = vjp(lambda w: self.call(w, x), self.weights())[1](u)[0]
        return (self.layout.flatten(grads[n].to(self._wide) for n in self.layout.names),)

    # --- types and shapes ---------------------------------------------------------------------------------------------

    def _tangents(self, weights: dict[str, Tensor], v: Tensor) -> dict[str, Tensor]:
        """Views of v in the type of each weight; one cast for all those of the narrow type."""
        narrow, wide = self.layout.views(v.to(self.dtype)), self.layout.views(v)
        return {n: narrow[n] if w.dtype == self.dtype else wide[n].to(w.dtype) for n, w in weights.items()}

    def _scale(self, v: Tensor, size: float, measure: Callable[[Tensor], Tensor]) -> Tensor | float:
        """What to multiply v by, and divide the result by, so that nothing leaves the narrow range of float16."""
        return self._room * size / measure(v.abs()).clamp_min(1e-30) if self.dtype == torch.float16 else 1.0

    @property
    def _wide(self) -> torch.dtype:
        """Of sums over a batch."""
        return torch.promote_types(self.dtype, torch.float32)

    @cached_property
    def _weight_norm(self) -> float:
        return float(torch.stack([w.float().square().sum() for w in self.weights().values()]).sum().sqrt())

    def _layout(self, example: Tensor) -> torch.memory_format:
        """Channels last where the module allows it."""
        self.format = torch.channels_last
        try:
            _reorder(self.module, self.format)
            x = self._cast(example[:2])
            z, _ = self._forward(x, example.new_zeros(self.size))
            self._backward(x, z)
        except RuntimeError:
            _reorder(self.module, torch.contiguous_format)
            return torch.contiguous_format
        return self.format

    def _cast(self, x: Tensor) -> Tensor:
        return x.to(self.dtype, memory_format=self.format if x.ndim == 4 else torch.contiguous_format)

    def _padded(self, x: Tensor) -> Tensor:
        """With rows of zeros up to the size of the first batch, where its passes are recorded or compiled."""
        if not (self._fixed_size or x.is_cuda):
            return x
        self._rows = self._rows or len(x)
        missing = self._rows - len(x)
        if missing <= 0:
            return x
        out = torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
        return out.contiguous(memory_format=self.format) if x.ndim == 4 else out


def _converted(module: nn.Module, dtype: torch.dtype, *, kernels: bool) -> tuple[nn.Module, list[nn.Module]]:
    """A copy in ``dtype``, and its batch normalisations: in float32 at the least, and with quicker derivatives."""
    module = copy.deepcopy(module)
    norms = quicken(module, kernels=kernels)
    kept = {id(t) for norm in norms for t in (*norm.parameters(), *norm.buffers())}
    for t in (*module.parameters(), *module.buffers()):
        if t.is_floating_point():
            t.data = t.data.to(torch.promote_types(dtype, torch.float32) if id(t) in kept else dtype)
    return module, norms


def _reorder(module: nn.Module, format: torch.memory_format) -> None:
    for w in module.parameters():
        if w.ndim == 4:
            w.data = w.data.contiguous(memory_format=format)
