"""Questions that a result answers by asking its network again: the share of interactions, and triples of units."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np
import torch

from geh_explain._types import Ints
from geh_explain._validation import check_int, check_level, check_positive
from geh_explain.analyses.share import InteractionShare
from geh_explain.analyses.share_cost import is_in_memory, seconds_of_rows
from geh_explain.analyses.share_design import ShareDesign, ShareRequest
from geh_explain.analyses.share_measurement import MIN_COMPARISONS, measure_conditional, measure_permuted
from geh_explain.analyses.triples import TripleRequest, compute_triples
from geh_explain.data.case_weights import read_weights
from geh_explain.errors import GEHError, GEHRuntimeError, GEHTypeError, GEHValueError, GEHWarning, warn
from geh_explain.groups.clusters import read_clusters
from geh_explain.model.preserve import preserved
from geh_explain.results.output import ResultOutput
from geh_explain.run.options import AnalysisOptions
from geh_explain.run.record import RunRecord, digest_parameters
from geh_explain.run.source import ResultSource
from geh_explain.scores.pair_names import join_names
from geh_explain.scores.protocol import PairResult

if TYPE_CHECKING:
    import pandas as pd

#: Rows that a page evaluates for its sentence about the share, in how many draws, and the seconds that this may take.
PAGE_EVALUATIONS = 200_000
_PAGE_DRAWS = 10
_PAGE_SECONDS = 5.0
#: Backgrounds of the share of interactions.
BACKGROUNDS = {"permuted": measure_permuted, "conditional": measure_conditional}
#: Draws and half-width of the interval of a share by default.
SHARE_DRAWS = 20
PRECISION = 0.01


Result = TypeVar("Result", bound="MeasuredResult")


@dataclass(frozen=True)
class ShareArguments:
    """The arguments of :meth:`MeasuredResult.share`, checked."""

    pairs: int
    background: str
    draws: int
    precision: float
    evaluations: int | None
    progress: bool

    def __post_init__(self) -> None:
        check_int("pairs", self.pairs, 0)
        check_int("draws", self.draws, 1)
        if self.evaluations is not None:
            check_int("evaluations", self.evaluations, 1)
        check_positive("precision", self.precision, "a positive share, such as 0.01")
        if not isinstance(self.background, str) or self.background not in BACKGROUNDS:
            raise GEHValueError(f"background={self.background!r} is unknown; use 'permuted' or 'conditional'.")


class MeasurablePairs(PairResult, Protocol):
    """A result that may know its network, and what was measured of it."""

    _source: ResultSource | None
    _share: InteractionShare | None
    _output_std: float | None

    @property
    def record(self) -> RunRecord:
        """The record of the run."""


class MeasuredResult(ResultOutput):
    """Base class of :class:`geh_explain.Interactions`: questions to the network of a result, see :meth:`share`."""

    _source: ResultSource | None = None
    _share: InteractionShare | None = None
    _output_std: float | None = None

    @property
    def output_std(self: MeasurablePairs) -> float | None:
        """Standard deviation of the explained output over the points; None where it was not measured.

        It is known of smoothed networks, and of others once :meth:`Interactions.report` has measured it, for which the
        result must know its network. The page shows scores relative to it.

        >>> import tempfile, torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.tensor([[1.0, 2.0], [3.0, 2.0]]), groups=1, progress=False)
        >>> path = result.report(f"{tempfile.mkdtemp()}/page.html")
        >>> result.output_std  # of the outputs 2 and 6
        2.0
        """
        smoothed = self.record.smoothed
        return self._output_std if smoothed is None else smoothed.get("output_std")

    def share(
        self: MeasurablePairs,
        pairs: int = 5,
        *,
        background: str = "permuted",
        draws: int = SHARE_DRAWS,
        precision: float = PRECISION,
        evaluations: int | None = None,
        progress: bool = True,
    ) -> InteractionShare:
        """Measure how much of the output's variance is interaction: overall, by unit, and of the strongest pairs.

        The share is what no sum of functions of single units explains. The network itself is evaluated, without
        smoothing. ``print(result)`` and the page show the finding from then on.

        A category of ``units=Categorical(...)`` is one unit, which takes the levels of other rows as a whole. With
        ``sample_weight`` the distribution is that of the weighted rows: units take values of rows in proportion to
        their weights, and regressions are weighted.

        Parameters
        ----------
        pairs
            How many of the strongest pairs, in the order of :meth:`table`.
        background
            Distribution over which the variance is taken. ``"permuted"``: each unit takes values of the rows
            independently of all others (Sobol' indices). If units depend on each other, the network is evaluated at
            combinations which may not occur. ``"conditional"``: the rows as they are. The best additive function is
            fitted by regression, and explains interactions of units that depend on each other in part; the share is an
            upper bound where the fit is not flexible enough. Units have no shares of their own then.
        draws
            Number of posterior draws, the first of those of the result.
        precision
            Points are evaluated until half the width of the 95 % interval over rows is this small, ...
        evaluations
            ... or so many rows were evaluated, in all draws together, or the rows of the data limit the precision. None
            for two million, fewer for large networks. At least 128 points are evaluated in each draw.
        progress
            Show a progress bar.

        Returns
        -------
        InteractionShare
            It has ``overall``, ``low`` and ``high``, the tables ``units()`` and ``pairs()``, and ``plot()``.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> model = lambda x: x[:, 0] * x[:, 1] + x[:, 2]  # for standard normal inputs both terms have variance 1
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> x = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
        >>> share = explainer.explain(x, groups=1, progress=False).share(progress=False)
        >>> share.low < 0.5 < share.high, share.pairs().loc[0, "unit_j"]
        (True, 'x1')
        """
        request = ShareArguments(pairs, background, draws, precision, evaluations, progress)
        return measure_share(self, known_source(self, "share"), request)

    def triples(self: MeasurablePairs, pairs: int = 5, *, level: float = 0.95, progress: bool = True) -> pd.DataFrame:
        """Return the third units that change the strongest pairs, in the groups and draws of this result.

        The third-order interaction of i, j and k is d3 f / du_i du_j du_k, averaged over points like those of pairs:
        GEH is the mean over groups of its absolute group means. For mixed differences it is the third mixed
        difference.

        Parameters
        ----------
        pairs
            How many of the strongest pairs, in the order of :meth:`table`. All other units are third units.
        level
            Level of the intervals.
        progress
            Show a progress bar.

        Returns
        -------
        DataFrame
            One row per triple, the strongest first: unit_i, unit_j, unit_k, mean and std of GEH over draws, low and
            high (interval over draws and points), stable (whether the sign holds in some group). A triple is listed
            once, with the strongest of its pairs as unit_i and unit_j.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> model = lambda x: x[:, 0] * x[:, 1] * (3 + 2 * x[:, 2]) + x[:, 3]
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.rand(100, 4), groups=1, progress=False)
        >>> result.triples(pairs=1, progress=False)[["unit_i", "unit_j", "unit_k", "mean"]].round(4).values.tolist()
        [['x0', 'x1', 'x2', 2.0], ['x0', 'x1', 'x3', 0.0]]
        """
        return triple_table(self, known_source(self, "triples"), pairs, level, progress)

    def findings(self) -> list[str]:
        """Return what was measured beside the pairs, one sentence each: the share of interactions, once it is known."""
        return [] if self._share is None else [self._share.describe()]

    def interaction_share(self: MeasurablePairs, level: float = 0.95) -> tuple[float, float, float] | None:
        """Return the share of all interactions in the output's variance with its interval; None if not measured."""
        return None if self._share is None else (self._share.overall, *self._share.interval(level))

    def pair_shares(self: MeasurablePairs, level: float = 0.95) -> dict[int, tuple[float, float, float]]:
        """Return the share of pairs in the output's variance with its interval, by their index; those measured."""
        if self._share is None:
            return {}
        columns = self._share.pairs(level)
        return {
            self.pair(first, second): (share, low, high)
            for first, second, share, low, high in columns.itertuples(index=False, name=None)
        }

    def open_questions(self) -> list[str]:
        """Return what was not measured yet and can be, with the call that does it."""
        if self._share is not None or self._source is None:
            return []
        return ["result.share() measures how much of the output is interaction"]

    def measure_for_page(self: MeasurablePairs, share: bool | None) -> None:
        """Measure the share of interactions for the page, if that was not done; None: if it is known to be fast.

        The standard deviation of the output is measured too, if that is fast.
        """
        if share is not None and not isinstance(share, bool):
            raise GEHTypeError(f"share={share!r} must be True, False, or None to measure it where that is fast.")
        if self._source is not None and self.output_std is None and is_in_memory(self._source.inputs):
            _measure_spread_if_fast(self, self._source)
        if share is False or self._share is not None:
            return
        draws, evaluations = (SHARE_DRAWS, None) if share else (_PAGE_DRAWS, PAGE_EVALUATIONS)
        arguments = ShareArguments(5, "permuted", draws, PRECISION, evaluations, progress=bool(share))
        if share:
            measure_share(self, known_source(self, "share"), arguments)
        elif self._source is not None and is_in_memory(self._source.inputs):
            _measure_if_fast(self, self._source, arguments)

    def with_source(self: Result, source: ResultSource | None, share: InteractionShare | None = None) -> Result:
        """Return the same result, which knows its network and data, and the share of interactions in it."""
        result = copy.copy(self)
        result._source, result._share = source, share
        return result

    def __getstate__(self) -> dict[str, Any]:
        """Leave the network and the data out of copies and pickles."""
        return {name: value for name, value in vars(self).items() if name != "_source"}


