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
from dataclasses import dataclass, field
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
        rz: (k,) rᵀB⁻¹r before it.
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
        ratio: (k,) ‖x − x*‖²_A / rᵀB⁻¹r by which that was estimated; None likewise.
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
        prior: the ratio of that error to rᵀB⁻¹r, squared, where it is known before the first step.
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
    error = None if energy is None else EnergyError(energy.to(size), least, prior)
    run = _Iteration(operator, precondition, x, r, size, error, tol, ridge, agree, certify, refresh, passes)
    run.begin(is_true, first)
    try:
        # the most passes are no measure of how far it is: a bar and the time left by them would be many times too long
        with progress.stage("solving", unit=f"of at most {max_passes} passes") as stage:
            stage.advance(passes, residual=run.worst)
            while len(on := run.unsolved()) and run.passes < max_passes:
                before = run.passes
                run.advance(on, careful=run.passes < CAREFUL * max_passes)
                if run.passes > before:
                    run.note()
                    stage.advance(run.passes - before, residual=run.worst)
                    if keep:
                        keep(run.x, run.passes)
                if arrived is not None:
                    run.near |= _agreed(arrived().double(), agree).to(run.near)
    except (KeyboardInterrupt, ProcessLost, OutOfTime):
        if keep:
            keep(run.x, run.passes, last=True)
        raise
    return run.reached()


