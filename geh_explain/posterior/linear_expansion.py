"""Networks that are linear in their weights: f(x) + J(x) (w - w0), for draws that would leave the data behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.utils._pytree import tree_map


@contextmanager
def linearised(model: nn.Module, shifts: Mapping[str, Tensor]) -> Iterator[None]:
    """Let the model answer as its linear expansion around its weights, moved by ``shifts``, for a while."""
    own_forward = vars(model).get("forward")
    forward = model.forward

    def expanded(*args: Any, **kwargs: Any) -> Any:
        with forward_ad.dual_level(), _moving(model, shifts):
            return tree_map(_sum, forward(*args, **kwargs))

    model.forward = expanded
    try:
        yield
    finally:
        del model.forward
        if own_forward is not None:
            model.forward = own_forward


@contextmanager
def _moving(model: nn.Module, shifts: Mapping[str, Tensor]) -> Iterator[None]:
    """Let some parameters carry a direction through the forward pass."""
    places = []
    for name in shifts:
        parent, _, leaf = name.rpartition(".")
        places.append((model.get_submodule(parent), leaf, name))
    saved = [(module, leaf, module._parameters[leaf]) for module, leaf, _ in places]
    try:
        for module, leaf, name in places:
            parameter = module._parameters[leaf]
            assert parameter is not None
            dual = forward_ad.make_dual(parameter, shifts[name].to(parameter))  # type: ignore[no-untyped-call]
            module._parameters[leaf] = dual
        yield
    finally:
        for module, leaf, parameter in saved:
            module._parameters[leaf] = parameter


def _sum(value: Any) -> Any:
    """Return the value plus its change along the direction."""
    if not isinstance(value, Tensor):
        return value
    primal, tangent = forward_ad.unpack_dual(value)  # type: ignore[no-untyped-call]
    return primal if tangent is None else primal + tangent
