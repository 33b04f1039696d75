"""Scores of all pairs in two results, one over the other."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_title, shorten
from geh_explain.plots.pairs import pair_labels
from geh_explain.scores.decisions import percent
from geh_explain.units.pair_set import PairSet

#: Maximum number of characters of the name of a result on an axis.
_MAX_LABEL = 40


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
    def score_a(self) -> Floats:
        """Scores (P,) of the first result."""

    @property
    def score_b(self) -> Floats:
        """Scores (P,) of the second result."""

    @property
    def different(self) -> NDArray[np.bool_] | None:
        """Pairs (P,) that differ; None if nothing is known of errors."""

    @property
    def order(self) -> Ints:
        """Indices (P,) of the pairs, the largest difference first."""

    @property
    def fdr(self) -> float:
        """False discovery rate."""


def draw_comparison(comparison: ComparedScores, *, labelled: int = 8, ax: Any = None) -> Any:
    """Draw the score in B of every pair over that in A, with the diagonal of equal scores.

    Parameters
    ----------
    comparison
        The comparison. Pairs that differ are coloured; a pair on the diagonal can differ, too, if the signs of its
        effects do.
    labelled
        Number of pairs that are labelled, among those that differ; of all pairs if no test was possible.
    ax
        Axes to draw into, or None.
    """
    ax = axes_or_new(ax, (5.6, 5.2))
    a, b, different = comparison.score_a, comparison.score_b, comparison.different
    marked = np.zeros(len(a), dtype=bool) if different is None else different
    low, high = _limits(a, b, comparison.measure)
    ax.axline((low, low), slope=1, color=palette.UNSURE, linewidth=0.8, linestyle="--", zorder=1)
    if comparison.measure == "mean":
        ax.axhline(0, color=palette.NONE, linewidth=0.8, zorder=0)
        ax.axvline(0, color=palette.NONE, linewidth=0.8, zorder=0)
    ax.scatter(a[~marked], b[~marked], s=16, facecolors="none", edgecolors=palette.UNSURE, label="not different")
    if marked.any():
        label = f"different, FDR {percent(comparison.fdr)}"
        ax.scatter(a[marked], b[marked], s=26, color=palette.SURE, zorder=3, label=label)
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_aspect("equal", adjustable="box")
    chosen = comparison.order if different is None else comparison.order[marked[comparison.order]]
    _label_pairs(ax, comparison, chosen[:labelled])
    score = "mean interaction" if comparison.measure == "mean" else _score_name(comparison.measure)
    first, second = (shorten(label, _MAX_LABEL) for label in comparison.labels)
    ax.set_xlabel(f"{score} in {first}", parse_math=False)
    ax.set_ylabel(f"{score} in {second}", parse_math=False)
    set_title(ax, f"{first} and {second}: {int(marked.sum()):,} of {len(a):,} pairs differ")
    if different is not None:
        ax.legend(loc="upper left", frameon=False, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _score_name(measure: str) -> str:
    return "GEH" if measure == "groups" else measure.upper()


def _limits(a: Floats, b: Floats, measure: str) -> tuple[float, float]:
    """Return the limits of both axes, the same for both; scores start at 0."""
    low, high = float(min(a.min(), b.min())), float(max(a.max(), b.max()))
    if measure != "mean":
        low = 0.0
    margin = 0.06 * (high - low) or 1.0
    return low - margin / (1 if measure == "mean" else 3), high + margin


def _label_pairs(ax: Any, comparison: ComparedScores, chosen: Ints) -> None:
    """Label pairs beside their points, away from the diagonal, so that labels do not cover each other.

    Labels are placed from top to bottom on either side of the diagonal; each moves down until it is free.
    """
    if not len(chosen):
        return
    labels = [label.replace("\n", " ") for label in pair_labels(comparison.names, comparison.pairs, chosen)]
    low, high = ax.get_ylim()
    line = 0.036 * (high - low)
    above = comparison.score_b[chosen] >= comparison.score_a[chosen]
    for side in (True, False):
        last = np.inf
        members = np.flatnonzero(above == side)
        for place in members[np.argsort(-comparison.score_b[chosen[members]], kind="stable")]:
            x, y = comparison.score_a[chosen[place]], comparison.score_b[chosen[place]]
            height = min(float(y), last - line)
            last = height
            left = x > (low + high) / 2
            # Labels point away from the nearer edge of the axes.
            ax.annotate(
                labels[place],
                (x, y),
                xytext=(x + (-1 if left else 1) * 0.025 * (high - low), height),
                ha="right" if left else "left",
                va="center",
                fontsize=7,
                color=palette.LINE,
                parse_math=False,
                arrowprops={"arrowstyle": "-", "color": palette.UNSURE, "linewidth": 0.5} if height < y else None,
            )
