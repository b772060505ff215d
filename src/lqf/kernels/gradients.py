"""Gradients of every row of a batch, of a part of the body's weights at a time.

A part is a layer, some of its output channels where the whole of it does not fit, or weights without a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.linear.batch import pass_bytes
from lqf.linear.layers import Layer, NormLayer, Tape, in_groups
from lqf.runtime.memory import available_bytes

TOGETHER = 4
"""Gradients of one row that are made together."""


@dataclass(frozen=True)
class Part:
    """What is held of the Jacobian at a time.

    Attributes:
        layer: some of its output channels; None: weights without a rule.
        channels: of the layer, or entries of the one weight.
        size: entries in all.
        names: of the weights without a rule.
    """

    layer: Layer | None
    channels: slice
    size: int
    names: tuple[str, ...] = ()

    @property
    def weight(self) -> str:
        """Name of one of its weights, which all are of one stage."""
        own = self.names[0] if self.layer is None else self.layer.weight or self.layer.bias
        assert own is not None
        return own


def parts(tape: Tape, largest: int, stage: Callable[[str], object] = lambda _: None) -> list[Part]:
    """Cut the linearised weights into parts of at most ``largest`` entries (at least one channel each).

    ``stage``: name of a weight -> what weights without a rule must have in common to be made together.
    """
    shapes = dict(zip(tape.body.layout.names, tape.body.layout.shapes, strict=True))
    out = []
    for layer in tape.layers:
        size = sum(shapes[w].numel() for w in (layer.weight, layer.bias) if w)
        groups = getattr(layer.module, "groups", 1)
        channels = (
            1 if isinstance(layer, NormLayer) else next(shapes[w][0] for w in (layer.weight, layer.bias) if w) // groups
        )
        step = channels if isinstance(layer, NormLayer) else max(1, channels * largest // max(size, 1))
        for at in range(0, channels, step):
            width = min(step, channels - at)
            whole = isinstance(layer, NormLayer)
            out.append(Part(layer, slice(None) if whole else slice(at, at + width), size * width // channels))
    others: dict[object, dict[str, int]] = {}
    for name, size in tape.other_sizes().items():
        others.setdefault(stage(name), {})[name] = size
    return [*out, *(part for sizes in others.values() for part in _without_rule(sizes, largest))]


def _without_rule(sizes: dict[str, int], largest: int) -> Iterator[Part]:
    """Several small weights at a time, a large one in slices."""
    for names in in_groups(sizes, largest):
        total = sum(sizes[n] for n in names)
        if total <= largest:
            yield Part(None, slice(None), total, tuple(names))
            continue
        for at in range(0, total, largest):
            end = min(at + largest, total)
            yield Part(None, slice(at, end), end - at, tuple(names))


def grouped(items: list[Part], budget: int) -> Iterator[list[Part]]:
    """Consecutive parts whose sizes add up to at most ``budget`` entries per row."""
    group: list[Part] = []
    for item in items:
        if group and sum(p.size for p in group) + item.size > budget:
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def rows_at_a_time(batch: int, at_once: int, sizes: Sequence[int], device: torch.device) -> int:
    """Rows of a batch whose gradients are made together.

    On a CPU the gradients at the layers' outputs take no more memory than one r for all of the batch; on a GPU, which
    is faster with many rows, no more than half of what is free with the Jacobian in memory.
    """
    if device.type != "cuda":
        return -(-batch // at_once)
    saved, outputs, patches = sizes
    return max(1, min(batch, available_bytes(device) // 2 // max(1, saved + at_once * outputs + 2 * patches)))


def gradients(tape: Tape, group: list[Part], x: Tensor, us: Tensor, out: Tensor, step: int | None = None) -> None:
    """Write the gradients of one batch into ``out`` (B, R, group size), ``step`` rows at a time (default: what fits).

    Some of the R are made together, so that a layer's patches are laid out once for all of them.
    """
    at_once = min(TOGETHER, len(us))
    step = step or rows_at_a_time(len(x), at_once, pass_bytes(tape, x[:1]), x.device)
    for at in range(0, len(x), step):
        part = slice(at, at + step)
        _write(tape, group, x[part], us[:, part], out[part], at_once)


def _write(tape: Tape, group: list[Part], x: Tensor, us: Tensor, out: Tensor, at_once: int) -> None:
    z, records = tape.record(x)
    wanted = {id(p.layer) for p in group}
    records = [r for r in records if id(r.layer) in wanted]
    for k in range(0, len(us), at_once):
        some = us[k : k + at_once]
        last = k + at_once >= len(us)
        gs = [Tape.backward(z, records, u, retain=not last or i + 1 < len(some)) for i, u in enumerate(some)]
        at = 0
        for part in group:
            into = out[:, k : k + at_once, at : at + part.size]
            if part.layer is None:
                for i, u in enumerate(some):
                    grads = tape.others_per_sample(x, u, part.names).values()
                    _fill(into[:, i], [g[:, part.channels] for g in grads], add=False)
            mine = [i for i, r in enumerate(records) if r.layer is part.layer]
            for called, i in enumerate(mine):
                _add_layer(into, part, records[i].a, [g[i] for g in gs], add=called > 0)
            at += part.size


def _add_layer(into: Tensor, part: Part, a: Tensor, gs: list[Tensor], add: bool) -> None:
    """The gradients of one call of one layer: into (B, R, size) from its input a and the gradients at its output."""
    layer = part.layer
    assert layer is not None
    if isinstance(layer, NormLayer):
        for i, g in enumerate(gs):
            _fill(into[:, i], layer.per_sample(a, g).values(), add)
        return
    g = torch.stack([layer.grads(g)[:, :, part.channels] for g in gs], 2)  # (B, groups, R, o, L)
    pieces = []
    if layer.weight:
        products = g.flatten(2, 3) @ layer.patches(a).mT  # (B, groups, R·o, p): one product for all r
        pieces.append(products.unflatten(2, (len(gs), -1)).transpose(1, 2))
    if layer.bias:
        pieces.append(g.sum(-1).transpose(1, 2))
    _fill(into, [piece.flatten(2) for piece in pieces], add)


def _fill(into: Tensor, pieces: Iterable[Tensor], add: bool) -> None:
    """Write (or add) pieces one after the other along the last dimension."""
    at = 0
    for piece in pieces:
        here = into[..., at : at + piece.shape[-1]]
        here.add_(piece) if add else here.copy_(piece)
        at += piece.shape[-1]