@dataclass
class _Iteration:
    """Where an iteration stands; arguments as of `conjugate_gradients`, but for those that the caller's loop is about.

    Attributes:
        relative: (k,) ‖r_j‖/size_j.
        known: (k,) whose residual is the true one.
        near: (k,) whose error is small enough.
        p, r_old, rz_old: (k, D) the last direction, residual before it, and (k,) its rᵀB⁻¹r.
        steps: made so far.
        history: the way so far.
    """

    operator: Operator
    precondition: Callable[[Tensor], Tensor]
    x: Tensor
    r: Tensor
    size: Tensor
    error: EnergyError | None
    tol: float
    ridge: float | Tensor | None
    agree: Callable[[float], float]
    certify: bool
    refresh: int
    passes: int
    steps: int = 0
    history: list[Step] = field(default_factory=list)
    relative: Tensor = field(init=False)
    known: Tensor = field(init=False)
    near: Tensor = field(init=False)
    p: Tensor = field(init=False)
    r_old: Tensor = field(init=False)
    rz_old: Tensor = field(init=False)
    _began: float = field(default_factory=time.perf_counter, init=False)

    def begin(self, is_true: bool, first: FirstStep | None) -> None:
        """At the first iterate, with the step that led there."""
        self.size = torch.where(self.size > 0, self.size, 1.0)
        self.relative = _relative(self.r, self.size, self.agree)
        self.known = torch.full_like(self.relative, is_true or not self.certify, dtype=torch.bool)
        self.near = torch.zeros_like(self.known)
        self.history.append(Step(self.passes, 0.0, self.worst))
        self.p, self.r_old = torch.zeros_like(self.r), torch.zeros_like(self.r)
        self.rz_old = torch.ones_like(self.relative)
        if first is not None:
            self.p, self.r_old, self.rz_old = first.direction.clone(), first.residual.clone(), first.rz.clone()
            self.steps = 1
            if self.error is not None:
                self.error.step(torch.arange(len(self.x), device=self.x.device), first.rz, first.gain)

    @property
    def worst(self) -> float:
        """The largest relative residual."""
        return float(self.relative.max())

    @property
    def enough(self) -> float:
        """A relative residual at which nothing is left to do."""
        return self.tol if self.error is None else 0.0

    def unsolved(self) -> Tensor:
        """(m,) numbers of the right-hand sides that are not solved yet."""
        solved = (self.relative <= self.enough) & self.known
        return ((self.relative > 0) & ~solved & ~self.near).nonzero()[:, 0]

    def note(self) -> None:
        """Where it is, for the history."""
        self.history.append(Step(self.passes, time.perf_counter() - self._began, self.worst))

    def advance(self, on: Tensor, *, careful: bool) -> None:
        """One step of the right-hand sides ``on``, or none where some are near enough already; then true residuals
        where they are due.
        """
        z, here = self.precondition(self.r[on]), self.r[on]
        rz = _dots(here, z)
        there = self._there(on, here, rz, careful)
        self.near[there] = self.known[there]
        due = there[~self.known[there]]
        if len(there) == 0:
            self._step(on, here, z, rz)
            due = on if self.steps % self.refresh == 0 else on[self.relative[on] <= self.enough]
        if len(due):
            self._measure(due)
            self.relative = _relative(self.r, self.size, self.agree)

    def _there(self, on: Tensor, here: Tensor, rz: Tensor, careful: bool) -> Tensor:
        """Which of them are near enough to the solution."""
        if self.error is None:
            return on[:0]
        most = None if self.ridge is None else _over(here, self.ridge)
        distance = self.error.careful if careful else self.error.relative
        return on[_agreed(distance(on, rz, most), self.agree) <= self.tol]

    def _step(self, on: Tensor, here: Tensor, z: Tensor, rz: Tensor) -> None:
        p = self.p
        beta = ((rz - _dots(self.r_old[on], z)) / self.rz_old[on]).clamp_min(0) if self.steps else torch.zeros_like(rz)
        p[on] = z + beta[:, None].to(z) * p[on]
        self.r_old[on], self.rz_old[on] = here, rz
        ap, along = self.operator.product(p[on]), _dots(here, p[on])
        step = (along / _dots(p[on], ap))[:, None].to(self.x)
        self.x = self.x.index_copy(0, on, self.x[on] + step * p[on])
        self.r = self.r.index_copy(0, on, here - step * ap)
        if self.error is not None:
            self.error.step(on, rz, along * step[:, 0].double())
        self.known[on], self.passes, self.steps = not self.certify, self.passes + 1, self.steps + 1
        self.relative = _relative(self.r, self.size, self.agree)

    def _measure(self, which: Tensor) -> None:
        """The true residuals of some right-hand sides."""
        some = self.x[which]
        exact = self.operator.residual(some, which)
        self.x, self.r = self.x.index_copy(0, which, some), self.r.index_copy(0, which, exact)
        self.known[which], self.passes = True, self.passes + 1

    def reached(self) -> Reached:
        """Where it ends, with the residuals that are not true yet measured."""
        if not bool(self.known.all()):
            self._measure((~self.known).nonzero()[:, 0])
            worst = float(_relative(self.r, self.size).max())
            self.history.append(Step(self.passes, time.perf_counter() - self._began, worst))
        if self.error is None:
            return Reached(self.x, self.r, self.passes, tuple(self.history))
        every = torch.arange(len(self.x), device=self.x.device)
        most = None if self.ridge is None else _over(self.r, self.ridge)
        at = _agreed(self.error.relative(every, _dots(self.r, self.precondition(self.r)), most), self.agree)
        bound = None if most is None else _agreed(self.error.bound(every, most), self.agree)
        return Reached(self.x, self.r, self.passes, tuple(self.history), at, self.error.ratio, bound)


def _agreed(values: Tensor, agree: Callable[[float], float]) -> Tensor:
    """The same numbers on all processes."""
    return torch.tensor([agree(v) for v in values.tolist()], dtype=values.dtype, device=values.device)


def _relative(r: Tensor, size: Tensor, agree: Callable[[float], float] = float) -> Tensor:
    """(k,) ‖r_j‖/size_j."""
    pairs = zip(_dots(r, r).tolist(), size.tolist(), strict=True)
    return torch.tensor([agree(square**0.5 / s) for square, s in pairs], dtype=torch.float64, device=r.device)


def _over(r: Tensor, ridge: float | Tensor) -> Tensor:
    """⟨r_j, B⁻¹ r_j⟩."""
    return _dots(r, r / ridge) if isinstance(ridge, Tensor) else _dots(r, r) / ridge


def _dots(a: Tensor, b: Tensor) -> Tensor:
    """⟨a_j, b_j⟩ in float64, of which two rows are held at a time."""
    return torch.stack([(x.double() * y.double()).sum() for x, y in zip(a, b, strict=True)])
