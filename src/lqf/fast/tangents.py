"""Between one vector of all weights and a tensor for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.linear.linearize import Layout


@dataclass(frozen=True)
class _Loaded:
    v: Tensor
    version: int
    room: float
    scale: Tensor | float


class Tangents:
    """One tensor per weight, of its type and layout, whose memory recorded passes read.

    Args:
        layout: of the vector.
        weights: by name.
    """

    def __init__(self, layout: Layout, weights: dict[str, Tensor]):
        self.layout, self.parts = layout, {n: torch.zeros_like(w) for n, w in weights.items()}
        self._loaded: _Loaded | None = None

    def load(self, v: Tensor, room: float, scale: Callable[[], Tensor | float]) -> Tensor | float:
        """Make scale·v the tangents and return the scale; the same v again, for the next batch, costs nothing. It may
        be another view of the same memory, as long as nothing was written there.

        Args:
            v: (D,).
            room: another one asks for another scale.
            scale: computes it.
        """
        at = self._loaded
        if at is None or not _same_memory(at.v, v) or (at.version, at.room) != (v._version, room):
            at = self._loaded = _Loaded(v, v._version, room, scale())
            for name, part in self.layout.views(v * at.scale).items():
                self.parts[name].copy_(part)
        return at.scale


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.data_ptr(), a.shape, a.stride(), a.dtype) == (b.data_ptr(), b.shape, b.stride(), b.dtype)


def narrowed(layout: Layout, weights: dict[str, Tensor], v: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """Views of v in the type of each weight; one cast for all those of ``dtype``."""
    narrow, wide = layout.views(v.to(dtype)), layout.views(v)
    return {n: narrow[n] if w.dtype == dtype else wide[n].to(w.dtype) for n, w in weights.items()}


def flattened(layout: Layout, grads: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """(D,) from one gradient per weight: those that lie in memory as it does by one kernel, others one by one."""
    flat = torch.empty(layout.size, dtype=dtype, device=grads[0].device if grads else None)
    pairs = list(zip(layout.views(flat).values(), grads, strict=True))
    alike = [(a, g) for a, g in pairs if a.stride() == g.stride()]
    if alike:
        torch._foreach_copy_([a for a, _ in alike], [g for _, g in alike])
    for a, g in pairs:
        if a.stride() != g.stride():
            a.copy_(g)
    return flat
