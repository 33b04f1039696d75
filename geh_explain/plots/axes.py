"""What the pictures share: axes on demand."""

from __future__ import annotations

from typing import Any


def shorten(name: str, most: int = 22) -> str:
    """Return a long name by its end, which is what tells units of one layer apart."""
    return name if len(name) <= most else "…" + name[1 - most :]


def label_units(axis: Any, places: Any, names: list[str], **options: Any) -> None:
    """Put names to ticks, with a dollar sign as what it is."""
    axis.set_ticks(places, names, **options)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)


def axes_or_new(ax: Any, size: tuple[float, float]) -> Any:
    """Return ``ax``, or the axes of a new figure of ``size`` inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]
