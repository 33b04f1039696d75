"""Shards: each rank reads rows of its own, and all ranks compute every draw over theirs.

1. The ranks exchange the shapes and numbers of their rows, which must have the same columns.
2. They exchange a uniform sample of all rows, and each makes the plan of a run over this sample: groups, smoothing and
   engine are the same on all ranks.
3. Each rank assigns its rows to the groups. The labels of all rows, of one byte each for more than a million, go to
   all ranks; the rows stay where they are.
4. In every draw each rank adds up the interactions of its rows, and the sums of all ranks are added up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Ints
from geh_explain.data.case_weights import CaseWeights
from geh_explain.data.points import Points
from geh_explain.data.sampling import sample_rows
from geh_explain.data.shards import SamplePoints, Shard, ShardedPoints
from geh_explain.errors import GEHValueError
from geh_explain.groups.assignment import is_labels_or_clusterer
from geh_explain.groups.grouping import Grouping, label_type
from geh_explain.groups.positions import MAX_POINTS, positions_of
from geh_explain.model.preserve import device_and_dtype
from geh_explain.posterior.protocols import fixed
from geh_explain.run.options import RunOptions
from geh_explain.run.plan import RunPlan, make_plan
from geh_explain.run.resources import Resources
from geh_explain.run.setup import ModelSetup
from geh_explain.units.categorical import Categorical

#: Bytes of the sample of rows that all ranks hold, at most.
_MAX_SAMPLE_BYTES = 2**28


def make_shard_plan(setup: ModelSetup, inputs: Any, options: RunOptions, resources: Resources) -> RunPlan:
    """Return the plan of a run over the shards of all ranks; ``inputs`` are the rows of this one.

    Raises
    ------
    GEHValueError
        On all ranks, if one of them has no rows or other columns than the others, or if an option needs all rows.
    """
    _check_options(setup, options)
    ranks = resources.ranks
    memory = None if options.memory is None else resources.budget
    own, facts = None, {}
    try:
        own = setup.read_points(inputs, options.target, options.additional_forward_args, memory, "inputs")
        facts = _describe(own)
    except Exception as error:
        # Also those of files and loaders: the other ranks would wait for this one.
        facts = {"error": f"{type(error).__name__}: {error}"}
        ranks.gather(facts)
        raise
    found = ranks.gather(facts)
    _check_alike(found)
    bounds = tuple(np.cumsum([0, *(entry["rows"] for entry in found)]).tolist())
    sample, chosen = _exchange_sample(own, bounds, setup, resources, options)
    plan = make_plan(setup, sample, options, resources)
    points = ShardedPoints(Shard(own, bounds, ranks.rank), plan.points, chosen, [entry["hash"] for entry in found])
    labels = _label_rows(plan, points, bounds, resources)
    return replace(
        plan,
        points=points,
        weights=CaseWeights(len(points)),
        grouping=Grouping(labels, plan.grouping.names),
        ranks=replace(ranks, bounds=bounds),
    )


def _check_options(setup: ModelSetup, options: RunOptions) -> None:
    """Refuse what needs one entry per row, or all rows in one place."""
    for name in ("sample_weight", "clusters"):
        if getattr(options, name) is not None:
            raise GEHValueError(
                f"{name} has one entry per row, and distributed='shards' knows the rows of one rank only; explain "
                "without it, or pass the same data on all ranks with distributed=None."
            )
    if is_labels_or_clusterer(options.groups) or options.pairwise:
        raise GEHValueError(
            "groups: with distributed='shards' groups are a number or 'auto', as each rank knows its own rows only; "
            "labels, clusterers and 'pairwise' need the same data on all ranks, with distributed=None."
        )
    if options.request.searches:
        raise GEHValueError(
            "search() and rows='auto' compare pairs over all rows, and distributed='shards' knows the rows of one rank "
            "only. Search in a sample of the rows on each rank, with distributed=False, and measure the pairs that "
            "it finds at all rows by explain(pairs=[...]); or pass the same data on all ranks with distributed=None."
        )
    if isinstance(setup.units, Categorical):
        raise GEHValueError(
            "units=Categorical(...) needs the levels of all rows, and distributed='shards' knows the rows of one rank "
            "only; pass the same data on all ranks with distributed=None."
        )


def _describe(own: Points) -> dict[str, Any]:
    """Return what other ranks must know of the rows of this one."""
    rows = own.first
    if any(rows.forward_args.per_row) or (rows.frame is not None and rows.frame.coded):
        raise GEHValueError(
            "target or additional_forward_args has one entry per row, or a data frame has columns of text; "
            "distributed='shards' takes one target for all rows, and numbers."
        )
    shapes = [tuple(x.shape[1:]) for x in rows.inputs]
    return {"rows": len(own), "shapes": shapes, "columns": own.columns, "hash": own.digest()}


def _check_alike(found: list[dict[str, Any]]) -> None:
    """Raise if a rank could not read its shard, or has rows of another shape or with other columns than rank 0."""
    for rank, facts in enumerate(found):
        if "error" in facts:
            raise GEHValueError(f"inputs: rank {rank} cannot read its shard ({facts['error']})")
    for rank, facts in enumerate(found):
        for name, noun in (("shapes", "rows of shape"), ("columns", "columns named")):
            ours, theirs = found[0][name], facts[name]
            if ours != theirs:
                raise GEHValueError(
                    f"inputs: rank {rank} has {noun} {_in_words(theirs)}, and rank 0 has {noun} {_in_words(ours)}; the "
                    "shards of all ranks must have the same columns in the same order."
                )


def _in_words(value: Any) -> str:
    text = " and ".join(map(str, value)) if value else "none"
    return text if len(text) <= 200 else text[:200] + "..."


def _exchange_sample(
    own: Points, bounds: tuple[int, ...], setup: ModelSetup, resources: Resources, options: RunOptions
) -> tuple[SamplePoints, Ints]:
    """Return a uniform sample of the rows of all ranks, in their order, and the indices of its rows.

    It is all rows where these are few.
    """
    first, total = own.first, bounds[-1]
    bytes_per_row = max(1, sum(x.nbytes for x in first.inputs) // len(first))
    count = min(total, MAX_POINTS, max(len(first), min(_MAX_SAMPLE_BYTES, resources.budget // 8) // bytes_per_row))
    count = resources.ranks.all_min(count)
    chosen = np.arange(total)
    if count < total:
        chosen = np.sort(np.random.default_rng(options.seed).choice(total, count, replace=False))
    start, stop = bounds[resources.ranks.rank : resources.ranks.rank + 2]
    mine = chosen[(chosen >= start) & (chosen < stop)] - start
    inputs: tuple[Tensor, ...] = tuple(x[:0] for x in first.inputs)
    if len(mine):
        inputs = sample_rows(own, mine).inputs
    parts = resources.ranks.gather(tuple(x.cpu() for x in inputs))
    device, _ = device_and_dtype(setup.model)
    joined = tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
    joined = tuple(x if device is None else x.to(device) for x in joined)
    return SamplePoints(replace(first, inputs=joined, start=0), own.columns, total), chosen


def _label_rows(plan: RunPlan, points: ShardedPoints, bounds: tuple[int, ...], resources: Resources) -> Ints:
    """Return the groups of the rows of all ranks, each of which assigns its own."""
    kind = label_type(len(points), len(plan.grouping.names))
    start, stop = bounds[resources.ranks.rank : resources.ranks.rank + 2]
    own = np.zeros(stop - start, dtype=kind)
    if plan.assigning is not None:
        with fixed(plan.posterior, plan.cut.model, plan.options.seed):
            for rows in points.split(plan.options.batch_size):
                place = slice(rows.start - start, rows.start - start + len(rows))
                own[place] = plan.assigning.labels(positions_of(plan.cut, plan.cut.activations(rows)))
    return resources.ranks.concatenate(own, bounds)
