"""What a device does in a second, measured on a few rows of the problem itself.

Everything that a fit repeats is timed once: the sweeps of a product, the K-FAC pass, per-sample gradients, matrix
products, eigendecompositions. A second or two of measuring on a CPU; the global random state is left alone. What
belongs to the device alone is timed once in a process: steps, folds and experiments fit the same network many times.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from lqf.curvature.kfac import Piece, Sums
from lqf.curvature.parallel_eigh import AT_A_TIME, Task, run_parallel
from lqf.errors import LQFError
from lqf.fast import FastLinearization
from lqf.kernels.gradients import gradients, parts
from lqf.linear.batch import pass_bytes
from lqf.linear.layers import NormLayer, Tape
from lqf.linear.model import LinearModel
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision

PATIENCE = 0.2
"""Seconds after which a measurement is not repeated again."""
FUSED = 5 / 6
"""The fused product over its two sweeps: it shares one of their two forward passes."""


@dataclass(frozen=True)
class Factor:
    """The sizes of one layer's Kronecker factors: ``groups`` of p × p and o × o, and positions per row."""

    groups: int
    p: int
    o: int
    positions: int


@dataclass(frozen=True)
class PowerLaw:
    """seconds(m) = seconds · (m/side)^exponent."""

    seconds: float
    side: int
    exponent: float = 3.0

    def __call__(self, m: float) -> float:
        """Expected seconds for an m × m matrix."""
        return self.seconds * (m / self.side) ** self.exponent


