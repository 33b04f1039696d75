"""The strongest pairs with their uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, label_units, shorten

if TYPE_CHECKING:
    from geh_explain.interactions import Interactions


def intervals(
    result: Interactions, measure: str = "geh", *, pairs: int = 15, level: float = 0.95, ax: Any = None
) -> Any:
    """Draw mean and credible interval of the strongest pairs; significant ones are coloured."""
    table = result.table(measure, level=level).head(pairs)
    ax = axes_or_new(ax, (7, 1.3 + 0.3 * len(table)))
    height = np.arange(len(table))[::-1]
    ax.axvline(0, color=palette.LINE, linewidth=0.8)
    if result.scores(measure).count > 1:
        sure = table["significant"].to_numpy(dtype=bool)
        for chosen, colour, label in ((sure, palette.SURE, "significant"), (~sure, palette.UNSURE, "not significant")):
            part = table[chosen]
            if len(part):
                reach = np.stack([part["mean"] - part["low"], part["high"] - part["mean"]])
                ax.errorbar(part["mean"], height[chosen], xerr=reach, fmt="o", color=colour, label=label, capsize=2)
        ax.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0), borderaxespad=2, ncols=2)
        ax.set_title(f"Strongest pairs, {level:.0%} credible intervals", fontsize=10)
    else:
        ax.plot(table["mean"], height, "o", color=palette.UNSURE)
        ax.set_title("Strongest pairs (one draw: no intervals)", fontsize=10)
    pairs_of_names = zip(map(shorten, table["unit_i"]), map(shorten, table["unit_j"]), strict=True)
    label_units(ax.yaxis, height, [f"{i} × {j}" for i, j in pairs_of_names])
    ax.set_xlabel(measure.upper(), loc="left")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax
