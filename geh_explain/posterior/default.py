"""Which posterior a model is explained with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.layers import LayerRef
from geh_explain.posterior.dropout import MCDropout, has_dropout
from geh_explain.posterior.mean_field import MeanField, gaussian_layers
from geh_explain.posterior.point import PointEstimate
from geh_explain.posterior.protocols import Posterior


def default_posterior(model: nn.Module, call: Callable[[], Any]) -> Posterior:
    """Return what the model itself offers; ``call`` runs it on one row."""
    if gaussian_layers(model):
        return MeanField()
    return MCDropout() if has_dropout(model, call) else PointEstimate()


def check_posterior(posterior: Any, site: LayerRef) -> None:
    """Refuse what is no posterior, or none for this layer."""
    if posterior is None:
        return
    if isinstance(posterior, type) or not isinstance(posterior, Posterior):
        raise GEHTypeError(
            f"posterior={posterior!r} has no draws(model, n, seed); use one of geh_explain.posterior, say MCDropout()"
            + (" (an instance, not the class)." if isinstance(posterior, type) else ".")
        )
    if site.module is not None and getattr(posterior, "inputs_only", False):
        raise GEHValueError(
            f"posterior={posterior!r} at layer={site.name!r}: hidden units of independently trained networks do not "
            "correspond, unit 3 of one is not unit 3 of another. Use draws around one solution (MCDropout, or "
            "WeightSamples from SWAG or Laplace), or explain the inputs (layer=None)."
        )
