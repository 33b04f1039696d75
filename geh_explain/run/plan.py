"""The plan of a run: everything that is decided before the first draw, in one frozen object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.case_weights import CaseWeights, read_weights
from geh_explain.data.points import Points
from geh_explain.engines.base import EngineRun, Limits
from geh_explain.engines.difference import DifferenceRun
from geh_explain.engines.exact import ExactRun
from geh_explain.engines.level_contrasts import LevelContrasts, LevelContrastsOfTargets
from geh_explain.engines.selection import choose_engine, needs_smoothing
from geh_explain.engines.smoothing.change import SmoothingChange
from geh_explain.engines.smoothing.missed_kinks import MissedKinks, custom_function_names, find_missed_kinks
from geh_explain.engines.smoothing.sharpness import Smooth
from geh_explain.engines.smoothing.survey import smoothing_for, survey_kinks
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.engines.twice_differentiable import DoubleBackwardView
from geh_explain.groups.assignment import given_groups
from geh_explain.groups.clusters import Cells, make_cells, read_clusters
from geh_explain.groups.grouping import Grouping
from geh_explain.groups.kmeans import GroupTree
from geh_explain.groups.positions import MAX_SAMPLE_BYTES, MIN_SAMPLE_BYTES, PositionSample
from geh_explain.model.below import Below
from geh_explain.model.cut import Cut
from geh_explain.model.estimators import EstimatorModel
from geh_explain.model.kept_points import keep_below
from geh_explain.model.row_independence import repeatable_outputs
from geh_explain.model.unit_values import UnitMoments, check_scale
from geh_explain.model.view import View
from geh_explain.posterior import MCDropout, PointEstimate, Posterior
from geh_explain.posterior.dropout_places import DropoutPlaces
from geh_explain.posterior.protocols import fixed, keeps_below, n_available
from geh_explain.posterior.train_only import TrainOnlyDropout
from geh_explain.run.checkpoint import Checkpoint
from geh_explain.run.columns import Columns, plan_columns
from geh_explain.run.distributed import RankGroup
from geh_explain.run.found_groups import expected_labels, find_groups
from geh_explain.run.memory_plan import CELL_COPIES, check_units, cluster_draws, point_draws
from geh_explain.run.options import RunOptions
from geh_explain.run.pair_groups import PairGroupRequest, find_pair_groups
from geh_explain.run.pair_search import TopSearch, numbers_per_group, search_pairs
from geh_explain.run.parameter_writes import check_unchanged, count_writes, explain_writes, parameters_not_written
from geh_explain.run.profile import FirstPass, SecondPass
from geh_explain.run.resources import Resources
from geh_explain.run.row_search import RowSearch, SearchedNetwork
from geh_explain.run.setup import ModelSetup
from geh_explain.units.pair_set import PairSet

#: How many draws decide on the number of groups: the mean score needs far fewer than its spread.
PILOT_DRAWS = 20


@dataclass(frozen=True)
class RunPlan:
    """What one call works on, and how.

    Attributes
    ----------
    options
        The arguments of the call.
    points, weights, cut
        The rows that count, the case weights, and the model as a function of the units' shifts.
    names, pairs
        Names of the units, and the pairs of units that are computed.
    search
        What the search for rows or for the strongest pairs found, None without one.
    below
        What happens below the layer, if the points hold what it passes on; else None.
    posterior
        Where draws come from.
    train_only
        Modules that drop in train mode only, and those among them whose dropout cannot be drawn.
    dropout_places
        Where the model drops; empty where draws are not of dropout.
    engine, engine_reason
        What computes local interactions, and why it was chosen.
    levels
        What computes differences between levels of categories, beside ``engine``; None without categories.
    view, member_view
        Answers torch calls above the cut: smooth forms of kinked functions, or kernels that differentiate twice. The
        second returns the view of the network of the current draw; None where all draws share ``view``.
    grouping, tree, assigning
        Groups of the points. With a ``tree`` their number is open, and ``grouping`` has the finest ones. ``assigning``
        is the tree that assigns points to groups, if they were found.
    pilot_draws
        How many draws decide on the number of groups, if it is open.
    point_draws
        How many draws, the first ones, measure the variance over points; 0 where memory is short.
    n_clusters, cells
        Number of clusters of points, None where points are independent; and their intersections with the groups, None
        also where memory is short.
    factors
        What the units are multiplied by (D,).
    smoothed
        How smoothing changed the output; None where nothing is smoothed.
    missed_kinks
        Kinks without a smooth form, which second derivatives miss; None where these are not known to matter.
    find_missed_kinks
        Returns them for points with another target; the posterior must be fixed.
    budget
        Bytes that the work and its result may take.
    first_outputs
        Outputs of the first rows before the first draw; None if the model is random outside of draws.
    versions
        How often each parameter had been written to by then.
    ranks, checkpoint
        The processes that share the run, and the folder that keeps its draws.
    """

    options: RunOptions
    points: Points
    cut: Cut
    names: list[str]
    pairs: PairSet
    search: RowSearch | TopSearch | None
    below: Below | None
    posterior: Posterior
    train_only: TrainOnlyDropout
    dropout_places: DropoutPlaces
    engine: EngineRun
    engine_reason: str
    levels: LevelContrasts | LevelContrastsOfTargets | None
    view: View
    member_view: Callable[[], View] | None
    grouping: Grouping
    tree: GroupTree | None
    assigning: GroupTree | None
    pilot_draws: int
    point_draws: int
    weights: CaseWeights
    n_clusters: int | None
    cells: Cells | None
    factors: Floats
    smoothed: dict[str, Any] | None
    missed_kinks: MissedKinks | None
    find_missed_kinks: Callable[[Points], MissedKinks | None]
    budget: int
    first_outputs: Tensor | None
    versions: dict[str, int]
    ranks: RankGroup
    checkpoint: Checkpoint | None

    @property
    def columns(self) -> Columns:
        """What sums have columns for: the pairs, or differences between levels."""
        if self.levels is None:
            return Columns(self.pairs)
        return Columns(self.pairs, self.levels.units, self.levels.contrasts)


def make_plan(setup: ModelSetup, inputs: Any, options: RunOptions, resources: Resources) -> RunPlan:
    """Read the data, cut the model, and decide on groups, smoothing and engine.

    At most two passes over the data are made. The first measures positions, moments of the units and inputs of kinked
    functions; the second assigns points to groups, shows the units' values to the engine and measures what smoothing
    changes.
    """
    budget = resources.budget
    memory = None if options.memory is None else budget
    points, cut = setup.read(inputs, options.target, options.additional_forward_args, memory)
    weights = read_weights(options.sample_weight, points)
    points, options = weights.points(points), options.counted(weights)
    cut = setup.weighted_cut(cut, points, weights)
    names = cut.unit_names(options.names)
    pairs = options.request.resolve(cut.units, names, points.columns)
    columns = plan_columns(cut, pairs, options)
    check_units(cut, points, columns, budget)
    clusters = read_clusters(options.clusters, points)
    # Before the default posterior calls the model; it has no function of its own outside of draws.
    with fixed(setup.given_posterior(cut, points) or PointEstimate(), setup.model, options.seed):
        versions = count_writes(cut.model)
        first_outputs = repeatable_outputs(cut, points.first)
    posterior = setup.posterior_for(cut, points)
    with fixed(posterior, setup.model, options.seed):
        if keeps_below(posterior):
            points = keep_below(cut, points, options.batch_size, budget)
        profile = _first_pass(setup, cut, points, options, weights.values, budget)
        groups = find_groups(cut, points, options, profile.positions, budget // numbers_per_group(columns, options))
        limits = columns.limited(replace(resources.limits(options, points, columns.numeric, weights), names=names))
        limits = replace(limits, by_pair=options.pairwise, n_groups=groups.expected_number, compared=setup.compared)
        engine = _start_engine(setup, cut, points, profile, limits)
        second = SecondPass(
            tree=groups.tree if groups.labels is None else None,
            engine=engine.run if engine.run.needs_values else None,
            smoothing=engine.smoothing,
            change=profile.change,
        )
        labels = second.run(cut, points, options.batch_size)
        find_kinks = partial(_find_missed_kinks, setup, cut, profile, engine)
        missed_kinks = find_kinks(points)
    grouping = replace(groups.grouping(labels), weights=weights.values)
    if options.pairwise:
        with fixed(posterior, setup.model, options.seed), cut.viewed(engine.view):
            grouping = find_pair_groups(PairGroupRequest(engine.run, points, pairs, options, budget))
    factors = check_scale(options.scale, cut)
    if factors is None:
        assert profile.moments is not None
        factors = columns.factors(profile.moments.std)
    tree = groups.tree if options.groups_are_chosen else None
    with fixed(posterior, setup.model, options.seed), cut.viewed(engine.view):
        engine.run.prepare(points, expected_labels(tree, grouping), factors)
    search = None
    if options.request.searches:
        n_draws = min(options.max_draws, n_available(posterior, options.max_draws))
        with fixed(posterior, setup.model, options.seed), cut.viewed(engine.view):
            network = SearchedNetwork(engine.run, points, grouping, factors, n_draws, options.seed)
            search, grouping, tree = search_pairs(network, options, tree, resources.ranks.first)
            pairs, columns = search.pairs, Columns(search.pairs)
            engine = engine.restarted(setup, cut, points, replace(limits, pairs=pairs))
    # Pilot draws are held for the finest groups, with some copies, in a quarter of the memory.
    pilot = max(1, min(PILOT_DRAWS, budget // (4 * 8 * len(columns) * len(grouping.names))))
    # Ranks that share a draw add up their sums, so that all of them need the same ones.
    cells = make_cells(clusters, grouping, resources.ranks.all_min(budget // (CELL_COPIES * 8 * len(columns))))
    if clusters is None:
        squared = point_draws(budget, len(columns), len(grouping.names), options.groups_are_chosen)
    else:
        squared = cluster_draws(budget, len(columns), cells)
    train_only, places = _examine_dropout(setup, cut, points, posterior)
    if isinstance(posterior, MCDropout):
        posterior = posterior.with_train_only(train_only)
    # Each member of an ensemble has kinked calls of its own, unless all have the same smooth layers.
    own_kinks = engine.run.engine.differentiates and cut.layers is None and getattr(posterior, "inputs_only", False)
    return RunPlan(
        options=options,
        points=points,
        cut=cut,
        names=names,
        pairs=pairs,
        search=search,
        below=cut.below,
        posterior=posterior,
        train_only=train_only,
        dropout_places=places,
        engine=engine.run,
        engine_reason=engine.reason,
        levels=columns.start(engine.run),
        view=engine.view,
        member_view=partial(_member_view, cut, points, setup.smooth, options.batch_size, weights.values)
        if own_kinks
        else None,
        grouping=grouping,
        tree=tree,
        assigning=groups.tree,
        pilot_draws=options.pilot_draws or pilot,
        point_draws=resources.ranks.all_min(squared),
        weights=weights,
        n_clusters=None if clusters is None else int(clusters.max()) + 1,
        cells=cells,
        factors=factors,
        smoothed=None if engine.smoothing is None else profile.change.summary(engine.smoothing),
        missed_kinks=missed_kinks,
        find_missed_kinks=find_kinks,
        budget=budget,
        first_outputs=first_outputs,
        versions=versions,
        ranks=resources.ranks,
        checkpoint=resources.checkpoint,
    )


def _first_pass(
    setup: ModelSetup, cut: Cut, points: Points, options: RunOptions, weights: Floats | None, budget: int
) -> FirstPass:
    """Collect what groups, scale and smoothing need from all points, whose case weights are (N,)."""
    needs_positions = given_groups(options.groups, points) is None
    smooths = setup.smooth is not None and needs_smoothing(setup.engine)
    sample_bytes = min(MAX_SAMPLE_BYTES, max(MIN_SAMPLE_BYTES, budget // 16))
    kinks = survey_kinks(cut, points.first) if smooths else None
    needs_moments = check_scale(options.scale, cut) is None or kinks is not None
    profile = FirstPass(
        positions=PositionSample(options.seed, sample_bytes, weights) if needs_positions else None,
        moments=UnitMoments(cut.n_units, weights) if needs_moments else None,
        kinks=kinks,
        change=SmoothingChange(len(points)),
        # Where values are kept, this was compared already.
        compare_with_model=kinks is not None and cut.below is None and cut.replaces_shared_memory(points.first),
    )
    profile.run(cut, points, options.batch_size)
    return profile


@dataclass(frozen=True)
class _StartedEngine:
    """The engine of a run, why it was chosen, and what answers torch calls above the cut for it."""

    run: EngineRun
    reason: str
    view: View
    smoothing: Smoothing | None

    def restarted(self, setup: ModelSetup, cut: Cut, points: Points, limits: Limits) -> _StartedEngine:
        """Return the engine for other limits; the view must be that of the cut."""
        run, reason = choose_engine(setup.engine, cut, points.first, limits)
        return replace(self, run=run, reason=reason)


def _start_engine(setup: ModelSetup, cut: Cut, points: Points, profile: FirstPass, limits: Limits) -> _StartedEngine:
    """Choose the sharpness of smoothing and the engine."""
    smoothing = None
    if profile.kinks is not None and profile.moments is not None and setup.smooth is not None:
        smoothing = profile.kinks.smoothing(setup.smooth, cut, points, profile.moments.limited_std)
    view = smoothing or DoubleBackwardView()
    check = partial(_check_unchanged, cut, points, count_writes(cut.model))
    with cut.viewed(view), explain_writes(check):
        run, reason = choose_engine(setup.engine, cut, points.first, limits)
    if isinstance(run, DifferenceRun):
        run.check_spread(len(points))
    if not run.engine.differentiates:
        return _StartedEngine(run, reason, View(), None)
    return _StartedEngine(run, reason, view, smoothing)


def _find_missed_kinks(
    setup: ModelSetup, cut: Cut, profile: FirstPass, engine: _StartedEngine, points: Points
) -> MissedKinks | None:
    """Return the kinks that smoothing does not know, where the model makes calls that may have some."""
    if setup.smooth is None or not engine.run.engine.differentiates:
        return None
    kinks, moments = profile.kinks, profile.moments
    # The structured engine follows no functions with a backward pass of their own.
    custom = custom_function_names(cut, points.first[:2]) if isinstance(engine.run, ExactRun) else []
    if not custom and (kinks is None or not kinks.decides):
        return None
    # Not a sharper one that the user chose: it might look like a jump.
    smoothing = None if kinks is None or moments is None else kinks.smoothing("auto", cut, points, moments.limited_std)
    return find_missed_kinks(cut, points, smoothing or DoubleBackwardView(), custom)


@torch.no_grad()
def _check_unchanged(cut: Cut, points: Points, before: dict[str, int]) -> None:
    """Raise if a parameter that the model does not write to itself changed since ``before`` was counted."""
    now = count_writes(cut.model)
    if now != before:
        names = parameters_not_written(cut.model, lambda: cut.outputs(points.first[:1]))
        check_unchanged(cut.model, before, names)


def _examine_dropout(
    setup: ModelSetup, cut: Cut, points: Points, posterior: Posterior
) -> tuple[TrainOnlyDropout, DropoutPlaces]:
    """Return the modules that drop in train mode only, and where the model drops; runs the model on one row."""
    if setup.posterior is None and isinstance(posterior, PointEstimate):
        # Dropout that cannot be drawn may be the reason why there is only a point estimate.
        posterior = MCDropout()
    if not isinstance(posterior, MCDropout) or isinstance(cut.model, EstimatorModel):
        return TrainOnlyDropout(), DropoutPlaces()
    return posterior.examine(cut.model, lambda: cut.outputs(points.first[:1]), cut.layer)


def _member_view(cut: Cut, points: Points, smooth: Smooth, batch_size: int | None, weights: Floats | None) -> View:
    """Return what answers torch calls above the cut for the network of the current draw."""
    return smoothing_for(cut, points, smooth, batch_size, weights) or DoubleBackwardView()
