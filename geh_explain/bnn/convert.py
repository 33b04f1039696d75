"""Conversion of a network with plain dropout into one with concrete dropout."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

from geh_explain.bnn.concrete import ConcreteDropout
from geh_explain.bnn.layers import LinearMap
from geh_explain.data.reader import Reader
from geh_explain.errors import GEHRuntimeError, GEHTypeError
from geh_explain.model.preserve import device_and_dtype, preserved

#: Initial rates are kept this far from 0 and 1, where the logit of a rate is infinite and has no gradient.
_RATE_MARGIN = 0.01


def to_concrete(model: nn.Module, example: Any, per: str = "node", **options: Any) -> nn.Module:
    """Return a copy of a network in eval mode whose plain dropout is replaced by concrete dropout.

    Every dropout module becomes the identity, and all linear layers and convolutions that it feeds are wrapped in
    :class:`ConcreteDropout`. The weights are the same, so the outputs in eval mode are the same. Reshaping between
    dropout and layer is allowed (``flatten``, ``view``, ``transpose``); an activation is not.

    Parameters
    ----------
    model
        A network with modules such as ``nn.Dropout`` or ``nn.Dropout2d``. It is not changed.
    example
        Any input of the network, a few rows are enough. One forward pass finds which layer each dropout feeds.
    per
        ``"node"`` for one rate per input node, ``"layer"`` for one common rate.
    **options
        Further arguments of :class:`ConcreteDropout`. The rates start from each module's own ``p`` by default.

    Raises
    ------
    GEHTypeError
        If ``model`` is not a module.
    GEHRuntimeError
        If no dropout module is reached, or one of them feeds something else than a linear layer or convolution.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
    >>> bayesian = geh.bnn.to_concrete(net, torch.randn(2, 4))
    >>> x = torch.ones(1, 4)
    >>> round(float(bayesian[3].rates[0]), 3), torch.equal(bayesian(x), net.eval()(x))
    (0.2, True)
    """
    if not isinstance(model, nn.Module):
        raise GEHTypeError(f"model={model!r} is not a torch.nn.Module; pass a network.")
    converted = copy.deepcopy(model).eval()
    calls = _dropout_calls(converted, example)
    if not calls:
        raise GEHRuntimeError("model: no dropout module was reached; wrap its layers in ConcreteDropout yourself.")
    # A module that is shared has several names, and is replaced under each of them.
    names = list(converted.named_modules(remove_duplicate=False))
    replacements: dict[nn.Module, nn.Module] = {}
    for call in calls:
        if not call.layers:
            name = next(name for name, module in names if module is call.dropout)
            raise GEHRuntimeError(
                f"model: the dropout {name!r} does not lead straight into a linear layer or convolution, so it has no "
                "weights to learn its rate with; replace it yourself, or leave it out."
            )
        rate = min(max(call.dropout.p, _RATE_MARGIN), 1 - _RATE_MARGIN)
        for layer in call.layers:
            if layer not in replacements:
                replacements[layer] = ConcreteDropout(layer, per, **{"p": rate, **options})
        replacements[call.dropout] = nn.Identity()
    for name, module in names:
        if module in replacements:
            converted.set_submodule(name, replacements[module])
    return converted.eval()


@dataclass
class _DropoutCall:
    """One call of a dropout module, which may be shared, and the linear maps that its output feeds."""

    dropout: _DropoutNd
    #: Kept alive, so that no other tensor gets its address.
    out: Tensor
    layers: list[LinearMap]


def _dropout_calls(model: nn.Module, example: Any) -> list[_DropoutCall]:
    """Return the calls of dropout modules in one forward pass.

    A dropout and the layer it feeds share memory: views of a tensor have the storage of their base, and any
    computation between them makes a new one.
    """
    calls: dict[int, _DropoutCall] = {}

    def mark_output(module: _DropoutNd, args: tuple[Any, ...], out: Tensor) -> Tensor:
        """Note the output of a dropout module, by its storage."""
        out = out.clone()  # in eval mode dropout returns its input; a clone has a storage of its own
        calls[out.untyped_storage().data_ptr()] = _DropoutCall(module, out, [])
        return out

    def match_input(module: LinearMap, args: tuple[Any, ...]) -> None:
        """Note a layer whose input is the output of a dropout module."""
        if args and isinstance(args[0], Tensor):
            call = calls.get(args[0].untyped_storage().data_ptr())
            if call is not None:
                call.layers.append(module)

    # The model is a copy of the user's, and preserved() removes the hooks in any case.
    with preserved(model), torch.no_grad():
        for module in model.modules():
            if isinstance(module, _DropoutNd):
                module.register_forward_hook(mark_output)
            elif isinstance(module, (nn.Linear, _ConvNd)):
                module.register_forward_pre_hook(match_input)
        device, dtype = device_and_dtype(model)
        rows = Reader(floating_only=False, device=device, dtype=dtype).read(example).first
        model(*rows.inputs)
    return list(calls.values())
