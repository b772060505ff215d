"""What a climb knows of a rung that it has tried, for its report and for the climbs after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from lqf.evaluation.paired import Gain
from lqf.fitting.context import Context
from lqf.fitting.rungs.heads import HEAD
from lqf.fitting.stack import Model
from lqf.utils.text import percent, rough_duration


@dataclass(frozen=True)
class Tried:
    """One rung, as the report has it.

    Attributes:
        name: of the rung.
        predicted: seconds.
        seconds: that it took; None where it was not tried.
        outputs: (N, C) out of sample; None likewise.
        error, loss: of these; None likewise.
        gain: over the best model before; None for the first.
        kept: whether it became the best.
        why: it was not tried, or not kept.
        about: views, pooling, stage, solver.
        alternatives: outputs of what was tried on the way, by name.
    """

    name: str
    predicted: float
    seconds: float | None = None
    outputs: Tensor | None = None
    error: float | None = None
    loss: float | None = None
    gain: Gain | None = None
    kept: bool = False
    why: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    alternatives: Mapping[str, Tensor] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "name": self.name,
            "predicted_seconds": round(self.predicted, 2),
            "seconds": None if self.seconds is None else round(self.seconds, 2),
            "error": self.error,
            "loss": self.loss,
            "gain": None if self.gain is None else self.gain.mean,
            "gain_standard_error": None if self.gain is None else self.gain.standard_error,
            "kept": self.kept,
            "why": self.why,
            **self.about,
        }

    @classmethod
    def from_report(cls, name: str, model: Model) -> Tried:
        """As a model has it."""
        entry = next(r for r in model.report.rungs if r["name"] == name)
        own = {"name", "predicted_seconds", "seconds", "error", "loss", "gain", "gain_standard_error", "kept", "why"}
        names = [r["name"] for r in model.report.rungs]
        others = {n: o for n, o in model.tried.items() if n not in names} if name == HEAD else {}
        gain = None if entry["gain"] is None else Gain(entry["gain"], entry["gain_standard_error"])
        return cls(
            name,
            entry["predicted_seconds"],
            entry["seconds"],
            model.tried.get(name),
            entry["error"],
            entry["loss"],
            gain,
            entry["kept"],
            entry["why"],
            {k: v for k, v in entry.items() if k not in own},
            others,
        )


def said(tried: Tried, context: Context) -> str:
    """One line about a rung."""
    took = f"({rough_duration(tried.seconds or 0.0)})"
    if tried.error is None:
        return f"{tried.name}: fitted {took}"
    text = f"{tried.name}: {percent(tried.error)} out-of-sample error, cross-entropy {tried.loss:.3f}"
    if tried.gain is not None:
        text += f", gain {tried.gain}"
        text += ": kept" if tried.kept else ": not kept"
    return f"{text} {took}"
