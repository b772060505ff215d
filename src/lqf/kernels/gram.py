"""Inner products of per-sample gradients of the body, without ever holding the whole Jacobian.

Layers are taken in groups that fit the memory given, one pass over the data per group; a layer that does not fit
alone is cut by output channels. Many processes share out the layers, each of them over all rows, and add their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lqf.kernels.gradients import TOGETHER, Part, gradients, grouped, parts, rows_at_a_time
from lqf.linear.batch import pass_bytes
from lqf.linear.inputs import Inputs
from lqf.linear.layers import Tape
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.linear.stages import Groups, group_of
from lqf.runtime.precision import matmul_precision
from lqf.utils.progress import SILENT, Progress, Stage
from lqf.utils.text import counted

Cotangents = Callable[[Tensor], Tensor]
"""Row numbers (B,) -> cotangents at the features (R, B, p), R gradients per row."""


class Keeper(Protocol):
    """Keeps what is done of a kernel, for a process that goes on after a kill."""

    def load(self) -> tuple[Tensor, int, int] | None:
        """The kernel of the first parts, their number, and entries of a gradient that were held at a time."""
        ...

    def save(self, kernel: Tensor, done: int, held: int) -> None:
        """Now and then."""
        ...


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
