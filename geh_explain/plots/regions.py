"""The signed effect of one pair, region by region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, entitle, label_units, wrap
from geh_explain.plots.pairs import pair_name
from geh_explain.scores.ranking import find_unit

if TYPE_CHECKING:
    import pandas as pd

    from geh_explain.results.interactions import Interactions


def regions(result: Interactions, i: int | str, j: int | str, *, level: float = 0.95, ax: Any = None) -> Any:
    """Draw the signed effect of a pair in each region, with its credible interval, in the colour of its sign."""
    frame = result.regions(i, j, level)
    ax = axes_or_new(ax, (6, 1.4 + min(0.28 * len(frame), 2.8 + 0.12 * len(frame))))
    draw_regions(frame, ax)
    about = "one draw: no intervals" if frame["low"].isna().any() else f"{level:.0%} credible intervals"
    pair = pair_name(*(result.names[find_unit(unit, result.names)] for unit in (i, j)))
    entitle(ax, f"{pair}, {about}")
    ax.set_xlabel("signed effect")
    ax.set_ylabel("region (points)")
    return ax


def draw_regions(frame: pd.DataFrame, ax: Any) -> None:
    """Draw the table of :meth:`~geh_explain.Interactions.regions`, its first line on top."""
    count, mean = len(frame), frame["mean"].to_numpy()
    height = np.arange(count)[::-1]
    colours = np.select([mean > 0, mean < 0], [palette.POSITIVE, palette.NEGATIVE], palette.NEUTRAL)
    ax.axvline(0, color=palette.LINE, linewidth=0.8)
    if not frame["low"].isna().any():
        ax.hlines(height, frame["low"], frame["high"], colors=colours, linewidth=1.2)
    ax.scatter(mean, height, s=24 if count <= 20 else 12, c=colours, zorder=3)
    ax.set_ylim(-0.6, count - 0.4)
    names = [f"{wrap(str(name))} ({size})" for name, size in zip(frame.index, frame["size"], strict=True)]
    label_units(ax.yaxis, height, names)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right"]].set_visible(False)
