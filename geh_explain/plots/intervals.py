"""Forest plot: the strongest pairs with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Ints
from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_tick_labels, set_title
from geh_explain.plots.pairs import pair_labels
from geh_explain.scores.decisions import SUPPORTED, Decisions, percent
from geh_explain.scores.pair_names import describe_known
from geh_explain.scores.protocol import PairResult
from geh_explain.scores.ranking import find_unit


@dataclass(frozen=True)
class _Style:
    """How one measure is drawn: vertical offset within its row, marker, and colour.

    ``colour`` None: accepted pairs in one colour, others in another. Else all pairs have this colour, and markers of
    pairs that were not accepted are hollow.
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
    result: PairResult,
    measure: str | None = None,
    *,
    pairs: int = 15,
    level: float = 0.95,
    rule: str | None = None,
    fdr: float | None = None,
    unit: int | str | None = None,
    ax: Any = None,
) -> Any:
    """Draw mean, 50 % interval (thick) and interval at ``level`` (thin) of the strongest pairs.

    Parameters
    ----------
    result
        The result to draw. Scores without known uncertainty have no intervals.
    measure
        Measure as in ``result.table``; ``"all"`` for GEH, AEH and EAH of the pairs that are strongest by default. If
        pairs are ordered by their supported score, it is drawn as a diamond next to GEH.
    pairs
        Number of pairs, the strongest on top.
    level
        Level of the thin intervals.
    rule
        Rule that decides about pairs, as in ``result.table``.
    fdr
        False discovery rate of the rule, as in ``result.table``.
    unit
        Name or index of a unit whose pairs are drawn; None for all pairs.
    ax
        Axes to draw into, or None.
    """
    draws_all = measure == "all"
    leading = result.decisions(None if draws_all else measure, level, fdr, rule=rule)
    index = None if unit is None else find_unit(unit, result.names)
    order = leading.order if index is None else leading.order[result.pairs.has_unit(index)[leading.order]]
    if not len(order):
        raise GEHValueError(f"unit={unit!r}: none of its pairs was computed; explain(..., unit={unit!r}) does so.")
    shown = order[: check_int("pairs", pairs, 1)]
    labels = pair_labels(result.names, result.pairs, shown)
    row_height = 0.42 if draws_all or any("\n" in label for label in labels) else 0.3
    ax = axes_or_new(ax, (7, min(14.0, 1.5 + row_height * len(shown))))
    rows = np.arange(len(shown))[::-1]  # the strongest pair on top
    ax.axvline(0, color=palette.LINE, linewidth=0.8)
    all_styles = {name: style for name, style in _ALL_MEASURES.items() if name in result.measures}
    styles = all_styles if draws_all else {leading.measure: _Style()}
    for name, style in styles.items():
        wide, thick = (result.decisions(name, width, fdr, rule=rule) for width in (level, 0.5))
        _draw_measure(ax, wide, thick, shown, rows, style)
    if leading.measure == SUPPORTED and not draws_all:
        _draw_supported(ax, result, leading, shown, rows)
    ax.set_ylim(-0.6, len(shown) - 0.4)
    set_tick_labels(ax.yaxis, rows, labels)
    ax.set_xlabel("" if draws_all else leading.score_name)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    note = f", 50 % and {percent(level)} intervals" if leading.has_intervals else " (one draw: no intervals)"
    known = "" if result.pairs.complete else f"; {describe_known(result.pairs)}"
    whose = "" if index is None else f" of {result.names[index]}"
    set_title(ax, f"Strongest pairs{whose}{note}{known}")
    handles = _legend_of_measures(leading, styles) if draws_all else _legend_of_decisions(leading)
    if handles:
        below = {"loc": "upper right", "bbox_to_anchor": (1, 0), "borderaxespad": 3.3, "ncols": 4}
        ax.legend(handles=handles, frameon=False, fontsize=9, columnspacing=1.2, **below)
    return ax


def _draw_measure(ax: Any, wide: Decisions, thick: Decisions, pairs: Ints, rows: Ints, style: _Style) -> None:
    """Draw the means of one measure and their intervals at two levels for the pairs with indices ``pairs``."""
    height, unsure = rows + style.offset, wide.unsure[pairs]
    colours = np.where(unsure, style.colour or palette.UNSURE, style.colour or palette.SURE)
    for decisions, width in ((wide, 1.2), (thick, 3.6)):
        if decisions.has_intervals:
            ax.hlines(height, decisions.low[pairs], decisions.high[pairs], colors=colours, linewidth=width)
    markers: dict[str, Any] = {"s": 28, "c": colours, "edgecolors": "white"}
    if style.colour:
        markers = {"s": 20, "c": np.where(unsure, "white", colours), "edgecolors": colours}
    ax.scatter(wide.mean[pairs], height, marker=style.marker, linewidths=1, zorder=3, **markers)


def _draw_supported(ax: Any, result: PairResult, decisions: Decisions, pairs: Ints, rows: Ints) -> None:
    """Draw the supported scores as diamonds; pairs that were not tested have none, whatever the rule."""
    values = np.full(len(pairs), np.nan)
    if result.evidence is not None and decisions.supported is not None:
        values = np.where(result.evidence.tested, decisions.supported, np.nan)[pairs]
    ax.scatter(values, rows, marker="D", s=26, c=palette.SUPPORTED, edgecolors="white", linewidths=1, zorder=4)


def _legend_of_decisions(decisions: Decisions) -> list[Any]:
    """Return handles for the two colours of a single measure, and for supported scores."""
    from matplotlib.lines import Line2D

    kinds = [] if decisions.accepted is None else [(decisions.label, palette.SURE)]
    kinds += [(decisions.other_label, palette.UNSURE)] * bool(decisions.unsure.any())
    handles = [Line2D([], [], color=colour, marker="o", linewidth=1.2, label=label) for label, colour in kinds]
    if decisions.measure == SUPPORTED:
        diamond: dict[str, Any] = {"marker": "D", "markersize": 5, "linestyle": "none", "color": palette.SUPPORTED}
        handles.append(Line2D([], [], label="supported by the labels", **diamond))
    return handles


def _legend_of_measures(decisions: Decisions, styles: Mapping[str, _Style]) -> list[Any]:
    """Return handles for the measures, and for hollow markers if there are decisions."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=style.colour, marker=style.marker, markersize=5, linewidth=1.2, label=name.upper())
        for name, style in styles.items()
    ]
    if decisions.accepted is not None:
        hollow: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": palette.LINE, "linestyle": "none"}
        handles.append(Line2D([], [], marker="o", markersize=5, label=decisions.other_label, **hollow))
    return handles
