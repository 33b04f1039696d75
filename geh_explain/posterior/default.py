"""The posterior of an explainer: its default, and the check of a given one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError
from geh_explain.model.estimators import EstimatorModel
from geh_explain.model.layers import LayerRef
from geh_explain.model.refused_models import short_repr
from geh_explain.posterior.dropout import drops_in_batch, find_dropout
from geh_explain.posterior.mean_field import MeanField, gaussian_layers
from geh_explain.posterior.point import PointEstimate
from geh_explain.posterior.protocols import Posterior


def default_posterior(model: nn.Module, call: Callable[[], Any], call_batch: Callable[[], Any]) -> Posterior:
    """Return the posterior that the model itself offers.

    That is the mean field of its Gaussian layers if it has any, else MC dropout if its forward pass drops anything,
    else the point estimate.

    Parameters
    ----------
    model
        The network.
    call
        Runs the model on a single row.
    call_batch
        Runs the model on several rows.

    Raises
    ------
    GEHRuntimeError
        If it drops something in a batch and nothing in a single row.
    """
    if isinstance(model, EstimatorModel):
        # Without torch there is no dropout, and calls may be slow.
        return PointEstimate()
    if gaussian_layers(model):
        return MeanField()
    dropout = find_dropout(model, call)
    if dropout is not None:
        return dropout
    if drops_in_batch(call_batch):
        raise GEHRuntimeError(
            "model: it applies dropout to a batch and none to a single row, so that no mask can be drawn for all rows; "
            "its forward must not depend on the batch size. posterior=PointEstimate() leaves dropout out."
        )
    return PointEstimate()


def check_posterior(posterior: Any, layer: LayerRef) -> None:
    """Check that ``posterior`` is None or a posterior that can be used at ``layer``.

    Raises
    ------
    GEHTypeError
        If it has no method ``draws``, or is a class instead of an instance.
    GEHValueError
        If its hidden units do not correspond between draws and ``layer`` is a hidden one.
    """
    if posterior is None:
        return
    if isinstance(posterior, type) or not isinstance(posterior, Posterior):
        several = isinstance(posterior, (list, tuple, nn.ModuleList))
        example = "Ensemble([...]) for several networks" if several else "MCDropout()"
        raise GEHTypeError(
            f"posterior={short_repr(posterior)} has no draws(model, n, seed); use one of geh_explain.posterior, such "
            f"as {example}" + (" (an instance, not the class)." if isinstance(posterior, type) else ".")
        )
    if layer.module is not None and getattr(posterior, "inputs_only", False):
        raise GEHValueError(
            f"posterior={posterior!r} at layer={layer.name!r}: hidden units of independently trained networks do not "
            "correspond, unit 3 of one is not unit 3 of another. Use draws around one solution (MCDropout, SWAG, "
            "Laplace or WeightSamples), or explain the inputs (layer=None)."
        )
