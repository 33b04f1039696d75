"""The plots of a result as methods of ``result.plot``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geh_explain.plots.densities import draw_densities
from geh_explain.plots.heatmap import draw_heatmap
from geh_explain.plots.intervals import draw_intervals
from geh_explain.plots.network import draw_network
from geh_explain.plots.regions import draw_pair_regions
from geh_explain.scores.protocol import PairResult


class Plots:
    """The plots of one result; ``result.plot`` returns an instance.

    Each method takes ``ax=`` (matplotlib axes, or None for a new figure) and returns the axes. None calls ``show``.
    """

    def __init__(self, result: PairResult) -> None:
        self._result = result

    def heatmap(
        self, measure: str = "geh", *, level: float = 0.95, max_units: int = 40, order: str = "given", ax: Any = None
    ) -> Any:
        """Draw the posterior mean of every pair as a coloured cell; cells that are not significant are hatched.

        Parameters
        ----------
        measure
            ``"geh"``, ``"aeh"`` or ``"eah"``.
        level
            Level of the interval that must exclude 0 for a pair to be significant.
        max_units
            Maximum number of units; if there are more, those with the strongest pairs are shown.
        order
            ``"given"``: units in their own order. ``"cluster"``: units that interact next to each other.
        ax
            Axes to draw into, or None.
        """
        return draw_heatmap(self._result, measure, level=level, max_units=max_units, order=order, ax=ax)

    def intervals(self, measure: str = "geh", *, pairs: int = 15, level: float = 0.95, ax: Any = None) -> Any:
        """Draw posterior mean, 50 % interval (thick) and credible interval (thin) of the strongest pairs.

        Parameters
        ----------
        measure
            ``"geh"``, ``"aeh"`` or ``"eah"``; ``"all"`` for all three, of the pairs with the largest GEH.
        pairs
            Number of pairs.
        level
            Level of the thin intervals and of significance.
        ax
            Axes to draw into, or None.
        """
        return draw_intervals(self._result, measure, pairs=pairs, level=level, ax=ax)

    def network(
        self,
        measure: str = "geh",
        *,
        level: float = 0.95,
        max_units: int = 30,
        pairs: int = 60,
        main: Any = None,
        images: Mapping[str, Any] | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw units on a circle, and their strongest pairs as edges.

        The width of an edge is the score, its colour the sign in most of the data, its opacity the certainty. Edges
        that are not significant are dashed.

        Parameters
        ----------
        measure
            ``"geh"``, ``"aeh"`` or ``"eah"``.
        level
            Level of the interval that must exclude 0 for a pair to be significant.
        max_units
            Maximum number of units; if there are more, those with the strongest pairs are shown.
        pairs
            Maximum number of edges.
        main
            Main effect (D,) of each unit, which is the area of its disc; None for ``result.main.strength``.
        images
            Images (H, W) or (H, W, 3) of units, by name, drawn next to them.
        ax
            Axes to draw into, or None.
        """
        return draw_network(
            self._result, measure, level=level, max_units=max_units, pairs=pairs, main=main, images=images, ax=ax
        )

    def regions(self, i: int | str, j: int | str, *, level: float = 0.95, ax: Any = None) -> Any:
        """Draw the signed effect of the pair (i, j) in each group of points, with its credible interval.

        ``i`` and ``j`` are names or indices of units, ``level`` is that of the intervals.
        """
        return draw_pair_regions(self._result, i, j, level=level, ax=ax)

    def draws(self, measure: str = "geh", *, pairs: int = 8, ax: Any = None) -> Any:
        """Draw the density of the posterior draws of the ``pairs`` strongest pairs; lines mark the means."""
        return draw_densities(self._result, measure, pairs=pairs, ax=ax)

    def __repr__(self) -> str:
        return "Plots(heatmap, intervals, network, regions, draws)"
