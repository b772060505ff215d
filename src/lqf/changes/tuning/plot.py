"""A picture of a tuning path, by matplotlib: the loss over both weight decays, and cuts through its best pair."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lqf.errors import MissingDependency
from lqf.utils.files import check_file, write_file
from lqf.utils.text import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lqf.changes.tuning.path import TuningPath
    from lqf.changes.tuning.strengths import Tried

KINDS = (".png", ".svg", ".pdf")
PAPER, INK, SOFT, LINE, ACCENT, WARM = "#fcfcfa", "#1b1d20", "#5c6168", "#e3e3de", "#0b6e63", "#b4540a"
"""Colours of the report."""
HEAD, BODY = "weight decay of the head", "weight decay of the body"


def check_plot(path: Path, overwrite: bool) -> None:
    """Refuse, before any work is done, what cannot be drawn or written."""
    check_file(path, overwrite, KINDS)
    _figure(1)


def save_plot(tuning: TuningPath, path: Path, *, overwrite: bool = False) -> None:
    """Write the picture; the file appears whole or not at all."""
    check_plot(path, overwrite)
    buffer = io.BytesIO()
    draw(tuning).savefig(buffer, format=path.suffix[1:].lower(), dpi=144, facecolor=PAPER)
    write_file(path, buffer.getvalue())


def draw(tuning: TuningPath) -> Figure:
    """A map and two cuts; of a head alone one curve."""
    alone = tuning.best.body_weight_decay is None
    figure = _figure(1 if alone else 2)
    axes = figure.subplots(1, 1 if alone else 2, squeeze=False)[0]
    if alone:
        _curves(axes[0], {"head": sorted(tuning.grid, key=lambda t: t.weight_decay)}, tuning)
    else:
        _map(figure, axes[0], tuning)
        _curves(axes[1], _cuts(tuning), tuning)
    exact = "" if tuning.level == "exact" else f", {tuning.level}"
    figure.suptitle(f"Tuning by {tuning.by} of {tuning.n:,} images{exact}", color=INK, fontsize=11, x=0.01, ha="left")
    return figure


def _map(figure: Figure, axes: Any, tuning: TuningPath) -> None:
    """The cross-entropy over both weight decays, with the way downhill."""
    from matplotlib.colors import LinearSegmentedColormap

    heads, bodies = (sorted({_place(t)[k] for t in tuning.grid}) for k in (0, 1))
    table = np.full((len(bodies), len(heads)), np.nan)
    for t in tuning.grid:
        head, body = _place(t)
        table[bodies.index(body), heads.index(head)] = t.loss
    colours = LinearSegmentedColormap.from_list("lqf", [ACCENT, "#8fc1b5", "#f1f1ec", "#e5b58c", WARM])
    top = float(np.nanquantile(table, 0.95))
    if min(table.shape) > 1:
        low = float(np.nanmin(table))
        shown = axes.contourf(
            heads, bodies, table.clip(None, top), np.linspace(low, max(top, low * 1.001), 16), cmap=colours
        )
        bar = figure.colorbar(shown, ax=axes, format="%.2f")
        bar.set_label("cross-entropy", fontsize=9)
        bar.ax.tick_params(colors=SOFT, labelsize=8)
        bar.outline.set_visible(False)
    if tuning.descent:
        axes.plot(
            *zip(*map(_place, tuning.descent), strict=True), "-", color=INK, linewidth=1, marker=".", markersize=4
        )
    for tried, mark, name in ((tuning.current, "o", "now"), (tuning.best, "*", "best")):
        size = 13 if mark == "*" else 8
        label = f"{name}: {percent(tried.error)} wrong, {tried.loss:.3f}"
        axes.plot(*_place(tried), mark, color="white", markeredgecolor=INK, markersize=size, label=label, linestyle="")
    axes.set(xscale="log", yscale="log", xlabel=HEAD, ylabel=BODY)
    axes.legend(loc="lower left", fontsize=8, framealpha=0.9, edgecolor=LINE)
    _plain(axes)


def _curves(axes: Any, cuts: dict[str, list[Tried]], tuning: TuningPath) -> None:
    """Cross-entropy and error along one weight decay, the other one as in the best pair of the grid."""
    other = axes.twinx()
    axes.set_zorder(other.get_zorder() + 1)  # the legend over all curves
    axes.patch.set_visible(False)
    for (name, cut), colour in zip(cuts.items(), (ACCENT, WARM), strict=False):
        x = [_place(t)[name == "body"] for t in cut]
        axes.plot(x, [t.loss for t in cut], "-", color=colour, marker=".", label=f"cross-entropy, {name}")
        other.plot(x, [100 * t.error for t in cut], ":", color=colour, linewidth=1.2)
    axes.plot([], [], ":", color=SOFT, label="% wrong (right axis)")
    for name, colour in zip(cuts, (ACCENT, WARM), strict=False):
        best = "best" if name == "head" else None
        axes.axvline(_place(tuning.best)[name == "body"], color=colour, linewidth=0.7, alpha=0.6, label=best)
    axes.set(xscale="log", xlabel="weight decay" if len(cuts) == 1 else "weight decay, the other one at its best")
    axes.set_ylabel("cross-entropy")
    other.set_ylabel("% wrong", color=SOFT)
    axes.legend(fontsize=8, framealpha=0.9, edgecolor=LINE)
    _plain(axes)
    _plain(other)
    other.grid(visible=False)


def _cuts(tuning: TuningPath) -> dict[str, list[Tried]]:
    """The row and the column of the grid through its best pair."""
    best = min(tuning.grid, key=lambda t: t.loss)
    head, body = _place(best)
    return {
        "head": sorted((t for t in tuning.grid if _place(t)[1] == body), key=_place),
        "body": sorted((t for t in tuning.grid if _place(t)[0] == head), key=lambda t: _place(t)[1]),
    }


def _place(tried: Tried) -> tuple[float, float]:
    """Both weight decays, as they are told apart on the grid."""
    body = tried.weight_decay if tried.body_weight_decay is None else tried.body_weight_decay
    return float(f"{tried.weight_decay:.9g}"), float(f"{body:.9g}")


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(LINE)
    axes.tick_params(colors=SOFT, labelsize=8)
    axes.xaxis.label.set(color=SOFT, fontsize=9)
    axes.yaxis.label.set(fontsize=9)
    axes.grid(color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)


def _figure(panels: int) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise MissingDependency("matplotlib", "pictures of a tuning path") from e
    return Figure(figsize=(5.2 * panels, 3.9), layout="constrained", facecolor=PAPER)
