"""Ridge strengths chosen by leave-one-out: every candidate's out-of-sample outputs in closed form, no test data.

Candidates are compared by the cross-entropy of their leave-one-out outputs at their own best temperature: smooth
where the error rate moves in steps of 1/N, and unlike the squared error it asks for the right class, not for the
right number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.evaluation.calibration import fit_temperature
from lqf.kernels.ridge import KernelRidge
from lqf.linear.inputs import average_views
from lqf.linear.targets import error_rate
from lqf.utils.progress import SILENT, Progress

RELATIVE_GRID = tuple(float(x) for x in 10 ** torch.linspace(-3, 2, 26, dtype=torch.float64))
"""Ridge strengths tried, in units of the kernel's mean eigenvalue."""


@dataclass(frozen=True)
class Judge:
    """Scores leave-one-out residuals of rows against the samples' labels.

    Attributes:
        targets: (n, C) of the rows.
        labels: (N,) of the samples.
        weights: (N,) of the samples.
        n_views: rows per sample.
    """

    targets: Tensor
    labels: Tensor
    weights: Tensor
    n_views: int

    def of(self, samples: Tensor) -> Judge:
        """The judge of some samples only."""
        rows = (samples[:, None] * self.n_views + torch.arange(self.n_views)).flatten()
        return Judge(
            self.targets[rows.to(self.targets.device)], self.labels[samples], self.weights[samples], self.n_views
        )

    def outputs(self, e_loo: Tensor) -> Tensor:
        """Out-of-sample outputs t − e^loo of the samples (N, C), averaged over their views."""
        return average_views(self.targets.to(e_loo) - e_loo, self.n_views)

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
    trials: list[Trial] = []
    kept: tuple[Trial, Tensor] | None = None
    with progress.stage("weight decay", total=len(omegas), unit="ratios") as stage:
        for omega in omegas:
            ridge = factor(omega)
            target = r if len(ridge.q) == len(r) else r.reshape(-1, 1)
            for mu in [ridge.scale * x for x in RELATIVE_GRID] if mus is None else mus:
                e_loo = ridge.loo(target, mu).view_as(r)
                trials.append(judge.trial(e_loo, mu, omega))
                if kept is None or trials[-1].loss < kept[0].loss:
                    kept = trials[-1], e_loo
            del ridge  # two factorisations at a time may be too many
            stage.advance(1, loo_error=f"{kept[0].error:.1%}" if kept else "")
    assert kept is not None
    return Choice(*kept, tuple(trials))
