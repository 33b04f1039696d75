"""All pairs at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int, check_level
from geh_explain.errors import GEHValueError
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, entitle, label_units, unit_names
from geh_explain.plots.pairs import strongest_units

if TYPE_CHECKING:
    from geh_explain.results.interactions import Interactions


def heatmap(
    result: Interactions,
    measure: str = "geh",
    *,
    level: float = 0.95,
    most: int = 40,
    order: str = "given",
    ax: Any = None,
) -> Any:
    """Draw the mean score of every pair; the ones that are not significant are hatched.

    With more than ``most`` units, the ones with the strongest pairs are shown. ``order="cluster"`` puts units that
    interact side by side.
    """
    if order not in ("given", "cluster"):
        raise GEHValueError(f"order={order!r} is unknown; use 'given' or 'cluster'.")
    check_level(level)
    scores = result.scores(measure)
    shown = strongest_units(scores.mean, check_int("most", most, 2))
    if order == "cluster":
        shown = shown[_leaves(scores.mean[np.ix_(shown, shown)])]
    count, hidden = len(shown), len(result.names) - len(shown)
    values = np.where(np.eye(count, dtype=bool), np.nan, scores.mean[np.ix_(shown, shown)])
    names = unit_names([result.names[i] for i in shown])
    letters = max(len(line) for name in names for line in name.split("\n"))
    side = min(12.0, 2.6 + 0.32 * count) + 0.08 * letters
    ax = axes_or_new(ax, (side * 1.15, side))
    image = ax.imshow(values, cmap=palette.STRENGTH, vmin=0)
    ax.set_facecolor(palette.NONE)
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label=f"{measure.upper()} (posterior mean)")
    upright = 90 if letters > 3 or count > 20 else 0
    label_units(ax.xaxis, range(count), names, rotation=upright, ma="right" if upright else "center", across=letters)
    label_units(ax.yaxis, range(count), names, across=letters if upright else 0)
    ax.tick_params(length=0)
    if scores.count > 1:
        unsure = scores.interval(level)[0][np.ix_(shown, shown)] <= 0
        _hatch(ax, unsure & ~np.eye(count, dtype=bool), values)
        about = f"hatched: not significant at {level:.0%}"
    else:
        about = "one draw: no significance"
    entitle(ax, f"Interaction strength ({about}{f'; {hidden} weaker units not shown' if hidden else ''})")
    return ax


def _leaves(strength: Floats) -> Ints:
    """Return the order of units (D,) in which those with a large ``strength`` (D, D) are neighbours."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    far = strength.max() - strength[np.triu_indices(len(strength), 1)]
    return np.asarray(leaves_list(linkage(far, "average", optimal_ordering=True)), dtype=np.int64)


def _hatch(ax: Any, cells: NDArray[np.bool_], values: Floats) -> None:
    """Draw diagonals through cells (D, D), fewer through small ones, that go on from cell to cell."""
    from matplotlib.collections import LineCollection

    finest = int(np.clip(24 // len(cells), 1, 4))
    offsets = np.arange(1, 2 * finest) / finest - 1  # of the diagonals x + y in a cell, from its centre
    start, end = np.minimum(offsets + 0.5, 0.5), np.maximum(offsets - 0.5, -0.5)
    diagonal = np.stack([np.stack([start, end], 1), np.stack([end, start], 1)], 2)
    rows, columns = np.nonzero(cells)
    centres = np.stack([columns, rows], 1)[:, None, None]
    dark = values[rows, columns] > 0.6 * np.nanmax(values)
    colours = np.repeat(np.where(dark, "white", palette.LINE), len(offsets))
    lines = (centres + diagonal).reshape(-1, 2, 2)
    width = float(np.clip(15 / len(cells), 0.2, 0.6))
    ax.add_collection(LineCollection(list(lines), colors=colours.tolist(), linewidths=width, alpha=0.6), autolim=False)
