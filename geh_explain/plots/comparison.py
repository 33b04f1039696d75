"""Scores of the pairs that differ most between two results."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_tick_labels, set_title, shorten
from geh_explain.plots.pairs import pair_labels
from geh_explain.scores.decisions import percent
from geh_explain.units.pair_set import PairSet

#: Maximum number of characters of the name of a result.
_MAX_LABEL = 24
#: What the scores are, by measure.
_SCORES = {"groups": "GEH", "mean": "mean interaction"}


class ComparedScores(Protocol):
    """What is drawn of a comparison; see :class:`geh_explain.Comparison`."""

    @property
    def measure(self) -> str:
        """What is compared."""

    @property
    def labels(self) -> tuple[str, str]:
        """What the two results are called."""

    @property
    def names(self) -> list[str]:
        """Names of the units (D)."""

    @property
    def pairs(self) -> PairSet:
        """The P pairs."""

    @property
    def mean_a(self) -> Floats:
        """Scores (P,) of the first result."""

    @property
    def mean_b(self) -> Floats:
        """Scores (P,) of the second result."""

    @property
    def difference(self) -> Floats:
        """Differences (P,)."""

    @property
    def low(self) -> Floats:
        """Low ends (P,) of their intervals, NaN if unknown."""

    @property
    def high(self) -> Floats:
        """High ends (P,) of their intervals, NaN if unknown."""

    @property
    def level(self) -> float:
        """Level of the intervals."""

    @property
    def different(self) -> NDArray[np.bool_] | None:
        """Pairs (P,) that differ; None if nothing is known of errors."""

    @property
    def order(self) -> Ints:
        """Indices (P,) of the pairs, the largest difference first."""

    @property
    def fdr(self) -> float:
        """False discovery rate."""


def draw_comparison(comparison: ComparedScores, *, pairs: int = 12, ax: Any = None) -> Any:
    """Draw the scores of the pairs that differ most as two points with a line between, the largest difference on top.

    Beside each pair stand its difference and interval. A pair with equal scores can differ if the signs of its effects
    do.

    Parameters
    ----------
    comparison
        The comparison. Lines and points of pairs that do not differ are grey.
    pairs
        Number of pairs.
    ax
        Axes to draw into, or None.
    """
    shown = comparison.order[:pairs]
    ax = axes_or_new(ax, (7, 1.5 + 0.28 * len(shown)))
    a, b = comparison.mean_a[shown], comparison.mean_b[shown]
    marked = np.ones(len(shown), dtype=bool) if comparison.different is None else comparison.different[shown]
    height = np.arange(len(shown))[::-1]
    ax.axvline(0, color=palette.LINE, linewidth=0.8)
    ax.hlines(height, a, b, colors=[palette.LINE if mark else palette.NONE for mark in marked], linewidth=1.2)
    labels = [shorten(label, _MAX_LABEL) for label in comparison.labels]
    for scores, colour, label in ((a, palette.MARK, labels[0]), (b, palette.SURE, labels[1])):
        colours = [colour if mark else palette.UNSURE for mark in marked]
        ax.scatter(scores, height, s=30, c=colours, zorder=3)
        ax.scatter([], [], s=30, c=colour, label=label)
    if not marked.all():
        ax.scatter([], [], s=30, c=palette.UNSURE, label=f"not different, FDR {percent(comparison.fdr)}")
    ax.set_ylim(-0.6, len(shown) - 0.4)
    names = [label.replace("\n", " ") for label in pair_labels(comparison.names, comparison.pairs, shown)]
    set_tick_labels(ax.yaxis, height, names)
    ax.tick_params(axis="y", length=0)
    _write_differences(ax, comparison, shown, height)
    ax.set_xlabel(_SCORES.get(comparison.measure, comparison.measure.upper()))
    ax.spines[["top", "right"]].set_visible(False)
    _finish(ax, comparison)
    return ax


def _write_differences(ax: Any, comparison: ComparedScores, shown: Ints, height: Ints) -> None:
    """Write the difference of each pair and its interval to the right of the axes."""
    size = min([label.get_fontsize() for label in ax.yaxis.get_ticklabels()], default=8)
    for pair, y in zip(shown, height, strict=True):
        low, high = comparison.low[pair], comparison.high[pair]
        text = f"{comparison.difference[pair]:.3g}" + ("" if np.isnan(low) else f"  ({low:.2g} to {high:.2g})")
        where = ax.get_yaxis_transform()
        ax.text(1.02, y, text, transform=where, va="center", fontsize=min(size, 8), color=palette.LINE)


def _finish(ax: Any, comparison: ComparedScores) -> None:
    """Add legend and title."""
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.5 / ax.figure.get_figheight()), ncols=3, frameon=False)
    total, different = len(comparison.difference), comparison.different
    found = "" if different is None else f"{int(different.sum()):,} of {total:,} pairs differ; "
    interval = "" if np.isnan(comparison.low).all() else f", {percent(comparison.level)} intervals"
    set_title(ax, f"{found}differences on the right{interval}")
