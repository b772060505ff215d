"""Pieces of pictures that several experiments share, drawn onto a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#e09f3e", "#7b5ea7", "#4a4e57", "#3aa6b9", "#a0522d")


def boxes(figure: Any, groups: Mapping[str, Mapping[str, float]], label: str) -> None:
    """A horizontal box per group (median, quartiles, extremes) with points in the colours of data sets, in per cent."""
    axes = figure.subplots()
    shown = {name: values for name, values in groups.items() if values}
    places = dict(zip(shown, range(len(shown), 0, -1), strict=True))
    if not shown:  # the reference has no error on any data set, and nothing is relative to zero
        axes.text(0.5, 0.5, "nothing to compare with", ha="center", transform=axes.transAxes)
        return
    axes.boxplot(
        [[100 * v for v in values.values()] for values in shown.values()],
        positions=list(places.values()),
        orientation="horizontal",
        whis=(0, 100),
        widths=0.5,
        medianprops={"color": "black"},
    )
    for k, data in enumerate(dict.fromkeys(d for values in shown.values() for d in values)):
        points = [(100 * values[data], places[name]) for name, values in shown.items() if data in values]
        colour = COLOURS[k % len(COLOURS)]
        axes.plot(*zip(*points, strict=True), "o", color=colour, alpha=0.8, markersize=5, label=data)
    axes.set_yticks(list(places.values()), list(places))
    axes.axvline(0, color="black", linestyle="--", linewidth=1)
    axes.set_xlabel(label)
    plain(axes)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)


def lines(axes: Any, xs: Sequence[Any], series: Mapping[str, Sequence[float | None]], *, label: str) -> None:
    """One line per name over equally spaced places, in per cent; a value that is missing leaves a gap."""
    for k, (name, values) in enumerate(series.items()):
        ys = [float("nan") if v is None else 100 * v for v in values]
        axes.plot(range(len(xs)), ys, "o-", color=COLOURS[k % len(COLOURS)], label=name, markersize=4)
    axes.set_xticks(range(len(xs)), [str(x) for x in xs])
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    plain(axes)


def bars(axes: Any, groups: Sequence[str], series: Mapping[str, Sequence[float | None]], *, label: str) -> None:
    """Bars next to each other per group, in per cent, with a legend; a missing value has none."""
    width = 0.8 / max(1, len(series))
    for k, (name, values) in enumerate(series.items()):
        at = [g + (k - (len(series) - 1) / 2) * width for g in range(len(groups))]
        axes.bar(at, [0 if v is None else 100 * v for v in values], width, color=COLOURS[k % len(COLOURS)], label=name)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylabel(label)
    plain(axes)
    axes.grid(visible=False, axis="x")
    axes.figure.legend(loc="outside right upper", fontsize=8)


def plain(axes: Any) -> None:
    """No frame where it says nothing, a light grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
