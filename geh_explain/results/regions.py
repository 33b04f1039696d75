"""What a result says about groups of points, and how it differs from another result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHTypeError
from geh_explain.groups.group_info import GroupInfo
from geh_explain.results.compared_means import ComparisonRequest
from geh_explain.results.comparing import compare_results
from geh_explain.results.comparison import Comparison
from geh_explain.results.output import ResultOutput
from geh_explain.results.tables import group_table
from geh_explain.scores.group_unions import DrawnResult
from geh_explain.scores.measured_points import error_counts
from geh_explain.scores.pair_cells import PairCells
from geh_explain.statistics.intervals import mean_half_width

if TYPE_CHECKING:
    import pandas as pd


class ResultRegions(ResultOutput):
    """Base class of :class:`geh_explain.Interactions`: groups of points, and the comparison with another result."""

    _group_info: GroupInfo

    def regions(self: DrawnResult, i: int | str, j: int | str, level: float = 0.95) -> pd.DataFrame:
        """Return one row per group of points with the signed effect of a pair: size, mean, std, low, high, description.

        Parameters
        ----------
        i, j
            The two units, by name or index.
        level
            Level of the intervals.

        Returns
        -------
        DataFrame
            Indexed by the names of the groups. ``mean`` and ``std`` are over draws, of the mean interaction in the
            group; ``size`` is its number of points, ``weight`` its share of the case weights, where points have some.
            Intervals are over draws and points. With a single draw std is NaN, and so are low and high unless the
            errors of the points are known. ``description`` is what the group is in words, see
            :attr:`group_descriptions`; there is none if the inputs are no table. With ``groups="pairwise"`` groups are
            named by the units of the pair, ``"age low, bmi high"``, and described by the values that part them.
        """
        pair = self.pair(i, j)
        if self.pair_cells is not None:
            return pair_region_table(self, self.pair_cells, pair, level)
        mean, std = (values[:, pair] for values in self.signed_means)
        half_width = self.group_half_widths(level, np.array([pair]))[:, 0]
        shares = None if self.sample_weight is None else self.group_shares
        table = group_table(mean, std, half_width, self.sizes, self.group_names, shares)
        descriptions = self.group_descriptions
        return table if descriptions is None else table.assign(description=descriptions)

    def group_half_widths(self: DrawnResult, level: float, pairs: Ints) -> Floats:
        """Return half the widths (M, p) of the intervals of the group means of p pairs; NaN where nothing is known."""
        errors = None if self.point_errors is None else self.point_errors[:, pairs]
        std, counts = self.signed_means[1][:, pairs], error_counts(self)
        counts = counts if self.pair_cells is None else counts[:, pairs]
        return mean_half_width(std, self.scores("geh").n_draws, errors, counts, level)

    @property
    def group_descriptions(self) -> list[str] | None:
        """What each group of points is, in words (M): one or two rules over the columns of the inputs, or means.

        The percentage is the agreement of rules and group: the points in both, of those in either (the Jaccard index),
        in a sample of about a thousand points. Where it is below 60 %, or hardly above the share of the group in all
        points, the one or two columns are named whose means differ most from those of all points, in standard
        deviations: ``"on average age 35 (all: 49), bp 81 (all: 95)"``. Where none differs, it is ``"no short
        description"``. The columns are those of the inputs, also where a hidden layer is explained. None if the inputs
        are no table.

        >>> import torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] ** 2, posterior=geh.posterior.PointEstimate())
        >>> x = torch.stack([torch.arange(10.0), torch.arange(10.0) % 3], dim=1)
        >>> explainer.explain(x, groups=[0] * 6 + [1] * 4, names=["hour", "day"], progress=False).group_descriptions
        ['hour < 6 (100 %)', 'hour >= 6 (100 %)']
        """
        descriptions = self._group_info.descriptions
        return None if descriptions is None else [str(description) for description in descriptions]

    @property
    def group_exemplars(self) -> Ints | None:
        """Indices (M, 5) of the points nearest to the centre of each group, the nearest first; None for tables.

        They are found for images and other inputs that are no table, among at most 500 points, by the positions from
        which groups are found. -1 stands for points that a small group does not have.
        """
        return self._group_info.exemplars

    def compare(
        self: DrawnResult,
        other: DrawnResult,
        measure: str | None = None,
        level: float = 0.95,
        fdr: float = 0.05,
        *,
        source: str | None = None,
        labels: Sequence[str] = ("A", "B"),
    ) -> Comparison:
        """Compare the pairs of this result (A) with those of another one (B).

        For two networks explained at the same points, one network explained at two populations of points, or two
        checkpoints of a training. Both must have the same units, layer, output and scale.

        Parameters
        ----------
        other
            The other result.
        measure
            ``"groups"``: the mean interactions of both results in groups of points, by the sum of their absolute
            differences, weighted by the sizes of the groups; it sees changes of sign, too. ``"mean"``: the signed mean
            interactions over all points. ``"geh"``, ``"aeh"``, ``"eah"``: the scores. None: ``"groups"`` if the results
            have several groups in common, else ``"mean"``. Results at the same points have the finest unions of their
            groups in common, those at different points groups whose labels were given by the user.
        level
            Level of the intervals.
        fdr
            False discovery rate of the decisions (Benjamini and Hochberg).
        source
            What intervals and p-values count. ``"draws"``: other draws of both networks, at these points. ``"points"``:
            other points, with the mean of these draws. ``"both"`` or None: both.
        labels
            What A and B are called in text and plots.

        Returns
        -------
        Comparison
            ``table()`` has the pairs with their differences, intervals, p-values and decisions; ``regions(i, j)`` the
            differences in each group; ``plot()`` draws the scores; ``print`` says it in a few sentences.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] ** 2 * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> north = explainer.explain(torch.linspace(0, 1, 90).reshape(45, 2), groups=1, progress=False)
        >>> south = explainer.explain(torch.linspace(2, 3, 90).reshape(45, 2), groups=1, progress=False)
        >>> comparison = north.compare(south, labels=("north", "south"))
        >>> comparison.table()[["mean_a", "mean_b", "difference", "different"]].round(2).values.tolist()
        [[0.99, 4.99, -4.0, True]]
        """
        if not isinstance(other, ResultRegions):
            raise GEHTypeError(f"other is a {type(other).__name__}; give a result that explain(...) returned.")
        return compare_results(self, other, ComparisonRequest.of(level, fdr, measure, source, labels))


def pair_region_table(result: DrawnResult, cells: PairCells, pair: int, level: float) -> pd.DataFrame:
    """Return the table of the groups of one pair that hold points, where each pair has groups of its own."""
    names, rules = cells.describe(pair, [int(end[pair]) for end in result.pairs.ends], result.names)
    own = np.flatnonzero(cells.sizes[: len(names), pair])
    mean, std = (values[own, pair] for values in result.signed_means)
    half_width = result.group_half_widths(level, np.array([pair]))[own, 0]
    table = group_table(mean, std, half_width, cells.sizes[own, pair], [names[group] for group in own])
    return table.assign(description=[rules[group] for group in own])
