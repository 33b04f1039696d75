"""Calibration plot: observed against predicted shares."""

from __future__ import annotations

from typing import Any

from geh_explain._types import Floats
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new


def draw_calibration(levels: Floats, covered: Floats, *, xlabel: str, ax: Any = None) -> Any:
    """Draw observed shares ``covered`` (L,) against the nominal shares ``levels`` (L,), and return the axes.

    The dotted diagonal is perfect calibration; points below it are overconfident.

    Parameters
    ----------
    levels, covered
        Nominal and observed shares in [0, 1].
    xlabel
        What the nominal shares are, in words.
    ax
        Axes to draw into, or None.
    """
    ax = axes_or_new(ax, (4, 4))
    ax.plot([0, 1], [0, 1], color=palette.UNSURE, linestyle=":", linewidth=1)
    ax.plot(levels, covered, "o-", color=palette.SURE)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("observed")
    ax.set_aspect("equal")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
