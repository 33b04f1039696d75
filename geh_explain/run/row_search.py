"""The search of ``rows="auto"``: units that the strongest pairs belong to, without computing all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.engines.base import EngineRun
from geh_explain.engines.exact import ExactRun
from geh_explain.engines.structured.engine import StructuredRun
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHValueError
from geh_explain.groups.grouping import Grouping
from geh_explain.posterior.protocols import seed_of_draw
from geh_explain.run.hub_search import (
    CONFIDENCE,
    DIRECTIONS,
    FIRST_ROWS,
    GroupProducts,
    HessianProducts,
    HubSearch,
    stage_sizes,
)
from geh_explain.scores.decisions import percent
from geh_explain.scores.measures import geh
from geh_explain.units.pair_set import PairSet

#: How many of the strongest pairs are to be found.
_TOP = 10
#: Fewer units than this are not searched: all of their pairs cost less.
_MIN_UNITS = 4 * FIRST_ROWS


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
    if n_units < _MIN_UNITS or (single and (structured or n_units <= 2 * DIRECTIONS + FIRST_ROWS)):
        return RowSearch(PairSet.all(n_units), n_groups)
    if structured:
        scores = _scores(network)
        # A check may find that the structured engine does not suit the network.
        if not network.engine.refuted:
            return _rows_of_strongest(scores, n_groups)
    return find_hubs(HessianProducts(exact, network.points, network.grouping, network.factors), network.seed)


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
    size = max(FIRST_ROWS, needed)
    pairs = PairSet.all(n_units) if 2 * size > n_units else PairSet.touching(order[:size], n_units)
    return RowSearch(pairs, n_groups)


def find_hubs(products: GroupProducts, seed: int) -> RowSearch:
    """Find the units of the strongest pairs by products of Hessians with random directions; see :class:`HubSearch`.

    In each stage twice as many units have rows. The search ends where no pair without an end among them exceeds the
    tenth of those that are known, with 95 % confidence. Where half of the units do not suffice, all pairs are taken.

    Parameters
    ----------
    products
        Multiplies the H_m with directions.
    seed
        Seed of the directions.
    """
    n_units, n_groups = products.n_units, products.n_groups
    sizes = stage_sizes(n_units // 2)
    search = HubSearch(products, seed, _TOP, len(sizes))
    for size in sizes:
        search.extend(size)
        if search.settled:
            return RowSearch(PairSet.touching(search.units, n_units), n_groups, CONFIDENCE)
    return RowSearch(PairSet.all(n_units), n_groups, CONFIDENCE)


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
