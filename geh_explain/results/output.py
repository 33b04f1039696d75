"""What leaves a result: tables of errors, plots, the page, exports to other packages, and text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain.analyses.surface import Surface
from geh_explain.interpret.gallery import Gallery
from geh_explain.report.page import write_page
from geh_explain.report.predictions import Local
from geh_explain.report.text import (
    describe_columns,
    describe_decisions,
    describe_known_pairs,
    describe_scope,
    summarise,
)
from geh_explain.results.exports import to_networkx, to_xarray, write_csv
from geh_explain.results.level_tables import level_table
from geh_explain.results.plotting import Plots
from geh_explain.results.tables import format_table, monte_carlo_table, variance_table
from geh_explain.scores.level_means import find_pair_uncertainty
from geh_explain.scores.protocol import PairResult

if TYPE_CHECKING:
    import pandas as pd

#: Number of pairs that the repr shows.
_REPR_PAIRS = 8


class ResultOutput:
    """Base class of :class:`geh_explain.Interactions`: tables of errors, plots, page, exports, text."""

    @property
    def plot(self: PairResult) -> Plots:
        """Plots: ``result.plot.heatmap()``, ``.intervals()``, ``.network()``, ``.regions(i, j)``, ``.draws()``."""
        return Plots(self)

    def report(
        self: PairResult,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        level: float = 0.95,
        rule: str | None = None,
        fdr: float | None = None,
        main: Any = None,
        surfaces: Sequence[Surface] = (),
        gallery: Gallery | None = None,
        local: Local = None,
        share: bool | None = None,
    ) -> Path:
        """Write one self-contained interactive HTML page, and return its path.

        Parameters
        ----------
        path
            File to write, ending in ``.html``.
        title
            Title of the page; None names the model.
        level
            Level of the intervals.
        rule
            Rule that decides about pairs, as in :meth:`table`.
        fdr
            False discovery rate of the rule, as in :meth:`table`.
        main
            Main effect (D,) of each unit, shown as the size of its node: any attribution, for instance from Captum.
            None for :attr:`main`.
        surfaces
            Results of :meth:`GEHExplainer.surface`, each shown with its pair.
        gallery
            Result of :meth:`GEHExplainer.interpret`; its images are shown with their units.
        local
            Result of :meth:`GEHExplainer.explain_row`, or a list of these: accounts of single predictions.
        share
            Whether to measure the share of interactions for the summary, if :meth:`Interactions.share` was not called
            before. None measures it with at most about 200,000 evaluations if the result knows its network, the inputs
            are in memory, and some timed calls promise that it takes less than five seconds.

        Examples
        --------
        >>> import tempfile, torch, geh_explain as geh
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        >>> explainer, x = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate()), torch.randn(100, 3)
        >>> result = explainer.explain(x, groups=2, progress=False)
        >>> surface = explainer.surface(x, pair=(0, 1), result=result, progress=False)
        >>> result.report(f"{tempfile.mkdtemp()}/page.html", surfaces=[surface]).stat().st_size < 1_200_000
        True
        """
        decisions = self.decisions(level=level, fdr=fdr, rule=rule)
        self.measure_for_page(share)
        shown: dict[str, Any] = {"main": main, "surfaces": surfaces, "gallery": gallery, "local": local}
        return write_page(self, path, decisions, title=title, **shown)

    def to_networkx(
        self: PairResult,
        measure: str | None = None,
        level: float = 0.95,
        fdr: float | None = None,
        *,
        rule: str | None = None,
    ) -> Any:
        """Return a networkx graph: units are nodes; edges have the columns of :meth:`table`, weight and sign.

        The weight is the score that orders the pairs: the mean of ``measure``, or the supported score, half of GEH for
        pairs that were not tested.

        >>> import torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> graph = explainer.explain(torch.rand(20, 2), groups=1, progress=False).to_networkx()
        >>> graph.edges["x0", "x1"]["sign"], round(graph.edges["x0", "x1"]["weight"], 6)
        (1, 1.0)
        """
        return to_networkx(self, self.decisions(measure, level, fdr, rule=rule))

    def to_xarray(self: PairResult, *, level: float = 0.95, rule: str | None = None, fdr: float | None = None) -> Any:
        """Return the draws of all measures as an xarray.Dataset (chain, draw, pair), which ArviZ accepts too.

        Coordinates of the dimension ``pair`` are the names of its units and the decisions of :meth:`table`: with
        evidence supported, slope, slope_se, p_value and significant, else stable.
        """
        return to_xarray(self, self.decisions(None, level, fdr, rule=rule))

    def to_csv(self: PairResult, path: str | os.PathLike[str], measure: str | None = None, **options: Any) -> Path:
        """Write :meth:`table` to a file that spreadsheets open, and return its path.

        Names that a spreadsheet would take for a formula get an apostrophe. ``result.table().to_csv()``, the method of
        pandas, writes names as they are.

        Parameters
        ----------
        path
            File to write, ending in ``.csv``. A former file is replaced at the end, or stays as it was.
        measure, **options
            As in :meth:`table`: level, fdr, rule, unit.

        Examples
        --------
        >>> import tempfile, torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.rand(20, 2), groups=1, progress=False)
        >>> print(result.to_csv(f"{tempfile.mkdtemp()}/pairs.csv").read_text()[:40])
        "unit_i","unit_j","mean","std","low","hi
        """
        return write_csv(self.table(measure, **options), path)

    def variance(self: PairResult, measure: str = "geh") -> pd.DataFrame:
        """Return one row per pair, the strongest first, with the variance of its score by source.

        Returns
        -------
        DataFrame
            unit_i, unit_j, mean; ``draws``, the variance of the score over draws of the network; ``points``, that over
            the choice of points or clusters of points; ``total``, their sum; ``share``, the share of the points in it.
            What is not known is NaN, and does not count in the total. More draws do not lower the first, more points
            lower the second.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] ** 2, posterior=geh.posterior.PointEstimate())
        >>> x = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])  # local interactions 2, 4, 6: variance 4
        >>> table = explainer.explain(x, groups=1, progress=False).variance()
        >>> table[["mean", "points", "total", "share"]].round(3).values.tolist()
        [[4.0, 1.333, 1.333, 1.0]]
        """
        decisions, scores = self.decisions(measure, rule="sign"), self.scores(measure)
        points = find_pair_uncertainty(self, measure)
        unknown = np.full_like(scores.pair_mean, np.nan)
        of_points = unknown if points is None else points.variance
        return variance_table(decisions, self.names, self.pairs, scores.pair_std**2, of_points)

    def majority_signs(self: PairResult) -> NDArray[np.int64]:
        """Return the sign (P,) of each pair's effect in most of the data: 1, -1, or 0 if neither has more points.

        It is 0 for pairs with a category of several levels, whose differences have signs of their own.
        """
        means = self.signed_means[0]
        weights = self.weight_sums.reshape(len(means), -1)
        signs: NDArray[np.int64] = np.sign((weights * np.sign(means)).sum(axis=0)).astype(np.int64)
        if self.level_draws is not None:
            signs[self.level_draws.contrasts.several] = 0
        return signs

    def levels(self: PairResult, i: int | str, j: int | str, level: float = 0.95) -> pd.DataFrame:
        """Return one row per difference between levels of a pair with a category, the strongest first.

        Parameters
        ----------
        i, j
            The two units, by name or index; at least one of them is a category of ``units=Categorical(...)``.
        level
            Level of the intervals.

        Returns
        -------
        DataFrame
            ``from_i`` and ``to_i``, two levels of unit i, if it is a category, and ``from_j`` and ``to_j`` of unit j;
            ``weight``, by the frequency of the levels; ``strength``, the GEH of this difference, by which rows are
            ordered; ``mean`` and ``std`` over draws of the signed difference over all points; ``low`` and ``high``, its
            interval over draws and points. The score of the pair is the sum of weight times strength.

            For a numeric unit j, ``mean`` is how much the slope of j changes from level ``from_i`` to level ``to_i``;
            for two categories, how much the effect of i changes from level ``from_j`` to ``to_j``.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> x = torch.stack([torch.arange(30) % 3, torch.linspace(-1, 1, 30)], dim=1)  # a code, and a number
        >>> model = lambda x: (x[:, 0] == 2) * x[:, 1]
        >>> units = geh.units.Categorical({"kind": 0})
        >>> explainer = geh.GEHExplainer(model, units=units, posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(x, groups=1, progress=False)
        >>> result.levels("kind", "x1")[["from_i", "to_i", "mean"]].values.tolist()
        [['0', '2', 1.0], ['1', '2', 1.0], ['0', '1', 0.0]]
        """
        return level_table(self, i, j, level)

    def monte_carlo(self: PairResult, measure: str = "geh") -> pd.DataFrame:
        """Return one row per pair, the strongest first, with the Monte Carlo errors of its mean and std.

        The columns are unit_i, unit_j, mean, std, mean_error and std_error. The errors fall with the square root of the
        number of draws.
        """
        return monte_carlo_table(self.table(measure), self.scores(measure).n_draws)

    def __repr__(self: PairResult) -> str:
        decisions = self.decisions()
        lines = [describe_scope(self), *describe_known_pairs(self), describe_decisions(self, decisions)]
        lines += [*self.findings(), *describe_columns(decisions)]
        return "\n".join([*lines, format_table(self.table().head(_REPR_PAIRS)).to_string()])

    def __str__(self: PairResult) -> str:
        return "\n".join([repr(self), *self.open_questions()])

    def _repr_html_(self: PairResult) -> str:
        """Return the summary and the strongest pairs as HTML, for notebooks; names are escaped."""
        table = format_table(self.table().head(_REPR_PAIRS)).to_html(border=0)
        words = " ".join(summarise(self, self.decisions())), *describe_columns(self.decisions())
        return "".join(f"<p>{escape(text)}</p>" for text in words) + table
