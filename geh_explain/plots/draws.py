"""The posterior of the strongest pairs, one above the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, entitle, label_units
from geh_explain.plots.pairs import pair_names, strongest_pairs

if TYPE_CHECKING:
    from geh_explain.results.interactions import Interactions


#: Places where a density is computed, how high a ridge is in rows, and up to how many draws each has a tick.
_PLACES, _HIGH, _TICKS = 200, 0.85, 40
#: Zero is shown if it is no farther away than this share of the picture.
_REACH = 0.4


def draws(result: Interactions, measure: str = "geh", *, pairs: int = 8, ax: Any = None) -> Any:
    """Draw the density of the posterior draws of the strongest pairs, with their means marked."""
    scores = result.scores(measure)
    chosen = strongest_pairs(scores, check_int("pairs", pairs, 1))
    if scores.count < 2:
        raise GEHValueError(
            "draws: a density needs at least 2 posterior draws, and this result has 1; explain with draws=100 and a "
            "posterior (MCDropout, Ensemble, WeightSamples, Stochastic), or use plot.intervals()."
        )
    values = scores.draws[:, chosen]
    names = pair_names(result, chosen)
    ax = axes_or_new(ax, (7, min(14.0, 1.1 + 0.5 * len(chosen))))
    for number, column in enumerate(values.T):
        _ridge(ax, column, len(chosen) - 1 - number)
    left, right = ax.get_xlim()
    if left < _REACH * (right - left):
        ax.axvline(0, color=palette.LINE, linewidth=0.8)
        ax.set_xlim(-0.02 * right, right)
    ax.set_ylim(-0.25, len(chosen))
    label_units(ax.yaxis, np.arange(len(chosen))[::-1] + 0.3, names)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_xlabel(measure.upper())
    entitle(ax, f"Posterior of the strongest pairs ({scores.count} draws; lines: means)")
    return ax


def _ridge(ax: Any, values: Floats, base: int) -> None:
    """Draw the density of some draws on a base line, each as high; draws that are all the same are a single line."""
    mean, peak = float(values.mean()), _HIGH
    ax.axhline(base, color=palette.NONE, linewidth=0.8, zorder=0)
    if values.var() > (1e-9 * mean) ** 2:
        places, density = _density(values)
        ax.fill_between(places, base, base + density, color=palette.SURE, alpha=0.35, linewidth=0)
        ax.plot(places, base + density, color=palette.SURE, linewidth=1)
        peak = float(np.interp(mean, places, density))
    ax.vlines(mean, base, base + peak, colors=palette.MARK, linewidth=1.4)
    if len(values) <= _TICKS:
        ax.plot(values, np.full(len(values), base - 0.08), "|", color=palette.SURE, markersize=4, markeredgewidth=0.7)


def _density(values: Floats) -> tuple[Floats, Floats]:
    """Return places and a kernel density there; scores are not below 0: what kernels put there is folded back."""
    from scipy.stats import gaussian_kde

    kernels = gaussian_kde(values)
    tail = 3.5 * float(np.sqrt(kernels.covariance[0, 0]))
    places = np.linspace(max(0.0, values.min() - tail), values.max() + tail, _PLACES)
    density = kernels(places) + kernels(-places)
    return places, np.asarray(_HIGH * density / density.max())
