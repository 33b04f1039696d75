"""The picture of growth: cost against points, draws and inputs, with fitted slopes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import own
from benchmarks.growth import REVERSE
from benchmarks.results import Result
from geh_explain.plots import palette

COLOURS = {own.EXPLAIN: palette.SURE, own.EXPLAIN_EXACT: palette.UNSURE, REVERSE: palette.MARK}
#: A slope is that of this many largest sizes: at small ones fixed costs hide it.
FITTED = 3


def slope(curve: dict[int, float]) -> float:
    """Return the power with which the cost grows over the largest sizes."""
    sizes = sorted(curve)[-FITTED:]
    return float(np.polyfit(np.log(sizes), np.log([curve[size] for size in sizes]), 1)[0])


def draw(results: list[Result], path: Path) -> None:
    """Draw a panel for each case of growth."""
    import matplotlib.pyplot as plt

    shown = [result for result in results if result.curves]
    if not shown:
        return
    figure, axes = plt.subplots(1, len(shown), figsize=(4.2 * len(shown), 3.9), layout="constrained", squeeze=False)
    for ax, result in zip(axes[0], shown, strict=True):
        _panel(ax, result)
    axes[0, 0].set_ylabel("time, ms")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def _panel(ax: Any, result: Result) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    for line, curve in result.curves.items():
        sizes, colour = sorted(curve), COLOURS.get(line, palette.LINE)
        label = f"{line}: slope {slope(curve):.2f}"
        ax.plot(sizes, [1e3 * curve[size] for size in sizes], "o-", color=colour, ms=4, lw=1.6, label=label)
    ax.set(xscale="log", yscale="log", xlabel=result.axis)
    sizes = sorted({size for curve in result.curves.values() for size in curve})
    ax.set_xticks(sizes if len(sizes) < 6 else sizes[::2])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    low, high = ax.get_ylim()
    ax.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high)))
    place, _, about = result.title.partition(": ")
    ax.set_title(f"{place}\n", loc="left", fontsize=10.5, fontweight="bold")
    ax.text(0, 1.03, about, transform=ax.transAxes, fontsize=8, color=palette.LINE)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
