"""Leave-one-out of a fit: from the kernels it was chosen by, or from refits."""

from __future__ import annotations

from lqf.evaluation.calibration import fit_temperature
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.select_ridge import Choice
from lqf.fitting.training_set import Rows
from lqf.kernels.tangent import Kernels
from lqf.utils.exactness import Level


def way_to_leave_out(asked: str, kernels: Kernels, n_samples: int, *, can_refit: bool) -> str:
    """One of "folds", "kernel" and "none": an exact kernel of all samples is the best there is."""
    if kernels.exact and len(kernels.samples) == n_samples and asked != "none":
        return "kernel"
    if asked == "auto":
        return "folds" if can_refit else "kernel"
    return asked


def from_kernels(kernels: Kernels, choice: Choice, rows: Rows, bias: float | None) -> LeaveOneOut | None:
    """At the chosen ridge strengths; None where the kernels only stand for a part of the samples.

    ``bias``: by how much a point that has seen the labels flatters, where that was measured.
    """
    if len(kernels.samples) < len(rows.images):
        return None
    level: Level = "exact" if kernels.exact else "estimated"
    notes = [] if kernels.exact else ["roughly, by the kernel averaged over the outputs"]
    if bias is not None:
        notes.append(f"the linearisation point has seen the labels, which flatters it by about {100 * bias:.1f} points")
    outputs = rows.judge.outputs(choice.e_loo).cpu()
    return LeaveOneOut(outputs, rows.labels, rows.judge.weights, level, "; ".join(notes))


def temperature(kernels: Kernels, choice: Choice, rows: Rows) -> float:
    """Inverse temperature of the probabilities, from leave-one-out of the samples that the kernels cover."""
    judge = rows.judge.of(kernels.samples)
    return fit_temperature(judge.outputs(choice.e_loo), judge.labels, judge.weights)[0]
