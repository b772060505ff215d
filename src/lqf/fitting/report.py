"""What a fit says about itself: what was solved and how exactly, what was chosen automatically, how long it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from lqf.linear.ridge import Ridge
from lqf.solvers.solution import Solution, Step
from lqf.utils.text import counted, duration, percent
from lqf.utils.typed import check_types

if TYPE_CHECKING:
    from lqf.evaluation.leave_one_out import LeaveOneOut


@dataclass(frozen=True)
class FitReport:
    """One fit, in numbers; `to_dict` is what `lqf fit --json` prints and what a saved model keeps.

    Attributes:
        n, classes: the training set.
        backbone: its name.
        plan: what was going to be done, and its predicted cost.
        point: kind of the linearisation point; None for a head alone.
        form, pooling, views: of the problem.
        moved: how the network was moved before it was linearised; None: it was not.
        choices: what was chosen automatically: what was tried, how it did in leave-one-out, what was kept.
        solver, level, ridge, weight_decay, body_weight_decay: of the solution.
        relative_residual, passes, converged, certificate, history: how it is known.
        unknowns: number of weights that were solved for.
        loo_error, loo_standard_error, loo_level, loo_note: leave-one-out; None where it is not known.
        head_loo_error: of the closed-form head alone.
        point_ridge: ridge strength of the head(s) at the linearisation point.
        device, processes: where it was computed.
        skipped: (id, reason) of images that could not be read.
        stages, seconds: times.
        output_gap: estimated distance of the training outputs to the optimum's, relative to their norm; None where the
            solver was not stopped by it.
        output_bound: what that distance cannot exceed; None likewise.
        effort: of a climb from model to model; None where one model was named.
        rungs: what was tried: out-of-sample error and cross-entropy, gain over the best model before, with its standard
            error, predicted and actual seconds, whether it was kept, and if not, why.
        error, error_standard_error, error_note: of the whole choice, on unseen images; None where it is not known.
        next_rung: what would come next, with its predicted seconds; None where there is nothing.
        images_given: images that there were, where the time limit allowed a part of them; None: all were used.
        predict_views: of predictions; None: those of training.
        class_weights: of every class, with which the weights of its images were multiplied; None: they were not.
        weighted: whether images have unequal weights, in the objective and in all errors.
        choose_by: what counts alike where models and settings are compared: "images", by these weights, or "classes".
        balanced_error, balanced_standard_error: of the whole choice, as the mean of the classes' errors.
        loo_balanced_error, loo_balanced_standard_error: likewise of leave-one-out.
        constraints: under which it is the optimum, and how well they hold; None: there are none.
        privacy: the guarantee under which it was released; None: there is none.
        changes: of the training set since the fit, in order: what, how many samples, products, those of the fit.
    """

    n: int
    classes: tuple[str, ...]
    backbone: str
    plan: str
    point: str | None
    form: str
    pooling: str
    views: str
    moved: dict[str, Any] | None
    choices: tuple[dict[str, Any], ...]
    solver: str
    level: str
    ridge: Ridge
    weight_decay: float
    body_weight_decay: float | None
    relative_residual: float | None
    passes: int
    converged: bool
    certificate: str
    history: tuple[Step, ...]
    unknowns: int
    loo_error: float | None
    loo_standard_error: float | None
    loo_level: str | None
    loo_note: str | None
    head_loo_error: float | None
    point_ridge: float
    device: str
    processes: int
    skipped: tuple[tuple[str, str], ...]
    stages: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    output_gap: float | None = None
    output_bound: float | None = None
    effort: str | None = None
    rungs: tuple[dict[str, Any], ...] = ()
    error: float | None = None
    error_standard_error: float | None = None
    error_note: str | None = None
    next_rung: dict[str, Any] | None = None
    images_given: int | None = None
    predict_views: str | None = None
    class_weights: dict[str, float] | None = None
    weighted: bool = False
    choose_by: str = "images"
    balanced_error: float | None = None
    balanced_standard_error: float | None = None
    loo_balanced_error: float | None = None
    loo_balanced_standard_error: float | None = None
    constraints: dict[str, Any] | None = None
    privacy: dict[str, Any] | None = None
    changes: tuple[dict[str, Any], ...] = ()

    def __repr__(self) -> str:
        return f"FitReport({self.headline}; {duration(self.seconds)})"

    @property
    def not_the_fit(self) -> str:
        """Why the model is not the optimum of its training problem alone, in a sentence; empty where it is."""
        if self.privacy is not None:
            return (
                "the model was released with noise for privacy, and nothing about single training images is kept in it"
            )
        if self.constraints is not None:
            return "the model was changed by constraints, so that what the fit knew about training images does not hold"
        return ""

    @property
    def passes_of_fit(self) -> int | None:
        """Of the fit itself, however often the model was changed since; None where it did not use any."""
        return self.changes[0].get("passes_of_fit") if self.changes else self.passes

    @property
    def headline(self) -> str:
        """What it was fitted on, and the error on unseen images as far as it is known."""
        data = f"{counted(self.n, 'image')}, {counted(len(self.classes), 'class')}"
        if self.error is not None and self.error_standard_error is not None:
            return f"{data}; expected error {percent(self.error)} ± {100 * self.error_standard_error:.1f}"
        if self.loo_error is not None:
            return f"{data}; leave-one-out error {percent(self.loo_error)} ({self.loo_level})"
        return f"{data}; {self.error_unknown or 'error on unseen images not known'}"

    @property
    def error_unknown(self) -> str:
        """Why nothing is known of the error on unseen images, where a change of the training set is the reason."""
        if not self.changes or self.error is not None or self.loo_error is not None or self.not_the_fit:
            return ""
        last = {"forgot": "forgotten"}.get(self.changes[-1]["what"], self.changes[-1]["what"])
        return f"error on unseen images not known since images were {last}: it is not made again by {self.solver}"

    def without_errors(self) -> FitReport:
        """The same of a model for which the fit's errors on unseen images do not hold."""
        unknown: dict[str, Any] = dict.fromkeys(UNSEEN)
        return replace(self, **unknown)

    def without_climb(self) -> FitReport:
        """The same of a model that no climb has ended at: neither its rungs nor its errors are known."""
        return replace(self.without_errors(), effort=None, rungs=(), next_rung=None)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            **{
                f.name: value
                for f in fields(self)
                if f.name != "changes" and ((value := getattr(self, f.name)) is not None or f.name not in CHANGES)
            },
            "classes": list(self.classes),
            "choices": list(self.choices),
            "rungs": list(self.rungs),
            **({"changes": list(self.changes)} if self.changes else {}),
            "ridge": self.ridge.to_dict(),
            "history": [asdict(step) for step in self.history],
            "skipped": [list(s) for s in self.skipped],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FitReport:
        """The inverse of `to_dict`; values that models of earlier versions lack have their defaults, others that are
        missing raise KeyError.
        """
        check_types(cls, values)
        own = {f.name: values[f.name] for f in fields(cls) if f.name in values or f.name not in LATER}
        return cls(
            **own
            | {
                "classes": tuple(own["classes"]),
                "choices": tuple(own["choices"]),
                "rungs": tuple(own.get("rungs", ())),
                "changes": tuple(own.get("changes", ())),
                "ridge": Ridge.from_dict(own["ridge"]),
                "history": tuple(Step(**step) for step in own["history"]),
                "skipped": tuple((name, reason) for name, reason in own["skipped"]),
            }
        )


