"""Conjugate gradients, for any positive definite operator that is applied by passes over the data.

Products may be fast and slightly wrong. Every ``refresh`` steps, and before it stops, the running residual is replaced
by the true one, so that what is reported is measured and errors cannot accumulate: iterative refinement that keeps its
search direction. Inner products are in float64. The direction update is the flexible (Polak–Ribière) one, which
tolerates the inconsistency between a fast product and a true residual.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from lqf.errors import ProcessLost
from lqf.solvers.solution import Step
from lqf.utils.progress import SILENT, Progress


class Operator(Protocol):
    """A x = b; a product and a true residual cost one pass each."""

    def product(self, v: Tensor) -> Tensor:
        """A v, possibly in a fast precision."""
        ...

    def residual(self, x: Tensor) -> Tensor:
        """b − A x, exactly."""
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
    refresh: int = 20,
    is_true: bool = True,
    keep: Keep | None = None,
    progress: Progress = SILENT,
    agree: Callable[[float], float] = float,
    certify: bool = True,
) -> Reached:
    """Reduce ‖b − Ax‖/‖b‖ to ``tol`` from the iterate ``x`` with residual ``r``, within ``max_passes``.

    ``is_true`` says whether ``r`` was measured exactly; what is returned always is, except without
    ``certify``. Many processes that run this side by side ``agree`` on the residual that decides how they go on.
    """
    began = time.perf_counter()
    relative = agree(dot(r, r) ** 0.5 / (b_norm or 1.0))
    history = [Step(passes, 0.0, relative)]
    p = r_old = None
    rz_old, steps = 0.0, 0
    try:
        with progress.stage("solving", total=max_passes, unit="passes") as stage:
            stage.advance(passes, residual=relative)
            while relative > 0 and not (relative <= tol and is_true) and passes < max_passes:
                z = precondition(r)
                rz = dot(r, z)
                beta = 0.0 if r_old is None else max(0.0, (rz - dot(r_old, z)) / rz_old)
                p = z if p is None else z + beta * p
                r_old, rz_old = r, rz
                ap = operator.product(p)
                step = dot(r, p) / dot(p, ap)
                x, r, is_true = x + step * p, r - step * ap, False
                before, passes, steps = passes, passes + 1, steps + 1
                relative = agree(dot(r, r) ** 0.5 / b_norm)
                if relative <= tol or steps % refresh == 0:
                    r, is_true = operator.residual(x), True
                    relative, passes = agree(dot(r, r) ** 0.5 / b_norm), passes + 1
                history.append(Step(passes, time.perf_counter() - began, relative))
                stage.advance(passes - before, residual=relative)
                if keep:
                    keep(x, passes)
    except (KeyboardInterrupt, ProcessLost):
        if keep:
            keep(x, passes, last=True)
        raise
    if certify and not is_true:
        r, passes = operator.residual(x), passes + 1
        history.append(Step(passes, time.perf_counter() - began, dot(r, r) ** 0.5 / b_norm))
    return Reached(x, r, passes, tuple(history))
