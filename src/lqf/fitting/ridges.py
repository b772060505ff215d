"""Which ridge strengths a fit tries: all of a grid, or those that the user or a checkpoint fixed."""

from __future__ import annotations

from lqf.fitting.select_ridge import Choice, choose_ridge
from lqf.fitting.training_set import Rows
from lqf.kernels.tangent import Kernels
from lqf.linear.problem import Ridge
from lqf.settings import Settings
from lqf.utils.progress import SILENT, Progress


def fixed_mu(settings: Settings, total: float) -> list[float] | None:
    """μ = λ·Σs where the user fixed the weight decay."""
    return None if settings.weight_decay == "auto" else [float(settings.weight_decay) * total]


def choose_strengths(
    settings: Settings,
    rows: Rows,
    kernels: Kernels,
    head_mu: float,
    fixed: Ridge | None = None,
    progress: Progress = SILENT,
) -> Choice:
    """Ridge strengths by leave-one-out; what is fixed is only evaluated.

    In the centred form the head keeps the strength that is best for it alone, which its exact leave-one-out
    knows, and the body's is chosen beside it.

    Args:
        settings: form and weight decays.
        rows: targets, weights, labels.
        kernels: of head and body.
        head_mu: the best strength of the head alone.
        fixed: by a checkpoint, or by an earlier fit.
        progress: where to report.
    """
    total = float(rows.weights.sum())
    mus, omegas = fixed_mu(settings, total), kernels.ratios()
    if fixed is not None:
        mus, omegas = [fixed.head], [fixed.body / fixed.head]
    elif settings.form == "w0":
        omegas = [1.0]
    elif mus is None:
        mus = [head_mu]
    if fixed is None and settings.body_weight_decay != "auto":
        mus = mus or [head_mu]
        omegas = [float(settings.body_weight_decay) * total / mus[0]]
    judge = rows.judge.of(kernels.samples)
    return choose_ridge(kernels.factorise, kernels.residual, judge, omegas, mus, progress)
