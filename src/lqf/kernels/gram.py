"""Inner products of per-sample gradients of the body, without ever holding the whole Jacobian.

Layers are taken in groups that fit the memory given, one pass over the data per group; a layer that does not fit
alone is cut by output channels. Many processes share out the layers, each of them over all rows, and add their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lqf.linear.batch import pass_bytes
from lqf.linear.inputs import Inputs
from lqf.linear.layers import Layer, NormLayer, Tape, in_groups
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.linear.stages import Groups, group_of
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.utils.progress import SILENT, Progress, Stage
from lqf.utils.text import counted

Cotangents = Callable[[Tensor], Tensor]
"""Row numbers (B,) -> cotangents at the features (R, B, p), R gradients per row."""
TOGETHER = 4
"""Gradients of one row that are made together."""


class Keeper(Protocol):
    """Keeps what is done of a kernel, for a process that goes on after a kill."""

    def load(self) -> tuple[Tensor, int, int] | None:
        """The kernel of the first parts, their number, and entries of a gradient that were held at a time."""
        ...

    def save(self, kernel: Tensor, done: int, held: int) -> None:
        """Now and then."""
        ...


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


def body_kernel(
    problem: QuadraticProblem,
    cotangents: Cotangents,
    per_row: int,
    *,
    budget: int,
    groups: Groups = (),
    joint: bool = True,
    keeper: Keeper | None = None,
    progress: Progress = SILENT,
) -> Tensor:
    """Inner products of the body's gradients, in float64: one matrix per group of stages, (S, m, m).

    Without groups all weights are in one matrix, (1, m, m), where stages with a ridge strength of their own count by
    what the body's is over theirs: K = Σ_s (μ_body/μ_s) K_s. Arguments as of `body_kernels`.
    """
    shared = {"budget": budget, "groups": groups, "joint": joint, "keeper": keeper, "progress": progress}
    return body_kernels(problem, cotangents, per_row, **shared)[0]  # type: ignore[arg-type]


def body_kernels(
    problem: QuadraticProblem,
    cotangents: Cotangents,
    per_row: int,
    *,
    sets: int = 1,
    budget: int,
    groups: Groups = (),
    joint: bool = True,
    keeper: Keeper | None = None,
    progress: Progress = SILENT,
) -> Tensor:
    """The same for several sets of gradients, which share their passes: (sets, S, m, m).

    Args:
        problem: data and model.
        cotangents: which R combinations of the features to differentiate for each row.
        per_row: R.
        sets: the R gradients are those of so many sets, one after the other, of equal size.
        budget: bytes for the part of the Jacobian held at a time.
        groups: names of the stages in each group.
        joint: True: all (row, r) pairs against each other, (nR, nR), row-major in (row, r). False: the R kernels
            between equal r, averaged: (n, n); an average of several is an estimate anyway and may use TF32.
        keeper: of what is done, where one process does it all.
        progress: where to report.
    """
    keeper = keeper if problem.inputs.world.size == 1 else None
    n, world = len(problem.targets), problem.inputs.world
    jacobian = _Jacobian.of(problem, cotangents, per_row, joint=joint)
    tape = jacobian.tape
    per_gradient = max(1, min(world.all_gather(budget)) // (n * per_row * problem.targets.element_size()))
    begun = keeper.load() if keeper else None
    if begun and begun[2] > 2 * per_gradient:  # there was more memory then
        begun = None
    if begun:
        per_gradient = begun[2]
    into = _Into(groups, problem.ridge)
    every = parts(tape, min(per_gradient, math.ceil(problem.model.body.size / world.size)), into.key)
    mine = [part for part, owner in zip(every, world.deal([p.size for p in every]), strict=True) if owner == world.rank]
    held = list(grouped(mine, per_gradient))
    m = n * per_row if joint else n
    kernel = torch.zeros(sets, max(1, len(groups)), m, m, dtype=torch.float64, device=problem.targets.device)
    if begun:
        kernel.copy_(begun[0])
        progress.say(f"resuming after {begun[1]} of {counted(len(held), 'part')} of the kernel")
    first = begun[1] if begun else 0
    _give_back(kernel.device)
    with progress.stage("per-sample Jacobians", total=n * (len(held) - first), unit="rows") as stage:
        for at, group in enumerate(held[first:], first + 1):
            jacobian.add_products(kernel, group, into.runs(group), stage)
            _give_back(kernel.device)
            if keeper:
                keeper.save(kernel, at, per_gradient)
    return world.all_reduce_(kernel)


@dataclass(frozen=True)
class _Jacobian:
    """Gradients of all rows by some of the weights at a time; arguments as of `body_kernels`.

    Attributes:
        inputs: rows of all processes.
        tape: the network's layers.
        whole: bytes of a pass that saves what the way back needs, of one row (`pass_bytes`).
    """

    problem: QuadraticProblem
    cotangents: Cotangents
    per_row: int
    joint: bool
    inputs: Inputs
    tape: Tape
    whole: tuple[int, int, int]

    @classmethod
    def of(cls, problem: QuadraticProblem, cotangents: Cotangents, per_row: int, *, joint: bool) -> _Jacobian:
        inputs = problem.inputs.gathered()
        tape = Tape(problem.model.body, inputs.example())
        return cls(problem, cotangents, per_row, joint, inputs, tape, pass_bytes(tape, inputs.example(1)))

    @property
    def fast(self) -> bool:
        """An average of several kernels is an estimate anyway."""
        return self.per_row > 1 and not self.joint

    def add_products(
        self, kernel: Tensor, group: list[Part], runs: Sequence[tuple[int, float, slice]], stage: Stage
    ) -> None:
        """Inner products of the gradients by a group of weights, added to (sets, S, m, m).

        Args:
            kernel: so far.
            group: the weights.
            runs: matrix, factor and columns of consecutive ones.
            stage: advances with every row.
        """
        rows = self._rows(group, stage)
        draws = self.per_row // len(kernel)  # of a set
        for which, factor, columns in runs:
            run = rows[..., columns]
            for k, block in enumerate([run.flatten(0, 1)] if self.joint else run.unbind(1)):
                scale = factor if self.joint else factor / draws
                add_gram(kernel[k // draws, which], block, scale, fast=self.fast)

    def _rows(self, group: list[Part], stage: Stage) -> Tensor:
        """(n, R, weights of the group)."""
        rows = self.problem.targets.new_empty(len(self.problem.targets), self.per_row, sum(p.size for p in group))
        saved, *layers = self.whole
        sizes = (saved + _whole_bytes(self.tape, group, rows.element_size()), *layers)
        step = rows_at_a_time(self.inputs.batch_size, min(TOGETHER, self.per_row), sizes, rows.device)
        done = 0  # batches come in the order of the rows
        for index, x in self.inputs.batches():
            with matmul_precision(self.fast):
                gradients(self.tape, group, x, self.cotangents(index), rows[done : done + len(x)], step)
            done += len(x)
            stage.advance(len(x))
        return rows


@dataclass(frozen=True)
class _Into:
    """Which matrix the inner products of a weight go into, and by which factor.

    Attributes:
        groups: names of the stages in each; none: one matrix for all.
        ridge: whose strengths are the factors then.
    """

    groups: Groups
    ridge: Ridge

    def key(self, weight: str) -> tuple[int, float]:
        if not self.groups:
            return 0, self.ridge.body / self.ridge.of(weight)
        return group_of(weight, self.groups), 1.0

    def runs(self, group: list[Part]) -> list[tuple[int, float, slice]]:
        """Matrix, factor and columns of consecutive parts that have both in common."""
        out: list[tuple[int, float, slice]] = []
        at = 0
        for part in group:
            which, factor = self.key(part.weight)
            if out and out[-1][:2] == (which, factor):
                out[-1] = which, factor, slice(out[-1][2].start, at + part.size)
            else:
                out.append((which, factor, slice(at, at + part.size)))
            at += part.size
        return out


def _whole_bytes(tape: Tape, group: list[Part], item: int) -> int:
    """Of a row's gradients at weights without a rule, which are made whole, and copied, before a slice is taken."""
    sizes = tape.other_sizes()
    return 2 * item * max((sum(sizes[n] for n in part.names) for part in group), default=0)


