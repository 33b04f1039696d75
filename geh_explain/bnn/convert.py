"""Concrete dropout for a network that has plain dropout."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

from geh_explain.bnn.concrete import ConcreteDropout
from geh_explain.data.reader import Reader
from geh_explain.errors import GEHRuntimeError, GEHTypeError
from geh_explain.model.borrow import borrow, device_and_dtype


def to_concrete(model: nn.Module, example: Any, per: str = "node", **options: Any) -> nn.Module:
    """Return a copy of a network, in eval mode, in which learned dropout stands for the plain one.

    The weights are the same. Each dropout module must feed a linear layer or convolution, whose input nodes are then
    dropped; functions that only reshape may stand between. ``example`` is some input, to see where the dropout leads.
    Other ``options`` are those of :class:`ConcreteDropout`; rates start from the module's own.

    >>> import torch, geh_explain as geh
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
    >>> bayesian = geh.bnn.to_concrete(net, torch.randn(2, 4))
    >>> x = torch.ones(1, 4)
    >>> round(float(bayesian[3].rates[0]), 3), torch.equal(bayesian(x), net.eval()(x))
    (0.2, True)
    """
    if not isinstance(model, nn.Module):
        raise GEHTypeError(f"model={model!r} is no torch.nn.Module.")
    found = copy.deepcopy(model).eval()
    leads = _followers(found, example)
    if not leads:
        raise GEHRuntimeError("model: no dropout module was reached; wrap its layers in ConcreteDropout yourself.")
    names = {module: name for name, module in found.named_modules()}
    for drop, layer in leads.items():
        if layer is None:
            raise GEHRuntimeError(
                f"model: the dropout {names[drop]!r} does not lead straight into a linear layer or convolution, so it "
                "has no weights to learn its rate with; replace it yourself, or leave it out."
            )
    for drop, layer in leads.items():
        assert isinstance(layer, (nn.Linear, _ConvNd))
        assert isinstance(drop, _DropoutNd)
        found.set_submodule(names[layer], ConcreteDropout(layer, per, **{"p": min(max(drop.p, 0.01), 0.99), **options}))
        found.set_submodule(names[drop], nn.Identity())
    return found.eval()


def _followers(model: nn.Module, example: Any) -> dict[nn.Module, nn.Module | None]:
    """Return the layer that each dropout module leads into, None where it is no linear map, found by a forward."""
    followers: dict[nn.Module, nn.Module | None] = {}
    carried: dict[int, nn.Module] = {}
    alive: list[Tensor] = []

    def leave(module: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
        out = out.clone()  # memory of its own, which views of it share
        alive.append(out)
        carried[out.untyped_storage().data_ptr()] = module
        followers.setdefault(module, None)
        return out

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        drop = carried.get(args[0].untyped_storage().data_ptr()) if args and isinstance(args[0], Tensor) else None
        if drop is not None:
            followers[drop] = module

    handles = [
        module.register_forward_hook(leave)
        if isinstance(module, _DropoutNd)
        else module.register_forward_pre_hook(enter)
        for module in model.modules()
        if isinstance(module, (_DropoutNd, nn.Linear, _ConvNd))
    ]
    device, dtype = device_and_dtype(model)
    rows = Reader(floating_only=False, device=device, dtype=dtype).read(example).first
    try:
        with borrow(model), torch.no_grad():
            model(*rows.inputs)
    finally:
        for handle in handles:
            handle.remove()
    return followers
