"""Warnings of a run: what is legal and suspicious, collected once all draws are there.

Each function below returns one message, or None where there is nothing to say. A message names the argument, what was
found, and what to do. All of them are raised as :class:`~geh_explain.GEHWarning` and stored in the record of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Bools, Ints
from geh_explain.engines.difference import DifferenceRun
from geh_explain.engines.selection import NO_GRADIENTS, REQUESTED, depends_on_units, slopes_of
from geh_explain.engines.smoothing.change import smoothing_warning
from geh_explain.engines.zero import explain_zero
from geh_explain.groups.clusters import MIN_CLUSTERS
from geh_explain.groups.pairwise import PairGrouping
from geh_explain.model.autograd_graph import ends_in_probabilities
from geh_explain.model.row_independence import computing_dtype
from geh_explain.model.unit_values import discrete_units
from geh_explain.posterior.protocols import fixed
from geh_explain.run.category_warnings import binary_columns_warning, levels_warning, zero_levels_warning
from geh_explain.run.frame_warnings import fixed_columns_warning
from geh_explain.run.input_range import input_range_warning
from geh_explain.run.loop import DrawsDone
from geh_explain.run.noise_warnings import noise_in_words, warnings_of_noise
from geh_explain.run.plan import RunPlan
from geh_explain.run.posterior_warnings import (
    dropout_left_out_warning,
    recurrent_dropout_warning,
    search_warnings,
    warnings_of_default,
)
from geh_explain.run.setup import ModelSetup
from geh_explain.scores.draws import DrawMoments, Draws
from geh_explain.statistics.reliability import split_half_reliability
from geh_explain.units.pair_set import PairSet

#: Below this reliability more draws would change the ranking.
_MIN_RELIABILITY = 0.8
#: Fewer draws or pairs than this say nothing about it, nor about the number of groups.
_MIN_DRAWS = 20
_MIN_PAIRS = 10
#: Number of units that a warning names.
_MAX_NAMED = 5
#: Probabilities in single precision sum to 1 up to this.
_SUM_TOLERANCE = 1e-4


def collect_warnings(
    setup: ModelSetup, plan: RunPlan, done: DrawsDone, draws: Draws | DrawMoments, half: torch.dtype | None
) -> list[str]:
    """Return everything that a user should know about a run.

    ``draws`` are those of the result, ``done`` what the loop left, ``half`` the half precision that the model is in, if
    it is.
    """
    default_posterior = setup.posterior is None
    messages = [
        _interrupted(plan, done),
        None if plan.smoothed is None else smoothing_warning(plan.smoothed),
        _missed_kinks(plan),
        _engine(plan),
        _refuted_engine(done),
        _doubtful_derivatives(plan),
        _jumping_units(plan),
        *warnings_of_noise(plan, done, draws),
        fixed_columns_warning(plan) if setup.units is None or plan.cut.units.has_levels else None,
        recurrent_dropout_warning(plan, default_posterior),
        dropout_left_out_warning(plan),
        *(warnings_of_default(plan) if default_posterior else ()),
        getattr(plan.posterior, "concern", None),
        *search_warnings(plan, draws),
        _several_calls(plan),
        input_range_warning(plan),
        levels_warning(plan),
        binary_columns_warning(plan),
        _guessed_channels(plan),
        _scripted(plan),
        _no_scores_or_spread(plan, done),
        _constant_units(plan),
        _units_without_effect(plan, draws),
        _probability_twice(plan),
        _few_pairs(plan, done) if plan.tree is not None else _groups_of_one(plan, done),
        _clusters(plan, draws),
        _half_precision(half),
        _half_precision_inside(plan),
        _unsettled(plan, done, draws),
    ]
    return [message for message in messages if message is not None]


def _interrupted(plan: RunPlan, done: DrawsDone) -> str | None:
    """Warn that the run was interrupted, and the result has fewer draws than asked for."""
    if not done.interrupted:
        return None
    further = "explain(checkpoint=...) would" if plan.checkpoint is None else "The same call will"
    return (
        f"explain() was interrupted, and the result has the {done.accumulator.n_draws} of {done.accumulator.expected} "
        f"draws that were finished. {further} resume from there."
    )


def _missed_kinks(plan: RunPlan) -> str | None:
    """Warn that second derivatives miss kinks or jumps that have no smooth form."""
    missed = plan.missed_kinks
    if missed is None:
        return None
    order = np.argsort(-missed.shares, kind="stable")
    units = order[missed.shares[order] > missed.shares.max() / 2]
    return (
        f"smooth: kinks or jumps of {', '.join(missed.functions)} above {plan.cut.place} have no smooth form, and "
        "second derivatives miss them: where other units move, single jumps are "
        f"{missed.shares.max():.0%} of the change of the slopes of {_name_units(plan, units)}. Use "
        "engine='difference', which needs no derivatives."
    )


def _engine(plan: RunPlan) -> str | None:
    """Warn that there are no second derivatives, and mixed differences were used instead."""
    if not isinstance(plan.engine, DifferenceRun) or plan.engine_reason in (REQUESTED, NO_GRADIENTS):
        return None
    return f"engine='auto' takes mixed differences: {plan.engine_reason}"


def _refuted_engine(done: DrawsDone) -> str | None:
    """Warn that the structured engine was wrong for this network."""
    if not done.repeated:
        return None
    return (
        "engine: the structured engine and double backward gave different second derivatives at some points, so that "
        "the exact engine computed all draws again. The scores are those of double backward; please report this "
        "network."
    )


def _doubtful_derivatives(plan: RunPlan) -> str | None:
    """Warn that autograd's second derivatives are not those of the function that its gradients belong to."""
    if plan.ranks.all_min(not plan.engine.doubtful):
        return None
    return (
        "engine: second derivatives by double backward contradict differences of gradients. A function inside "
        "the model hides a part of its derivative from autograd: a custom autograd.Function whose backward uses "
        "detach() or .data, or a detached factor in the forward. Use engine='difference', which needs no derivatives."
    )