def _give_back(device: torch.device) -> None:
    """A Jacobian is one large block of a GPU's memory: what is free in pieces cannot hold it, and a small tensor later
    put into its place would keep all of it.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()


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


def add_gram(
    kernel: Tensor, rows: Tensor, scale: float, *, fast: bool = False, columns: int = 1 << 16, tile: int = 2048
) -> None:
    """kernel += scale · rows rowsᵀ, upper tiles only and mirrored; pieces of few columns are summed in float64.

    With k equal tiles along a side, (k+1)/2k of all products are made; smaller tiles than these would be slower.
    """
    n = len(rows)
    tile = -(-n // -(-n // tile))
    with matmul_precision(fast):
        for a in range(0, n, tile):
            for b in range(a, n, tile):
                block = kernel.new_zeros(len(rows[a : a + tile]), len(rows[b : b + tile]))
                for c in range(0, rows.shape[1], columns):
                    left, right = rows[a : a + tile, c : c + columns], rows[b : b + tile, c : c + columns]
                    block += left @ right.T
                kernel[a : a + tile, b : b + tile] += scale * block
                if b > a:
                    kernel[b : b + tile, a : a + tile] += scale * block.T


def every_output(problem: QuadraticProblem) -> Cotangents:
    """Cotangents of all C outputs of each row."""
    return combined(problem, torch.eye(problem.model.n_outputs).to(problem.targets))


def combined(problem: QuadraticProblem, us: Tensor, *, mean_head: bool = False) -> Cotangents:
    """Cotangents of the sums ``us`` (R, C) of the outputs of each row, through its own head or the mean of all."""
    model = problem.model

    def cotangents(rows: Tensor) -> Tensor:
        fold = None if mean_head else problem.fold[rows]
        return torch.stack([model.to_features(u.expand(len(rows), -1), fold) for u in us])

    return cotangents
