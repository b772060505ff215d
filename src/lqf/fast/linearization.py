"""The same Taylor expansion, made quick: a narrow floating-point type, channels last, recorded or compiled passes.

What is solved with is fast, what is reported is measured with the exact `Linearization`: conjugate gradients replace
their running residual by the true one, so a fast product decides how soon the optimum is reached, not which one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from typing import Any
from weakref import WeakMethod

import torch
from torch import Tensor
from torch.func import jvp, vjp

from lqf.fast.cached_batch import CachedBatch, SharedBuffers
from lqf.fast.capture import Captured
from lqf.fast.convert import converted, reorder
from lqf.fast.dispatch import FastOps
from lqf.fast.ops.depthwise import as_depthwise
from lqf.fast.ops.norm import absorb
from lqf.fast.ops.pointwise import as_products
from lqf.fast.primal_cache import CannotCache
from lqf.fast.replay import Passes, Replayed
from lqf.fast.tangents import Tangents, flattened, narrowed
from lqf.linear.linearize import Linearization

LARGEST_COTANGENT = 4.0
"""Size to which cotangents are scaled in float16: gradients of a batch then stay far from both ends of its range."""
RESCALE, RESCALES = 2.0**-5, 3
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
        merges: let batch normalisations do the sum and the activation behind them, and run 1×1 and depthwise
            convolutions with derivatives of their own; default: on a GPU, where it is not compiled.
        say: called with the reason where recording or compilation fails and plain passes are used instead.
    """

    layers_as_written = False

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
        module, norms = converted(exact.module, dtype, kernels=not compiled)
        super().__init__(module, exact.layout.names)
        self._say = say
        self.dtype, self._rows, self._room = dtype, 0, 1.0
        self._fixed_size = compiled or (recorded and example.is_cuda)
        self.merged, merges = 0, example.is_cuda and not compiled if merges is None else merges
        self._ops = FastOps(kernels=not compiled, merged=merges)
        self.format = self._layout(example)
        if merges:
            self.merged = absorb(module, norms, self._cast(example[:2]))
            if self.format == torch.channels_last:
                as_products(module)
                self.merged += 0 if compiled else as_depthwise(module)
        forward, backward = _loosely(self.forward_pass), _loosely(self.backward_pass)
        if compiled:
            forward = Captured(_loosely(self._compilable_jvp), say)
            backward = Captured(_loosely(self._compilable_vjp), say, otherwise=backward)
        self._kept: dict[int, CachedBatch] = {}
        self._shared: SharedBuffers | None = None
        self._compiled, self._keeps = compiled, not compiled
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

        def measured() -> Tensor | float:
            return self._scale(v, self._weight_norm / 8, torch.linalg.vector_norm)

        if self._compiled:
            scale = measured()
            z, dz = self._passes[0](self._padded(self._cast(x)), v * scale)
        else:
            scale, kept = self._tangents.load(v, self._room, measured), self._kept.get(id(x))
            z, dz = kept.forward() if kept else self._passes[0](self._padded(self._cast(x)))
        return z[: len(x)].to(x.dtype), dz[: len(x)].to(x.dtype) / scale

    def vjp(self, x: Tensor, u: Tensor) -> Tensor:
        """J(x)ᵀ·u for u (B, O), summed over the batch, (D,)."""
        scale = self._scale(u, LARGEST_COTANGENT, torch.amax)
        kept, narrow = self._kept.get(id(x)), self._padded((u * scale).to(self.dtype))
        (grads,) = kept.backward(narrow) if kept else self._passes[1](self._padded(self._cast(x)), narrow)
        return grads.to(u.dtype) / scale

    def value_and_vjp(self, x: Tensor, cotangent: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """z(x; w0), (B, O), and J(x)ᵀ·u with u = cotangent(z), summed over the batch, (D,)."""
        z = self.value(x)
        return z, self.vjp(x, cotangent(z))

    def fused(self, x: Tensor, v: Tensor, cotangent: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """J·v and then Jᵀ·u with u = cotangent(z, J·v); two passes, each recorded by itself."""
        z, dz = self.jvp(x, v)
        return dz, self.vjp(x, cotangent(z, dz))

    def keep(self, x: Tensor) -> int:
        """Keep the primal of a batch: products with this very tensor are then free of it.

        Returns:
            The bytes that are kept now for the batch; 0 where it cannot be done.
        """
        if not self._keeps:
            return 0
        try:
            self._shared = self._shared or SharedBuffers(self.size, self._wide, x.device)
            kept = CachedBatch(self, x, self._padded(self._cast(x)), self._shared)
            if kept.primal.bytes == 0:
                raise CannotCache("no value of the network can be separated from what depends on its weights")
        except RuntimeError as error:  # no memory, or a pass that cannot be recorded
            self._keeps = False
            self._say(f"activations are not kept ({str(error).split(chr(10))[0][:100]})")
            return 0
        self._kept[id(x)] = kept
        return kept.bytes

    def forget(self) -> None:
        """Give up all that is kept."""
        self._kept, self._shared = {}, None

    def rescale(self) -> bool:
        """Scale tangents and cotangents down, if they are float16 and it has not been done too often."""
        if self.dtype != torch.float16 or self._room <= RESCALE**RESCALES:
            return False
        self._room *= RESCALE
        return True

    # --- the passes, eager and for the compiler -----------------------------------------------------------------------

    def forward_pass(self, x: Tensor, around: AbstractContextManager[Any] | None = None) -> tuple[Tensor, Tensor]:
        """z and J·v for the v that was loaded last and x of the type the passes work in.

        ``around`` is entered for the pass itself.
        """
        with torch.no_grad():
            return self._dual(self.weights(), self._tangents.parts, x, around)

    def backward_pass(self, x: Tensor, u: Tensor, around: AbstractContextManager[Any] | None = None) -> tuple[Tensor]:
        """Jᵀ·u; ``around`` is entered for the pass forward."""
        weights = {n: w.requires_grad_() for n, w in self.weights().items()}
        with torch.enable_grad(), around or nullcontext():
            z = self.call(weights, x)
        grads = torch.autograd.grad(z, list(weights.values()), u, materialize_grads=True, allow_unused=True)
        return (flattened(self.layout, grads, self._wide),)

    def _compilable_jvp(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = self.weights()
        tangents = narrowed(self.layout, weights, v, self.dtype)
        return jvp(lambda w: self.call(w, x), (weights,), (tangents,))  # type: ignore[return-value]

    def _compilable_vjp(self, x: Tensor, u: Tensor) -> tuple[Tensor]:
        grads = vjp(lambda w: self.call(w, x), self.weights())[1](u)[0]
        return (self.layout.flatten(grads[n].to(self._wide) for n in self.layout.names),)

    # --- types and shapes ---------------------------------------------------------------------------------------------

    @cached_property
    def _tangents(self) -> Tangents:
        return Tangents(self.layout, self.weights())

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
            reorder(self.module, self.format)
            x = self._cast(example[:2])
            z, _ = self.forward_pass(x)
            self.backward_pass(x, z)
        except RuntimeError:
            reorder(self.module, torch.contiguous_format)
            with suppress(AttributeError):  # in the order of before, if it was made at all
                del self._tangents
            return torch.contiguous_format
        return self.format

    def _cast(self, x: Tensor) -> Tensor:
        return x.to(self.dtype, memory_format=self.format if x.ndim == 4 else torch.contiguous_format)

    def _padded(self, x: Tensor) -> Tensor:
        """With rows of zeros up to the size of the first batch, where passes are recorded on a GPU or compiled."""
        if not self._fixed_size:
            return x
        self._rows = self._rows or len(x)
        missing = self._rows - len(x)
        if missing <= 0:
            return x
        out = torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
        return out.contiguous(memory_format=self.format) if x.ndim == 4 else out


def _loosely(method: Passes) -> Passes:
    """The method without a hold on its object: recordings are freed with it, not when cycles are next sought."""
    ref = WeakMethod(method)

    def call(*args: Tensor) -> tuple[Tensor, ...]:
        bound = ref()
        assert bound is not None
        return bound(*args)

    return call
