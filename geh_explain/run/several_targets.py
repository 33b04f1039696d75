"""One run for several targets: what does not depend on the target is done once.

Data, groups, what is below the layer and smoothing are those of one plan. Each draw of the posterior is entered once,
and all targets are explained in it. Sums of all targets are next to each other, as if each target had units and pairs
of its own, so that one accumulator collects them, and one number of groups is chosen for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from geh_explain._types import Floats
from geh_explain.data.target_choice import SingleTarget, TargetedPoints
from geh_explain.engines.base import EngineRun, Limits
from geh_explain.engines.exact import Exact
from geh_explain.engines.level_contrasts import LevelContrasts, LevelContrastsOfTargets
from geh_explain.engines.selection import choose_engine
from geh_explain.engines.several_targets import SeveralTargetsRun
from geh_explain.engines.smoothing.change import SmoothingChange
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.errors import GEHRuntimeError, GEHValueError
from geh_explain.model.row_independence import repeatable_outputs
from geh_explain.posterior.protocols import fixed
from geh_explain.run.found_groups import expected_labels
from geh_explain.run.loop import DrawsDone
from geh_explain.run.memory_plan import MIN_COPIES, cluster_draws, point_draws
from geh_explain.run.options import RunOptions
from geh_explain.run.plan import RunPlan
from geh_explain.run.setup import ModelSetup
from geh_explain.scores.cluster_spread import ClusterErrors
from geh_explain.scores.draws import MEASURES, DrawMoments, Draws, LevelDraws
from geh_explain.scores.moments import Moments
from geh_explain.units.contrasts import Contrasts
from geh_explain.units.pair_set import PairSet


@dataclass(frozen=True)
class TargetPlans:
    """The plan of a run of C targets, and those of the single targets, for records and warnings."""

    joint: RunPlan
    single: list[RunPlan]


def check_several(options: RunOptions) -> None:
    """Refuse options that belong to one target."""
    if options.checkpoint is not None:
        raise GEHValueError(
            "checkpoint: a folder belongs to one target; explain the targets in calls of their own, each with its own "
            "folder and the same groups=labels."
        )
    if options.shards:
        raise GEHValueError(
            "distributed='shards' explains one target; explain the targets in calls of their own, or pass the same "
            "data on all ranks with distributed=None."
        )
    if options.pairwise:
        raise GEHValueError(
            "groups='pairwise' finds the groups of each pair for one target; explain the targets in calls of their "
            "own, or use a number of groups."
        )
    if options.request.automatic:
        raise GEHValueError(
            "rows='auto' searches for the strongest pairs of one target; give units, for instance "
            "rows=explainer.screen(inputs, target), or explain the targets in calls of their own."
        )


def plan_targets(setup: ModelSetup, plan: RunPlan, targets: Sequence[SingleTarget]) -> TargetPlans:
    """Return the plans of all ``targets``; ``plan`` is that of the first one."""
    runs, smoothed = _start_engines(setup, plan, targets), _measure_smoothing(plan, targets)
    single: list[RunPlan] = []
    for run, target, change in zip(runs, targets, smoothed, strict=True):
        points = TargetedPoints(plan.points, target)
        with fixed(plan.posterior, setup.model, plan.options.seed):
            outputs = repeatable_outputs(plan.cut, points.first)
            missed = plan.find_missed_kinks(points) if single else plan.missed_kinks
        own = replace(plan, points=points, options=replace(plan.options, target=target), engine=run)
        own = replace(own, smoothed=change, missed_kinks=missed, first_outputs=outputs)
        single.append(replace(own, levels=plan.columns.start(run)))
    n_units, count = plan.cut.n_units, len(targets)
    first, second = plan.pairs.ends
    # Unit i of target c has the number c D + i.
    starts = np.repeat(np.arange(count) * n_units, len(plan.pairs))
    ends = np.tile(first, count) + starts, np.tile(second, count) + starts
    pairs = PairSet(count * n_units, ends)
    joint = replace(
        single[0],
        options=replace(plan.options, target=tuple(targets)),  # type: ignore[arg-type]
        engine=SeveralTargetsRun(runs, targets),
        levels=_levels_of_targets(single, targets, pairs),
        pairs=pairs,
        factors=np.tile(plan.factors, count),
    )
    return TargetPlans(_within_memory(joint, count), single)


def _levels_of_targets(
    single: Sequence[RunPlan], targets: Sequence[SingleTarget], pairs: PairSet
) -> LevelContrastsOfTargets | None:
    """Return the differences between levels of all targets, None without categories; ``pairs`` are those of all."""
    parts = [plan.levels for plan in single if isinstance(plan.levels, LevelContrasts)]
    if not parts:
        return None
    n_units = pairs.n_units // len(targets)
    levels = {
        number * n_units + unit: of_unit
        for number, part in enumerate(parts)
        for unit, of_unit in part.contrasts.levels.items()
    }
    return LevelContrastsOfTargets(parts, targets, Contrasts(pairs, levels))


def _within_memory(plan: RunPlan, count: int) -> RunPlan:
    """Return a plan whose draws before the choice of groups, and those that measure errors, fit for all targets.

    Raises
    ------
    GEHValueError
        If not even the means of a few groups do.
    """
    n_pairs, n_groups, budget = len(plan.columns), len(plan.grouping.names), plan.budget
    if 8 * n_pairs * MIN_COPIES > budget:
        raise GEHValueError(
            f"targets: {count} targets with {n_pairs // count:,} pairs, or differences between levels, each do not "
            f"fit into memory ({budget / 1e9:.1f} GB). Explain fewer targets at a time, or fewer units."
        )
    pilot = max(1, min(plan.pilot_draws, budget // (4 * 8 * n_pairs * n_groups)))
    squared = point_draws(budget, n_pairs, n_groups, plan.options.groups_are_chosen)
    if plan.n_clusters is not None:
        squared = cluster_draws(budget, n_pairs, plan.cells)
    return replace(plan, pilot_draws=pilot, point_draws=plan.ranks.all_min(min(plan.point_draws, squared)))


def _start_engines(setup: ModelSetup, plan: RunPlan, targets: Sequence[SingleTarget]) -> list[EngineRun]:
    """Start an engine for each target, all of one kind; that of the first target is known."""
    runs, limits = [plan.engine], plan.engine.limits
    with fixed(plan.posterior, setup.model, plan.options.seed), plan.cut.viewed(plan.view):
        for target in targets[1:]:
            rows = plan.points.first.with_target(target)
            runs.append(_start_engine(setup, plan, rows, limits))
            labels = expected_labels(plan.tree, plan.grouping)
            runs[-1].prepare(TargetedPoints(plan.points, target), labels, plan.factors)
        if len({(type(run), run.n_eah_points) for run in runs}) == 1:
            return runs
        if not all(run.engine.differentiates for run in runs):
            names = ", ".join(dict.fromkeys(run.name for run in runs))
            raise GEHRuntimeError(
                f"targets: the outputs need different engines ({names}); choose one, engine='difference' for instance, "
                "or explain the targets in calls of their own."
            )
        # One output may have a function that the structured engine does not take.
        return [Exact().start(plan.cut, limits) for _ in targets]


def _start_engine(setup: ModelSetup, plan: RunPlan, rows: Any, limits: Limits) -> EngineRun:
    """Start the engine of a further target."""
    run, _ = choose_engine(setup.engine, plan.cut, rows, limits)
    if run.needs_values:
        # Values of the units do not depend on the target.
        for part in plan.points.split(plan.options.batch_size):
            run.observe(plan.cut.units.values(plan.cut.activations(part)))
    return run


@torch.no_grad()
def _measure_smoothing(plan: RunPlan, targets: Sequence[SingleTarget]) -> list[dict[str, Any] | None]:
    """Return how smoothing changed each of the outputs, by two passes over the data; that of the first is known."""
    if plan.smoothed is None or not isinstance(plan.view, Smoothing):
        return [plan.smoothed for _ in targets]
    changes = [SmoothingChange(len(plan.points)) for _ in targets]
    cut = plan.cut
    with fixed(plan.posterior, cut.model, plan.options.seed):
        for rows in plan.points.split(plan.options.batch_size):
            outputs = cut.all_outputs(rows, cut.zeros(rows))
            for change, target in zip(changes, targets, strict=True):
                change.add_original(outputs, cut.selected(outputs, rows.with_target(target)))
        with cut.viewed(plan.view):
            for rows in plan.points.split(plan.options.batch_size):
                outputs = cut.all_outputs(rows, cut.zeros(rows))
                for change, target in zip(changes, targets, strict=True):
                    change.add_smoothed(outputs, target)
    return [change.summary(plan.view) for change in changes]


def split_draws(draws: Draws | DrawMoments, plans: Sequence[RunPlan]) -> list[Draws | DrawMoments]:
    """Return the draws of the targets with these plans out of those of all."""
    count, parts = len(plans), []
    for number, plan in enumerate(plans):
        part = _part_of(draws, number, count)
        if draws.levels is not None and plan.levels is not None:
            of_levels = _part_of(draws.levels.draws, number, count)
            part = replace(part, levels=LevelDraws(plan.levels.contrasts, of_levels))
        parts.append(part)
    return parts


def _part_of(draws: Draws | DrawMoments, number: int, count: int) -> Draws | DrawMoments:
    """Return the draws of one target."""

    def part(values: Floats | None) -> Floats | None:
        if values is None:
            return None
        width = values.shape[-1] // count
        # A copy, as a view would keep the draws of all targets alive.
        return values[..., number * width : (number + 1) * width].copy()

    errors: dict[str, Any] = {
        "point_errors": part(draws.point_errors),
        "weight_moments": part(draws.weight_moments),
    }
    if draws.cluster_errors is not None:
        covariance = part(draws.cluster_errors.covariance)
        assert covariance is not None
        of_clusters = ClusterErrors(covariance, draws.cluster_errors.counts, draws.cluster_errors.total)
        errors["cluster_errors"] = of_clusters
    if isinstance(draws, Draws):
        names = ("signed", "absolute", "noise", "slopes")
        arrays: dict[str, Any] = {name: part(getattr(draws, name)) for name in names}
        return replace(draws, **arrays, **errors)
    moments: dict[str, Any] = {}
    for name in (*MEASURES, "signed", "slopes"):
        whole: Moments = getattr(draws, name)
        moments[name] = Moments(whole.count, part(whole.mean), part(whole.squares)) if whole.count else Moments()
    return replace(draws, **moments, **errors)


def done_of(done: DrawsDone, draws: Draws | DrawMoments, factors: Floats) -> DrawsDone:
    """Return what the loop left for one target, with the largest absolute interaction of its ``draws``.

    These are multiplied by the units' ``factors`` (D,). If all of them are 0, that of all targets is kept.
    """
    if not factors.any():
        return done
    if isinstance(draws, DrawMoments):
        return replace(done, spread=(float(draws.eah.mean.max()), float(draws.eah.squares.max())))
    absolute = draws.absolute
    return replace(done, spread=(float(absolute.max()), float(np.abs(absolute - absolute[0]).max())))