UNSEEN = (
    *("error", "error_standard_error", "error_note", "balanced_error", "balanced_standard_error"),
    *("loo_error", "loo_standard_error", "loo_level", "loo_note", "loo_balanced_error", "loo_balanced_standard_error"),
)
"""What a fit knows of its error on unseen images."""
CHANGES = ("constraints", "privacy")
"""What a model was changed by; a fit has none of it, and does not speak of it."""
FIRST = ("stages", "seconds")
"""Values with a default that every saved report has."""
LATER = frozenset(f.name for f in fields(FitReport) if (f.default, f.default_factory) != (MISSING, MISSING)).difference(
    FIRST
)
"""Values that reports of earlier versions lack."""


def of_solution(solution: Solution, total_weight: float, *, alone: bool) -> dict[str, Any]:
    """What a report says of the solution; ``alone``: of a head, whose body does not move."""
    proof, ridge = solution.certificate, solution.ridge
    return {
        "solver": solution.solver,
        "level": solution.level,
        "ridge": ridge,
        "weight_decay": ridge.head / total_weight,
        "body_weight_decay": None if alone else ridge.body / total_weight,
        "relative_residual": proof.relative_residual,
        "passes": proof.passes,
        "converged": proof.converged,
        "certificate": proof.sentence,
        "history": solution.history,
        "unknowns": solution.delta.numel(),
        "output_gap": proof.output_gap,
        "output_bound": proof.output_bound,
    }


def out_of_sample(loo: LeaveOneOut | None) -> dict[str, Any]:
    """What a report says of leave-one-out; None where it is not known."""
    known = ("error", "standard_error", "balanced_error", "balanced_standard_error", "level", "note")
    return {f"loo_{name}": None if loo is None else getattr(loo, name) for name in known}


def last_kept(rungs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The rung that a climb's model is."""
    return [rung for rung in rungs if rung["kept"]][-1]
