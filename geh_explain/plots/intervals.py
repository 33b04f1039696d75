"""Forest plot: the strongest pairs with their credible intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Ints
from geh_explain._validation import check_int, check_level
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_tick_labels, set_title
from geh_explain.plots.pairs import pair_labels, strongest_pairs
from geh_explain.scores.pair_scores import Scores
from geh_explain.scores.protocol import PairResult


@dataclass(frozen=True)
class _Style:
    """How one measure is drawn: vertical offset within its row, marker, and colour.

    ``colour`` None: significant pairs in one colour, others in another. Else all pairs have this colour, and hollow
    markers are not significant.
    """

    offset: float = 0.0
    marker: str = "o"
    colour: str | None = None


#: Styles where all measures are drawn together.
_ALL_MEASURES = {
    "aeh": _Style(0.26, "s", palette.MEASURES["aeh"]),
    "geh": _Style(0.0, "o", palette.MEASURES["geh"]),
    "eah": _Style(-0.26, "D", palette.MEASURES["eah"]),
}


def draw_intervals(
    result: PairResult, measure: str = "geh", *, pairs: int = 15, level: float = 0.95, ax: Any = None
) -> Any:
    """Draw posterior mean, 50 % interval (thick) and credible interval (thin) of the strongest pairs.

    Parameters
    ----------
    result
        The result to draw. With a single draw only the scores are drawn.
    measure
        ``"geh"``, ``"aeh"`` or ``"eah"``; ``"all"`` for all three, of the pairs with the largest GEH.
    pairs
        Number of pairs, the strongest on top.
    level
        Level of the thin intervals and of significance.
    ax
        Axes to draw into, or None.
    """
    check_level(level)
    draws_all = measure == "all"
    styles = _ALL_MEASURES if draws_all else {measure: _Style()}
    leading = result.scores("geh" if draws_all else measure)
    shown = strongest_pairs(leading, check_int("pairs", pairs, 1))
    labels = pair_labels(result.names, shown)
    row_height = 0.42 if draws_all or any("\n" in label for label in labels) else 0.3
    ax = axes_or_new(ax, (7, min(14.0, 1.5 + row_height * len(shown))))
    rows = np.arange(len(shown))[::-1]  # the strongest pair on top
    ax.axvline(0, color=palette.LINE, linewidth=0.8)
    for name, style in styles.items():
        _draw_measure(ax, result.scores(name), shown, rows, level, style)
    ax.set_ylim(-0.6, len(shown) - 0.4)
    set_tick_labels(ax.yaxis, rows, labels)
    ax.set_xlabel("" if draws_all else measure.upper())
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    has_intervals = leading.n_draws > 1
    note = f", 50% and {level:.0%} credible intervals" if has_intervals else " (one draw: no intervals)"
    set_title(ax, f"Strongest pairs{note}")
    if draws_all or has_intervals:
        below = {"loc": "upper right", "bbox_to_anchor": (1, 0), "borderaxespad": 3.3, "ncols": 4}
        handles = _legend_of_measures(has_intervals) if draws_all else _legend_of_significance()
        ax.legend(handles=handles, frameon=False, fontsize=9, columnspacing=1.2, **below)
    return ax


def _draw_measure(ax: Any, scores: Scores, pairs: Ints, rows: Ints, level: float, style: _Style) -> None:
    """Draw the intervals and means of one measure for the pairs with indices ``pairs``."""
    mean, height = scores.pair_mean[pairs], rows + style.offset
    significant = np.zeros(len(pairs), dtype=bool)
    if scores.n_draws > 1:
        significant = scores.pair_interval(level)[0][pairs] > 0
    colours = np.where(significant, style.colour or palette.SURE, style.colour or palette.UNSURE)
    if scores.n_draws > 1:
        for interval_level, width in ((level, 1.2), (0.5, 3.6)):
            low, high = (ends[pairs] for ends in scores.pair_interval(interval_level))
            ax.hlines(height, low, high, colors=colours, linewidth=width)
    markers: dict[str, Any] = {"s": 28, "c": colours, "edgecolors": "white"}
    if style.colour:
        filled = significant | (scores.n_draws < 2)
        markers = {"s": 20, "c": np.where(filled, colours, "white"), "edgecolors": colours}
    ax.scatter(mean, height, marker=style.marker, linewidths=1, zorder=3, **markers)


def _legend_of_significance() -> list[Any]:
    """Return handles for the two colours of a single measure."""
    from matplotlib.lines import Line2D

    kinds = (("significant", palette.SURE), ("not significant", palette.UNSURE))
    return [Line2D([], [], color=colour, marker="o", linewidth=1.2, label=label) for label, colour in kinds]


def _legend_of_measures(has_intervals: bool) -> list[Any]:
    """Return handles for the three measures, and for hollow markers if there are intervals."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=style.colour, marker=style.marker, markersize=5, linewidth=1.2, label=name.upper())
        for name, style in _ALL_MEASURES.items()
    ]
    if has_intervals:
        hollow: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": palette.LINE, "linestyle": "none"}
        handles.append(Line2D([], [], marker="o", markersize=5, label="not significant", **hollow))
    return handles
