"""Figures of the studies: panels in one style, saved to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geh_explain.plots import palette

#: Colours that colour-blind readers can distinguish (Okabe and Ito), in the order in which lines use them.
COLOURS = (palette.SURE, palette.MARK, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", palette.LINE)


def use_file_backend() -> None:
    """Let matplotlib draw into files only: workers have no display."""
    import matplotlib

    matplotlib.use("Agg")


def create_panels(rows: int, columns: int, size: tuple[float, float], sharey: bool = False) -> tuple[Any, Any]:
    """Return a matplotlib figure of ``size`` inches and its axes, an array (rows, columns)."""
    use_file_backend()
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, sharey=sharey)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path, dpi: int = 130) -> Path:
    """Write a figure to ``path``, close it, and return the path; missing folders are created."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    plt.close(figure)
    return path
