"""What the studies' pictures share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geh_explain.plots import palette

#: Colours that colour-blind readers can tell apart (Okabe and Ito).
COLOURS = (palette.SURE, palette.MARK, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", palette.LINE)


def panels(rows: int, columns: int, size: tuple[float, float], sharey: bool = False) -> tuple[Any, Any]:
    """Return a figure, and its axes (rows, columns)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, sharey=sharey)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Any, path: Path) -> Path:
    """Write a figure to a file, close it, and return the path."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
