"""Conjugate gradients, for any positive definite operator that is applied by passes over the data.

Products run in the fast precision of the device (TF32 changed the course of a solve with ResNet-50 by nothing that
could be seen). Every ``refresh`` steps, and before it stops, the running residual is replaced by the true one in
plain float32, so that what is reported is measured and rounding cannot accumulate. Inner products are in float64. The
direction update is the flexible (Polak–Ribière) one, which tolerates the small inconsistencies between the two
precisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from lqf.errors import ProcessLost
from lqf.precision import matmul_precision
from lqf.progress import SILENT, Progress
from lqf.solution import Step


class Operator(Protocol):
    """A x = b; a product and a true residual cost one pass each."""

    def product(self, v: Tensor) -> Tensor:
        """A v."""
        ...

    def residual(self, x: Tensor) -> Tensor:
        """b − A x."""
        ...


class Keep(Protocol):
    """Called with every new iterate and the passes so far; ``last`` when the solve is being interrupted."""

    def __call__(self, x: Tensor, passes: int, last: bool = False) -> None:
        """Keep it."""
        ...


@dataclass(frozen=True)
class Reached:
    """Where the iteration ended: x, its true residual, passes made, and the way there."""

    x: Tensor
    r: Tensor
    passes: int
    history: tuple[Step, ...]


def dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩ in float64."""
    return float((a.double() * b.double()).sum())


def conjugate_gradients(
    operator: Operator,
    precondition: Callable[[Tensor], Tensor],
    x: Tensor,
    r: Tensor,
    b_norm: float,
    *,
    tol: float,
    max_passes: int,
    passes: int = 0,
    refresh: int = 10,
    keep: Keep | None = None,
    progress: Progress = SILENT,
    agree: Callable[[float], float] = float,
) -> Reached:
    """Reduce ‖b − Ax‖/‖b‖ to ``tol`` from the iterate ``x`` with true residual ``r``, within ``max_passes``.

    Many processes that run this side by side ``agree`` on the residual that decides how they go on.
    """
    began = time.perf_counter()
    relative = agree(dot(r, r) ** 0.5 / (b_norm or 1.0))
    history = [Step(passes, 0.0, relative)]
    p = r_old = None
    rz_old, steps, is_true = 0.0, 0, True
    try:
        with progress.stage("solving", total=max_passes, unit="passes") as stage:
            stage.advance(passes, residual=relative)
            while not (relative <= tol and is_true) and passes < max_passes:
                z = precondition(r)
                rz = dot(r, z)
                beta = 0.0 if r_old is None else max(0.0, (rz - dot(r_old, z)) / rz_old)
                p = z if p is None else z + beta * p
                r_old, rz_old = r, rz
                ap = _product(operator, p)
                step = dot(r, p) / dot(p, ap)
                x, r, is_true = x + step * p, r - step * ap, False
                before, passes, steps = passes, passes + 1, steps + 1
                relative = agree(dot(r, r) ** 0.5 / b_norm)
                if relative <= tol or steps % refresh == 0:
                    r, is_true = _true_residual(operator, x), True
                    relative, passes = agree(dot(r, r) ** 0.5 / b_norm), passes + 1
                history.append(Step(passes, time.perf_counter() - began, relative))
                stage.advance(passes - before, residual=relative)
                if keep:
                    keep(x, passes)
    except (KeyboardInterrupt, ProcessLost):
        if keep:
            keep(x, passes, last=True)
        raise
    if not is_true:
        r, passes = _true_residual(operator, x), passes + 1
        history.append(Step(passes, time.perf_counter() - began, dot(r, r) ** 0.5 / b_norm))
    return Reached(x, r, passes, tuple(history))


def _product(operator: Operator, p: Tensor) -> Tensor:
    with matmul_precision(fast=True):
        return operator.product(p)


def _true_residual(operator: Operator, x: Tensor) -> Tensor:
    with matmul_precision(fast=False):
        return operator.residual(x)
