"""What the pictures share: axes on demand."""

from __future__ import annotations

from typing import Any


def axes_or_new(ax: Any, size: tuple[float, float]) -> Any:
    """Return ``ax``, or the axes of a new figure of ``size`` inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]
