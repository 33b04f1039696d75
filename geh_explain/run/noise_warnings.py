"""Warnings about the noise of Stein's engine."""

from __future__ import annotations

import math

import numpy as np
import torch

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


def noise_warning(plan: RunPlan, done: DrawsDone, draws: Draws | DrawMoments) -> str | None:
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


def still_units_warning(plan: RunPlan) -> str | None:
    """Warn that units are constant over the points, so that noise relative to their spread leaves them alone."""
    if not isinstance(plan.engine, SteinRun):
        return None
    still = np.flatnonzero(plan.engine.scale == 0)
    if isinstance(plan.cut.units, Categorical):
        # Categories, the first units, step between their levels instead.
        still = still[still >= len(plan.cut.units.observed)]
    if not len(still):
        return None
    shown = ", ".join(plan.names[unit] for unit in still[:_MAX_NAMED])
    more = f" and {len(still) - _MAX_NAMED} more" if len(still) > _MAX_NAMED else ""
    return (
        f"engine='stein': the units {shown}{more} are constant over the points and get no noise, so that their "
        "interactions are 0; Stein(sigma=...) moves all units."
    )