@dataclass(frozen=True)
class Rates:
    """What the device does in a second, and what a row needs.

    Attributes:
        forward_rows: rows of J·v.
        backward_rows: rows of Jᵀu.
        product_rows: rows of both from one forward pass.
        curvature_rows: rows of the K-FAC pass.
        gradient_rows: per-sample gradients, one output of one row each, without the forward pass they share.
        flops: multiply-adds of a matrix product.
        fast_flops: the same where TF32 is allowed.
        eigh: of a symmetric matrix in float64.
        factor_eigh: of one of many Kronecker factors, in the network's own type.
        factors: sizes of K-FAC's factors.
        draws: gradients per row in the K-FAC pass.
        saved_bytes: what a row's forward pass keeps for the way back.
        output_bytes: outputs of all layers for a row.
        patch_bytes: the largest layer's input patches for a row.
        exact_rows: rows of J·v and Jᵀu in the exact type, one after the other; 0 where that is what products do, too.
        kept_forward_rows, kept_backward_rows: rows of J·v and of Jᵀu whose activations are kept.
        kept_bytes: what that takes for a row; 0 where none are kept.
        keeping_rows: rows a second whose activations are computed and recorded to be kept.
    """

    forward_rows: float
    backward_rows: float
    product_rows: float
    curvature_rows: float
    gradient_rows: float
    flops: float
    fast_flops: float
    eigh: PowerLaw
    factor_eigh: PowerLaw
    factors: tuple[Factor, ...] = ()
    draws: int = 1
    saved_bytes: int = 0
    output_bytes: int = 0
    patch_bytes: int = 0
    exact_rows: float = 0.0
    kept_forward_rows: float = 0.0
    kept_backward_rows: float = 0.0
    kept_bytes: int = 0
    keeping_rows: float = 0.0

    @classmethod
    def measure(
        cls,
        problem: QuadraticProblem,
        fast: QuadraticProblem | None = None,
        exact: QuadraticProblem | None = None,
        *,
        draws: int = 4,
    ) -> Rates:
        """Time everything on one small batch.

        Args:
            problem: what will be solved.
            fast: as the products of PCG see it.
            exact: as its residuals and the dense dual see it, where that is slower: on a GPU.
            draws: gradients per row in the K-FAC pass.
        """
        require_body(problem)
        cuda = problem.targets.is_cuda
        x = problem.inputs.example((fast or problem).inputs.batch_size if cuda else 8)
        fold, v, body = problem.fold[: len(x)], problem.zero_body(), problem.model.body
        ones = torch.ones_like(problem.targets[: len(x)])
        model = (fast or problem).model
        with matmul_precision(fast=True):
            forward = seconds(lambda: model.body_jvp(x, v, fold), x.device) / len(x)
            backward = seconds(lambda: model.body_vjp(x, ones, fold), x.device) / len(x)
            kept = kept_rates(model, x, v, ones, fold) if cuda else {}
        exact_sweeps = sweeps(exact.model, x[: problem.inputs.batch_size], v, ones, fold) if exact and cuda else 0.0
        tape = Tape(body, x[:2])
        factors, (saved, outputs, patches) = layer_factors(tape, x[:1]), pass_bytes(tape, x[:1])
        draws = min(draws, problem.model.n_outputs)
        n = min(len(x), 32 if cuda else 4)
        x, u = x[:n], problem.model.to_features(ones, fold)[:n]
        device = device_rates(problem.targets.device, problem.targets.dtype, torch.get_num_threads())
        untraced = torch.zeros(n, dtype=torch.bool, device=x.device)
        piece = Piece(x, problem.weights[:n], u.expand(draws, *u.shape), untraced)
        with matmul_precision(fast=True):
            curvature = seconds(lambda: Sums(tape).add(piece), x.device) / n
        gradient = gradient_seconds(problem, tape, x, u)
        return cls(
            forward_rows=1 / forward,
            backward_rows=1 / backward,
            product_rows=1 / (FUSED * (forward + backward)),
            curvature_rows=1 / (curvature + missing_work(factors, n, draws) / device["fast_flops"]),
            gradient_rows=1 / max(gradient - backward / 3, 0.1 * gradient),  # a third of it is the way forward
            factors=factors,
            draws=draws,
            saved_bytes=saved,
            output_bytes=outputs,
            patch_bytes=patches,
            exact_rows=1 / exact_sweeps if exact_sweeps else 0.0,
            **device,
            **kept,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Rates:
        """The inverse of `to_dict`; KeyError or TypeError where something is missing or unknown."""
        laws = {name: PowerLaw(**values[name]) for name in ("eigh", "factor_eigh")}
        return cls(**{**values, **laws, "factors": tuple(Factor(**f) for f in values["factors"])})

    def together(self, processes: int) -> Rates:
        """Of so many processes that share the rows of a sweep; what else they share is left out of account."""
        shared = ["forward_rows", "backward_rows", "product_rows", "curvature_rows"]
        shared += ["exact_rows", "kept_forward_rows", "kept_backward_rows", "keeping_rows"]
        return replace(self, **{name: processes * getattr(self, name) for name in shared})


def kept_rates(model: LinearModel, x: Tensor, v: Tensor, u: Tensor, fold: Tensor) -> dict[str, Any]:
    """The fields of `Rates` for rows whose activations are kept."""
    body, other = model.body, x.clone()
    if not isinstance(body, FastLinearization) or body.keep(x) == 0:
        return {}
    at = time.perf_counter()
    used = body.keep(other)  # the first one warms up
    keeping = time.perf_counter() - at
    forward = seconds(lambda: model.body_jvp(x, v, fold), x.device) / len(x)
    backward = seconds(lambda: model.body_vjp(x, u, fold), x.device) / len(x)
    body.forget()
    rows = {"kept_forward_rows": 1 / forward, "kept_backward_rows": 1 / backward, "keeping_rows": len(x) / keeping}
    return rows | {"kept_bytes": used // len(x)}


def sweeps(model: LinearModel, x: Tensor, v: Tensor, u: Tensor, fold: Tensor) -> float:
    """Seconds a row of J·v and then Jᵀu without TF32."""
    u, fold = u[: len(x)], fold[: len(x)]
    with matmul_precision(fast=False):
        return seconds(lambda: (model.body_jvp(x, v, fold), model.body_vjp(x, u, fold)), x.device) / len(x)


def require_body(problem: QuadraticProblem) -> None:
    """Refuse a problem that is all head."""
    if problem.model.body.size == 0:
        raise LQFError("the network has no weights below its head to linearise; use solver `head`")


def seconds(function: Callable[[], object], device: torch.device, repeats: int = 1) -> float:
    """The shortest of a few calls; a slow one is not repeated, but on a GPU the first call, which compiles, loads and
    records kernels, says nothing about the next.
    """
    best, began, cuda = math.inf, time.perf_counter(), device.type == "cuda"
    for call in range(repeats + 1):  # the first one warms up
        if cuda:
            torch.cuda.synchronize(device)
        at = time.perf_counter()
        function()
        if cuda:
            torch.cuda.synchronize(device)
        best = time.perf_counter() - at if cuda and call == 1 else min(best, time.perf_counter() - at)
        if time.perf_counter() - began > PATIENCE and not (cuda and call == 0):
            break
    return best


def layer_factors(tape: Tape, x: Tensor) -> tuple[Factor, ...]:
    """The sizes of all layers' Kronecker factors, from one row."""
    factors = []
    for r in (r for r in tape.record(x)[1] if not isinstance(r.layer, NormLayer)):
        a, g = r.layer.patches(r.a), r.layer.grads(r.y.detach())
        factors.append(Factor(a.shape[1], a.shape[2] + bool(r.layer.bias), g.shape[2], a.shape[3]))
    return tuple(factors)


def missing_work(factors: tuple[Factor, ...], rows: int, draws: int) -> float:
    """Multiply-adds a row will need and a small batch does not show: thin factors are only kept until they are full."""
    inputs = sum(f.groups * f.p**2 * f.positions for f in factors if rows * f.positions < f.p)
    outputs = sum(f.groups * f.o**2 * f.positions * draws for f in factors if rows * f.positions * draws < f.o)
    return float(inputs + outputs)


def gradient_seconds(problem: QuadraticProblem, tape: Tape, x: Tensor, u: Tensor) -> float:
    """Of one per-sample gradient, with its share of the forward pass left in for one output per row."""
    size, item = problem.model.body.size, problem.targets.element_size()
    n = max(1, min(len(x), available_bytes(x.device) // 8 // max(1, size * item)))
    group = parts(tape, size)
    out = problem.targets.new_empty(n, 1, sum(p.size for p in group))
    with matmul_precision(fast=False):
        return seconds(lambda: gradients(tape, group, x[:n], u[None, :n], out, n), x.device) / n


@cache
def device_rates(device: torch.device, dtype: torch.dtype, threads: int) -> dict[str, Any]:
    """The fields of `Rates` that are the same for every problem, by so many threads."""
    like = torch.empty(0, dtype=dtype, device=device)
    wide, own = (eigh_law(like, t, k) for t, k in ((torch.float64, 1), (dtype, AT_A_TIME)))
    flops, fast_flops = (multiply_adds(like, fast) for fast in (False, True))
    return {"flops": flops, "fast_flops": fast_flops, "eigh": wide, "factor_eigh": own}


def multiply_adds(like: Tensor, fast: bool) -> float:
    """Multiply-adds a second of a square product."""
    side = 4096 if like.is_cuda else 768
    a = like.new_ones(side, side)  # random numbers would move the user's generator
    with matmul_precision(fast):
        return side**3 / seconds(lambda: a @ a, like.device)


def eigh_law(like: Tensor, dtype: torch.dtype, at_a_time: int) -> PowerLaw:
    """Of one matrix among so many, from two sizes; the exponent lies between 2 (small matrices) and 3."""
    small, large = (512, 1536) if like.is_cuda else (128, 512)
    many = at_a_time if like.is_cuda else 1  # see `run_parallel`

    def time_of(m: int) -> float:
        matrix = _some_kernel(m, like).to(dtype)
        tasks: list[Task] = [lambda: list(torch.linalg.eigh(matrix))] * many
        return seconds(lambda: run_parallel(tasks, [1.0] * many, like.device), like.device) / many

    times = [time_of(m) for m in (small, large)]
    exponent = math.log(times[1] / times[0]) / math.log(large / small)
    return PowerLaw(times[1], large, min(3.0, max(2.0, exponent)))


def _some_kernel(m: int, like: Tensor) -> Tensor:
    i = torch.arange(m, dtype=torch.float64, device=like.device)
    return torch.exp(-((i[:, None] - i).abs() / 10)) + torch.diag(torch.cos(i))
