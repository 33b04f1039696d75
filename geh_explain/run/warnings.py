"""What is legal and suspicious about a run, in words."""

from __future__ import annotations

import torch
from torch import nn

from geh_explain.engines import Difference
from geh_explain.engines.smoothing.view import doubt
from geh_explain.engines.zero import why_zero
from geh_explain.posterior import MCDropout, PointEstimate
from geh_explain.results.interactions import Interactions
from geh_explain.run.plan import Job
from geh_explain.statistics.reliability import split_half_reliability

#: Below this reliability a ranking is not settled; of very few draws or pairs nothing is said.
_SETTLED, _FEWEST_DRAWS, _FEWEST_UNITS = 0.8, 20, 5


def notes_on(job: Job, *, chosen: bool, by_hand: bool) -> list[str]:
    """Return what a user should know; ``chosen`` posteriors and groups that are not ``by_hand`` are ours."""
    found = [
        _interrupted(job),
        None if job.smoothed is None else doubt(job.smoothed),
        _engine(job),
        _jumping(job),
        _recurrent_dropout(job, chosen),
        _left_out(job),
        _no_posterior(job) if chosen else None,
        _several_calls(job),
        _guessed_channels(job),
        _scripted(job),
        _no_scores_or_spread(job),
        _lone_points(job) if by_hand else None,
    ]
    return [note for note in found if note is not None]


def _interrupted(job: Job) -> str | None:
    if not job.collected.interrupted:
        return None
    further = "explain(checkpoint=...) would" if job.checkpoint is None else "The same call will"
    return (
        f"explain() was interrupted, and the result has the {job.collected.count} of {job.collected.expected} draws "
        f"that were finished. {further} go on from there."
    )


def _engine(job: Job) -> str | None:
    if not isinstance(job.engine, Difference) or job.reason == "asked for":
        return None
    return f"engine='auto' takes mixed differences: {job.reason}"


def _jumping(job: Job) -> str | None:
    if not isinstance(job.engine, Difference) or job.engine.discrete != "detect" or not job.engine.jumps:
        return None
    names = job.cut.units.names(job.cut.shape, job.cut.name or "x", job.points.columns)
    return (
        f"engine='difference': {', '.join(names[unit] for unit in sorted(job.engine.jumps))} have two values among the "
        "points and jump between them; Difference(discrete=[...]) declares such units, discrete=() none."
    )


def _recurrent_dropout(job: Job, chosen: bool) -> str | None:
    layers = [
        name
        for name, module in job.cut.model.named_modules()
        if isinstance(module, nn.RNNBase) and module.dropout > 0 and module.num_layers > 1
    ]
    if not layers or not (chosen or isinstance(job.posterior, MCDropout)):
        return None
    return (
        f"posterior={job.posterior!r}: the dropout between the layers of {layers[0]!r} is inside torch's own kernel "
        "and is not drawn; put layers and nn.Dropout one after the other instead."
    )


def unsettled(result: Interactions) -> list[str]:
    """Say so if more draws would give another ranking."""
    if not result.settings["draws_kept"] or result.geh.n_draws < _FEWEST_DRAWS or len(result.names) < _FEWEST_UNITS:
        return []
    found = split_half_reliability(result.geh.draws)
    if found >= _SETTLED:
        return []
    return [
        f"draws={result.geh.n_draws} do not settle the ranking (reliability {found:.2f} of 1): as many other draws "
        "would order the pairs differently. Ask for more draws, and see result.monte_carlo()."
    ]


def _left_out(job: Job) -> str | None:
    if not isinstance(job.posterior, MCDropout) or not job.posterior.left_out:
        return None
    return (
        f"posterior={job.posterior!r}: {', '.join(job.posterior.left_out)} drop in train mode only and do other things "
        "there too, so that their dropout is not drawn; call dropout in eval mode as well, with training=self.training."
    )


def _no_posterior(job: Job) -> str | None:
    if not isinstance(job.posterior, PointEstimate):
        return None
    others = "Ensemble(...), WeightSamples(...)" if job.cut.layer is None else "WeightSamples(...)"
    return (
        "posterior=None and the model has no dropout that can be drawn: the scores are a point estimate without "
        f"intervals. Pass posterior={others} or Stochastic() to learn how sure they are."
    )


def _several_calls(job: Job) -> str | None:
    cut = job.cut
    if cut.calls < 2 or cut.site.call is not None:
        return None
    return (
        f"layer={cut.name!r} is called {cut.calls} times in a forward, and its units are moved in all of them "
        f"together; layer=Layer({cut.name!r}, call=0) chooses one call."
    )


def _guessed_channels(job: Job) -> str | None:
    cut = job.cut
    if not cut.guessed:
        return None
    return (
        f"units: nothing tells which dimension of layer {cut.name!r}, (batch, {', '.join(map(str, cut.shape))}), holds "
        f"its channels, and {cut.units!r} was taken; pass units=Channels(dim=...) to say it."
    )


def _scripted(job: Job) -> str | None:
    if not any(isinstance(module, torch.jit.ScriptModule) for module in job.cut.model.modules()):
        return None
    return (
        "model: parts of it are scripted, so that kinks and dropout inside them are not seen; pass the module from "
        "before torch.jit.script if there are any."
    )


def _no_scores_or_spread(job: Job) -> str | None:
    largest, spread = job.collected.spread()
    if largest == 0:
        return why_zero(job.cut, job.points.first)
    if job.collected.count < 2 or spread > 0:
        return None
    return (
        f"posterior={job.posterior!r}: all {job.collected.count} draws gave the same scores, so their intervals have "
        "no width; check that its samples differ."
    )


def _lone_points(job: Job) -> str | None:
    grouping = job.collected.grouping
    alone, count = int((grouping.sizes == 1).sum()), len(grouping.names)
    if not alone or count == len(job.points):
        return None
    return f"groups: {alone} of {count} groups hold a single point; use fewer groups."
