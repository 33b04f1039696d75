"""Warnings about the posterior of a run: what its draws leave out.

Each function returns one message, or None where there is nothing to say.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from geh_explain.model.callable_model import CallableModel
from geh_explain.model.estimators import EstimatorModel
from geh_explain.posterior import MCDropout, PointEstimate
from geh_explain.run.pair_search import TopSearch
from geh_explain.run.plan import RunPlan
from geh_explain.scores.draws import DrawMoments, Draws

#: Smallest cosine of the interactions of pairs without draws, in which they were found, and their means over draws.
_MIN_AGREEMENT = 0.5


def recurrent_dropout_warning(plan: RunPlan, default_posterior: bool) -> str | None:
    """Warn that dropout inside torch's recurrent kernels cannot be fixed per draw."""
    layers = [
        name
        for name, module in plan.cut.model.named_modules()
        if isinstance(module, nn.RNNBase) and module.dropout > 0 and module.num_layers > 1
    ]
    if not layers or not (default_posterior or isinstance(plan.posterior, MCDropout)):
        return None
    return (
        f"posterior={plan.posterior!r}: the dropout between the layers of {layers[0]!r} is inside torch's own kernel "
        "and is not drawn; put layers and nn.Dropout one after the other instead."
    )


def dropout_left_out_warning(plan: RunPlan) -> str | None:
    """Warn that some modules have dropout that cannot be separated from the rest of their train mode."""
    found = plan.train_only
    if not found.mixed_classes:
        return None
    more = f" and {len(found.changes) - 1} more" if len(found.changes) > 1 else ""
    changes = f" (changes {found.changes[0]!r}{more})" if found.changes else ""
    return (
        f"posterior={plan.posterior!r}: {', '.join(found.mixed_classes)} drop in train mode only and do other things "
        f"there too{changes}, so that their dropout is not drawn; call dropout in eval mode as well, with "
        "training=self.training, or pass posterior=PointEstimate()."
    )


def warnings_of_default(plan: RunPlan) -> list[str | None]:
    """Return the warnings about a posterior that the user did not choose."""
    return [_only_head_random(plan), _no_posterior(plan)]


def _only_head_random(plan: RunPlan) -> str | None:
    """Warn that dropout is in the last layers only, so that draws vary nothing below them."""
    places = plan.dropout_places
    if not isinstance(plan.posterior, MCDropout) or not places.only_head:
        return None
    return (
        f"posterior={plan.posterior!r}: {places.describe()}. Intervals say nothing about these layers. "
        "SWAG(checkpoints) and WeightSamples(...) draw them too; LastLayerLaplace(data) takes the uncertainty of the "
        "last layer from labelled data instead of a dropout rate."
    )


def _no_posterior(plan: RunPlan) -> str | None:
    """Warn that there is no source of uncertainty."""
    if not isinstance(plan.posterior, PointEstimate):
        return None
    if isinstance(plan.cut.model, EstimatorModel):
        return (
            "posterior=None: the scores are a point estimate, with intervals over points like these only. Pass "
            "posterior=Ensemble([...]) with estimators that were fitted to bootstrap samples for intervals over fits."
        )
    if isinstance(plan.cut.model, CallableModel):
        return (
            "posterior=None: the scores are a point estimate of a plain callable, with intervals over points like "
            "these only. Pass posterior=Ensemble([...]) with callables that were fitted again, or the network itself, "
            "for intervals over draws."
        )
    others = "Ensemble(...), " if plan.cut.layer is None else ""
    others += "LastLayerLaplace(labelled data), WeightSamples(...)"
    return (
        "posterior=None and the model has no dropout that can be drawn: the scores are a point estimate, with "
        f"intervals over points like these only. Pass posterior={others} or Stochastic() for intervals over draws of "
        "the network."
    )


def search_warnings(plan: RunPlan, draws: Draws | DrawMoments) -> list[str | None]:
    """Return the warnings about a search for pairs."""
    return [getattr(plan.search, "warning", None), _other_network(plan, draws)]


def _other_network(plan: RunPlan, draws: Draws | DrawMoments) -> str | None:
    """Warn that pairs were searched for in a network that has other interactions than the draws.

    Such as a member of an ensemble, or a network whose weights all come from samples.
    """
    search = plan.search
    if not isinstance(search, TopSearch) or search.signed is None:
        return None
    sizes = search.grouping.weight_sums
    over_draws = np.nan_to_num(draws.signed_moments()[0]) * (sizes / sizes.sum())[:, None]
    norms = np.linalg.norm(search.signed) * np.linalg.norm(over_draws)
    agreement = float((search.signed * over_draws).sum() / norms) if norms else 1.0
    if agreement >= _MIN_AGREEMENT:
        return None
    return (
        "search(): the pairs are the strongest of the network without draws, which has other interactions than the "
        f"draws of posterior={plan.posterior!r}: those of these pairs have a cosine of {agreement:.2f} with their "
        "means over draws, and 1 if they agree. Stronger pairs of the draws may be missed. Search in single networks "
        "of the posterior, GEHExplainer(network, posterior=PointEstimate()).search(...), and measure all pairs that "
        "these have by explain(pairs=[...])."
    )
