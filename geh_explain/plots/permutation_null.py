"""The strongest scores of permuted targets, beside the strongest pairs of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, shorten_all
from geh_explain.scores.pair_names import join_names

#: The axis is logarithmic if the largest score is more than this many times the median of the null distribution.
_LOG_RATIO = 10
_BINS = 20


def draw_permutation_null(
    null: Floats,
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    p_values: Sequence[float],
    *,
    method: str = "score",
    ax: Any = None,
) -> Any:
    """Draw a histogram of the null distribution, with a vertical line and a label for each pair.

    Parameters
    ----------
    null
        Strongest score of each permutation, shape (B,).
    pairs
        Names of the two units of each pair to mark, the strongest first.
    scores, p_values
        Score and permutation p-value of each of these pairs.
    method
        Name of the score, for the label of the axis.
    ax
        Matplotlib axes to draw on; None for a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.
    """
    from matplotlib.ticker import LogLocator

    ax = axes_or_new(ax, (6, 3.2))
    values = [*null, *scores]
    is_log = min(values) > 0 and max(values) > _LOG_RATIO * float(np.median(null))
    low, high = float(null.min()), float(null.max())
    bins: Any = np.geomspace(low, high, _BINS + 1) if is_log and low < high else _BINS
    heights, _, _ = ax.hist(null, bins=bins, color=palette.UNSURE)
    # The labels of the pairs stand above the bars, one line each.
    ax.set_ylim(top=(1.1 + 0.15 * len(pairs)) * float(np.max(heights)))
    if is_log:
        ax.set_xscale("log")
        # Labels of all multiples would overlap where the axis has about one decade.
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter("")
    names = sorted({name for pair in pairs for name in pair})
    short = dict(zip(names, shorten_all(names), strict=True))
    for line, ((unit_i, unit_j), score, p_value) in enumerate(zip(pairs, scores, p_values, strict=True)):
        ax.axvline(score, color=palette.MARK, linewidth=1)
        ax.annotate(
            f"{join_names(short[unit_i], short[unit_j])}, p = {p_value:.2g} ",
            (score, 0.93 - 0.1 * line),
            xycoords=("data", "axes fraction"),
            ha="right",
            fontsize=8,
            parse_math=False,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    ax.set_xlabel(f"strongest {method} of {len(null)} permuted targets")
    ax.set_ylabel("permutations")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
