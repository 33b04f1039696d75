"""Posterior densities of the strongest pairs, one above the other (ridge plot)."""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_tick_labels, set_title
from geh_explain.plots.pairs import pair_labels
from geh_explain.scores.decisions import Decisions
from geh_explain.scores.pair_names import describe_known
from geh_explain.scores.protocol import PairResult

#: Number of values at which a density is computed.
_GRID = 200
#: Height of the highest density, in rows.
_PEAK = 0.85
#: Maximum number of draws that are also marked one by one.
_MAX_TICKS = 40
#: Zero is shown if its distance from the densities is at most this share of their width.
_ZERO_DISTANCE = 0.4


def draw_densities(result: PairResult, decisions: Decisions, *, pairs: int = 8, ax: Any = None) -> Any:
    """Draw the density of the posterior draws of the strongest pairs; lines mark the means.

    Densities of pairs that the rule did not accept are grey.

    Raises ``GEHValueError`` if there is a single draw, or if only moments of the draws were kept.

    Parameters
    ----------
    result
        The result to draw.
    decisions
        Its scores and decisions.
    pairs
        Number of pairs, the strongest on top.
    ax
        Axes to draw into, or None.
    """
    scores = result.scores(decisions.score_name.lower())
    shown = decisions.order[: check_int("pairs", pairs, 1)]
    if scores.n_draws < 2:
        raise GEHValueError(
            "draws: a density needs at least 2 posterior draws, and this result has 1; explain with draws=100 and a "
            "posterior (MCDropout, Ensemble, WeightSamples, Stochastic), or use plot.intervals()."
        )
    values = scores.draws[:, shown]
    ax = axes_or_new(ax, (7, min(14.0, 1.1 + 0.5 * len(shown))))
    for row, column in enumerate(values.T):
        colour = palette.UNSURE if decisions.unsure[shown[row]] else palette.SURE
        _draw_ridge(ax, column, len(shown) - 1 - row, colour)
    left, right = ax.get_xlim()
    if left < _ZERO_DISTANCE * (right - left):
        ax.axvline(0, color=palette.LINE, linewidth=0.8)
        ax.set_xlim(-0.02 * right, right)
    ax.set_ylim(-0.25, len(shown))
    set_tick_labels(ax.yaxis, np.arange(len(shown))[::-1] + 0.3, pair_labels(result.names, result.pairs, shown))
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_xlabel(decisions.score_name)
    grey = f"; grey: {decisions.other_label}" if decisions.unsure[shown].any() else ""
    known = "" if result.pairs.complete else f"; {describe_known(result.pairs)}"
    set_title(ax, f"Posterior of the strongest pairs ({scores.n_draws} draws; lines: means{grey}{known})")
    return ax


def _draw_ridge(ax: Any, values: Floats, base: int, colour: str) -> None:
    """Draw the density of the draws ``values`` (K,) above the line y = ``base``; equal draws are a single line."""
    mean, peak = float(values.mean()), _PEAK
    ax.axhline(base, color=palette.NONE, linewidth=0.8, zorder=0)
    # A kernel density of (numerically) constant draws does not exist.
    if values.var() > (1e-9 * mean) ** 2:
        grid, density = _density(values)
        ax.fill_between(grid, base, base + density, color=colour, alpha=0.35, linewidth=0)
        ax.plot(grid, base + density, color=colour, linewidth=1)
        peak = float(np.interp(mean, grid, density))
    ax.vlines(mean, base, base + peak, colors=palette.MARK, linewidth=1.4)
    if len(values) <= _MAX_TICKS:
        ax.plot(values, np.full(len(values), base - 0.08), "|", color=colour, markersize=4, markeredgewidth=0.7)


def _density(values: Floats) -> tuple[Floats, Floats]:
    """Return a grid of scores and the kernel density there, scaled to the height of a ridge.

    Scores are not negative: the density that the kernels place below 0 is reflected at 0.
    """
    from scipy.stats import gaussian_kde

    kernels = gaussian_kde(values)
    tail = 3.5 * float(np.sqrt(kernels.covariance[0, 0]))
    grid = np.linspace(max(0.0, values.min() - tail), values.max() + tail, _GRID)
    density = kernels(grid) + kernels(-grid)
    return grid, np.asarray(_PEAK * density / density.max())
