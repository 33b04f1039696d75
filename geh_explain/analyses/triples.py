"""Triples: the third unit that changes the interaction of a pair, in the groups and draws of an explanation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from geh_explain._types import Floats, Ints
from geh_explain.engines.base import Limits
from geh_explain.engines.third_order import start_third_order
from geh_explain.errors import GEHValueError, warn
from geh_explain.model.preserve import preserved
from geh_explain.run.loop import run_draws
from geh_explain.run.options import RunOptions, Scale
from geh_explain.run.pair_request import PairRequest
from geh_explain.run.plan import RunPlan, make_plan
from geh_explain.run.resources import run_resources
from geh_explain.run.source import ResultSource
from geh_explain.scores.draws import DrawMoments, Draws
from geh_explain.units.pair_set import PairSet

#: Functions whose second derivative jumps, while their first one does not.
_JUMPING = (nn.ELU, nn.CELU)


@dataclass(frozen=True)
class TripleRequest:
    """Which triples are computed, and for which explanation.

    Attributes
    ----------
    pairs
        Units (P, 2) of the pairs, the strongest first.
    names
        Names of the units (D).
    groups
        Name (N,) of each point's group.
    draws, seed, scale
        Those of the explanation.
    progress
        Show a progress bar.
    """

    pairs: Ints
    names: list[str]
    groups: Sequence[str]
    draws: int
    seed: int
    scale: Scale
    progress: bool


@dataclass(frozen=True)
class TripleDraws:
    """Third-order interactions of Q triples, as interactions of P pairs with D units.

    A triple (i, j, k) is a pair itself: one end is the pair (i, j), node p of the first P nodes, the other one is the
    unit k, node P + k. So everything that is known of pairs holds for triples: scores, intervals and decisions.

    Attributes
    ----------
    triples
        Units (Q, 3) of the triples.
    nodes
        The triples as pairs of P + D nodes.
    draws
        Group means of the third derivatives in each draw, with their errors over points.
    """

    triples: Ints
    nodes: PairSet
    draws: Draws | DrawMoments


def choose_triples(pairs: Ints, n_units: int) -> Ints:
    """Return the triples (Q, 3) of pairs (P, 2) with all other units, each set of three units once.

    A triple that several pairs are part of is listed with the first of them.

    >>> choose_triples(np.array([[0, 1], [1, 2]]), n_units=4).tolist()
    [[0, 1, 2], [0, 1, 3], [1, 2, 3]]
    """
    seen: set[tuple[int, ...]] = set()
    triples = []
    for i, j in pairs.tolist():
        for k in range(n_units):
            units = tuple(sorted((i, j, k)))
            if k not in (i, j) and units not in seen:
                seen.add(units)
                triples.append((i, j, k))
    return np.array(triples, dtype=np.int64).reshape(-1, 3)


def compute_triples(source: ResultSource, request: TripleRequest) -> TripleDraws:
    """Compute the third-order interactions of some pairs in the draws and groups of an explanation.

    The run is that of the explanation, with the same posterior, seed, groups, scale and smoothing; its engine computes
    third derivatives instead of second ones.
    """
    n_units = len(request.names)
    if n_units < 3:
        raise GEHValueError(f"triples: there are {n_units} units; a triple needs three.")
    options = RunOptions(
        target=source.target,
        additional_forward_args=source.additional_forward_args,
        groups=np.asarray(request.groups, dtype=object),
        clusters=source.clusters,
        sample_weight=source.sample_weight,
        draws=request.draws,
        scale=request.scale,
        batch_size=source.batch_size,
        seed=request.seed,
        progress=request.progress,
        distributed=False,
        names=request.names,
        request=PairRequest(None, [(int(i), int(j)) for i, j in request.pairs], None),
    )
    with preserved(source.setup.model), run_resources(options) as resources:
        plan = make_plan(source.setup, source.inputs, options, resources)
        source.check_unchanged(plan.points)
        triples = choose_triples(request.pairs, n_units)
        nodes = _nodes(triples, request.pairs, n_units)
        limits = Limits(len(plan.points), options.batch_size, None, None, nodes)
        engine = start_third_order(plan.engine, limits, triples)
        done = run_draws(replace(plan, engine=engine, pairs=nodes, factors=_node_factors(plan, request.pairs)))
        draws = done.accumulator.result()
    if done.interrupted:
        warn(f"triples: interrupted after {done.accumulator.n_draws} of {request.draws} draws.")
    _warn_of_kinks(plan)
    return TripleDraws(triples, nodes, draws)


def _warn_of_kinks(plan: RunPlan) -> None:
    """Warn if functions of the network have no third derivative, or one that belongs to their smooth form."""
    if not plan.engine.engine.differentiates:
        return
    way_out = "GEHExplainer(..., engine='difference') measures mixed differences of the network itself."
    if plan.smoothed is not None:
        warn(
            "triples: third derivatives of kinked functions depend on how sharply these are smoothed, more than second "
            f"ones do. {way_out}"
        )
    jumping = sorted({type(module).__name__ for module in plan.cut.model.modules() if isinstance(module, _JUMPING)})
    if jumping:
        warn(
            f"triples: the second derivative of {', '.join(jumping)} jumps at 0, which third derivatives at single "
            f"points miss. {way_out}"
        )


def _nodes(triples: Ints, pairs: Ints, n_units: int) -> PairSet:
    """Return the triples as pairs of nodes, see :class:`TripleDraws`; they are in row-major order already."""
    codes = {(i, j): number for number, (i, j) in enumerate(pairs.tolist())}
    first = np.array([codes[i, j] for i, j, _ in triples.tolist()], dtype=np.int64)
    return PairSet(len(pairs) + n_units, (first, len(pairs) + triples[:, 2]))


def _node_factors(plan: RunPlan, pairs: Ints) -> Floats:
    """Return what the nodes are multiplied by: pairs by the factors of both units, units by their own."""
    return np.concatenate([plan.factors[pairs].prod(axis=1), plan.factors])
