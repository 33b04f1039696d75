"""The result of a run: pairwise interactions of units, with their uncertainty."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain._validation import check_int
from geh_explain.analyses.surface import Surface
from geh_explain.errors import GEHValueError, warn
from geh_explain.interpret.gallery import Gallery
from geh_explain.report.page import write_page
from geh_explain.report.text import summarise
from geh_explain.results.exports import to_networkx, to_xarray
from geh_explain.results.files import StoredResult, read_result, write_result
from geh_explain.results.plotting import Plots
from geh_explain.results.tables import check_decision, group_table, monte_carlo_table, pair_table
from geh_explain.run.record import RunRecord
from geh_explain.scores.draws import MEASURES, DrawMoments, Draws
from geh_explain.scores.main_effects import MainEffects
from geh_explain.scores.measures import pair_index
from geh_explain.scores.moments import Moments, draws_not_kept
from geh_explain.scores.pair_scores import Scores
from geh_explain.scores.ranking import PairRanking, find_unit
from geh_explain.statistics.p_values import sign_p_value

if TYPE_CHECKING:
    import pandas as pd

#: Number of pairs that the repr shows.
_REPR_PAIRS = 8


class Interactions:
    """Pairwise interactions of D units over N points in M groups, with their uncertainty over K posterior draws.

    :meth:`GEHExplainer.explain` returns it. The three measures :attr:`geh`, :attr:`aeh` and :attr:`eah` are computed
    from the same draws; :meth:`table` has all pairs as a DataFrame, :attr:`plot` draws them.

    Parameters
    ----------
    draws
        All draws, or their moments where they did not fit into memory.
    labels
        Group of each point (N,), an index into ``group_names``.
    names
        Names of the units (D).
    group_names
        Names of the groups (M).
    record
        The record of the run.
    settings
        The record as a plain dict, with entries of the user's own; None for the record alone.

    Attributes
    ----------
    names
        Names of the units (D).
    labels
        Group of each point (N,), an index into ``group_names``.
    group_names
        Names of the groups (M).
    sizes
        Number of points of each group (M,).
    settings
        The record of the run as a plain dict: arguments, choices that were made, and warnings. Entries that a user adds
        are saved with the result; they must be values that JSON can hold.
    record
        The same with types, for the package itself.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
    >>> result = geh.GEHExplainer(net).explain(torch.randn(60, 3), groups=2, draws=20, progress=False)
    >>> result.geh.mean.shape, result.table().shape, list(result.regions("x0", "x1").columns[:2])
    ((3, 3), (3, 8), ['size', 'mean'])
    """

    def __init__(
        self,
        draws: Draws | DrawMoments,
        labels: NDArray[np.int64],
        names: list[str],
        group_names: list[str],
        record: RunRecord,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._draws = draws
        self.labels = labels
        self.names = names
        self.group_names = group_names
        self.record = record
        self.settings = record.to_settings() if settings is None else settings
        self.sizes = np.bincount(labels, minlength=len(group_names))

    # Scores.

    @cached_property
    def geh(self) -> Scores:
        """Group expected Hessian: local interactions cancel within a group, not between groups."""
        return self._measure("geh")

    @cached_property
    def aeh(self) -> Scores:
        """Absolute expected Hessian: local interactions cancel over all points."""
        return self._measure("aeh")

    @cached_property
    def eah(self) -> Scores:
        """Expected absolute Hessian: nothing cancels. Warns if it was measured on a part of the points."""
        points = self.record.eah_points
        if points is not None and points < len(self.labels):
            warn(
                f"eah: measured on {points} of {len(self.labels)} points in each draw, because each point needs all "
                f"pairs of {len(self.names)} units; explain(eah_points={len(self.labels)}) uses all points."
            )
        return self._measure("eah")

    def scores(self, measure: str = "geh") -> Scores:
        """Return the scores of a measure by its name: ``"geh"``, ``"aeh"`` or ``"eah"``."""
        if measure not in MEASURES:
            raise GEHValueError(f"measure={measure!r} is unknown; use 'geh', 'aeh' or 'eah'.")
        scores: Scores = getattr(self, measure)
        return scores

    def _measure(self, measure: str) -> Scores:
        """Return the scores of a measure from the draws or their moments."""
        if isinstance(self._draws, Draws):
            return Scores(self._draws.scores(measure, self.sizes), len(self.names))
        return Scores(getattr(self._draws, measure), len(self.names))

    @property
    def main(self) -> MainEffects:
        """Main effects: the expected gradient of each unit, with intervals from the same draws."""
        slopes = self._draws.slopes
        if slopes is None or not self.has_main:
            raise GEHValueError(
                "main: this result has no main effects, because its engine computes no first derivatives or an earlier "
                "version saved it. Explain again with one of the engines of geh_explain.engines."
            )
        return MainEffects(slopes, self.sizes, self.names)

    @property
    def has_main(self) -> bool:
        """Whether there are main effects; engines defined by users may compute none."""
        slopes = self._draws.slopes
        return slopes.count > 0 if isinstance(slopes, Moments) else slopes is not None

    # Signed effects.

    @property
    def signed(self) -> Floats:
        """Mean local interaction (K, M, P) of each draw, group and pair; raises if draws were not kept."""
        if isinstance(self._draws, DrawMoments):
            raise draws_not_kept("signed", self.geh.n_draws, len(self.names))
        return self._draws.signed

    @property
    def absolute(self) -> Floats:
        """Mean absolute local interaction (K, P) of each draw and pair; raises if draws were not kept."""
        if isinstance(self._draws, DrawMoments):
            raise draws_not_kept("absolute", self.geh.n_draws, len(self.names))
        return self._draws.absolute

    @property
    def noise(self) -> Floats | None:
        """Standard errors (K, M, P) of ``signed`` where the engine estimates it with noise, else None."""
        return self._draws.noise if isinstance(self._draws, Draws) else None

    @property
    def point_errors(self) -> Floats | None:
        """Standard errors (M, P) of group means over the choice of points; None where they were not measured.

        sqrt(variance of h / n) for local interactions h at the n points of a group: how far their mean may lie from
        that of the population which the points are sampled from. The spread over draws does not contain it. The
        variance is a mean over the first draws, an upper bound for that of the mean network. It contains the noise of
        Stein's engine, and is measured at the same points as EAH; NaN for groups with fewer than two of them.

        >>> import torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] ** 2, posterior=geh.posterior.PointEstimate())
        >>> x = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])  # local interactions 2, 4, 6: variance 4
        >>> explainer.explain(x, groups=1, progress=False).point_errors.round(4).tolist()
        [[1.1547]]
        """
        return self._draws.point_errors

    @cached_property
    def signed_means(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation over draws of each group's mean interaction, both (M, P)."""
        if isinstance(self._draws, DrawMoments):
            return self._draws.signed.mean, self._draws.signed.std
        signed = self._draws.signed
        mean = signed.mean(axis=0)
        return mean, signed.std(axis=0, ddof=1) if len(signed) > 1 else np.full_like(mean, np.nan)

    def majority_signs(self) -> NDArray[np.int64]:
        """Return the sign (P,) of each pair's effect in most of the data: 1, -1, or 0 if neither has more points."""
        return np.sign(self.sizes @ np.sign(self.signed_means[0])).astype(np.int64)

    def sign_p_values(self) -> Floats:
        """Return the p-value (P,) of each pair by the sign rule: the hypothesis is that all its group means are 0."""
        if self.geh.n_draws < 2:
            raise GEHValueError(
                "the sign rule needs at least 2 posterior draws; explain with draws=100 and a posterior."
            )
        return sign_p_value(*self.signed_means, self.geh.n_draws)

    # Tables.

    def table(
        self, measure: str = "geh", level: float = 0.95, fdr: float | None = None, *, rule: str = "interval"
    ) -> pd.DataFrame:
        """Return one row per pair, the strongest first: unit_i, unit_j, mean, std, low, high, p_value, significant.

        Parameters
        ----------
        measure
            ``"geh"``, ``"aeh"`` or ``"eah"``.
        level
            Level of the intervals, and of significance if ``fdr`` is None.
        fdr
            False discovery rate. If given, the Benjamini-Hochberg procedure decides on the p-values of the rule; it may
            call more pairs significant than the interval does.
        rule
            ``"interval"``: a pair is significant if its Gaussian interval excludes 0, as in the paper. ``"sign"``: if
            the signed mean of some group is too far from 0, which tests whether there is an interaction at all; see
            :func:`geh_explain.inference.sign_p_value`.

        Returns
        -------
        DataFrame
            With a single draw the columns after ``mean`` are missing values.
        """
        scores = self.scores(measure)
        check_decision(level, fdr, rule)
        sign_p_values = self.sign_p_values() if rule == "sign" and scores.n_draws > 1 else None
        return pair_table(scores, self.names, level=level, fdr=fdr, sign_p_values=sign_p_values)

    def top(self, pairs: int = 10, measure: str = "geh") -> pd.DataFrame:
        """Return the first ``pairs`` rows of :meth:`table`."""
        return self.table(measure).head(check_int("pairs", pairs, 1))

    def regions(self, i: int | str, j: int | str, level: float = 0.95) -> pd.DataFrame:
        """Return one row per group of points with the signed effect of a pair: size, mean, std, low, high.

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
            group; ``size`` is its number of points. With a single draw std, low and high are NaN.
        """
        pair = self.pair(i, j)
        mean, std = (values[:, pair] for values in self.signed_means)
        return group_table(mean, std, self.sizes, self.group_names, level)

    def monte_carlo(self, measure: str = "geh") -> pd.DataFrame:
        """Return one row per pair, the strongest first, with the Monte Carlo errors of its mean and std.

        The columns are unit_i, unit_j, mean, std, mean_error and std_error. The errors fall with the square root of the
        number of draws.
        """
        return monte_carlo_table(self.table(measure), self.scores(measure).n_draws)

    def ranking(self, measure: str = "geh") -> PairRanking:
        """Return the pairs in the order of a measure's posterior mean, to compare with other methods."""
        return PairRanking(measure.upper(), self.scores(measure).pair_mean, self.names)

    def pair(self, i: int | str, j: int | str) -> int:
        """Return the index of the pair of two units, given by name or index in any order."""
        first, second = find_unit(i, self.names), find_unit(j, self.names)
        if first == second:
            raise GEHValueError(f"i={i!r} and j={j!r} are the same unit; an interaction needs two.")
        return pair_index(first, second, len(self.names))

    # Output.

    @property
    def plot(self) -> Plots:
        """Plots: ``result.plot.heatmap()``, ``.intervals()``, ``.network()``, ``.regions(i, j)``, ``.draws()``."""
        return Plots(self)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        level: float = 0.95,
        main: Any = None,
        surfaces: Sequence[Surface] = (),
        gallery: Gallery | None = None,
    ) -> Path:
        """Write one self-contained interactive HTML page, and return its path.

        Parameters
        ----------
        path
            File to write, ending in ``.html``.
        title
            Title of the page; None names the model.
        level
            Level of intervals and significance.
        main
            Main effect (D,) of each unit, shown as the size of its node: any attribution, for instance from Captum.
            None for :attr:`main`.
        surfaces
            Results of :meth:`GEHExplainer.surface`, each shown with its pair.
        gallery
            Result of :meth:`GEHExplainer.interpret`; its images are shown with their units.

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
        return write_page(self, path, title=title, level=level, main=main, surfaces=surfaces, gallery=gallery)

    def to_networkx(self, measure: str = "geh", level: float = 0.95) -> Any:
        """Return a networkx graph: units are nodes; edges have the columns of :meth:`table`, weight and sign.

        >>> import torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> graph = explainer.explain(torch.rand(20, 2), groups=1, progress=False).to_networkx()
        >>> graph.edges["x0", "x1"]["sign"], round(graph.edges["x0", "x1"]["weight"], 6)
        (1, 1.0)
        """
        return to_networkx(self, measure, level)

    def to_xarray(self) -> Any:
        """Return the draws of all measures as an xarray.Dataset (chain, draw, pair), which ArviZ accepts too."""
        return to_xarray(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to a ``.npz`` file of arrays and JSON, and return its path.

        >>> import tempfile, torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.rand(20, 2), groups=1, progress=False)
        >>> geh.Interactions.load(result.save(f"{tempfile.mkdtemp()}/result.npz")).table().equals(result.table())
        True
        """
        return write_result(StoredResult(self._draws, self.labels, self.names, self.group_names, self.settings), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Interactions:
        """Read a file written by :meth:`save`. Nothing in it is executed; a damaged file raises ``GEHValueError``."""
        stored = read_result(path)
        record = RunRecord.from_settings(stored.settings)
        return cls(stored.draws, stored.labels, stored.names, stored.group_names, record, stored.settings)

    def __repr__(self) -> str:
        return f"{self._header()}\n{self.top(_REPR_PAIRS).to_string(float_format='{:.4g}'.format)}"

    def _repr_html_(self) -> str:
        """Return the summary and the strongest pairs as HTML, for notebooks; names are escaped."""
        table = self.top(_REPR_PAIRS).to_html(float_format="{:.4g}".format, border=0, na_rep="")
        return f"<p>{escape(' '.join(summarise(self)))}</p>{table}"

    def _header(self) -> str:
        """Return the first line of the repr."""
        draws, groups, pairs = self.geh.n_draws, len(self.group_names), len(self.geh.pair_mean)
        text = (
            f"Interactions between {len(self.names)} units of {self.record.place}: {pairs} pairs, {len(self.labels)} "
            f"points in {groups} group{'s' * (groups > 1)}, {draws} draw{'s' * (draws > 1)} of {self.record.posterior}"
        )
        if draws < 2:
            return text + "; no intervals"
        return text + f"; {int(self.table()['significant'].sum())} significant at 95 %"
