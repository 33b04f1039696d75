"""The search of ``explainer.search()``: the strongest pairs among very many units, for the network without draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from geh_explain._types import Floats, Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import EngineRun
from geh_explain.engines.exact import ExactRun
from geh_explain.engines.structured.engine import StructuredRun
from geh_explain.engines.structured.narrow_sums import NarrowSums, sum_at_narrow_layer
from geh_explain.engines.structured.top_pairs import find_top_pairs
from geh_explain.errors import GEHValueError
from geh_explain.groups.grouping import Grouping, from_tree
from geh_explain.groups.kmeans import GroupTree
from geh_explain.groups.number import choose_group_number, scores_by_group_number
from geh_explain.posterior.protocols import seed_of_draw
from geh_explain.run.columns import Columns
from geh_explain.run.hub_search import CONFIDENCE, HessianProducts, HubSearch, stage_sizes
from geh_explain.run.options import RunOptions
from geh_explain.run.row_search import RowSearch, SearchedNetwork, find_rows
from geh_explain.scores.decisions import percent
from geh_explain.units.pair_set import PairSet, count_pairs

#: At most so many units have rows of their Hessians computed, unless twice as many are all of the units.
_MAX_ROWS = 1024
#: Units whose pairs decide on the number of groups, and random directions by which these are chosen.
_DECIDING_UNITS = 8
#: Numbers per unit that the choice of the number of groups holds for each group.
_NUMBERS_PER_UNIT = 4 * _DECIDING_UNITS


@dataclass(frozen=True)
class TopSearch:
    """What a search for the strongest pairs found.

    Attributes
    ----------
    pairs
        The pairs.
    grouping
        The groups of points in whose GEH they are the strongest.
    how
        How they were found, and what is known of the others, as a sentence without a full stop.
    warning
        What a user should know if stronger pairs may have been missed, else None.
    signed
        Mean Hessians (M, P) of the groups at these pairs, each times its group's share of the points; None where all
        pairs were taken without a search.
    """

    pairs: PairSet
    grouping: Grouping
    how: str
    warning: str | None = None
    signed: Floats | None = None

    def describe(self) -> str:
        """Return how the pairs were found, as a sentence without a full stop."""
        return self.how


def numbers_per_group(columns: Columns, options: RunOptions) -> int:
    """Return how many numbers a run holds for each group where their number is open.

    A search holds rows of Hessians, and afterwards the pairs that were found.
    """
    searched = 0 if options.request.top is None else _NUMBERS_PER_UNIT * columns.pairs.n_units
    return max(len(columns), searched)


def search_pairs(
    network: SearchedNetwork, options: RunOptions, tree: GroupTree | None, first_rank: bool
) -> tuple[RowSearch | TopSearch, Grouping, GroupTree | None]:
    """Search for rows or for the strongest pairs, as ``options`` ask for.

    Returns what was found, the groups of the points, and the ``tree`` from which these may still be merged. Only the
    first rank shows its progress.
    """
    top = options.request.top
    if top is None:
        return find_rows(network), network.grouping, tree
    found = find_pairs(network, top, tree, options.progress and first_rank)
    return found, found.grouping, None


def find_pairs(network: SearchedNetwork, top: int, tree: GroupTree | None, progress: bool) -> TopSearch:
    """Find the ``top`` strongest pairs by GEH of the network without draws.

    Where all units enter through a linear map into a narrow layer, the Hessians are summed there in one pass over the
    points, and :func:`find_top_pairs` finds the pairs exactly. Other networks are searched by :class:`HubSearch`.

    Parameters
    ----------
    network
        What is searched.
    top
        How many pairs.
    tree
        Nested groups if their number is open: it is chosen by the pairs of some strong units, of the network without
        draws.
    progress
        Whether to show a progress bar.

    Raises
    ------
    GEHValueError
        If the engine takes no second derivatives.
    """
    engine, n_units = network.engine, len(network.factors)
    if top == count_pairs(n_units):
        grouping = network.grouping
        return TopSearch(PairSet.all(n_units), grouping, "these are all pairs of the units")
    narrow: NarrowSums | str = f"the engine {engine.name!r}"
    if isinstance(engine, StructuredRun):
        engine.begin_draw(seed_of_draw(network.seed, 0))
        narrow = sum_at_narrow_layer(engine, _chunks(network), len(network.grouping.names))
    if isinstance(narrow, NarrowSums):
        return _exact_search(network, narrow, top, tree, progress)
    exact = _exact_engine(engine)

    def products(grouping: Grouping) -> HessianProducts:
        return HessianProducts(exact, network.points, grouping, network.factors)

    grouping = network.grouping
    if tree is not None:
        grouping = _choose_groups(products(grouping).of, network, tree)
    return _search_hubs(products(grouping), network, top, grouping, progress)


def _chunks(network: SearchedNetwork) -> Iterator[tuple[Rows, Ints]]:
    """Yield all rows in chunks, with their groups."""
    for batch in network.points.batches():
        for rows in batch.weighted(network.grouping.weights).split(network.engine.chunk_rows(batch)):
            yield rows, network.grouping.labels[rows.start : rows.start + len(rows)]


def _exact_engine(engine: EngineRun) -> ExactRun:
    """Return the engine that multiplies Hessians with directions."""
    if isinstance(engine, StructuredRun):
        return engine.exact
    if isinstance(engine, ExactRun):
        return engine
    raise GEHValueError(no_second_derivatives(f"engine={engine.name!r}"))


def no_second_derivatives(what: str) -> str:
    """Return the message that a search needs second derivatives, which ``what`` does not give."""
    return (
        f"search() takes second derivatives, which {what} does not give. Choose units first: "
        "explain(inputs, rows=explainer.screen(inputs)) computes all of their pairs, explain(inputs, unit=...) those "
        "of one unit. For a network that torch differentiates twice use engine='auto'."
    )


def _choose_groups(products: Callable[[Floats], Floats], network: SearchedNetwork, tree: GroupTree) -> Grouping:
    """Return the groups of a tree, as many as the pairs of some strong units need.

    ``products`` multiplies the mean Hessians (M, D, D) of the finest groups with directions (k, D). The units are those
    with the largest products with random directions.
    """
    n_units = len(network.factors)
    directions = np.random.default_rng((network.seed, n_units)).standard_normal((_DECIDING_UNITS, n_units))
    strength = np.linalg.norm(products(directions), axis=1).sum(axis=0)
    units = np.argsort(-strength, kind="stable")[:_DECIDING_UNITS]
    rows = products((np.arange(n_units) == units[:, None]).astype(np.float64))
    # Each pair once, and no pair of a unit with itself.
    rows[:, :, units] = np.where(np.tri(len(units), dtype=bool), 0.0, rows[:, :, units])
    scores = scores_by_group_number(tree, rows.reshape(len(rows), -1), points=1)
    chosen = choose_group_number(scores, tree.n_places).chosen
    return replace(from_tree(tree, network.grouping.labels, chosen), weights=network.grouping.weights)


def _exact_search(
    network: SearchedNetwork, sums: NarrowSums, top: int, tree: GroupTree | None, progress: bool
) -> TopSearch:
    """Return the strongest pairs of a network whose units enter through a linear map into a narrow layer."""
    factors, grouping = network.factors, network.grouping
    hessians = sums.hessians / len(grouping.labels)
    if tree is not None:
        finest = NarrowSums(sums.linear_map * factors, hessians)
        grouping = _choose_groups(finest.products, network, tree)
        hessians = tree.merge(hessians, len(grouping.names))
    n_units, n_pairs = len(factors), count_pairs(len(factors))
    with _bar(n_pairs, "pair", progress) as bar:
        found = find_top_pairs(sums.linear_map, hessians, factors, top, lambda share: bar.update(share * n_pairs))
    pairs = _pair_set(found.first, found.second, n_units)
    columns = (sums.linear_map * factors).T
    first, second = (columns[ends] for ends in pairs.ends)
    signed = np.stack([np.einsum("pd,pd->p", first @ hessian, second) for hessian in hessians])
    how = (
        f"{_strongest(top, grouping)}, found exactly among {n_pairs:,} pairs: all units enter through one linear map "
        f"into {len(sums.linear_map)} entries, and {percent(round(found.skipped, 3))} of the pairs were left out by "
        "bounds"
    )
    return TopSearch(pairs, grouping, how, signed=signed)


def _pair_set(first: Ints, second: Ints, n_units: int) -> PairSet:
    """Return the set of the pairs of units ``first`` (P,) and ``second`` (P,)."""
    return PairSet.of(zip(first.tolist(), second.tolist(), strict=True), n_units)


def _search_hubs(
    products: HessianProducts, network: SearchedNetwork, top: int, grouping: Grouping, progress: bool
) -> TopSearch:
    """Return the strongest pairs that random directions and rows of the Hessians find."""
    n_units = products.n_units
    sizes = [size for size in stage_sizes(min(_MAX_ROWS, n_units)) if 2 * size <= n_units]
    if n_units <= 2 * _MAX_ROWS:
        sizes.append(n_units)
    search = HubSearch(products, network.seed, top, len(sizes))
    with _bar(sizes[-1], "unit", progress) as bar:
        for size in sizes:
            search.extend(size)
            bar.update(size - bar.n)
            if search.settled:
                break
    pairs = _pair_set(search.first, search.second, n_units)
    signed = search.signed[:, np.lexsort((search.second, search.first))]
    strongest, sure = _strongest(top, grouping), percent(CONFIDENCE)
    of_units = f"{len(search.units):,} of {n_units:,} units were compared with all others"
    if len(search.units) >= n_units - 1:
        return TopSearch(pairs, grouping, f"{strongest}: all pairs were compared", signed=signed)
    if search.settled:
        return TopSearch(pairs, grouping, f"{strongest}, with {sure} confidence: {of_units}", signed=signed)
    how = (
        f"{strongest} with a unit among those that were compared with all others, {len(search.units):,} of "
        f"{n_units:,}; with {sure} confidence no other pair exceeds {search.bound:.3g}, and the last of these has "
        f"{search.threshold:.3g}"
    )
    warning = (
        f"search(): no {len(search.units):,} of the {n_units:,} units surely hold the {top:,} strongest pairs. "
        f"{how[0].upper()}{how[1:]}. A smaller top is easier to find; rows=explainer.screen(inputs) of explain() takes "
        "all pairs of units that matter by themselves."
    )
    return TopSearch(pairs, grouping, how, warning, signed)


def _strongest(top: int, grouping: Grouping) -> str:
    """Return what is searched for, in words."""
    count = len(grouping.names)
    pairs = "the strongest pair" if top == 1 else f"the {top:,} strongest pairs"
    return f"{pairs}, by GEH in {count} group{'s' * (count > 1)} of the network without draws"


def _bar(total: int, unit: str, progress: bool) -> Any:
    """Return the progress bar of a search."""
    return tqdm(total=total, desc="searching", unit=unit, unit_scale=True, disable=not progress, leave=False)
