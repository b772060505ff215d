"""Conjugate gradients, for one or several right-hand sides of a positive definite operator applied by passes over the
data; each pass serves all of them.

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

import torch
from torch import Tensor

from lqf.errors import ProcessLost
from lqf.runtime.deadline import OutOfTime
from lqf.solvers.energy import EnergyError
from lqf.solvers.solution import Step
from lqf.utils.progress import SILENT, Progress

CAREFUL = 0.5
"""Of the passes that may be made, those in which an error that is only estimated is not believed at once."""


class Operator(Protocol):
    """A x_j = b_j for k right-hand sides; a product and a true residual cost one pass each."""

    def product(self, v: Tensor) -> Tensor:
        """A v_j (m, D) for the rows of v, possibly in a fast precision."""
        ...

    def residual(self, x: Tensor, which: Tensor) -> Tensor:
        """b_j − A x_j (m, D) exactly, for the right-hand sides ``which`` (m,).

        Where many processes run the iteration, x (m, D) is made the same on all of them, in place.
        """
        ...


class Keep(Protocol):
    """Called with every new iterate (k, D) and the passes so far; ``last`` when the solve is being interrupted."""

    def __call__(self, x: Tensor, passes: int, last: bool = False) -> None:
        """Keep it."""
        ...


@dataclass(frozen=True)
class FirstStep:
    """A step that was made before, from which the iteration goes on.

    Attributes:
        direction: (k, D) p.
        residual: (k, D) r before it.
        rz: (k,) rᵀM⁻¹r before it.
        gain: (k,) (r·p)²/(p·Ap).
    """

    direction: Tensor
    residual: Tensor
    rz: Tensor
    gain: Tensor


@dataclass(frozen=True)
class Reached:
    """Where the iteration ended.

    Attributes:
        x: (k, D).
        r: (k, D) residuals, true where they were certified.
        passes: made.
        history: the way there.
        energy: (k,) estimated ‖x − x*‖_A in the units that were given; None where none were.
        ratio: (k,) ‖x − x*‖²_A / rᵀM⁻¹r by which that was estimated; None likewise.
        bound: (k,) what ‖x − x*‖_A cannot exceed, in the same units; None where no ridge was given.
    """

    x: Tensor
    r: Tensor
    passes: int
    history: tuple[Step, ...]
    energy: Tensor | None = None
    ratio: Tensor | None = None
    bound: Tensor | None = None


def conjugate_gradients(
    operator: Operator,
    precondition: Callable[[Tensor], Tensor],
    x: Tensor,
    r: Tensor,
    size: Tensor,
    *,
    tol: float,
    max_passes: int,
    energy: Tensor | None = None,
    least: int = 1,
    prior: float | None = None,
    ridge: float | Tensor | None = None,
    passes: int = 0,
    refresh: int = 20,
    is_true: bool = True,
    keep: Keep | None = None,
    progress: Progress = SILENT,
    agree: Callable[[float], float] = float,
    certify: bool = True,
    first: FirstStep | None = None,
    arrived: Callable[[], Tensor] | None = None,
) -> Reached:
    """Reduce ‖b_j − A x_j‖/size_j, or the error ‖x_j − x*_j‖_A/energy_j, to ``tol`` within ``max_passes``; a right-hand
    side that is there leaves the passes.

    Args:
        operator: A and the right-hand sides.
        precondition: acts on the rows of a matrix.
        x: (k, D) iterates to begin with.
        r: (k, D) their residuals.
        size: (k,) what residuals are relative to, usually ‖b_j‖.
        tol: relative residual, or relative error, to reach.
        max_passes: products and true residuals, at most.
        energy: (k,) what the error in the energy norm (`lqf.solvers.energy`) is relative to; None: residuals decide.
        least: steps from which on that error is estimated.
        prior: the ratio of that error to rᵀM⁻¹r, squared, where it is known before the first step.
        ridge: M (a number, or the diagonal (D,)) of A = JᵀQJ + M, by which residuals bound that error.
        passes: that were made before.
        refresh: steps after which true residuals replace the running ones.
        is_true: whether ``r`` was measured exactly; what is returned is, except without ``certify``.
        keep: e.g. writes checkpoints.
        progress: where to report.
        agree: makes many processes that run this side by side take the same number.
        certify: measure residuals that are not true yet before it stops; otherwise the running ones are trusted.
        first: the step that led to ``x``; None: it is where the iteration begins.
        arrived: says after every step which right-hand sides (k,) are good enough by another measure; None: by none.
    """
    began, size = time.perf_counter(), torch.where(size > 0, size, 1.0)
    relative = _relative(r, size, agree)
    known = torch.full_like(relative, is_true or not certify, dtype=torch.bool)  # whose residual is the true one
    error = None if energy is None else EnergyError(energy.to(size), least, prior)
    near = torch.zeros_like(known)  # whose error is small enough
    enough = tol if error is None else 0.0  # a residual at which nothing is left to do
    history = [Step(passes, 0.0, float(relative.max()))]
    p, r_old, rz_old, steps = torch.zeros_like(r), torch.zeros_like(r), torch.ones_like(relative), 0
    if first is not None:
        p, r_old, rz_old, steps = first.direction.clone(), first.residual.clone(), first.rz.clone(), 1
        if error is not None:
            error.step(torch.arange(len(x), device=x.device), first.rz, first.gain)
    try:
        # the most passes are no measure of how far it is: a bar and the time left by them would be many times too long
        with progress.stage("solving", unit=f"of at most {max_passes} passes") as stage:
            stage.advance(passes, residual=float(relative.max()))
            while len(on := _open(relative, known, near, enough)) and passes < max_passes:
                z, here, before = precondition(r[on]), r[on], passes
                rz = _dots(here, z)
                most = None if ridge is None else _over(here, ridge)
                there = on[:0]
                if error is not None:
                    distance = error.careful if passes < CAREFUL * max_passes else error.relative
                    there = on[_agreed(distance(on, rz, most), agree) <= tol]
                near[there] = known[there]
                due = there[~known[there]]
                if len(there) == 0:
                    beta = ((rz - _dots(r_old[on], z)) / rz_old[on]).clamp_min(0) if steps else torch.zeros_like(rz)
                    p[on] = z + beta[:, None].to(z) * p[on]
                    r_old[on], rz_old[on] = here, rz
                    ap, along = operator.product(p[on]), _dots(here, p[on])
                    step = (along / _dots(p[on], ap))[:, None].to(x)
                    x, r = x.index_copy(0, on, x[on] + step * p[on]), r.index_copy(0, on, here - step * ap)
                    if error is not None:
                        error.step(on, rz, along * step[:, 0].double())
                    known[on], passes, steps = not certify, passes + 1, steps + 1
                    relative = _relative(r, size, agree)
                    due = on if steps % refresh == 0 else on[relative[on] <= enough]
                if len(due):
                    x, r = _measured(operator, x, r, due)
                    known[due], passes, relative = True, passes + 1, _relative(r, size, agree)
                if passes > before:
                    history.append(Step(passes, time.perf_counter() - began, float(relative.max())))
                    stage.advance(passes - before, residual=float(relative.max()))
                    if keep:
                        keep(x, passes)
                if arrived is not None:
                    near |= _agreed(arrived().double(), agree).to(near)
    except (KeyboardInterrupt, ProcessLost, OutOfTime):
        if keep:
            keep(x, passes, last=True)
        raise
    if not bool(known.all()):
        x, r = _measured(operator, x, r, (~known).nonzero()[:, 0])
        passes += 1
        history.append(Step(passes, time.perf_counter() - began, float(_relative(r, size).max())))
    every = torch.arange(len(x), device=x.device)
    if error is None:
        return Reached(x, r, passes, tuple(history))
    most = None if ridge is None else _over(r, ridge)
    at = _agreed(error.relative(every, _dots(r, precondition(r)), most), agree)
    bound = None if most is None else _agreed(error.bound(every, most), agree)
    return Reached(x, r, passes, tuple(history), at, error.ratio, bound)


def _measured(operator: Operator, x: Tensor, r: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
    """x and r with the true residuals of some right-hand sides."""
    some = x[which]
    exact = operator.residual(some, which)
    return x.index_copy(0, which, some), r.index_copy(0, which, exact)


def _open(relative: Tensor, known: Tensor, near: Tensor, enough: float) -> Tensor:
    """Which right-hand sides are not solved yet."""
    return ((relative > 0) & ~((relative <= enough) & known) & ~near).nonzero()[:, 0]


def _agreed(values: Tensor, agree: Callable[[float], float]) -> Tensor:
    """The same numbers on all processes."""
    return torch.tensor([agree(v) for v in values.tolist()], dtype=values.dtype, device=values.device)


def _relative(r: Tensor, size: Tensor, agree: Callable[[float], float] = float) -> Tensor:
    """(k,) ‖r_j‖/size_j."""
    pairs = zip(_dots(r, r).tolist(), size.tolist(), strict=True)
    return torch.tensor([agree(square**0.5 / s) for square, s in pairs], dtype=torch.float64, device=r.device)


def _over(r: Tensor, ridge: float | Tensor) -> Tensor:
    """⟨r_j, M⁻¹ r_j⟩."""
    return _dots(r, r / ridge) if isinstance(ridge, Tensor) else _dots(r, r) / ridge


def _dots(a: Tensor, b: Tensor) -> Tensor:
    """⟨a_j, b_j⟩ in float64, of which two rows are held at a time."""
    return torch.stack([(x.double() * y.double()).sum() for x, y in zip(a, b, strict=True)])
