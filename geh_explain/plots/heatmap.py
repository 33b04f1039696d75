"""Heatmap: the scores of all pairs as a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_tick_labels, set_title, unit_labels
from geh_explain.plots.pairs import describe_hidden, strongest_units
from geh_explain.scores.decisions import SUPPORTED, Decisions
from geh_explain.scores.pair_names import describe_known
from geh_explain.scores.protocol import PairResult

#: Share of the largest score above which a cell is so dark that its hatching is white.
_DARK = 0.6


def draw_heatmap(
    result: PairResult, decisions: Decisions, *, max_units: int = 40, order: str = "given", ax: Any = None
) -> Any:
    """Draw the score of every pair as a coloured cell; cells of pairs that the rule did not accept are hatched.

    If the measure is the supported score, it is drawn below the diagonal, and GEH above it.

    Parameters
    ----------
    result
        The result to draw.
    decisions
        Its scores and decisions. Nothing is hatched if there are no decisions.
    max_units
        Maximum number of units; if there are more, those with the strongest pairs are shown, as the title says.
    order
        ``"given"``: units in their own order. ``"cluster"``: units that interact next to each other.
    ax
        Axes to draw into, or None.
    """
    if order not in ("given", "cluster"):
        raise GEHValueError(f"order={order!r} is unknown; use 'given' or 'cluster'.")
    units = strongest_units(decisions.order, result.pairs, check_int("max_units", max_units, 2))
    if order == "cluster":
        units = units[_cluster_order(result.pairs.block(decisions.strength, units))]
    strength, diagonal = result.pairs.block(decisions.strength, units), np.eye(len(units), dtype=bool)
    above = np.triu(np.ones_like(diagonal))
    shows_both = decisions.measure == SUPPORTED
    shown = np.where(above, result.pairs.block(decisions.mean, units), strength) if shows_both else strength
    values = np.where(diagonal, np.nan, shown)
    ax = _draw_cells(values, [result.names[i] for i in units], f"{decisions.score_name} (mean)", ax)
    _hatch(ax, (result.pairs.block(decisions.unsure.astype(float), units) > 0) & ~diagonal, values)
    _draw_unknown(ax, np.isnan(values) & ~diagonal)
    notes = ["below the diagonal: supported by the labels"] * shows_both
    notes += ["no decisions" if decisions.accepted is None else f"hatched: {decisions.other_label}"]
    notes += describe_hidden(result.pairs, len(units))
    notes += [f"grey: not computed; {describe_known(result.pairs)}"] * (not result.pairs.complete)
    set_title(ax, f"Interaction strength ({'; '.join(notes)})")
    return ax


def _draw_cells(values: Floats, names: list[str], colour_label: str, ax: Any) -> Any:
    """Draw the matrix ``values`` (D, D) with unit names on both axes, and return the axes."""
    units, labels = len(names), unit_labels(names)
    label_chars = max(len(line) for label in labels for line in label.split("\n"))
    side = min(12.0, 2.6 + 0.32 * units) + 0.08 * label_chars
    ax = axes_or_new(ax, (side * 1.15, side))
    image = ax.imshow(values, cmap=palette.STRENGTH, vmin=0)
    ax.set_facecolor(palette.NONE)
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label=colour_label)
    angle = 90 if label_chars > 3 or units > 20 else 0
    alignment = "right" if angle else "center"
    set_tick_labels(ax.xaxis, range(units), labels, rotation=angle, ma=alignment, across=label_chars)
    set_tick_labels(ax.yaxis, range(units), labels, across=label_chars if angle else 0)
    ax.tick_params(length=0)
    return ax


def _cluster_order(strength: Floats) -> Ints:
    """Return the order (D,) of units in which those with large ``strength`` (D, D) are neighbours.

    It is the order of the leaves of average linkage, with max(strength) - strength as distance.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage

    # Pairs that were not computed are as far from each other as those that do not interact.
    strength = np.nan_to_num(strength)
    distance = strength.max() - strength[np.triu_indices(len(strength), 1)]
    return np.asarray(leaves_list(linkage(distance, "average", optimal_ordering=True)), dtype=np.int64)


def _draw_unknown(ax: Any, cells: NDArray[np.bool_]) -> None:
    """Fill the ``cells`` (D, D) of pairs that were not computed with grey, unlike cells of score 0."""
    from matplotlib.colors import ListedColormap

    if cells.any():
        ax.imshow(np.where(cells, 1.0, np.nan), cmap=ListedColormap([palette.UNKNOWN]), vmin=0, vmax=1)


def _hatch(ax: Any, cells: NDArray[np.bool_], values: Floats) -> None:
    """Draw diagonal lines through the ``cells`` (D, D) that are True, fewer if cells are small.

    Lines of neighbouring cells join. Matplotlib's own hatches cannot be restricted to single cells of an image.
    """
    from matplotlib.collections import LineCollection

    density = int(np.clip(24 // len(cells), 1, 4))
    # The diagonals of a cell are the lines x + y = offset, with coordinates relative to its centre.
    offsets = np.arange(1, 2 * density) / density - 1
    start, end = np.minimum(offsets + 0.5, 0.5), np.maximum(offsets - 0.5, -0.5)
    diagonals = np.stack([np.stack([start, end], 1), np.stack([end, start], 1)], 2)
    rows, columns = np.nonzero(cells)
    if not len(rows):
        return
    centres = np.stack([columns, rows], 1)[:, None, None]
    dark = values[rows, columns] > _DARK * np.nanmax(values)
    colours = np.repeat(np.where(dark, "white", palette.LINE), len(offsets))
    lines = (centres + diagonals).reshape(-1, 2, 2)
    width = float(np.clip(15 / len(cells), 0.2, 0.6))
    ax.add_collection(LineCollection(list(lines), colors=colours.tolist(), linewidths=width, alpha=0.6), autolim=False)
