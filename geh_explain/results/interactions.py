"""The result of a run: pairwise interactions of units, with their uncertainty."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._process import cached_property
from geh_explain._types import Floats
from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError, warn
from geh_explain.groups.group_info import GroupInfo
from geh_explain.results.files import StoredResult, read_result, write_result
from geh_explain.results.group_shares import GroupShares
from geh_explain.results.measured import MeasuredResult
from geh_explain.results.regions import ResultRegions
from geh_explain.results.rules import compute_sign_p, decide
from geh_explain.results.tables import pair_table
from geh_explain.run.record import RunRecord
from geh_explain.scores.decisions import Decisions
from geh_explain.scores.draws import MEASURES, DrawMoments, Draws, LevelDraws
from geh_explain.scores.evidence import Evidence, check_evidence
from geh_explain.scores.main_effects import MainEffects
from geh_explain.scores.moments import Moments, draws_not_kept
from geh_explain.scores.pair_cells import PairCells
from geh_explain.scores.pair_scores import Scores
from geh_explain.scores.ranking import PairRanking, find_unit
from geh_explain.units.pair_set import PairSet

if TYPE_CHECKING:
    import pandas as pd


class Interactions(GroupShares, MeasuredResult, ResultRegions):
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
    evidence
        Outcome of the test of the pairs on held-out labels, None if there is none.
    pairs
        The P pairs that the draws are about; None for all pairs of the units.
    group_info
        Descriptions or exemplars of the groups; None if nothing is known.
    sample_weight
        Case weights (N,), 0 for points that do not count; None where all points count alike.
    pair_cells
        The groups of each pair, with ``groups="pairwise"``; None where all pairs have the same groups.

    Attributes
    ----------
    names
        Names of the units (D).
    labels
        Group of each point (N,), an index into ``group_names``; -1 for points of weight 0. With ``groups="pairwise"``
        groups differ from pair to pair, and all labels are 0: :meth:`regions` describes the groups of a pair. Of more
        than a million points they have the smallest signed type that holds them, else 64 bits.
    group_names
        Names of the groups (M).
    sizes, group_shares
        Number of points of each group (M,), and its share of the case weights; without weights, of the points. With
        ``groups="pairwise"`` both are (M, P).
    settings
        The record of the run as a plain dict: arguments, choices that were made, and warnings. Entries that a user adds
        are saved with the result; they must be values that JSON can hold.
    record
        The same with types, for the package itself.
    evidence
        Outcome of the test of the pairs on held-out labels, None if there is none.
    pairs
        The P pairs that were computed, in row-major order i < j: ``pairs.first`` and ``pairs.second`` are the indices
        of their units, ``pairs.complete`` says whether these are all pairs of the units. All arrays (P,) are about
        them. Matrices (D, D) have NaN for other pairs, and tables, decisions and exports leave them out.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
    >>> result = geh.GEHExplainer(net).explain(torch.randn(60, 3), groups=2, draws=20, progress=False)
    >>> result.geh.mean.shape, result.table().shape, list(result.regions("x0", "x1").columns[:2])
    ((3, 3), (3, 7), ['size', 'mean'])
    """

    def __init__(
        self,
        draws: Draws | DrawMoments,
        labels: NDArray[np.int64],
        names: list[str],
        group_names: list[str],
        record: RunRecord,
        settings: dict[str, Any] | None = None,
        evidence: Evidence | None = None,
        pairs: PairSet | None = None,
        group_info: GroupInfo | None = None,
        sample_weight: Floats | None = None,
        pair_cells: PairCells | None = None,
    ) -> None:
        self._draws = draws
        self._group_info = group_info or GroupInfo()
        self.pairs = PairSet.all(len(names)) if pairs is None else pairs
        self.labels = labels
        self.names = names
        self.group_names = group_names
        self.record = record
        self.settings = record.to_settings() if settings is None else settings
        self.sample_weight = sample_weight
        self.pair_cells = pair_cells
        self.evidence = check_evidence(evidence, len(self.pairs), names)

    def with_evidence(self, evidence: Evidence | None) -> Interactions:
        """Return a result of the same draws with the outcome of a test on held-out labels; None removes it.

        >>> import numpy as np, torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.rand(20, 2), groups=1, progress=False)
        >>> evidence = geh.Evidence(np.array([0.8]), np.array([0.1]), np.array([1e-9]), n_rows=500)
        >>> result.with_evidence(evidence).table()[["supported", "significant"]].round(2).values.tolist()
        [[0.79, True]]
        """
        record = self.record.with_test_warnings(getattr(evidence, "warnings", ()))
        settings = copy.deepcopy(self.settings)
        settings["warnings"] = list(record.warnings)
        parts = self._draws, self.labels, self.names, self.group_names, record, settings
        result = Interactions(*parts, evidence, self.pairs, self._group_info, self.sample_weight, self.pair_cells)
        return result.with_source(self._source, self._share)

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
        self._check_has_eah()
        points, count = self.record.eah_points, self.n_points
        if points is not None and points < count:
            warn(
                f"eah: measured on {points} of {count} points in each draw, because each point needs all pairs of "
                f"{len(self.names)} units; explain(eah_points={count}) uses all points."
            )
        return self._measure("eah")

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures that this result has: all three, unless ``explain(measures=...)`` left out EAH."""
        return tuple(name for name in MEASURES if name != "eah" or name in (self.record.measures or MEASURES))

    def scores(self, measure: str = "geh") -> Scores:
        """Return the scores of a measure by its name: ``"geh"``, ``"aeh"`` or ``"eah"``."""
        if measure not in MEASURES:
            raise GEHValueError(f"measure={measure!r} is unknown; use 'geh', 'aeh' or 'eah'.")
        scores: Scores = getattr(self, measure)
        return scores

    def _check_has_eah(self) -> None:
        """Raise if ``explain(measures=...)`` left out EAH."""
        if "eah" not in self.measures:
            raise GEHValueError(
                f"eah: explain(measures={self.measures!r}) left it out; explain(measures=('aeh', 'geh', 'eah')) "
                "measures it at all points, and explain(eah_points=100) at 100 points in each draw."
            )

    def _measure(self, measure: str) -> Scores:
        """Return the scores of a measure from the draws or their moments."""
        if isinstance(self._draws, Draws):
            return Scores(self._draws.scores(measure, self.weight_sums), len(self.names), self.pairs)
        return Scores(getattr(self._draws, measure), len(self.names), self.pairs)

    @property
    def main(self) -> MainEffects:
        """Main effects: the expected gradient of each unit, with intervals from the same draws."""
        slopes = self._draws.slopes
        if slopes is None or not self.has_main:
            raise GEHValueError(
                "main: this result has no main effects, because its engine computes no first derivatives or an earlier "
                "version saved it. Explain again with one of the engines of geh_explain.engines."
            )
        sizes = self.weight_sums if self.pair_cells is None else self.pair_cells.unit_sizes
        return MainEffects(slopes, sizes, self.names)

    @property
    def has_main(self) -> bool:
        """Whether there are main effects; engines defined by users may compute none."""
        slopes = self._draws.slopes
        return slopes.count > 0 if isinstance(slopes, Moments) else slopes is not None

    # Signed effects.

    @property
    def signed(self) -> Floats:
        """Mean local interaction (K, M, P) of each draw, group and pair; raises if draws were not kept.

        For pairs with a category: differences between levels, weighted, each with the sign of its mean over all points.
        """
        if isinstance(self._draws, DrawMoments):
            raise draws_not_kept("signed", self.geh.n_draws, len(self.names))
        return self._draws.signed

    @property
    def absolute(self) -> Floats:
        """Mean absolute local interaction (K, P) of each draw and pair; raises if draws or EAH were not kept."""
        self._check_has_eah()
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
        that of the population which the points are sampled from. With ``explain(clusters=...)`` they are errors over
        the choice of clusters. The spread over draws does not contain them. The variance is a mean over the first
        draws, an upper bound for that of the mean network. It contains the noise of Stein's engine, and is measured at
        the same points as EAH; NaN for groups with fewer than two of them.

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
        return self._draws.signed_moments()

    @property
    def level_draws(self) -> LevelDraws | None:
        """Draws of the differences between levels that pairs of categories are made of; None without categories."""
        return self._draws.levels

    # Decisions and tables.

    def decisions(
        self,
        measure: str | None = None,
        level: float = 0.95,
        fdr: float | None = None,
        *,
        rule: str | None = None,
        source: str | None = None,
    ) -> Decisions:
        """Return the scores, intervals and decisions of all pairs as arrays; the parameters are those of :meth:`table`.

        Tables, plots, the page and exports are made of them.
        """
        return decide(self, measure, level, fdr, rule, source)

    def sign_p_values(self) -> Floats:
        """Return the p-value (P,) of each pair by the sign rule: the hypothesis is that all its group means are 0.

        NaN if there is a single draw and the errors of the points are unknown.
        """
        return self._sign_p

    @cached_property
    def _sign_p(self) -> Floats:
        """P-values (P,) of the sign rule, computed once, as they take a while for very many pairs."""
        return compute_sign_p(self)

    def table(
        self,
        measure: str | None = None,
        level: float = 0.95,
        fdr: float | None = None,
        *,
        rule: str | None = None,
        unit: int | str | None = None,
        source: str | None = None,
    ) -> pd.DataFrame:
        """Return one row per pair, the strongest first, with its score, interval and the decision of a rule.

        Parameters
        ----------
        measure
            Score that orders the pairs: ``"geh"``, ``"aeh"``, ``"eah"``, or ``"supported"``, the part of GEH that
            held-out labels support. None: ``"supported"`` where the rule is ``"evidence"``, else ``"geh"``.
        level
            Level of the intervals, and of the decisions of the rule ``"interval"``.
        fdr
            False discovery rate of the decisions; None is 0.05 for ``"evidence"`` and ``"sign"``. For ``"interval"`` a
            pair must also be a discovery at this rate by its Bayesian p-value; None asks for the interval only.
        rule
            ``"evidence"``: do held-out labels support the pair? ``"sign"``: does the sign of the interaction hold over
            draws and points in this network? ``"interval"``: the rule of the paper, by which the interval of the score
            over draws excludes 0; most pairs of a fitted network pass it. None: ``"evidence"`` if there is evidence,
            else ``"sign"``.
        unit
            Name or index of a unit whose computed pairs are returned; None for all pairs. Decisions are the same.
        source
            What the intervals count. ``"draws"``: the score of another draw of the network at these points.
            ``"points"``: the score of this network, or the mean of these draws, at all points of the population from
            which these are a sample. ``"both"``: another draw at all points. None: ``"draws"`` for the rule
            ``"interval"``, else ``"both"``. Decisions are the same.

        Returns
        -------
        DataFrame
            unit_i, unit_j, mean, std (of the score over draws), low, high (interval of the network's score, by
            ``source``), and the columns of the rule:

            - ``"evidence"``: supported, slope, slope_se, p_value, significant. ``supported`` is ``mean`` times
              the expected slope, 1/2 for pairs that were not tested. Those are not significant. For numeric labels also
              true_low and true_high, the interval of the score that the labels support.
            - ``"sign"``: stable.
            - ``"interval"``: p_value, significant.

            Unknown numbers and decisions are missing values: with a single draw there is no interval, unless the errors
            of the points are known.
        """
        index = None if unit is None else find_unit(unit, self.names)
        if index is not None and not self.pairs.has_unit(index).any():
            raise GEHValueError(f"unit={unit!r}: none of its pairs was computed; explain(..., unit={unit!r}) does so.")
        decisions = self.decisions(measure, level, fdr, rule=rule, source=source)
        return pair_table(decisions, self.evidence, self.names, self.pairs, index)

    def top(self, pairs: int = 10, measure: str | None = None, **options: Any) -> pd.DataFrame:
        """Return the first ``pairs`` rows of :meth:`table`, which takes the same further ``options``."""
        return self.table(measure, **options).head(check_int("pairs", pairs, 1))

    def ranking(self, measure: str | None = None) -> PairRanking:
        """Return the pairs in the order of :meth:`table`, to compare with other methods."""
        decisions = self.decisions(measure)
        return PairRanking(decisions.strength_name, decisions.strength, self.names, decisions.mean, self.pairs)

    def pair(self, i: int | str, j: int | str) -> int:
        """Return the place in :attr:`pairs` of the pair of two units, given by name or index in any order.

        Raises ``GEHValueError`` if this pair was not computed.
        """
        first, second = find_unit(i, self.names), find_unit(j, self.names)
        if first == second:
            raise GEHValueError(f"i={i!r} and j={j!r} are the same unit; an interaction needs two.")
        return self.pairs.index(first, second, self.names)

    # Files.

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to a ``.npz`` file of arrays and JSON, and return its path.

        >>> import tempfile, torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.rand(20, 2), groups=1, progress=False)
        >>> geh.Interactions.load(result.save(f"{tempfile.mkdtemp()}/result.npz")).table().equals(result.table())
        True
        """
        parts = self._draws, self.labels, self.names, self.group_names, self.settings, self.evidence, self.pairs
        return write_result(StoredResult(*parts, self._group_info, self.sample_weight, self.pair_cells), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Interactions:
        """Read a file written by :meth:`save`. Nothing in it is executed; a damaged file raises ``GEHValueError``."""
        stored = read_result(path)
        record = RunRecord.from_settings(stored.settings)
        parts = stored.draws, stored.labels, stored.names, stored.group_names, record, stored.settings
        further = stored.evidence, stored.pairs, stored.group_info, stored.sample_weight, stored.pair_cells
        return cls(*parts, *further)