# The questions themselves; the explainer asks them for results that do not know their network.


def measure_share(result: MeasurablePairs, source: ResultSource, arguments: ShareArguments) -> InteractionShare:
    """Measure the share of interactions in the network of ``source``; the result keeps it for its findings."""
    record = result.record
    # The first draws do not depend on how many follow.
    n_draws = min(arguments.draws, max(1, record.draws))
    options = AnalysisOptions(n_draws, source.batch_size, record.seed, arguments.progress)
    pairs = strongest_ends(result, arguments.pairs)
    request = ShareRequest(result.names, pairs, arguments.precision, arguments.evaluations)
    with preserved(source.setup.model):
        points, cut = replace(source, sample_weight=result.sample_weight).read()
        check_unit_count(result, cut.n_units)
        weights = read_weights(result.sample_weight, points)
        posterior = source.setup.posterior_for(cut, points)
        design = ShareDesign(cut, points, posterior, read_clusters(source.clusters, points), weights, options)
        result._share = BACKGROUNDS[arguments.background](design, request)
    return result._share


def _refuse_categories(result: MeasurablePairs, question: str) -> None:
    """Raise if a result has categories, which have levels and no directions to move along."""
    if result.level_draws is not None:
        raise GEHValueError(
            f"{question}: this result has categories, which it does not take. Explain without units=Categorical(...); "
            "with groups=[level of each row], result.regions(i, j) shows how a category changes pairs of numbers."
        )


