"""The curve from which the number of groups is chosen."""

from __future__ import annotations

from typing import Any

from geh_explain._types import Floats, Ints
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new


def draw_group_number(counts: Ints, delta: Floats, chosen: int, ax: Any = None) -> Any:
    """Draw the rank weighted distance against the number of groups, with the chosen number marked.

    Parameters
    ----------
    counts
        Numbers of groups M, shape (k,).
    delta
        Delta^2_M for each of them, shape (k,).
    chosen
        The number of groups that was chosen, drawn as a dashed line.
    ax
        Axes to draw on; None for those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        ``ax``, or the new axes.
    """
    ax = axes_or_new(ax, (6, 3.2))
    ax.plot(counts, delta, ".-", color=palette.SURE, linewidth=1)
    ax.axvline(chosen, color=palette.MARK, linestyle="--", label=f"chosen: {chosen}")
    ax.set_xlabel("number of groups M")
    ax.set_ylabel(r"rank weighted distance $\Delta^2_M$")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax
