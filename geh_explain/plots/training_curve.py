"""Validation error of a network by epoch of its training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new


def draw_training_curve(validation: Sequence[float], best_epoch: int, *, ax: Any = None) -> Any:
    """Draw validation errors as a line, with a dashed line at the epoch whose weights were kept.

    Parameters
    ----------
    validation
        Error after each epoch, from epoch 0. The axis is logarithmic where all errors are positive.
    best_epoch
        Number of the epoch to mark.
    ax
        Matplotlib axes to draw on; None for a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.
    """
    ax = axes_or_new(ax, (6, 3.2))
    ax.plot(validation, color=palette.SURE, linewidth=1)
    ax.axvline(best_epoch, color=palette.MARK, linestyle="--", label=f"kept: {best_epoch}")
    ax.set_xlabel("epoch")
    ax.set_ylabel("validation error")
    # A negative log likelihood may be negative, and has no logarithm then.
    ax.set_yscale("log" if min(validation) > 0 else "linear")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax
