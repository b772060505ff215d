"""Ridge strengths by leave-one-out: every candidate's out-of-sample outputs in closed form, no test data.

Candidates are compared by the cross-entropy of their leave-one-out outputs at their own best temperature: smooth
where the error rate moves in steps of 1/N, and unlike the squared error it asks for the right class, not for the
right number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.evaluation.calibration import fit_temperature
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.tangent import Kernels
from lqf.linear.inputs import average_views
from lqf.linear.ridge import Ridge
from lqf.linear.targets import error_rate
from lqf.settings import Settings
from lqf.utils.progress import SILENT, Progress

RELATIVE_GRID = tuple(float(x) for x in 10 ** torch.linspace(-3, 2, 26, dtype=torch.float64))
"""Ridge strengths tried, in units of the kernel's mean eigenvalue."""
PRIOR_RATIO = 10.0
"""Ratio of the body's strength to the head's, in units of the ratio of their kernels' mean eigenvalues, where nothing
can be left out: the body changes little."""
STEP = 10**0.2
FURTHER = 20
"""Steps by which the grid is extended, at most, where the best strength lies at one of its ends."""
WORTH_GOING_ON = 1e-3
"""Share of the loss that a further step must gain for another one to be tried."""
FURTHER_RATIOS = 3
"""Likewise of the ratios of the body's strength to the head's, each of which takes a factorisation, and upwards alone:
a weaker body than the lowest of them is a matter of chance."""


@dataclass(frozen=True)
class Judge:
    """Scores leave-one-out residuals of rows against the samples' labels.

    Attributes:
        targets: (n, C) of the rows.
        labels: (N,) of the samples.
        weights: (N,) of the samples, where candidates are compared.
        n_views: rows per sample.
        blind: whether leaving samples out says nothing about them, so that strengths have to be priors.
        counted: (N,) of the samples, where an error is reported; None: the same.
    """

    targets: Tensor
    labels: Tensor
    weights: Tensor
    n_views: int
    blind: bool = False
    counted: Tensor | None = None

    def of(self, samples: Tensor) -> Judge:
        """The judge of some samples only."""
        rows = (samples[:, None] * self.n_views + torch.arange(self.n_views)).flatten()
        targets = self.targets[rows.to(self.targets.device)]
        counted = None if self.counted is None else self.counted[samples]
        return Judge(targets, self.labels[samples], self.weights[samples], self.n_views, self.blind, counted)

    def outputs(self, e_loo: Tensor, first: int | None = None) -> Tensor:
        """Out-of-sample outputs t − e^loo of the samples (N, C), averaged over their views or the first so many."""
        return average_views(self.targets.to(e_loo) - e_loo, self.n_views, first)

    def error(self, e_loo: Tensor, first: int | None = None) -> float:
        """Share of wrong decisions by `outputs`, as it is reported."""
        counted = self.weights if self.counted is None else self.counted
        return error_rate(self.outputs(e_loo, first), self.labels, counted)

    def trial(self, e_loo: Tensor, mu: float, omega: float) -> Trial:
        """Judge one candidate."""
        if not bool(torch.isfinite(e_loo).all()):
            return Trial(mu, omega, float("inf"), 1.0)
        outputs = self.outputs(e_loo)
        loss = fit_temperature(outputs, self.labels, self.weights)[1]
        return Trial(mu, omega, loss, error_rate(outputs, self.labels, self.weights))


@dataclass(frozen=True)
class Trial:
    """One candidate: ridge strengths, leave-one-out cross-entropy and error."""

    mu: float
    omega: float
    loss: float
    error: float


@dataclass(frozen=True)
class Choice:
    """The best candidate, its leave-one-out residuals (n, C) per row, and all that was tried."""

    best: Trial
    e_loo: Tensor
    trials: tuple[Trial, ...]

    @property
    def mu(self) -> float:
        """Ridge strength of the head."""
        return self.best.mu

    @property
    def omega(self) -> float:
        """Ratio of the body's ridge strength to the head's."""
        return self.best.omega

    @property
    def ridge(self) -> Ridge:
        """Of head and body."""
        return Ridge(self.mu, self.mu * self.omega)

    @property
    def at_end(self) -> str:
        """Which end, "lowest" or "highest", the best strength of head or body is at; empty where it is at none."""
        for of in ("mu", "omega"):
            tried = [getattr(t, of) for t in self.trials]
            if len(set(tried)) > 1 and getattr(self.best, of) in (min(tried), max(tried)):
                return "lowest" if getattr(self.best, of) == min(tried) else "highest"
        return ""


def unjudged(mu: float, residual: Tensor) -> Choice:
    """A strength that was given and is not judged."""
    trial = Trial(mu, 1.0, float("nan"), float("nan"))
    return Choice(trial, torch.full_like(residual, torch.nan), (trial,))


def choose_ridge(
    factor: Callable[[float], KernelRidge],
    r: Tensor,
    judge: Judge,
    omegas: Sequence[float],
    mus: Sequence[float] | None = None,
    progress: Progress = SILENT,
) -> Choice:
    """μ and ω together: one factorisation per ω, every μ from each.

    Args:
        factor: ω -> the factorised kernel K_head + K_body/ω.
        r: (n, C) right-hand side; it is flattened to (nC, 1) where the kernel is over (row, output) pairs.
        judge: compares.
        omegas: ratios μ_body/μ_head to try.
        mus: candidates for μ; None: `RELATIVE_GRID` times each kernel's mean eigenvalue.
        progress: where to report.
    """
    tried = _Tried(r, judge)
    with progress.stage("weight decay", total=len(omegas), unit="ratios") as stage:
        for omega in omegas:
            tried.along(factor(omega), omega, mus)
            stage.advance(1, loo_error=f"{tried.best.error:.1%}")
        for omega in tried.beyond(omegas):
            tried.along(factor(omega), omega, mus)
    return tried.choice()


class _Tried:
    """All candidates so far, and the best of them."""

    def __init__(self, r: Tensor, judge: Judge):
        self.r, self.judge = r, judge
        self.trials: list[Trial] = []
        self._kept: tuple[Trial, Tensor] | None = None

    @property
    def best(self) -> Trial:
        return self.choice().best

    def choice(self) -> Choice:
        assert self._kept is not None
        return Choice(*self._kept, tuple(self.trials))

    def along(self, ridge: KernelRidge, omega: float, mus: Sequence[float] | None) -> None:
        """Every μ with one factorisation; beyond the ends of the grid as long as the loss falls there."""
        for mu in [ridge.scale * x for x in RELATIVE_GRID] if mus is None else mus:
            self._try(ridge, mu, omega)
        if mus is not None or self.best.omega != omega:
            return
        ends = (RELATIVE_GRID[0] * ridge.scale, 1 / STEP), (RELATIVE_GRID[-1] * ridge.scale, STEP)
        for mu, factor in ends:
            before = torch.inf
            for _ in range(FURTHER):
                if self.best.mu != mu or not self.best.loss < (1 - WORTH_GOING_ON) * before:
                    break
                before, mu = self.best.loss, mu * factor
                self._try(ridge, mu, omega)

    def beyond(self, omegas: Sequence[float]) -> Iterator[float]:
        """Further ratios, as long as the best one is the highest of those tried."""
        if len(omegas) < 2:
            return
        before, end = omegas[-2:]
        for _ in range(FURTHER_RATIOS):
            if self.best.omega != end:
                return
            before, end = end, end * end / before
            yield end

    def _try(self, ridge: KernelRidge, mu: float, omega: float) -> None:
        target = self.r if len(ridge.q) == len(self.r) else self.r.reshape(-1, 1)
        e_loo = ridge.loo(target, mu).view_as(self.r)
        self.trials.append(self.judge.trial(e_loo, mu, omega))
        if self._kept is None or self.trials[-1].loss < self._kept[0].loss:
            self._kept = self.trials[-1], e_loo


def given_ridge(settings: Settings, total_weight: float) -> list[float] | None:
    """μ = λ·Σs of the head where the user gave its weight decay; None: it is to be chosen."""
    return None if settings.weight_decay == "auto" else [float(settings.weight_decay) * total_weight]


def choose_strengths(
    settings: Settings,
    judge: Judge,
    total_weight: float,
    kernels: Kernels,
    head_ridge: float,
    fixed: Ridge | None = None,
    progress: Progress = SILENT,
) -> Choice:
    """Ridge strengths of head and body; what is fixed is only evaluated.

    In the centred form the head keeps the strength that is best for it alone, which its exact leave-one-out knows, and
    the body's is chosen with it.

    Args:
        settings: form and weight decays.
        judge: of all training samples.
        total_weight: Σs.
        kernels: of head and body.
        head_ridge: the best strength of the head alone.
        fixed: by a checkpoint, or by an earlier fit.
        progress: where to report.
    """
    mus, omegas = given_ridge(settings, total_weight), kernels.ratios()
    if judge.blind:
        mus, omegas = mus or [head_ridge], [PRIOR_RATIO * kernels.unit]
    if fixed is not None:
        mus, omegas = [fixed.head], [fixed.body / fixed.head]
    elif settings.form == "w0":
        omegas = [1.0]
    elif mus is None:
        mus = [head_ridge]
    if fixed is None and settings.body_weight_decay != "auto":
        mus = mus or [head_ridge]
        omegas = [float(settings.body_weight_decay) * total_weight / mus[0]]

    def factor(omega: float) -> KernelRidge:
        return kernels.factorise(Ridge(1.0, omega) if fixed is None else fixed.scaled(1 / fixed.head))

    return choose_ridge(factor, kernels.residual, judge.of(kernels.samples), omegas, mus, progress)
