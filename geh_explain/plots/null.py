"""What chance alone makes of the strongest pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, shorten

if TYPE_CHECKING:
    from geh_explain.inference import PermutationTest


def null(test: PermutationTest, *, pairs: int = 3, ax: Any = None) -> Any:
    """Draw a histogram of the permutations' strongest scores, and lines for the strongest pairs of the data."""
    ax = axes_or_new(ax, (6, 3.2))
    strongest = test.table().head(pairs)
    ends = [*test.null, *strongest["score"]]
    wide = min(ends) > 0 and max(ends) > 10 * float(np.median(test.null))
    low, high = float(test.null.min()), float(test.null.max())
    bins: Any = np.geomspace(low, high, 21) if wide and low < high else 20
    heights, _, _ = ax.hist(test.null, bins=bins, color=palette.UNSURE)
    ax.set_ylim(top=(1.1 + 0.15 * len(strongest)) * float(np.max(heights)))  # names stand above the bars
    if wide:
        ax.set_xscale("log")
    for place, (_, pair) in enumerate(strongest.iterrows()):
        ax.axvline(pair["score"], color=palette.MARK, linewidth=1)
        label = f"{shorten(str(pair['unit_i']))} × {shorten(str(pair['unit_j']))}, p = {pair['p_value']:.2g} "
        where = (pair["score"], 0.93 - 0.1 * place)
        ax.annotate(
            label,
            where,
            xycoords=("data", "axes fraction"),
            ha="right",
            fontsize=8,
            parse_math=False,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    ax.set_xlabel(f"strongest {test.observed.method} of {len(test.null)} permuted targets")
    ax.set_ylabel("permutations")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