def _jumping_units(plan: RunPlan) -> str | None:
    """Warn that units with two values jump between them instead of moving by a step."""
    engine = plan.engine
    if not isinstance(engine, DifferenceRun) or engine.engine.discrete != "detect":
        return None
    # Columns of text and booleans say by their dtype that they jump.
    detected = sorted(set(engine.jumps) - set(np.flatnonzero(discrete_units(plan.cut)).tolist()))
    if not detected:
        return None
    return (
        f"engine='difference': the unit{'s' * (len(detected) > 1)} {_name_units(plan, detected)} "
        f"{'have' if len(detected) > 1 else 'has'} two values among the points, between which differences are taken; "
        "Difference(discrete=[...]) declares such units, discrete=() none."
    )


def _half_precision(dtype: torch.dtype | None) -> str | None:
    """Warn that second derivatives need more digits than half precision has."""
    return None if dtype is None else f"model: it is in {dtype}, and was explained in torch.float32."


def _half_precision_inside(plan: RunPlan) -> str | None:
    """Warn that the model itself computes with fewer digits than single precision has."""
    with fixed(plan.posterior, plan.cut.model, plan.options.seed):
        dtype = computing_dtype(plan.cut, plan.points.first[:1])
    if dtype.itemsize >= torch.float32.itemsize:
        return None
    digits = round(-np.log10(torch.finfo(dtype).resolution))
    where, way_out = f"model: parts of it compute in {dtype}", "Explain it without autocast."
    if plan.cut.dtype == dtype and plan.cut.layer is None:
        where, way_out = f"inputs: they are {dtype}, in which the model computes", "Pass them in torch.float32."
    reason = " (torch.autocast or a conversion in its forward)" if plan.cut.dtype != dtype else ""
    return (
        f"{where}, with {digits} digits{reason}: rounding may dominate small scores, and all scores of "
        f"engine='difference'. {way_out}"
    )


def _unsettled(plan: RunPlan, done: DrawsDone, draws: Draws | DrawMoments) -> str | None:
    """Warn that more draws would give another ranking."""
    if plan.options.stops_when_settled:
        if done.accumulator.settled or done.accumulator.n_draws < plan.options.max_draws:
            return None
        return (
            f"draws='auto': after {done.accumulator.n_draws} draws the order of the strongest pairs is not settled; "
            "neighbours in the order differ by less than the Monte Carlo errors that result.monte_carlo() shows."
        )
    if isinstance(draws, DrawMoments) or len(draws.signed) < _MIN_DRAWS or len(plan.pairs) < _MIN_PAIRS:
        return None
    scores = draws.scores("geh", done.accumulator.grouping.weight_sums)
    value = split_half_reliability(scores)
    if value >= _MIN_RELIABILITY:
        return None
    return (
        f"draws={len(scores)} do not settle the ranking (reliability {value:.2f} of 1): as many other draws would "
        "order the pairs differently. Ask for more draws, and see result.monte_carlo()."
    )


def _several_calls(plan: RunPlan) -> str | None:
    """Warn that the layer is called several times, and its units move in all calls."""
    cut = plan.cut
    if cut.calls < 2 or cut.layer_ref.call is not None:
        return None
    return (
        f"layer={cut.name!r} is called {cut.calls} times in a forward, and its units are moved in all of them "
        f"together; layer=Layer({cut.name!r}, call=0) chooses one call."
    )


def _guessed_channels(plan: RunPlan) -> str | None:
    """Warn that neither the layer nor its neighbours tell which dimension holds the channels."""
    cut = plan.cut
    if not cut.layout_is_guessed:
        return None
    return (
        f"units: nothing tells which dimension of layer {cut.name!r}, (batch, {', '.join(map(str, cut.shape))}), holds "
        f"its channels, and {cut.units!r} was taken; pass units=Channels(dim=...) to choose one."
    )


def _scripted(plan: RunPlan) -> str | None:
    """Warn that TorchScript hides the functions that a module calls."""
    if not any(isinstance(module, torch.jit.ScriptModule) for module in plan.cut.model.modules()):
        return None
    return (
        "model: parts of it are scripted, so that kinks and dropout inside them are not found; pass the module from "
        "before torch.jit.script if there are any."
    )


def _no_scores_or_spread(plan: RunPlan, done: DrawsDone) -> str | None:
    """Warn that all scores are exactly 0, or all draws are equal."""
    largest, spread = done.spread
    if largest == 0 and plan.levels is not None:
        return zero_levels_warning(plan)
    if largest == 0:
        smoothed, noise = plan.smoothed is not None, noise_in_words(plan)
        return explain_zero(plan.cut, plan.points.first, plan.pairs, smoothed, noise)
    if done.accumulator.n_draws < 2 or spread > 0:
        return None
    return (
        f"posterior={plan.posterior!r}: all {done.accumulator.n_draws} draws gave the same scores, so their intervals "
        "have no width; check that its samples differ."
    )


def _constant_units(plan: RunPlan) -> str | None:
    """Warn that units have no standard deviation, by which their scores are multiplied."""
    constant = np.flatnonzero(plan.factors == 0)
    if not isinstance(plan.options.scale, str) or not len(constant):
        return None
    if len(plan.points) == 1:
        return (
            "scale='std': there is only one point, so that all standard deviations and all scores are 0; pass more "
            "points, or scale=None, or use explainer.explain_row(x, data=...) for a single row."
        )
    return (
        f"scale='std': the units {_name_units(plan, constant)} are constant over the points, so that their standard "
        "deviations and scores are 0, whatever the model does with them; pass points at which they vary, or scale=None."
    )


def _units_without_effect(plan: RunPlan, draws: Draws | DrawMoments) -> str | None:
    """Warn that all derivatives with respect to some units are exactly 0, in all draws and at all points."""
    flat = np.flatnonzero((plan.factors != 0) & _never_used(draws, plan.pairs))
    if not len(flat):
        return None
    differentiates = plan.engine.engine.differentiates
    with fixed(plan.posterior, plan.cut.model, plan.options.seed):
        if differentiates:
            # A unit that merely no draw has used has a gradient outside of draws.
            flat = flat[~slopes_of(plan.cut, plan.points.first)[:, flat].any(axis=0)]
        depends = len(flat) > 0 and depends_on_units(plan.cut, plan.points.first, flat)
    if not len(flat):
        return None
    zero = f"units: all derivatives with respect to the units {_name_units(plan, flat)} are exactly 0"
    if not differentiates:
        # Differences of outputs: a unit on which they depend is one that no draw or no step has used.
        return None if depends else f"{zero}: at these points the model ignores them."
    if depends:
        return (
            f"{zero}, though the output depends on them, through a function without derivatives such as a comparison, "
            "rounding or an index; their scores of 0 mean nothing. Use engine='difference'."
        )
    return f"{zero}: at these points the model ignores them, or passes them through a function without derivatives."


