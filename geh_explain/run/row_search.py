"""The search of ``rows="auto"``: units that the strongest pairs belong to, without computing all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from geh_explain._types import Floats, Ints
from geh_explain.data.points import Points
from geh_explain.engines.base import EngineRun
from geh_explain.engines.exact import ExactRun
from geh_explain.engines.structured.engine import StructuredRun
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHValueError
from geh_explain.groups.grouping import Grouping
from geh_explain.posterior.protocols import seed_of_draw
from geh_explain.scores.decisions import percent
from geh_explain.scores.measures import geh
from geh_explain.units.pair_set import PairSet

#: Random directions that order the units, and as many that bound what is left.
_DIRECTIONS = 32
#: How many of the strongest pairs are to be found, and with which probability.
_TOP = 10
_CONFIDENCE = 0.95
#: Rows of the first stage; each further stage has twice as many.
_FIRST_ROWS = 8
#: Fewer units than this are not searched: all of their pairs cost less.
_MIN_UNITS = 4 * _FIRST_ROWS


@dataclass(frozen=True)
class RowSearch:
    """What the search found.

    Attributes
    ----------
    pairs
        The pairs of the units that were found; all pairs if no half of the units suffices.
    n_groups
        Number of groups of points in whose GEH the pairs are the strongest.
    confidence
        Probability that the strongest pairs are among them; None where all scores of the network without draws were
        computed, or no search was made.
    """

    pairs: PairSet
    n_groups: int
    confidence: float | None = None

    def describe(self) -> str:
        """Return what was concluded, as a sentence without a full stop.

        >>> RowSearch(PairSet.touching([3, 5], n_units=40), n_groups=2, confidence=0.95).describe()
        'the 10 strongest pairs, by GEH in 2 groups and without draws, are among these with 95 % confidence'
        """
        if self.pairs.complete and self.confidence is None:
            return "all pairs were computed, as a search would take as long"
        if self.pairs.complete:
            return f"no half of the units surely holds the {_TOP} strongest pairs, so that all pairs were computed"
        groups = f"{self.n_groups} group{'s' * (self.n_groups > 1)}"
        sure = "" if self.confidence is None else f" with {percent(self.confidence)} confidence"
        return f"the {_TOP} strongest pairs, by GEH in {groups} and without draws, are among these{sure}"


@dataclass(frozen=True)
class SearchedNetwork:
    """What is searched: the network without draws, at the points of a run.

    Attributes
    ----------
    engine
        The engine of the run for all pairs, whose cut has the view of the run.
    points, grouping, factors
        The data, their groups, and what the units are multiplied by (D,).
    n_draws, seed
        Number of draws that follow the search, and the seed of the run.
    """

    engine: EngineRun
    points: Points
    grouping: Grouping
    factors: Floats
    n_draws: int
    seed: int


def find_rows(network: SearchedNetwork) -> RowSearch:
    """Find units such that the strongest pairs have an end among them, for the network without draws.

    Where the structured engine takes the network, one pass of all pairs costs less than products with directions. It
    tells the strongest pairs exactly, before the draws, or instead of a search if there is one draw only. Otherwise
    :func:`find_hubs` searches, unless all rows cost less.

    Raises
    ------
    GEHValueError
        If the engine takes no second derivatives.
    """
    n_units, n_groups = len(network.factors), len(network.grouping.names)
    exact, single = _exact_run(network.engine), network.n_draws == 1
    structured = isinstance(network.engine, StructuredRun)
    if n_units < _MIN_UNITS or (single and (structured or n_units <= 2 * _DIRECTIONS + _FIRST_ROWS)):
        return RowSearch(PairSet.all(n_units), n_groups)
    if structured:
        scores = _scores(network)
        # A check may find that the structured engine does not suit the network.
        if not network.engine.refuted:
            return _rows_of_strongest(scores, n_groups)
    return find_hubs(_GroupProducts(exact, network.points, network.grouping, network.factors), network.seed)


def _scores(network: SearchedNetwork) -> Floats:
    """Return the GEH (D, D) of all pairs of the network without draws."""
    engine, points, grouping = network.engine, network.points, network.grouping
    pairs = PairSet.all(len(network.factors))
    sums = GroupSums.zeros(len(grouping.names), pairs.n_units, 1, 0)
    engine.begin_draw(seed_of_draw(network.seed, 0))
    for batch in points.batches():
        for rows in batch.weighted(grouping.weights).split(engine.chunk_rows(batch)):
            sums.weights = rows.weights
            engine.add(sums, rows, grouping.labels[rows.start : rows.start + len(rows)])
    engine.end_draw(sums)
    scores = pairs.matrix(geh(sums.signed[0].numpy(), len(grouping.labels)))
    return np.asarray(scores * np.abs(np.outer(network.factors, network.factors)))


def _rows_of_strongest(scores: Floats, n_groups: int) -> RowSearch:
    """Return the units with the largest norms of rows of ``scores`` (D, D), as many as the strongest pairs need."""
    n_units = len(scores)
    first, second = np.triu_indices(n_units, 1)
    strongest = np.argsort(-scores[first, second], kind="stable")[:_TOP]
    place = np.empty(n_units, dtype=np.int64)
    order = np.argsort(-np.linalg.norm(scores, axis=1), kind="stable")
    place[order] = np.arange(n_units)
    needed = int(np.minimum(place[first[strongest]], place[second[strongest]]).max()) + 1
    size = max(_FIRST_ROWS, needed)
    pairs = PairSet.all(n_units) if 2 * size > n_units else PairSet.touching(order[:size], n_units)
    return RowSearch(pairs, n_groups)


def find_hubs(products: GroupProducts, seed: int) -> RowSearch:
    """Find the units of the strongest pairs by products of Hessians with random directions.

    With H_m the mean Hessian of group m times its share n_m / N, GEH_ij = sum_m |H_m,ij|. For random normal directions
    v, the product y = H_m v has y_i = H_m,ii v_i + sum_j H_m,ij v_j, which is normal given v_i. Let R be the units that
    have rows already, so that their part of the sum is known. The residuals e of the rest after regression on v_i, over
    K directions, have ::

        sum of e^2  ~  (sum over j not in R of H_m,ij^2) chi2(K - 1),

    so that the quantile of chi2 gives an upper bound b_mi of the norm of what is left of the row. Each pair of i and j
    that is not known has GEH_ij <= min(sum_m b_mi, sum_m b_mj). The search ends where this is at most the score of the
    tenth pair that is known. In each stage R becomes twice as large, by the units with the largest norms of what is
    left. These norms are estimated from other directions than those of the bounds, so that R does not depend on the
    latter; all bounds of all stages hold together with 95 % probability. Where half of the units do not suffice, all
    pairs are taken.

    Parameters
    ----------
    products
        Multiplies the H_m with directions.
    seed
        Seed of the directions.
    """
    n_units, n_groups = products.n_units, products.n_groups
    directions = np.random.default_rng((seed, n_units)).standard_normal((2 * _DIRECTIONS, n_units))
    remaining = products.of(directions)
    for_order, for_bounds = slice(_DIRECTIONS), slice(_DIRECTIONS, None)
    sizes = [_FIRST_ROWS * 2**k for k in range(int(np.log2(n_units / 2 / _FIRST_ROWS)) + 1)]
    quantile = _lower_quantile((1 - _CONFIDENCE) / (n_units * n_groups * len(sizes)))
    units, others, rows = np.arange(0), np.arange(n_units), np.zeros((n_groups, 0, n_units))
    for size in sizes:
        norms = _rest_norms(remaining[:, for_order, others], directions[for_order, others], 1.0)
        new = others[np.argsort(-norms, kind="stable")][: size - len(units)]
        found = products.of(np.eye(n_units)[new])
        remaining -= np.einsum("kr,mrd->mkd", directions[:, new], found)
        units, others, rows = np.append(units, new), np.setdiff1d(others, new), np.concatenate([rows, found], axis=1)
        bounds = np.sort(_rest_norms(remaining[:, for_bounds, others], directions[for_bounds, others], quantile))
        if bounds[-2] <= _known_score(rows, units):
            return RowSearch(PairSet.touching(units, n_units), n_groups, _CONFIDENCE)
    return RowSearch(PairSet.all(n_units), n_groups, _CONFIDENCE)


def _exact_run(engine: EngineRun) -> ExactRun:
    """Return the engine that multiplies Hessians with directions."""
    if isinstance(engine, StructuredRun):
        return engine.exact
    if isinstance(engine, ExactRun):
        return engine
    raise GEHValueError(
        f"rows='auto' multiplies Hessians with random directions, which engine={engine.name!r} does not; give units, "
        "for instance rows=explainer.screen(inputs), or use engine='exact'."
    )


class GroupProducts(Protocol):
    """Multiplies the mean Hessian of each of M groups, times its share of the points, with directions."""

    @property
    def n_units(self) -> int:
        """Number of units D."""

    @property
    def n_groups(self) -> int:
        """Number of groups M."""

    def of(self, directions: Floats) -> Floats:
        """Return the products (M, k, D) with k directions (k, D)."""


@dataclass(frozen=True)
class _GroupProducts:
    """:class:`GroupProducts` by double backward; units are multiplied by ``factors`` (D,)."""

    exact: ExactRun
    points: Points
    grouping: Grouping
    factors: Floats

    @property
    def n_units(self) -> int:
        return len(self.factors)

    @property
    def n_groups(self) -> int:
        return len(self.grouping.names)

    def of(self, directions: Floats) -> Floats:
        """Return the products (M, k, D) with k directions (k, D)."""
        cut, labels = self.exact.cut, self.grouping.labels
        scaled = torch.as_tensor(directions * self.factors).to(cut.device, cut.dtype)
        total = torch.zeros(len(self.grouping.names), *directions.shape, dtype=torch.double)
        fitting = self.exact.chunk_bytes // (16 * directions.size)
        for unweighted in self.points.batches():
            batch = unweighted.weighted(self.grouping.weights)
            for rows in batch.split(max(1, min(fitting, self.exact.chunk_rows(batch)))):
                groups = torch.as_tensor(labels[rows.start : rows.start + len(rows)]).long()
                local = self.exact.products(rows, scaled).double().cpu()
                total.index_add_(0, groups, local.transpose(0, 1))
        return np.asarray(total.numpy() / len(labels) * self.factors)


def _rest_norms(products: Floats, directions: Floats, quantile: float) -> Floats:
    """Return sqrt(sum of e^2 / quantile) (d,) of each unit, summed over groups.

    e are the residuals of the ``products`` (M, K, d) of d units after regression on their entries of the ``directions``
    (K, d).
    """
    slopes = (products * directions).sum(axis=1) / (directions**2).sum(axis=0)
    residuals = products - slopes[:, None] * directions
    return np.asarray(np.sqrt((residuals**2).sum(axis=1) / quantile).sum(axis=0))


def _lower_quantile(probability: float) -> float:
    """Return the quantile of the chi-square distribution with K - 1 degrees of freedom."""
    from scipy.stats import chi2

    return float(chi2.ppf(probability, _DIRECTIONS - 1))


def _known_score(rows: Floats, units: Ints) -> float:
    """Return the GEH of the last of the strongest pairs in the ``rows`` (M, r, D) that belong to ``units`` (r,)."""
    scores = np.abs(rows).sum(axis=0)
    scores[np.arange(len(units)), units] = 0
    # A pair of two of the units is in two rows.
    scores[:, units] = np.triu(scores[:, units])
    return float(np.partition(scores, -_TOP, axis=None)[-_TOP])
