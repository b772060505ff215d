"""Pieces of pictures that several experiments share, drawn onto a matplotlib Figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from lqf.evaluation.intervals import wilson

COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#e09f3e", "#7b5ea7", "#4a4e57", "#3aa6b9", "#a0522d")


Spread = tuple[float, float, float]
"""A value and the ends of its interval."""
FROM_BOXES = 5
"""So many points have quartiles worth drawing."""


def relative_points(
    figure: Any, groups: Mapping[str, Mapping[str, Spread]], label: str, reported: Mapping[str, float] | None = None
) -> None:
    """A row per group, in per cent: a point with its interval per data set, and the median; boxes from five points on.

    Args:
        figure: to draw on.
        groups: name -> data set -> value and interval.
        label: of the axis.
        reported: name -> the median that the paper reports.
    """
    axes = figure.subplots()
    shown = {name: values for name, values in groups.items() if values}
    if not shown:  # the reference has no error on any data set, and nothing is relative to zero
        axes.text(0.5, 0.5, "nothing to compare with", ha="center", transform=axes.transAxes)
        return
    places = dict(zip(shown, range(len(shown), 0, -1), strict=True))
    names = list(dict.fromkeys(d for values in shown.values() for d in values))
    for name, values in shown.items():
        centres, at = [100 * v[0] for v in values.values()], places[name]
        if len(centres) >= FROM_BOXES:
            box = {"facecolor": "#00000010", "edgecolor": "#00000060"}
            axes.boxplot(
                [centres], positions=[at], orientation="horizontal", whis=(0, 100), widths=0.8, patch_artist=True,
                boxprops=box, medianprops={"linewidth": 0}, whiskerprops={"color": "#00000060"}, showcaps=False,
            )  # fmt: skip
        axes.plot([median(centres)] * 2, [at - 0.36, at + 0.36], "-", color="black", linewidth=1.6)
    axes.plot([], [], "-", color="black", linewidth=1.6, label="median")
    told = {n: m for n, m in (reported or {}).items() if n in places}
    if told:
        places_told = [places[n] for n in told]
        axes.plot(
            [100 * m for m in told.values()], places_told, "D", color="black", mfc="white", label="the paper's median"
        )
    for k, data in enumerate(names):
        rows = [(places[n], v[data]) for n, v in shown.items() if data in v]
        apart = 0.6 * ((len(names) - 1) / 2 - k) / max(1, len(names))
        _with_bars(axes, [(at + apart, of) for at, of in rows], COLOURS[k % len(COLOURS)], data)
    axes.set_yticks(list(places.values()), list(places))
    axes.set_ylim(0.4, len(shown) + 0.6)
    axes.axvline(0, color="black", linestyle="--", linewidth=1)
    axes.set_xlabel(label)
    plain(axes)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)


ACROSS = 4
"""Panels in a row, as many as can be read on a page."""


def panels(figure: Any, n: int, *, sharey: bool = False) -> list[Any]:
    """Axes for n data sets, in rows of `ACROSS`; a place without one stays empty."""
    across = min(ACROSS, n)
    every = list(figure.subplots(-(-n // across), across, squeeze=False, sharey=sharey).flat)
    for axes in every[n:]:
        axes.axis("off")
    return every[:n]


def panel_size(n: int, width: float, height: float, more: float = 0.0) -> tuple[float, float]:
    """Of a picture of such panels, in inches; ``more`` for a legend or labels. One alone is wider, for its legend."""
    across = min(ACROSS, n)
    return width * (across + (n == 1) / 2), height * -(-n // across) + more


def dots(figure: Any, shown: Mapping[str, Mapping[str, Spread | None]], label: str) -> None:
    """A panel per data set with a row per name, in per cent: a point with its interval, and a line at the lowest.

    A name that has a value on no data set is left out.
    """
    there = [name for name in next(iter(shown.values())) if any(rows[name] for rows in shown.values())]
    shown = {title: {name: rows[name] for name in there} for title, rows in shown.items()}
    for axes, (title, rows) in zip(panels(figure, len(shown), sharey=True), shown.items(), strict=True):
        places = dict(zip(rows, range(len(rows), 0, -1), strict=True))
        known = [(places[name], of) for name, of in rows.items() if of is not None]
        _with_bars(axes, known, COLOURS[0])
        if known:
            lowest = min(of[0] for _, of in known)
            axes.axvline(100 * lowest, color="black", linestyle=":", linewidth=1)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(label)
        axes.set_xlim(left=0)
        axes.set_yticks(list(places.values()), list(places))
        plain(axes)


def _with_bars(axes: Any, rows: Sequence[tuple[float, Spread]], colour: str, label: str | None = None) -> None:
    """Points at some heights, in per cent, with their intervals."""
    if rows:
        xs = [100 * of[0] for _, of in rows]
        ends = [[100 * (of[0] - of[1]) for _, of in rows], [100 * (of[2] - of[0]) for _, of in rows]]
        axes.errorbar(
            xs, [at for at, _ in rows], xerr=ends, fmt="o", color=colour, markersize=4.5, elinewidth=1.2, label=label
        )


def lines(
    axes: Any, xs: Sequence[Any], series: Mapping[str, Sequence[float | None]], *, label: str, images: int
) -> None:
    """One line of errors per name over equally spaced places, in per cent; one that is missing leaves a gap.

    With 95 % intervals by the number of test images, the names beside each other.
    """
    for k, (name, values) in enumerate(series.items()):
        apart = 0.05 * (k - (len(series) - 1) / 2)
        spreads = [(math.nan,) * 3 if v is None else (v, *wilson(v, images)) for v in values]
        ys, low, high = ([100 * of[i] for of in spreads] for i in range(3))
        ends = [[y - e for y, e in zip(ys, low, strict=True)], [e - y for y, e in zip(ys, high, strict=True)]]
        places = [x + apart for x in range(len(xs))]
        colour = COLOURS[k % len(COLOURS)]
        axes.errorbar(places, ys, ends, fmt="o-", color=colour, label=name, markersize=4, elinewidth=0.9)
    axes.set_xticks(range(len(xs)), [str(x) for x in xs])
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    plain(axes)


def round_ticks(axis: Any) -> None:
    """1, 2, 5, 10, … on a logarithmic axis, as people write them."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def plain(axes: Any) -> None:
    """No frame where it says nothing, a light grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