def _never_used(draws: Draws | DrawMoments, pairs: PairSet) -> Bools:
    """Return which units (D,) have slopes and interactions of 0 only; none where that is not known, or all are 0."""
    if isinstance(draws, DrawMoments):
        slopes, absolute = (draws.slopes.mean if draws.slopes.count else None), draws.eah.mean
    else:
        slopes, absolute = draws.slopes, draws.absolute
    if slopes is None or not absolute.any():
        return np.zeros(pairs.n_units, dtype=bool)
    unused = np.asarray(~slopes.reshape(-1, pairs.n_units).any(axis=0))
    if unused.any():
        used_pairs = absolute.reshape(-1, len(pairs)).any(axis=0)
        for ends in pairs.ends:
            unused[ends[used_pairs]] = False
    return unused


def _probability_twice(plan: RunPlan) -> str | None:
    """Warn that the model returns probabilities, of which ``output="probability"`` takes the softmax again."""
    if plan.cut.output != "probability":
        return None
    # Inputs that require gradients give a graph also where all parameters are frozen.
    inputs = tuple(x.detach().requires_grad_(x.is_floating_point()) for x in plan.points.first.inputs)
    raw = plan.cut.raw_outputs(replace(plan.points.first, inputs=inputs))
    name = "sigmoid" if raw.shape[1:].numel() == 1 else "softmax"
    sums_to_one = name == "softmax" and bool(((raw.double().sum(dim=1) - 1).abs() < _SUM_TOLERANCE).all())
    if not _in_unit_interval(raw) or not (sums_to_one or _are_probabilities(plan, raw)):
        return None
    return (
        f"output='probability': the model returns probabilities already, and the {name} of these was explained; use "
        "output='raw', or better a model that returns logits."
    )


def _are_probabilities(plan: RunPlan, raw: Tensor) -> bool:
    """Return whether ``raw`` is computed from probabilities, and in [0, 1] at points of all parts of the data."""
    if not ends_in_probabilities(raw):
        return False
    with torch.no_grad():
        return all(_in_unit_interval(plan.cut.raw_outputs(rows)) for rows in plan.points.spread)


def _in_unit_interval(values: Tensor) -> bool:
    return bool(((values >= 0) & (values <= 1)).all())


def _name_units(plan: RunPlan, units: Sequence[int] | Ints) -> str:
    """Return the names of units, a few of them where there are many."""
    names = plan.cut.units.names(plan.cut.shape, plan.cut.name or "x", plan.points.columns)
    shown = ", ".join(names[unit] for unit in units[:_MAX_NAMED])
    return shown if len(units) <= _MAX_NAMED else f"{shown} and {len(units) - _MAX_NAMED} more"


def _clusters(plan: RunPlan, draws: Draws | DrawMoments) -> str | None:
    """Warn that there are few clusters of points, or that their errors did not fit into memory."""
    count = plan.n_clusters
    if count is None:
        return None
    if draws.cluster_errors is None:
        return (
            f"clusters: sums over {count} clusters of {plan.cut.n_units} units in {len(plan.grouping.names)} groups do "
            "not fit into memory, so that intervals count draws only; pass a larger memory=, fewer groups or fewer "
            "units."
        )
    if count < MIN_CLUSTERS:
        return (
            f"clusters: {count} clusters are few to estimate an error from; intervals are wide, and right only if the "
            f"clusters are alike. At least {MIN_CLUSTERS} are advised."
        )
    return None


def _few_pairs(plan: RunPlan, done: DrawsDone) -> str | None:
    """Warn that few pairs decided on the number of groups."""
    if plan.pairs.complete or len(plan.pairs) >= _MIN_PAIRS:
        return None
    return (
        f"groups='auto' took {len(done.accumulator.grouping.names)} from the {len(plan.pairs)} of all pairs that were "
        "computed, too few for a choice like that of all; pass groups=, for instance 5."
    )


def _groups_of_one(plan: RunPlan, done: DrawsDone) -> str | None:
    """Warn that groups of a single point average nothing."""
    grouping = done.accumulator.grouping
    if isinstance(grouping, PairGrouping):
        return _no_thirds(grouping)
    alone, count = int((grouping.sizes == 1).sum()), len(grouping.names)
    if not alone or count == len(plan.points):
        return None
    return f"groups: {alone} of {count} groups hold a single point; use fewer groups."


def _no_thirds(grouping: PairGrouping) -> str | None:
    """Warn that memory was too short to look for third units, which change the sign of pairs."""
    if grouping.complete:
        return None
    return (
        f"groups='pairwise': {grouping.halves.shape[1]} units are too many to look for third units in memory; pairs "
        "are grouped by their own two units only. Pass a larger memory=, or some pairs by pairs= or unit=."
    )