def _measure_if_fast(result: MeasurablePairs, source: ResultSource, arguments: ShareArguments) -> None:
    """Measure the share of interactions unless it takes long, fails, or would be warned about."""
    n_draws = min(arguments.draws, max(1, result.record.draws))
    n_calls = 2 * (2 + len(result.names) + arguments.pairs) * n_draws
    n_rows = max(PAGE_EVALUATIONS, MIN_COMPARISONS * n_calls)
    with warnings.catch_warnings():
        # A changed network or other inputs than those of the result, for instance, are not what the page is about.
        warnings.simplefilter("error", GEHWarning)
        try:
            known_source(result, "share")
            with preserved(source.setup.model):
                points, cut = replace(source, sample_weight=result.sample_weight).read()
                seconds = seconds_of_rows(cut, points.first, n_calls, n_rows)
            if seconds <= _PAGE_SECONDS:
                measure_share(result, source, arguments)
        except (GEHError, GEHWarning):
            return


def _measure_spread_if_fast(result: MeasurablePairs, source: ResultSource) -> None:
    """Measure the standard deviation of the output over the points, unless it takes long, fails, or would warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GEHWarning)
        try:
            known_source(result, "share")
            with preserved(source.setup.model), torch.no_grad():
                points, cut = replace(source, sample_weight=result.sample_weight).read()
                if seconds_of_rows(cut, points.first, 1, len(points)) > _PAGE_SECONDS:
                    return
                parts = [cut.outputs(rows).double().cpu().numpy() for rows in points.split(source.batch_size)]
        except (GEHError, GEHWarning):
            return
    outputs, weights = np.concatenate(parts), result.sample_weight
    mean = np.average(outputs, weights=weights)
    result._output_std = float(np.sqrt(np.average((outputs - mean) ** 2, weights=weights)))


def triple_table(
    result: MeasurablePairs, source: ResultSource, pairs: int, level: float, progress: bool
) -> pd.DataFrame:
    """Return the table of triples in the network of ``source``; see :meth:`MeasuredResult.triples`."""
    import pandas as pd

    check_level(level)
    _refuse_categories(result, "triples")
    if result.pair_cells is not None:
        raise GEHValueError(
            "triples: they are averaged in groups that all pairs have in common, and groups='pairwise' gives each pair "
            "its own; explain with a number of groups or labels. result.regions(i, j) names the third unit of a pair."
        )
    record, names = result.record, result.names
    chosen = strongest_ends(result, check_int("pairs", pairs, 1))
    groups = [result.group_names[group] for group in result.labels]
    request = TripleRequest(chosen, names, groups, record.draws, record.seed, source.scale, progress)
    found = compute_triples(replace(source, sample_weight=result.sample_weight), request)
    # Triples are pairs of nodes, so that their intervals and decisions are those of any result.
    nodes = [*(join_names(names[i], names[j]) for i, j in chosen), *names]
    make_result = cast(Callable[..., MeasurablePairs], type(result))
    of_nodes = make_result(
        found.draws,
        result.labels,
        nodes,
        result.group_names,
        record,
        pairs=found.nodes,
        sample_weight=result.sample_weight,
    )
    decisions = of_nodes.decisions("geh", level, rule="sign")
    units = {
        f"unit_{end}": [names[unit] for unit in column] for end, column in zip("ijk", found.triples.T, strict=True)
    }
    numbers = {name: getattr(decisions, name) for name in ("mean", "std", "low", "high")}
    unknown = pd.array([pd.NA] * len(found.triples), dtype="boolean")
    stable = unknown if decisions.accepted is None else decisions.accepted
    return pd.DataFrame({**units, **numbers, "stable": stable}).iloc[decisions.order].reset_index(drop=True)


def known_source(result: MeasurablePairs, question: str) -> ResultSource:
    """Return the source of a result, or raise if it has none; warn if its network has changed."""
    source = result._source
    if source is None:
        raise GEHRuntimeError(
            f"{question}: this result does not know its network, as it was loaded from a file or copied; use "
            f"explainer.{question}(result, inputs)."
        )
    recorded = result.record.parameters
    if recorded and recorded != digest_parameters(source.setup.model):
        warn(
            "result: its network has other parameters now than when it was explained; the answer is about the network "
            "as it is now. Explain it again."
        )
    return source


def strongest_ends(result: PairResult, pairs: int) -> Ints:
    """Return the units (P, 2) of the strongest pairs, in the order of the table."""
    chosen = result.decisions().order[:pairs]
    return np.stack([ends[chosen] for ends in result.pairs.ends], axis=1)


def check_unit_count(result: PairResult, n_units: int) -> None:
    """Raise if inputs have another number of units than the result."""
    if n_units != len(result.names):
        raise GEHValueError(
            f"inputs: there are {n_units} units, and result is about {len(result.names)}; give rows of the same kind."
        )
