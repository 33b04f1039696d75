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

    Pairs are ordered and marked as in ``result.table(measure, level, fdr, rule=rule)``. With evidence from held-out
    labels the default is the order of the supported score, which is drawn next to GEH, and marks say which pairs are
    significant. Without, marks say which pairs are stable.
    """

    def __init__(self, result: PairResult) -> None:
        self._result = result

    def heatmap(
        self,
        measure: str | None = None,
        *,
        level: float = 0.95,
        rule: str | None = None,
        fdr: float | None = None,
        max_units: int = 40,
        order: str = "given",
        ax: Any = None,
    ) -> Any:
        """Draw the score of every pair as a coloured cell; cells that are not significant or stable are hatched.

        The supported score is drawn below the diagonal, and GEH above it.

        Parameters
        ----------
        measure
            ``"geh"``, ``"aeh"``, ``"eah"`` or ``"supported"``; None as in ``result.table``.
        level
            Level of the rule ``"interval"``.
        rule
            ``"evidence"``, ``"sign"`` or ``"interval"``; None as in ``result.table``.
        fdr
            False discovery rate of the rule, as in ``result.table``.
        max_units
            Maximum number of units; if there are more, those with the strongest pairs are shown.
        order
            ``"given"``: units in their own order. ``"cluster"``: units that interact next to each other.
        ax
            Axes to draw into, or None.
        """
        decisions = self._result.decisions(measure, level, fdr, rule=rule)
        return draw_heatmap(self._result, decisions, max_units=max_units, order=order, ax=ax)

    def intervals(
        self,
        measure: str | None = None,
        *,
        pairs: int = 15,
        level: float = 0.95,
        rule: str | None = None,
        fdr: float | None = None,
        unit: int | str | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw mean, 50 % interval (thick) and interval at ``level`` (thin) of the strongest pairs.

        Diamonds are supported scores, if these order the pairs.

        Parameters
        ----------
        measure
            ``"geh"``, ``"aeh"``, ``"eah"`` or ``"supported"``; None as in ``result.table``; ``"all"`` for AEH, GEH and
            EAH of the pairs that are strongest by default.
        pairs
            Number of pairs.
        level
            Level of the thin intervals.
        rule
            ``"evidence"``, ``"sign"`` or ``"interval"``; None as in ``result.table``.
        fdr
            False discovery rate of the rule, as in ``result.table``.
        unit
            Name or index of a unit whose pairs are drawn; None for all pairs.
        ax
            Axes to draw into, or None.
        """
        return draw_intervals(self._result, measure, pairs=pairs, level=level, rule=rule, fdr=fdr, unit=unit, ax=ax)

    def network(
        self,
        measure: str | None = None,
        *,
        level: float = 0.95,
        rule: str | None = None,
        fdr: float | None = None,
        max_units: int = 30,
        pairs: int = 60,
        main: Any = None,
        images: Mapping[str, Any] | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw units on a circle, and their strongest pairs as edges.

        The width of an edge is the score, its colour the sign in most of the data. Edges that are not significant or
        stable are dashed and pale. Behind a supported score GEH is drawn as a pale band.

        Parameters
        ----------
        measure
            ``"geh"``, ``"aeh"``, ``"eah"`` or ``"supported"``; None as in ``result.table``.
        level
            Level of the rule ``"interval"``.
        rule
            ``"evidence"``, ``"sign"`` or ``"interval"``; None as in ``result.table``.
        fdr
            False discovery rate of the rule, as in ``result.table``.
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
        decisions = self._result.decisions(measure, level, fdr, rule=rule)
        shown: dict[str, Any] = {"max_units": max_units, "pairs": pairs, "main": main, "images": images}
        return draw_network(self._result, decisions, ax=ax, **shown)

    def regions(
        self,
        i: int | str,
        j: int | str,
        *,
        level: float = 0.95,
        rule: str | None = None,
        fdr: float | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the signed effect of the pair (i, j) in each group of points, with its interval.

        ``i`` and ``j`` are names or indices of units, ``level`` is that of the intervals. The title has the decision of
        ``rule`` at ``fdr`` about the pair.
        """
        return draw_pair_regions(self._result, i, j, level=level, rule=rule, fdr=fdr, ax=ax)

    def draws(
        self,
        measure: str | None = None,
        *,
        pairs: int = 8,
        level: float = 0.95,
        rule: str | None = None,
        fdr: float | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the density of the posterior draws of the ``pairs`` strongest pairs; lines mark the means.

        ``measure``, ``level``, ``rule`` and ``fdr`` are as in ``result.table``; pairs that are not significant or
        stable are grey.
        """
        return draw_densities(self._result, self._result.decisions(measure, level, fdr, rule=rule), pairs=pairs, ax=ax)

    def __repr__(self) -> str:
        return "Plots(heatmap, intervals, network, regions, draws)"
