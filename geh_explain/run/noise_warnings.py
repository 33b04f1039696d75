"""Warnings about the noise of Stein's engine."""

from __future__ import annotations

import math

import numpy as np
import torch

from geh_explain._types import Ints
from geh_explain.engines.stein.engine import SteinRun
from geh_explain.run.loop import DrawsDone
from geh_explain.run.plan import RunPlan
from geh_explain.scores.draws import DrawMoments, Draws
from geh_explain.scores.noise_share import NoiseShare
from geh_explain.units.categorical import Categorical

#: Number of units that a warning names.
_MAX_NAMED = 5
#: Noise of so many roundings of the slopes is rounding.
_ROUNDINGS = 10


def _noise(plan: RunPlan, done: DrawsDone, draws: Draws | DrawMoments) -> str | None:
    """Warn that the noise of the estimates exceeds the interactions, and say how many samples would do."""
    engine = plan.engine
    if not isinstance(engine, SteinRun):
        return None
    share = NoiseShare.of(draws, done.accumulator.grouping.weight_sums) if isinstance(draws, Draws) else None
    share = share or done.accumulator.noise_share
    if share.noise <= share.signal or _is_rounding(plan, engine, draws, share):
        return None
    way_out = "use fewer groups, more points, or a larger scale of the noise"
    if share.signal <= 0:
        return (
            f"engine='stein': with {engine.samples:,} samples no interactions can be told from the noise of the "
            f"estimates. There may be none; else use more samples, Stein(samples={10 * engine.samples}), or {way_out}."
        )
    ratio = math.sqrt(share.noise / share.signal)
    needed = math.ceil(engine.samples * share.noise / share.signal / engine.engine.error**2)
    return (
        f"engine='stein': the noise of the estimates is {ratio:.2g} times as large as the interactions, over all pairs "
        f"and groups, with {engine.samples:,} samples per point. For an error of {engine.engine.error:.0%} use about "
        f"Stein(samples={needed}), or {way_out}."
    )


def _is_rounding(plan: RunPlan, engine: SteinRun, draws: Draws | DrawMoments, share: NoiseShare) -> bool:
    """Return whether the noise is that of rounding: where a control variate leaves nothing else."""
    slopes = draws.slopes if isinstance(draws, Draws) else (draws.slopes.mean if draws.slopes.count else None)
    if slopes is None:
        return False
    # An error of the slopes becomes one of the samples if it is divided by the scale of the noise.
    per_slope = np.abs(plan.factors) / np.where(engine.scale > 0, engine.scale, np.inf)
    rounding = torch.finfo(plan.cut.dtype).eps * float(np.abs(slopes).max()) * float(per_slope.max())
    return math.sqrt(share.noise) <= _ROUNDINGS * rounding * math.sqrt(len(plan.pairs))


def noise_in_words(plan: RunPlan) -> str | None:
    """Return the engine in words if it moves points by noise; None for others."""
    return repr(plan.engine.engine) if isinstance(plan.engine, SteinRun) else None


def warnings_of_noise(plan: RunPlan, done: DrawsDone, draws: Draws | DrawMoments) -> tuple[str | None, ...]:
    """Warn of units that get no noise, of units whose noise is rounded away, and of scores that are mostly noise."""
    return _still_units(plan), _rounded_units(plan), _noise(plan, done, draws)


def _still_units(plan: RunPlan) -> str | None:
    """Warn that units are constant over the points, so that noise relative to their spread leaves them alone."""
    if not isinstance(plan.engine, SteinRun):
        return None
    still = np.flatnonzero(plan.engine.scale == 0)
    if isinstance(plan.cut.units, Categorical):
        # Categories, the first units, step between their levels instead.
        still = still[still >= len(plan.cut.units.observed)]
    if not len(still):
        return None
    return (
        f"engine='stein': the units {_names(plan, still)} are constant over the points and get no noise, so that their "
        "interactions are 0; Stein(sigma=...) moves all units."
    )


def _rounded_units(plan: RunPlan) -> str | None:
    """Warn that noise is so small beside the values of units that rounding takes its place."""
    if not isinstance(plan.engine, SteinRun) or not plan.engine.rounded.any():
        return None
    rounded = np.flatnonzero(plan.engine.rounded)
    return (
        f"engine='stein': noise of the scale {plan.engine.scale[rounded[0]]:.2g} is lost in the rounding of the values "
        f"of {_names(plan, rounded)} in {plan.cut.dtype}, so that their interactions are wrong; use a larger "
        "scale, units around 0, or inputs and a model in double precision."
    )


def _names(plan: RunPlan, units: Ints) -> str:
    """Return the names of the first of some units."""
    shown = ", ".join(plan.names[unit] for unit in units[:_MAX_NAMED])
    return f"{shown} and {len(units) - _MAX_NAMED} more" if len(units) > _MAX_NAMED else shown
