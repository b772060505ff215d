"""Which solver, what it will cost, said before it starts.

The dense dual answers everything exactly and is taken when its kernel fits into memory and its time is bearable;
otherwise the problem is solved by preconditioned conjugate gradients. Times come from the device itself: one product
on a small batch and one matrix product are timed, the rest is counting.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import torch

from lqf.errors import LQFError
from lqf.memory import available_bytes, human
from lqf.objective import Problem

PCG_PASSES = 18
"""Passes a preconditioned solve usually takes to its default tolerance."""
FACTORISATIONS = 8
"""Of the dense kernel: one per ratio of ridge strengths that is tried, and the last one again."""


@dataclass(frozen=True)
class Plan:
    """What will be done and what it is expected to cost.

    Attributes:
        solver: "dense" or "pcg".
        seconds: expected time of curvature, weight decay and solve.
        bytes: expected peak of memory on the device beyond the images.
        jacobian_bytes: how much of the Jacobian the dense dual holds at a time.
        sentence: for a person.
    """

    solver: str
    seconds: float
    bytes: int
    jacobian_bytes: int
    sentence: str


@dataclass(frozen=True)
class Rates:
    """What the device does in a second: rows of a product, rows of a backward pass, multiply-adds."""

    product_rows: float
    backward_rows: float
    flops: float

    @classmethod
    def measure(cls, problem: Problem) -> Rates:
        """Time a product and a gradient on one small batch, and a matrix product."""
        x = problem.inputs.example(problem.inputs.batch_size if problem.targets.is_cuda else 8)
        fold, v = problem.fold[: len(x)], problem.zero()
        fused = _seconds(lambda: problem.model.fused(x, v, lambda _, jv: jv, fold))
        ones = torch.ones(len(x), problem.model.n_outputs).to(problem.targets)
        backward = _seconds(lambda: problem.model.adjoint(x, lambda _: ones, fold))
        side = 4096 if problem.targets.is_cuda else 768
        a = problem.targets.new_ones(side, side)  # random numbers would move the user's generator
        return cls(len(x) / fused, len(x) / backward, side**3 / _seconds(lambda: a @ a))

    def together(self, processes: int) -> Rates:
        """Of so many processes that share the rows of a product; the rest each of them does alone."""
        return replace(self, product_rows=processes * self.product_rows)


def _seconds(function: object, repeats: int = 2) -> float:
    best = math.inf
    for _ in range(repeats + 1):  # the first one warms up
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter()
        function()  # type: ignore[operator]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return best


def plan(problem: Problem, asked: str, rates: Rates, memory: int | None = None, epochs: int = 30) -> Plan:
    """Choose between the dense dual and PCG, or cost the one that was ``asked`` for (``epochs``: of "sgd", "adam")."""
    if problem.model.body.size == 0:
        raise LQFError("the network has no weights below its head to linearise; use solver `head`")
    memory = available_bytes(problem.targets.device) if memory is None else memory
    dense, pcg = cost_dense(problem, rates, memory), cost_pcg(problem, rates)
    fits = dense.bytes <= memory
    if asked == "dense":
        if not fits:
            raise LQFError(
                f"the dense dual of {len(problem.targets)} × {problem.model.n_outputs} outputs needs "
                f"{human(dense.bytes)} and {human(memory)} are free; use solver `pcg`, or `auto`"
            )
        return dense
    if asked in ("sgd", "adam"):
        return cost_passes(asked, problem, rates, epochs)
    if asked != "auto":
        return pcg
    if fits and dense.seconds <= max(60.0, 2 * pcg.seconds):
        return dense
    reason = (
        f"dense would take about {_duration(dense.seconds)}"
        if fits
        else f"dense needs {human(dense.bytes)}, have {human(memory)}"
    )
    return Plan(pcg.solver, pcg.seconds, pcg.bytes, pcg.jacobian_bytes, f"{pcg.sentence} ({reason})")


def cost_dense(problem: Problem, rates: Rates, memory: int) -> Plan:
    """Kernels of (nC)² float64 entries six times over (two parts, their sum, the factorisation's workspace), and the
    Jacobian in pieces of at most a third of the memory.
    """
    n, c, d = len(problem.targets), problem.model.n_outputs, problem.model.body.size
    m, item = n * c, problem.targets.element_size()
    kernels = 6 * 8 * m * m
    jacobian = min(m * d * item, max(memory // 3, 1 << 28))
    passes = math.ceil(m * d * item / jacobian)
    gradients = passes * n * (1 + c) / rates.backward_rows * 0.75
    seconds = (
        gradients + m * m * d / 2 / rates.flops + FACTORISATIONS * 12 * m**3 / rates.flops + 3 * n / rates.product_rows
    )
    return Plan("dense", seconds, kernels + jacobian, jacobian, _sentence("dense", kernels + jacobian, seconds))


def cost_pcg(problem: Problem, rates: Rates) -> Plan:
    """The usual number of passes."""
    return cost_passes("pcg", problem, rates, PCG_PASSES)


def cost_passes(solver: str, problem: Problem, rates: Rates, passes: int) -> Plan:
    """So many passes over the data, the curvature at the price of four more, a few vectors of the problem's size."""
    n, item = len(problem.targets), problem.targets.element_size()
    seconds = (passes + 4) * n / rates.product_rows
    size = 8 * item * problem.size
    return Plan(solver, seconds, size, 1 << 30, _sentence(solver, size, seconds))


def _sentence(solver: str, size: int, seconds: float) -> str:
    return f"{solver}: {human(size)}, about {_duration(seconds)}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
