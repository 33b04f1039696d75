"""Drawing of the strongest pairs of hidden units with the inputs that excite them (figure 7 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from geh_explain.plots import palette
from geh_explain.plots.axes import compact, shorten_all
from geh_explain.plots.exemplars import (
    ColourLimits,
    ExemplarData,
    MaximisedData,
    colour_limits,
    draw_inputs,
    exemplar_titles,
    first_input,
    maximum_places,
    set_title,
)
from geh_explain.plots.regions import draw_regions
from geh_explain.scores.decisions import SUPPORTED
from geh_explain.scores.pair_names import join_names

if TYPE_CHECKING:
    import pandas as pd

#: Images with a larger ratio of width to height get wider axes.
_WIDE_RATIO = 1.4


class PairData(Protocol):
    """What the drawing reads from one pair; :class:`geh_explain.interpret.PairView` satisfies this protocol."""

    @property
    def units(self) -> tuple[str, str]:
        """Names of the two units."""

    @property
    def mean(self) -> float:
        """Score of the pair."""

    @property
    def low(self) -> float:
        """Lower end of the score's interval, NaN if there is none."""

    @property
    def high(self) -> float:
        """Upper end of the score's interval, NaN if there is none."""

    @property
    def regions(self) -> pd.DataFrame:
        """Signed effect in each group of points."""

    @property
    def exemplars(self) -> ExemplarData:
        """Exemplars of the two units, one row each."""

    @property
    def both(self) -> ExemplarData:
        """Exemplars of both units together, one row."""

    @property
    def ascent(self) -> MaximisedData | None:
        """Inputs for the first unit, the second and both by gradient ascent, or None."""


class GalleryData(Protocol):
    """What the drawing reads from a gallery; :class:`geh_explain.interpret.Gallery` satisfies this protocol."""

    @property
    def pairs(self) -> Sequence[PairData]:
        """Pairs in the order in which they are drawn."""

    @property
    def measure(self) -> str:
        """Measure that ranks the pairs: "geh", "aeh", "eah" or "supported", whose scores are GEH."""

    @property
    def output_std(self) -> float | None:
        """Standard deviation of the output over the points, if scores are in its unit; None if unknown."""


def draw_gallery(gallery: GalleryData, labels: Any = None) -> Any:
    """Draw one row per pair: exemplars of the first unit, of the second, of both, and the effect by group.

    Parameters
    ----------
    gallery
        At least one pair. If the first pair has inputs from gradient ascent, they are drawn below the exemplars.
    labels
        One label per candidate, or None. With labels, the titles of the units include their readings.

    Returns
    -------
    matplotlib.figure.Figure
        One subfigure per pair. All inputs share one colour scale.
    """
    import matplotlib.pyplot as plt

    pairs = gallery.pairs
    inputs = first_input(pairs[0].exemplars.inputs)
    is_wide = inputs.ndim >= 4 and inputs.shape[-1] > _WIDE_RATIO * inputs.shape[-2]
    has_ascent = pairs[0].ascent is not None
    # Three columns of inputs, and a narrower one for the effects.
    widths = [1.5 if is_wide else 1.0] * 3 + [0.9]
    heights = [1.0, 0.5] if has_ascent else [1.0]
    layout = [["first", "second", "both", "groups"], ["first up", "second up", "both up", "groups"]][: len(heights)]
    figure = plt.figure(figsize=(2.4 * sum(widths), (3.1 if has_ascent else 2.3) * len(pairs)), layout="constrained")
    limits = colour_limits(torch.cat([first_input(pair.exemplars.inputs).flatten(0, 1) for pair in pairs]))
    subfigures = figure.subfigures(len(pairs), 1, hspace=0.06, squeeze=False)[:, 0]
    for subfigure, pair in zip(subfigures, pairs, strict=True):
        axes = subfigure.subplot_mosaic(layout, width_ratios=widths, height_ratios=heights)
        _draw_pair(axes, pair, labels, limits)
        subfigure.suptitle(
            _headline(pair, gallery.measure, gallery.output_std), fontsize=10, fontweight="bold", parse_math=False
        )
    return figure


def _headline(pair: PairData, measure: str, output_std: float | None) -> str:
    """Return the names of the units, the score, its interval if there is one, and its size beside the output's."""
    interval = "" if np.isnan(pair.low) else f" ({pair.low:.3g} to {pair.high:.3g})"
    label = join_names(*shorten_all([compact(unit) for unit in pair.units], 30))
    share = "" if not output_std else f", {pair.mean / output_std:.2g} of the output's spread"
    score = "GEH" if measure == SUPPORTED else measure.upper()
    return f"{label}:  {score} {pair.mean:.3g}{interval}{share}"


def _draw_pair(axes: dict[str, Any], pair: PairData, labels: Any, limits: ColourLimits) -> None:
    """Draw one pair into the axes named by the layout of :func:`draw_gallery`."""
    exemplars = pair.exemplars
    for row, (name, title) in enumerate(zip(("first", "second"), exemplar_titles(exemplars, labels), strict=True)):
        draw_inputs(axes[name], first_input(exemplars.inputs)[row], limits, *maximum_places(exemplars, row))
        set_title(axes[name], title)
    draw_inputs(axes["both"], first_input(pair.both.inputs)[0], limits)
    # An empty second line keeps the images of the row at one height.
    set_title(axes["both"], "both" + ("\n" if labels is not None else ""))
    if pair.ascent is not None:
        for row, name in enumerate(("first up", "second up", "both up")):
            draw_inputs(axes[name], pair.ascent.inputs[row : row + 1], limits)
            axes[name].set_xlabel("by gradient ascent", fontsize=7, color=palette.LINE)
    _draw_effects(axes["groups"], pair)


def _draw_effects(ax: Any, pair: PairData) -> None:
    """Draw the signed effect of the pair in each group, with small labels and few ticks."""
    # Set before drawing: draw_regions fits the tick labels to their current size.
    ax.tick_params(labelsize=7)
    draw_regions(pair.regions, ax)
    ax.locator_params(axis="x", nbins=3)
    ax.ticklabel_format(axis="x", scilimits=(-2, 4))
    ax.xaxis.offsetText.set_fontsize(7)
    ax.set_title("signed effect by group (points)", fontsize=8)
