"""What the attribution classes of :mod:`geh_explain.captum` share: wrappers of methods, forms of inputs and results."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain.data.targets import Target
from geh_explain.errors import GEHTypeError
from geh_explain.explainer.model_explainer import GEHExplainer
from geh_explain.local.hessians import row_hessians
from geh_explain.model.layer_wrappers import FunctionWithLayer
from geh_explain.model.layers import Layer

_Method = TypeVar("_Method", bound=Callable[..., Any])


def as_in_captum(attribute: _Method) -> _Method:
    """Wrap a method: NoiseTunnel calls ``attribute.__wrapped__`` of the method that it is given."""

    @wraps(attribute)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        return attribute(*arguments, **options)

    return wrapper  # type: ignore[return-value]


def refuses_noise_tunnel(attribute: _Method) -> _Method:
    """Wrap a method that returns no attribution per example: NoiseTunnel, which needs one, gets an error."""

    @wraps(attribute)
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise GEHTypeError(
            "NoiseTunnel averages attributions of single examples, and GroupExpectedHessian returns one matrix for all "
            "of them; use NoiseTunnel(InputHessian(...)), or posterior= for the uncertainty of the global measure."
        )

    @wraps(attribute)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        return attribute(*arguments, **options)

    wrapper.__wrapped__ = refuse
    return wrapper  # type: ignore[return-value]


def make_explainer(forward_func: Any, layer: str | nn.Module | Layer | None, **options: Any) -> GEHExplainer:
    """Return the explainer of a model, or of a function that calls a layer.

    Parameters
    ----------
    forward_func
        A module, or a function that returns one output or several per example. A function with a module as ``layer``
        is wrapped into a module that has this one as a part.
    layer
        A module, its dotted name, a :class:`~geh_explain.Layer`, or None for the inputs.
    **options
        Further arguments of :class:`~geh_explain.GEHExplainer`.
    """
    module = layer.layer if isinstance(layer, Layer) else layer
    if isinstance(module, nn.Module) and not isinstance(forward_func, nn.Module) and callable(forward_func):
        forward_func = FunctionWithLayer(forward_func, module)
    return GEHExplainer(forward_func, layer, **options)


def first_tensor(inputs: Any) -> Tensor:
    """Return the only or the first input, which must be a tensor."""
    first = inputs[0] if isinstance(inputs, tuple) and inputs else inputs
    if not isinstance(first, Tensor):
        raise GEHTypeError(f"inputs is a {type(first).__name__}; give a tensor, or a tuple of tensors, as in Captum.")
    return first


def local_interactions(
    explainer: GEHExplainer, inputs: Any, target: Target, additional_forward_args: Any, reference: Any
) -> Tensor:
    """Return the interactions at every point (N, D, D), with a zero diagonal.

    Parameters
    ----------
    explainer
        The explainer whose model, layer, units and smoothing are used.
    inputs, target, additional_forward_args
        As in :meth:`~geh_explain.GEHExplainer.explain`.
    reference
        Rows like those of the training data; None where there are none.

    Returns
    -------
    Tensor
        In the dtype and on the device of the inputs.
    """
    first = first_tensor(inputs)
    found, n_units = row_hessians(explainer._setup, inputs, target, additional_forward_args, reference)
    i, j = np.triu_indices(n_units, 1)
    matrices = torch.zeros(len(first), n_units, n_units, dtype=first.dtype, device=first.device)
    matrices[:, i, j] = found.to(matrices)
    return matrices + matrices.mT


def as_inputs(matrices: Tensor, inputs: Any, explainer: GEHExplainer) -> Any:
    """Return matrices (N, D, D) in the form of the inputs: for a tuple the rows of each input's own features."""
    if not isinstance(inputs, tuple):
        return matrices
    if explainer._setup.units is not None:
        return (matrices,)
    return torch.split(matrices, [tensor[0].numel() for tensor in inputs], dim=1)
