"""The strongest pairs with their uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._validation import check_int, check_level
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, entitle, label_units
from geh_explain.plots.pairs import pair_names, strongest_pairs

if TYPE_CHECKING:
    from geh_explain.results.interactions import Interactions
    from geh_explain.scores.pair_scores import Scores

#: The measures where all are asked for: how far above its row each stands, and its marker.
_ALL = {"aeh": (0.26, "s"), "geh": (0.0, "o"), "eah": (-0.26, "D")}


def intervals(
    result: Interactions, measure: str = "geh", *, pairs: int = 15, level: float = 0.95, ax: Any = None
) -> Any:
    """Draw mean, 50 % interval (thick) and credible interval (thin) of the strongest pairs; sure ones are coloured.

    ``measure="all"`` draws all three measures of the pairs that GEH finds strongest.
    """
    check_level(level)
    several = measure == "all"
    leading = result.scores("geh" if several else measure)
    chosen = strongest_pairs(leading, check_int("pairs", pairs, 1))
    names = pair_names(result, chosen)
    row = 0.42 if several or any("\n" in name for name in names) else 0.3
    ax = axes_or_new(ax, (7, min(14.0, 1.5 + row * len(chosen))))
    height = np.arange(len(chosen))[::-1]
    ax.axvline(0, color=palette.LINE, linewidth=0.8)
    for name, (above, marker) in (_ALL if several else {measure: (0.0, "o")}).items():
        _forest(ax, result.scores(name), chosen, height + above, level, marker, palette.MEASURES[name] * several)
    ax.set_ylim(-0.6, len(chosen) - 0.4)
    label_units(ax.yaxis, height, names)
    ax.set_xlabel("" if several else measure.upper())
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    about = f", 50% and {level:.0%} credible intervals" if leading.count > 1 else " (one draw: no intervals)"
    entitle(ax, f"Strongest pairs{about}")
    if several or leading.count > 1:
        below = {"loc": "upper right", "bbox_to_anchor": (1, 0), "borderaxespad": 3.3, "ncols": 4}
        ax.legend(handles=_legend(several, leading.count > 1), frameon=False, fontsize=9, columnspacing=1.2, **below)
    return ax


def _forest(
    ax: Any, scores: Scores, chosen: NDArray[np.int64], height: Any, level: float, marker: str, colour: str
) -> None:
    """Draw one measure of some pairs, in its colour (then open markers are not significant) or in the sure ones'."""
    mean = scores.pair_mean()[chosen]
    sure = np.zeros(len(chosen), dtype=bool)
    if scores.count > 1:
        sure = scores.pair_interval(level)[0][chosen] > 0
    colours = np.where(sure, colour or palette.SURE, colour or palette.UNSURE)
    if scores.count > 1:
        for share, width in ((level, 1.2), (0.5, 3.6)):
            low, high = (ends[chosen] for ends in scores.pair_interval(share))
            ax.hlines(height, low, high, colors=colours, linewidth=width)
    size = 20 if colour else 28
    faces = np.where(sure | (scores.count < 2), colours, "white") if colour else colours
    edges = colours if colour else "white"
    ax.scatter(mean, height, s=size, marker=marker, c=faces, edgecolors=edges, linewidths=1, zorder=3)


def _legend(several: bool, uncertain: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    if not several:
        kinds = (("significant", palette.SURE), ("not significant", palette.UNSURE))
        return [Line2D([], [], color=colour, marker="o", linewidth=1.2, label=label) for label, colour in kinds]
    measures = [
        Line2D([], [], color=palette.MEASURES[name], marker=marker, markersize=5, linewidth=1.2, label=name.upper())
        for name, (_, marker) in _ALL.items()
    ]
    hollow: dict[str, Any] = {
        "marker": "o",
        "markerfacecolor": "white",
        "markeredgecolor": palette.LINE,
        "linestyle": "none",
    }
    return measures + [Line2D([], [], markersize=5, label="not significant", **hollow)] * uncertain
