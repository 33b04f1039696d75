"""The plan of a run: everything that is decided before the first draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from geh_explain._memory import budget_bytes
from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.engines.base import EngineRun, Limits
from geh_explain.engines.selection import choose_engine, needs_smoothing
from geh_explain.engines.smoothing.change import SmoothingChange
from geh_explain.engines.smoothing.kernels import DoubleBackwardView
from geh_explain.engines.smoothing.survey import smoothing_for, survey_kinks
from geh_explain.errors import GEHValueError
from geh_explain.groups.assignment import cluster, given_groups, grow_groups, is_table
from geh_explain.groups.grouping import Grouping, from_tree
from geh_explain.groups.positions import MAX_SAMPLE_BYTES, MIN_SAMPLE_BYTES, PositionSample
from geh_explain.groups.tree import RegionTree
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import UnitMoments, check_scale
from geh_explain.model.view import View
from geh_explain.posterior import Posterior
from geh_explain.posterior.protocols import steady
from geh_explain.run.checkpoint import Checkpoint
from geh_explain.run.distributed import RankGroup, find_rank_group
from geh_explain.run.options import RunOptions
from geh_explain.run.profile import FirstPass, SecondPass
from geh_explain.run.setup import ModelSetup

#: How many draws decide on the number of groups: the mean score needs far fewer than its spread.
PILOT_DRAWS = 20


@dataclass(frozen=True)
class RunPlan:
    """What one call works on, and how.

    Attributes
    ----------
    options
        The arguments of the call.
    points, cut
        The data, and the model as a function of the units' shifts.
    posterior
        Where draws come from.
    engine, engine_reason
        What computes local interactions, and why it was chosen.
    view
        Answers torch calls above the cut: smooth forms of kinked functions, or kernels that differentiate twice.
    member_view
        Returns the view of the network of the current draw; None where all draws share ``view``.
    grouping, tree
        Groups of the points. With a ``tree`` their number is open, and ``grouping`` has the finest ones.
    pilot_draws
        How many draws decide on the number of groups, if it is open.
    factors
        What the units are multiplied by (D,).
    smoothed
        How smoothing changed the output; None where nothing is smoothed.
    budget
        Bytes that the work and its result may take.
    ranks, checkpoint
        The processes that share the run, and the folder that keeps its draws.
    """

    options: RunOptions
    points: Points
    cut: Cut
    posterior: Posterior
    engine: EngineRun
    engine_reason: str
    view: View
    member_view: Callable[[], View] | None
    grouping: Grouping
    tree: RegionTree | None
    pilot_draws: int
    factors: Floats
    smoothed: dict[str, Any] | None
    budget: int
    ranks: RankGroup
    checkpoint: Checkpoint | None


def make_plan(setup: ModelSetup, inputs: Any, options: RunOptions) -> RunPlan:
    """Read the data, cut the model, and decide on groups, smoothing and engine.

    At most two passes over the data are made. The first measures positions, moments of the units and inputs of kinked
    functions; the second assigns points to groups, shows the units' values to the engine and measures what smoothing
    changes.
    """
    ranks = find_rank_group(options.distributed)
    checkpoint = None if options.checkpoint is None else Checkpoint(options.checkpoint)
    budget = budget_bytes(options.memory)
    if checkpoint is not None and options.memory is None:
        budget = checkpoint.budget(budget)
    data_budget = None if options.memory is None else budget
    points, cut = setup.read(inputs, options.target, options.additional_forward_args, data_budget)
    _check_units(cut, points, budget)
    factors = check_scale(options.scale, cut)
    posterior = setup.posterior_for(cut, points)
    limits = Limits(
        n_points=len(points),
        batch_size=options.batch_size,
        memory=budget if options.memory is not None or checkpoint is not None else None,
        eah_points=options.eah_points,
    )
    with steady(posterior, setup.model, options.seed):
        grouping = given_groups(options.groups, points)
        sample_bytes = min(MAX_SAMPLE_BYTES, max(MIN_SAMPLE_BYTES, budget // 16))
        smooth = setup.smooth if needs_smoothing(setup.engine) else None
        kinks = None if smooth is None else survey_kinks(cut, points.first)
        change = None if kinks is None else SmoothingChange()
        first = FirstPass(
            positions=PositionSample(options.seed, sample_bytes) if grouping is None else None,
            moments=UnitMoments(cut.n_units) if factors is None else None,
            kinks=kinks,
            change=change,
        )
        first.run(cut, points, options.batch_size)
        if factors is None:
            assert first.moments is not None
            factors = first.moments.std

        tree: RegionTree | None = None
        sample: Floats | None = None
        if first.positions is not None:
            sample = first.positions.result()
            if hasattr(options.groups, "fit_predict"):
                grouping = cluster(options.groups, sample, len(points))
            else:
                largest = options.largest_group_number(budget, _n_pairs(cut))
                tree = grow_groups(options.groups, sample, len(points), largest, is_table(cut, points))

        smoothing = None if kinks is None or smooth is None else kinks.smoothing(smooth)
        view: View = smoothing or DoubleBackwardView()
        with cut.viewed(view):
            engine, reason = choose_engine(setup.engine, cut, points.first, limits)
        if not engine.engine.differentiates:
            view = View()
            smoothing = None

        all_positions_known = sample is not None and len(sample) == len(points)
        second = SecondPass(
            tree=None if all_positions_known else tree,
            engine=engine if engine.needs_values else None,
            smoothing=smoothing,
            change=change if smoothing is not None else None,
        )
        labels = second.run(cut, points, options.batch_size)
        if tree is not None:
            if labels is None:
                assert sample is not None
                labels = tree.labels(sample)
            grouping = from_tree(tree, labels, tree.count)
        assert grouping is not None
    pilot = max(1, min(PILOT_DRAWS, budget // (4 * 8 * _n_pairs(cut) * len(grouping.names))))
    # Each member of an ensemble has kinked calls of its own.
    own_kinks = engine.engine.differentiates and getattr(posterior, "inputs_only", False)
    return RunPlan(
        options=options,
        points=points,
        cut=cut,
        posterior=posterior,
        engine=engine,
        engine_reason=reason,
        view=view,
        member_view=partial(_member_view, cut, points, setup.smooth, options.batch_size) if own_kinks else None,
        grouping=grouping,
        tree=tree if options.groups_are_chosen else None,
        pilot_draws=options.pilot_draws or pilot,
        factors=factors,
        smoothed=None if smoothing is None or change is None else change.summary(smoothing),
        budget=budget,
        ranks=ranks,
        checkpoint=checkpoint,
    )


def _member_view(cut: Cut, points: Points, smooth: str | float | None, batch_size: int | None) -> View:
    return smoothing_for(cut, points, smooth, batch_size) or DoubleBackwardView()


def _n_pairs(cut: Cut) -> int:
    return cut.n_units * (cut.n_units - 1) // 2


def _check_units(cut: Cut, points: Points, budget: int) -> None:
    """Refuse a single unit, and so many units that not even the means of a few groups fit into memory."""
    if cut.n_units < 2:
        missing = cut.layer is None and points.first.inputs[0].ndim == 1
        raise GEHValueError(
            f"units={cut.units!r} at {cut.place}: there is only 1 unit, and an interaction needs two. "
            + ("Is the batch dimension missing?" if missing else "Choose another layer or other units.")
        )
    if 8 * _n_pairs(cut) * 24 > budget:
        raise GEHValueError(
            f"units={cut.units!r} at {cut.place}: {cut.n_units:,} units have {_n_pairs(cut):,} pairs, which do not fit "
            f"into memory ({budget / 1e9:.1f} GB). Choose fewer: units=explainer.screen(inputs) finds those that "
            "matter; or take Channels() or Patches(size), or a later layer."
        )
