"""Where the marks of a plot lie, in the units of an SVG's viewBox; the template draws them, CSS colours them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lqf.evaluation.metrics import standard_error
from lqf.reports.html.environment import RAISED, percent
from lqf.solvers.solution import Step

WIDTH, HEIGHT = 360, 260
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 40
"""Margins around the plotting area, for the labels of the axes."""
LETTER, LINE = 6.0, 11.0
"""Width of a letter and height of a line, roughly."""
TURN, LONGEST = 40, 11
"""Degrees by which names below a plot are turned, and letters that such a name may have."""


@dataclass(frozen=True)
class Axis:
    """A range of values along pixels, linear or by powers of ten."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        a, b, x = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return round(self.start + (x - a) / ((b - a) or 1.0) * (self.end - self.start), 1)

    def ticks(self, most: int = 6) -> list[dict[str, Any]]:
        """Round values inside the range, with their labels."""
        if self.log:
            return [{"at": self(10.0**e), "label": f"10{str(e).translate(RAISED)}"} for e in self._powers(most)]
        step = round_step((self.high - self.low) / most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [{"at": self(k * step), "label": f"{k * step:g}"} for k in range(first, last + 1)]

    def _powers(self, most: int) -> range:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return range(first, last + 1, max(1, math.ceil((last - first + 1) / most)))


def round_step(rough: float) -> float:
    """The next of 1, 2, 5, 10, … times a power of ten."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def horizontal(low: float, high: float, *, log: bool = False) -> Axis:
    """The x axis of a plot."""
    return Axis(low, high, LEFT, WIDTH - RIGHT, log)


def vertical(low: float, high: float, *, log: bool = False) -> Axis:
    """The y axis of a plot: up is more."""
    return Axis(low, high, HEIGHT - BOTTOM, TOP, log)


def frame(x: Axis, y: Axis, x_label: str, y_label: str, marks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A plot for the template: axes, and marks to draw in them; ``turned``: degrees, of the names below it."""
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "bottom": HEIGHT - BOTTOM,
        "x_ticks": x.ticks(),
        "y_ticks": y.ticks(),
        "turned": 0,
        "x_label": x_label,
        "y_label": y_label,
        "marks": list(marks),
    }


def reliability_plot(sets: Sequence[tuple[str, str, Sequence[dict[str, float]]]]) -> dict[str, Any]:
    """Confidence against the share of right answers; ``sets`` are (name, CSS class, bins of `measure.reliability`)."""
    lows = [min(b["confidence"], b["right"]) for _, _, bins in sets for b in bins]
    low = math.floor(10 * max(0.0, min(lows, default=0.0)) - 1e-9) / 10
    low = min(max(low, 0.0), 0.8)
    x, y = horizontal(100 * low, 100), vertical(100 * low, 100)
    most = max((b["n"] for _, _, bins in sets for b in bins), default=1)
    diagonal = {"kind": "line", "class": "even", "points": f"{x(100 * low)},{y(100 * low)} {x(100)},{y(100)}"}
    marks: list[dict[str, Any]] = [diagonal]
    for name, css, bins in sets:
        at = [(x(100 * b["confidence"]), y(100 * b["right"]), b) for b in bins]
        marks.append({"kind": "line", "class": css, "points": " ".join(f"{a},{b}" for a, b, _ in at)})
        for a, _, of in at:
            se = standard_error(of["right"], int(of["n"]))
            ends = [y(100 * min(max(of["right"] + d, low), 1.0)) for d in (-se, se)]
            marks.append({"kind": "bar", "class": css, "x": a, "y1": ends[0], "y2": ends[1]})
        for a, b, of in at:
            tip = f"{name}: sure to {of['confidence']:.0%}, right in {of['right']:.0%} of {of['n']:,}"
            marks.append(_dot(a, b, css, tip, 2.5 + 3 * math.sqrt(of["n"] / most)))
    return frame(x, y, "confidence in %", "right answers in %", marks)


def residual_plot(history: Sequence[Step]) -> dict[str, Any] | None:
    """Relative residual over passes, by powers of ten; None where there are not two measurements."""
    steps = [(s.passes, s.residual) for s in history if s.residual]
    if len(steps) < 2 or steps[0][0] == steps[-1][0]:
        return None
    values = [r for _, r in steps]
    low, high = (10.0 ** f(math.log10(v)) for f, v in ((math.floor, min(values)), (math.ceil, max(values))))
    x, y = horizontal(steps[0][0], steps[-1][0]), vertical(low, high if high > low else 10 * low, log=True)
    marks = [{"kind": "line", "class": "loo", "points": " ".join(f"{x(n)},{y(r)}" for n, r in steps)}]
    marks += [_dot(x(n), y(r), "loo", f"{r:.2g} after {n} passes", 2.5) for n, r in steps]
    return frame(x, y, "passes over the data", "relative residual", marks)


def decay_plot(choice: dict[str, Any]) -> dict[str, Any]:
    """Leave-one-out error over the weight decays that were tried; the one that was kept is filled."""
    tried = choice["tried"]
    decays, errors = [t["weight_decay"] for t in tried], [100 * t["loo_error"] for t in tried]
    step = round_step(max(max(errors) - min(errors), 1.0) / 4)
    low, high = step * math.floor(min(errors) / step), step * math.ceil(max(errors) / step)
    x = horizontal(min(decays), max(decays), log=True)
    y = vertical(low, high if high > low else low + step)
    marks = [
        {
            "kind": "line",
            "class": "loo",
            "points": " ".join(f"{x(d)},{y(e)}" for d, e in zip(decays, errors, strict=True)),
        }
    ]
    for d, e in zip(decays, errors, strict=True):
        kept = d == choice["kept"]
        tip = f"weight decay {d:.3g}: {e:.1f} %" + (" (kept)" if kept else "")
        marks.append(_dot(x(d), y(e), "kept" if kept else "loo", tip, 6 if kept else 2.5))
    return frame(x, y, "weight decay", "leave-one-out error in %", marks)


