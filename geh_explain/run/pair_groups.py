"""The groups of ``groups="pairwise"``: halves of each unit, and the third units that change pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from geh_explain._types import Bools, Floats, Ints
from geh_explain.data.points import Points
from geh_explain.engines.base import EngineRun
from geh_explain.engines.pair_sums import PairSums, ThirdUnitSums
from geh_explain.engines.stein.engine import SteinRun
from geh_explain.errors import GEHValueError
from geh_explain.groups.pairwise import PAIRWISE, PairGrouping, choose_thirds, group_pairs, median_edges
from geh_explain.model.cut import Cut
from geh_explain.posterior.protocols import seed_of_draw
from geh_explain.run.options import RunOptions
from geh_explain.units.categorical import Categorical
from geh_explain.units.pair_set import PairSet

#: Points from which the edges between halves are found, at most, evenly spread over the data.
_MAX_EDGE_POINTS = 100_000
#: With fewer points third units are not looked for: each half of them would have fewer than four points per group.
_MIN_THIRD_POINTS = 64


@dataclass(frozen=True)
class PairGroupRequest:
    """What groups of each pair are found from: the network without draws, at the points of a run.

    The engine's cut has the view of the run; ``budget`` is the memory in bytes.
    """

    engine: EngineRun
    points: Points
    pairs: PairSet
    options: RunOptions
    budget: int


def check_pairwise(engine: EngineRun) -> None:
    """Refuse what groups of each pair's own do not take: categories, and an engine with noise of its own."""
    if isinstance(engine.cut.units, Categorical):
        raise GEHValueError(
            f"groups={PAIRWISE!r} takes numeric units, and units=Categorical(...) have levels; use a number of groups, "
            "or labels such as groups=frame['column']."
        )
    if isinstance(engine, SteinRun):
        raise GEHValueError(
            f"groups={PAIRWISE!r} does not go with engine='stein', whose local interactions are noise; use "
            "engine='auto', or a number of groups."
        )


def find_pair_groups(request: PairGroupRequest) -> PairGrouping:
    """Return the groups of each pair. The posterior must be fixed; one pass for values, and one for third units."""
    cut, points, options = request.engine.cut, request.points, request.options
    check_pairwise(request.engine)
    edges, halves = _find_halves(cut, points, options.batch_size)
    ends, n_units = request.pairs.ends, cut.n_units
    nothing = np.full(len(request.pairs), -1, dtype=np.int64)
    if n_units < 3 or len(points) < _MIN_THIRD_POINTS:
        return group_pairs(halves, edges, ends, nothing)
    all_pairs = request.pairs if request.engine.takes_pairs else PairSet.all(n_units)
    if 8 * 8 * len(all_pairs) * (n_units + 1) > request.budget // 4:
        return group_pairs(halves, edges, ends, nothing, complete=False)
    thirds = _find_thirds(request, halves, all_pairs)
    if request.engine.refuted:
        # A check found that the engine does not suit the network; the loop would compute all draws twice.
        request.engine.fall_back()
        thirds = _find_thirds(request, halves, all_pairs)
    if len(all_pairs) > len(nothing):
        thirds = thirds[request.pairs.positions]
    return group_pairs(halves, edges, ends, thirds)


def _find_halves(cut: Cut, points: Points, batch_size: int | None) -> tuple[Floats, Bools]:
    """Return the edges (D,) between the halves of the units, and whether each unit is high at each point (N, D)."""
    step = -(-len(points) // _MAX_EDGE_POINTS)
    values, start = [], 0
    for rows in points.split(batch_size):
        values.append(cut.units.values(cut.activations(rows)).double().cpu().numpy()[-start % step :: step].copy())
        start += len(rows)
    sample = np.concatenate(values)
    edges = median_edges(sample)
    if step == 1:
        return edges, sample >= edges
    batches = (cut.units.values(cut.activations(rows)).double().cpu().numpy() for rows in points.split(batch_size))
    return edges, np.concatenate([batch >= edges for batch in batches])


def _find_thirds(request: PairGroupRequest, halves: Bools, pairs: PairSet) -> Ints:
    """Return the third unit (P,) of each pair, -1 for none, in the network without draws."""
    engine, n_units = request.engine, pairs.n_units
    sums = ThirdUnitSums.zeros(4, n_units, 1, 0, len(pairs))
    assert isinstance(sums, ThirdUnitSums)
    set_ends(sums, pairs, np.full(len(pairs), -1, dtype=np.int64))
    sums.by_unit = torch.zeros(2, 4, len(pairs), n_units + 1, dtype=torch.double)
    engine.begin_draw(seed_of_draw(request.options.seed, 0))
    # Every other point would not be random where rows alternate.
    parity = torch.as_tensor(np.random.default_rng(request.options.seed).permutation(len(request.points)) % 2)
    high = torch.as_tensor(halves)
    for batch in request.points.batches():
        for rows in batch.split(engine.chunk_rows(batch)):
            part = slice(rows.start, rows.start + len(rows))
            sums.halves, sums.parity = high[part], parity[part].to(engine.cut.device)
            engine.add(sums, rows, np.zeros(len(rows), dtype=np.int64))
    engine.end_draw(sums)
    return choose_thirds(sums.by_unit.numpy(), pairs.ends)


def set_ends(sums: PairSums, pairs: PairSet, thirds: Ints) -> None:
    """Tell sums the units of each of their pairs."""
    sums.set_units(*(torch.as_tensor(part) for part in (*pairs.ends, thirds)))


def pair_sums(grouping: PairGrouping, pairs: PairSet, draws: int, squared: int, all_pairs: bool) -> PairSums:
    """Return sums of no points yet over the groups of each of ``pairs``, or of all pairs of their units."""
    computed, thirds = pairs, grouping.cells.thirds
    if all_pairs and not pairs.complete:
        computed = PairSet.all(pairs.n_units)
        thirds = np.full(len(computed), -1, dtype=np.int64)
        thirds[pairs.positions] = grouping.cells.thirds
    sums = PairSums.zeros(len(grouping.names), pairs.n_units, draws, squared, len(computed))
    assert isinstance(sums, PairSums)
    set_ends(sums, computed, thirds)
    return sums
