"""The strongest pairs of hidden units with what excites them, after the paper's figure 7."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from geh_explain.plots import palette
from geh_explain.plots.axes import shorten
from geh_explain.plots.exemplars import Limits, colour_limits, first_input, label, placed, show, titles
from geh_explain.plots.regions import draw_regions

if TYPE_CHECKING:
    from geh_explain.interpret.gallery import Gallery, PairView


def draw(gallery: Gallery, labels: Any = None) -> Any:
    """Draw a row for each pair: the one unit, the other, both together, and the effect by region."""
    import matplotlib.pyplot as plt

    inputs = first_input(gallery.pairs[0].exemplars.inputs)
    wide = inputs.ndim >= 4 and inputs.shape[-1] > 1.4 * inputs.shape[-2]
    painted = gallery.pairs[0].ascent is not None
    widths = [1.5 if wide else 1.0] * 3 + [0.9]
    heights = [1.0, 0.5] if painted else [1.0]
    figure = plt.figure(
        figsize=(2.4 * sum(widths), (3.1 if painted else 2.3) * len(gallery.pairs)), layout="constrained"
    )
    limits = colour_limits(torch.cat([first_input(pair.exemplars.inputs).flatten(0, 1) for pair in gallery.pairs]))
    rows = figure.subfigures(len(gallery.pairs), 1, hspace=0.06, squeeze=False)
    for part, pair in zip(rows[:, 0], gallery.pairs, strict=True):
        boxes = part.subplot_mosaic(
            [["first", "second", "both", "regions"], ["first up", "second up", "both up", "regions"]][: len(heights)],
            width_ratios=widths,
            height_ratios=heights,
        )
        _draw_pair(boxes, pair, labels, limits)
        part.suptitle(_headline(pair, gallery.measure), fontsize=10, fontweight="bold", parse_math=False)
    return figure


def _headline(pair: PairView, measure: str) -> str:
    interval = "" if np.isnan(pair.low) else f" ({pair.low:.3g} to {pair.high:.3g})"
    first, second = (shorten(name, 30) for name in pair.units)
    return f"{first} × {second}:  {measure.upper()} {pair.mean:.3g}{interval}"


def _draw_pair(boxes: dict[str, Any], pair: PairView, labels: Any, limits: Limits) -> None:
    found = pair.exemplars
    for row, (box, title) in enumerate(zip(("first", "second"), titles(found, labels), strict=True)):
        show(boxes[box], first_input(found.inputs)[row], limits, *placed(found, row))
        label(boxes[box], title)
    show(boxes["both"], first_input(pair.both.inputs)[0], limits)
    label(boxes["both"], "both" + ("\n" if labels is not None else ""))
    if pair.ascent is not None:
        for row, box in enumerate(("first up", "second up", "both up")):
            show(boxes[box], pair.ascent.inputs[row : row + 1], limits)
            boxes[box].set_xlabel("by gradient ascent", fontsize=7, color=palette.LINE)
    _draw_regions(boxes["regions"], pair)


def _draw_regions(ax: Any, pair: PairView) -> None:
    ax.tick_params(labelsize=7)
    draw_regions(pair.regions, ax)
    ax.locator_params(axis="x", nbins=3)
    ax.ticklabel_format(axis="x", scilimits=(-2, 4))
    ax.xaxis.offsetText.set_fontsize(7)
    ax.set_title("signed effect by region (points)", fontsize=8)
