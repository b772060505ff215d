"""Inner products of per-sample gradients of the body, without ever holding the whole Jacobian.

Layers are taken in groups that fit the memory given, one pass over the data per group; a layer that does not fit
alone is cut by output channels. Many processes share out the layers, each of them over all rows, and add their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.layers import Layer, NormLayer, Tape
from lqf.objective import Problem
from lqf.precision import matmul_precision
from lqf.progress import SILENT, Progress

Cotangents = Callable[[Tensor], Tensor]
"""Row numbers (B,) -> cotangents at the features (R, B, p), R gradients per row."""


@dataclass(frozen=True)
class Part:
    """Some output channels of one layer, or all weights without a rule: what is held of the Jacobian at a time."""

    layer: Layer | None
    channels: slice
    size: int


def parts(tape: Tape, largest: int) -> list[Part]:
    """Cut the linearised weights into parts of at most ``largest`` entries (at least one channel each)."""
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
    if tape.others:
        out.append(Part(None, slice(None), sum(shapes[n].numel() for n in tape.others)))
    return out


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


def body_kernel(
    problem: Problem,
    cotangents: Cotangents,
    per_row: int,
    *,
    budget: int,
    joint: bool = True,
    progress: Progress = SILENT,
) -> Tensor:
    """Inner products of the body's gradients, in float64.

    Args:
        problem: data and model.
        cotangents: which R combinations of the features to differentiate for each row.
        per_row: R.
        budget: bytes for the part of the Jacobian held at a time.
        joint: True: all (row, r) pairs against each other, (nR, nR), row-major in (row, r). False: the R kernels
            between equal r, averaged: (n, n); an average of several is an estimate anyway and may use TF32.
        progress: where to report.
    """
    n, world, inputs = len(problem.targets), problem.inputs.world, problem.inputs.gathered()
    tape = Tape(problem.model.body, inputs.example())
    per_gradient = max(1, min(world.every(budget)) // (n * per_row * problem.targets.element_size()))
    every = parts(tape, min(per_gradient, math.ceil(problem.model.body.size / world.size)))
    mine = [part for part, owner in zip(every, world.deal([p.size for p in every]), strict=True) if owner == world.rank]
    groups = list(grouped(mine, per_gradient))
    m = n * per_row if joint else n
    kernel = torch.zeros(m, m, dtype=torch.float64, device=problem.targets.device)
    with progress.stage("per-sample Jacobians", total=n * len(groups), unit="rows") as stage:
        for group in groups:
            rows = problem.targets.new_empty(n, per_row, sum(p.size for p in group))
            for index, x in inputs.batches():
                with matmul_precision(fast=per_row > 1 and not joint):
                    _gradients(tape, group, x, cotangents(index), rows, index)
                stage.advance(len(index))
            for block in [rows.flatten(0, 1)] if joint else list(rows.unbind(1)):
                add_gram(kernel, block, 1.0 if joint else 1.0 / per_row, fast=per_row > 1 and not joint)
            del rows
    return world.sum_(kernel)


def _gradients(tape: Tape, group: list[Part], x: Tensor, us: Tensor, out: Tensor, index: Tensor) -> None:
    """Write the gradients of one batch into out[index] (B, R, group size)."""
    z, records = tape.record(x)
    wanted = {id(p.layer) for p in group}
    records = [r for r in records if id(r.layer) in wanted]
    for k, u in enumerate(us):
        gs = Tape.backward(z, records, u, retain=k + 1 < len(us)) if records else []
        others = tape.others_per_sample(x, u) if id(None) in wanted else {}
        at = 0
        for part in group:
            mine = [(r, g) for r, g in zip(records, gs, strict=True) if r.layer is part.layer]
            for called, (r, g) in enumerate(mine):
                piece = torch.cat(list(r.layer.per_sample(r.a, g, part.channels).values()), 1)
                target = out[:, k, at : at + part.size]
                target[index] = piece if not called else target[index] + piece
            if part.layer is None:
                out[index, k, at : at + part.size] = torch.cat([others[n] for n in tape.others], 1)
            at += part.size


def add_gram(
    kernel: Tensor, rows: Tensor, scale: float, *, fast: bool = False, columns: int = 1 << 16, tile: int = 4096
) -> None:
    """kernel += scale · rows rowsᵀ, upper tiles only and mirrored; pieces of few columns are summed in float64."""
    starts = range(0, len(rows), tile)
    with matmul_precision(fast):
        for a in starts:
            for b in (s for s in starts if s >= a):
                block = kernel.new_zeros(len(rows[a : a + tile]), len(rows[b : b + tile]))
                for c in range(0, rows.shape[1], columns):
                    left, right = rows[a : a + tile, c : c + columns], rows[b : b + tile, c : c + columns]
                    block += left @ right.T
                kernel[a : a + tile, b : b + tile] += scale * block
                if b > a:
                    kernel[b : b + tile, a : a + tile] += scale * block.T


def every_output(problem: Problem) -> Cotangents:
    """Cotangents of all C outputs of each row."""
    c = problem.model.n_outputs
    eye = torch.eye(c).to(problem.targets)

    def cotangents(rows: Tensor) -> Tensor:
        return torch.stack([problem.model.to_features(e.expand(len(rows), c), problem.fold[rows]) for e in eye])

    return cotangents
