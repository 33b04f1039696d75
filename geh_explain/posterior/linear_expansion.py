"""The linear expansion of a network in its weights, f(x, w0) + J(x) (w - w0)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from geh_explain._process import SafeContext, safe_contextmanager
from geh_explain.posterior.forward import replace_forward


@safe_contextmanager
def linearise(model: nn.Module, shifts: Mapping[str, Tensor]) -> Iterator[None]:
    """Replace the model by its first-order expansion around its present weights w0, evaluated at w0 + shift.

    Inside, ``model(x)`` returns f(x, w0) + J(x) shift, where J is the Jacobian of the outputs by the weights. The
    product is computed by forward-mode differentiation, without forming J. It is differentiable in x.

    Parameters
    ----------
    model
        The network.
    shifts
        Change of each parameter, by its name in ``model.named_parameters()``. Other parameters stay at w0.
    """
    original = model.forward

    def expanded(*args: Any, **kwargs: Any) -> Any:
        with SafeContext(forward_ad.dual_level()), _with_tangents(model, shifts):
            return tree_map(_primal_plus_tangent, original(*args, **kwargs))

    with replace_forward(model, expanded):
        yield


@safe_contextmanager
def _with_tangents(model: nn.Module, shifts: Mapping[str, Tensor]) -> Iterator[None]:
    """Replace parameters by dual numbers whose tangents are ``shifts``."""
    # Assigning to _parameters, and not to the module's attribute: a dual tensor is no nn.Parameter.
    replaced: list[tuple[nn.Module, str, nn.Parameter]] = []
    try:
        for name, shift in shifts.items():
            parent, _, leaf = name.rpartition(".")
            module, parameter = model.get_submodule(parent), model.get_parameter(name)
            dual = forward_ad.make_dual(parameter, shift.to(parameter))  # type: ignore[no-untyped-call]
            replaced.append((module, leaf, parameter))
            module._parameters[leaf] = dual
        yield
    finally:
        for module, leaf, parameter in replaced:
            module._parameters[leaf] = parameter


def _primal_plus_tangent(value: Any) -> Any:
    """Return the sum of a dual tensor's two parts; other values unchanged."""
    if not isinstance(value, Tensor):
        return value
    primal, tangent = forward_ad.unpack_dual(value)  # type: ignore[no-untyped-call]
    return primal if tangent is None else primal + tangent