def stages_plot(choice: dict[str, Any]) -> dict[str, Any]:
    """Weight decay of every stage, from the first to the last, and of the head, by powers of ten."""
    decays = {**choice["strengths"], "head": choice["head"]}
    low, high = (
        10.0 ** f(math.log10(v)) for f, v in ((math.floor, min(decays.values())), (math.ceil, max(decays.values())))
    )
    x, y = horizontal(0, len(decays) - 1 or 1), vertical(low, high if high > low else 10 * low, log=True)
    at = [(x(i), y(decay), name, decay) for i, (name, decay) in enumerate(decays.items())]
    body = at[:-1]
    marks: list[dict[str, Any]] = [
        {"kind": "line", "class": "loo", "points": " ".join(f"{a},{b}" for a, b, *_ in body)}
    ]
    marks += [_dot(a, b, "loo", f"{name}: weight decay {decay:.3g}", 3.5) for a, b, name, decay in body]
    a, b, name, decay = at[-1]
    marks.append(_dot(a, b, "kept", f"{name}: weight decay {decay:.3g}", 5))
    plot = frame(x, y, "stages of the network, then its head", "weight decay", marks)
    return _named(plot, [(a, name) for a, _, name, _ in at])


def _named(plot: dict[str, Any], at: Sequence[tuple[float, str]]) -> dict[str, Any]:
    """The plot with names along its x axis, turned where they do not fit beside each other."""
    room = (WIDTH - LEFT - RIGHT) / max(1, len(at) - 1)
    if max(LETTER * len(name) for _, name in at) + 2 * LETTER <= room:
        return plot | {"x_ticks": [{"at": x, "label": name} for x, name in at]}
    down = math.sin(math.radians(TURN))
    every = math.ceil(LINE / (room * down))  # of very many some, and always the last
    shown = [(x, _short(name)) for x, name in at[::-1][::every][::-1]]
    more = max(0, round(LETTER * down * max(len(name) for _, name in shown)) - 8)
    ticks = [{"at": x, "label": name} for x, name in shown]
    return plot | {"x_ticks": ticks, "turned": TURN, "height": HEIGHT + more}


def _short(name: str) -> str:
    """The last part of a name with dots that is not a number alone, or its end."""
    parts = name.split(".")
    last = ".".join(parts[-2:]) if parts[-1].isdigit() else parts[-1]
    return last if len(last) <= LONGEST else f"…{last[1 - LONGEST :]}"


def shift_plot(train: Sequence[float], test: Sequence[float], bins: int = 24) -> dict[str, Any]:
    """Two histograms over one axis, as shares: out-of-sample scores of training and of test images."""
    both = sorted([*train, *test])
    low, high = both[0], both[-1] if both[-1] > both[0] else both[0] + 1.0
    width = (high - low) / bins
    shares = [_histogram(v, low, width, bins) for v in (train, test)]
    x, y = horizontal(low, high), vertical(0, 100 * max(max(s) for s in shares))
    marks = []
    for css, share in zip(("loo", "test"), shares, strict=True):
        corners = [f"{x(low)},{y(0)}"]
        for k, s in enumerate(share):
            corners += [f"{x(low + k * width)},{y(100 * s)}", f"{x(low + (k + 1) * width)},{y(100 * s)}"]
        marks.append({"kind": "area", "class": css, "points": " ".join([*corners, f"{x(high)},{y(0)}"])})
    plot = frame(x, y, "← like the training set · like the test set →", "share of images in %", marks)
    return plot | {"x_ticks": []}


def error_chart(bars: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Where errors with their standard errors (``error``, ``se``) lie, in percent of an axis that ends on whole steps
    outside all of them.
    """
    bars = list(bars)
    low, high = min(b["error"] - b["se"] for b in bars), max(b["error"] + b["se"] for b in bars)
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2) if (high - low) / s <= 6)
    first, last = math.floor(low / step), math.ceil(high / step)
    axis = Axis(first, max(last, first + 1), 0, 100)

    def place(x: float) -> float:
        return axis(x / step)

    ends = [
        {"at": place(b["error"]), "from": place(b["error"] - b["se"]), "to": place(b["error"] + b["se"])} for b in bars
    ]
    ticks = [{"at": axis(k), "label": percent(k * step, 0)} for k in range(first, int(axis.high) + 1)]
    return {"bars": [b | e for b, e in zip(bars, ends, strict=True)], "ticks": ticks}


def _histogram(values: Sequence[float], low: float, width: float, bins: int) -> list[float]:
    counts = [0] * bins
    for v in values:
        counts[min(int((v - low) / width), bins - 1)] += 1
    return [c / max(len(values), 1) for c in counts]


def _dot(x: float, y: float, css: str, tip: str, r: float) -> dict[str, Any]:
    return {"kind": "dot", "class": css, "x": x, "y": y, "r": round(r, 1), "tip": tip}
