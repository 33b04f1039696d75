"""The head of a network: the last linear layer, whose output is the model's output or a simple function of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.layers import find_layer
from geh_explain.model.preserve import CallableModel
from geh_explain.model.view import forward_hook
from geh_explain.posterior.by_draw import LayerDraws

#: Kinds of layers that can be a head. A convolution counts where its kernel and its output have one position.
_LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
#: Functions that a model may apply to the logits of its head.
_LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda z: z,
    "softmax": lambda z: z.softmax(1),
    "log_softmax": lambda z: z.log_softmax(1),
    "sigmoid": torch.sigmoid,
}
#: Rounding of outputs that are compared, as a part of their largest value.
_ROUNDING = 1e-4
#: Rounding of products that may be computed in TensorFloat-32.
_PRODUCT_ROUNDING = 2e-3
#: Number of layers that an error message names.
_MAX_NAMED = 6


@dataclass(frozen=True)
class Head:
    """A linear layer z = W h + b with C outputs and F features h, and how the model's output depends on z.

    Attributes
    ----------
    name
        Dotted name of the layer.
    weight
        Its weights (C, F) in double precision on the CPU, with the bias as a last column if it has one.
    has_bias
        Whether the last column is a bias.
    link
        ``"identity"``: the output is ``slope`` * z plus a function of the inputs that does not depend on W and b. Else
        the function of z that the model returns: ``"softmax"``, ``"log_softmax"`` or ``"sigmoid"``.
    slope
        Factor (C,) of the identity link.
    is_direct
        Whether the output is the link of z itself, without other factors or terms.
    """

    name: str
    weight: Tensor
    has_bias: bool
    link: str
    slope: Tensor
    is_direct: bool

    @property
    def shrunk(self) -> Tensor:
        """The distance (C, F) of the trained weights from the mean of their prior, which is 0, or the trained bias."""
        if not self.has_bias:
            return self.weight
        return torch.cat([self.weight[:, :-1], torch.zeros_like(self.weight[:, -1:])], dim=1)

    def features(self, x: Tensor) -> Tensor:
        """Return the layer's input as features (n, F) in double precision, with a last column of ones for the bias."""
        flat = x.detach().flatten(1).double().cpu()
        return torch.cat([flat, flat.new_ones(len(flat), 1)], dim=1) if self.has_bias else flat

    def layer_draws(self, weights: Tensor) -> dict[str, LayerDraws]:
        """Return weights (B, C, F) of several draws in the form of ``replace_layers``."""
        return {_path(self.name): (weights[..., :-1], weights[..., -1]) if self.has_bias else (weights, None)}


@dataclass
class _Call:
    """What a linear layer was given and returned in one forward pass, and how often it was called."""

    x: Tensor
    z: Tensor
    count: int = 1


def find_head(model: nn.Module, layer: str | nn.Module | None, call: Callable[[], Tensor]) -> Head:
    """Return the head of a model.

    Parameters
    ----------
    model
        The network, in eval mode.
    layer
        Name or module of the head; None finds the linear layer whose output is the model's output.
    call
        Runs the model on two rows at least, and returns its output (n, ...).

    Raises
    ------
    GEHValueError, GEHTypeError
        If there is no such layer, or its weights cannot be drawn. The message names the linear layers.
    """
    if isinstance(model, CallableModel):
        raise GEHTypeError(
            "LastLayerLaplace: model is a plain callable, whose layers are not known; pass the module itself."
        )
    chosen = None if layer is None else find_layer(model, layer)
    if chosen is not None and (not isinstance(chosen.module, _LINEAR) or not _is_pointwise(chosen.module)):
        raise GEHTypeError(
            f"LastLayerLaplace: layer={chosen.name!r} is a {type(chosen.module).__name__}; the head must be an "
            f"nn.Linear or a 1 x 1 convolution: {_list_candidates(model)}."
        )
    calls, output = _record_calls(model, call)
    names = list(calls) if chosen is None else [chosen.name]
    if chosen is not None and chosen.name not in calls:
        raise GEHValueError(
            f"LastLayerLaplace: layer={chosen.name!r} is not called in the model's forward pass; take one of "
            f"{_list_candidates(model)}."
        )
    fitting = [name for name in reversed(names) if calls[name].z[0].numel() == output[0].numel()]
    for name in fitting:
        for link, function in _LINKS.items():
            if _close(function(calls[name].z.flatten(1)), by_row(output)):
                return _make_head(model, name, calls[name], link, None)
    slopes = {name: _slope(model.get_submodule(_path(name)), calls[name].z, call, output) for name in fitting}
    affine = {name: slope for name, slope in slopes.items() if slope is not None}
    if len(affine) == 1:
        ((name, slope),) = affine.items()
        return _make_head(model, name, calls[name], "identity", slope)
    raise GEHValueError(_no_head(model, chosen is not None, names, list(affine), output))


def by_row(output: Tensor) -> Tensor:
    """Return outputs (n, ...) or (n,) as a matrix (n, C)."""
    return output.reshape(len(output), -1)


def check_link(head: Head, module: nn.Module, z: Tensor, output: Tensor, call: Callable[[], Tensor]) -> None:
    """Raise if the output of these rows is another function of z than that of the rows on which the head was found.

    Rows of a ReLU or of a clamp, say, may be on one side of its kink.

    Parameters
    ----------
    head, module
        The head, and its module.
    z, output
        Outputs of the head and of the model, in the same rows.
    call
        Runs the model on these rows.
    """
    if head.is_direct:
        agrees = _close(_LINKS[head.link](z.flatten(1)), by_row(output))
    else:
        agrees = _fits_slope(head.slope, *_moves(module, z, call, output))
    if not agrees:
        what = "itself" if head.link == "identity" else f"its {head.link}"
        raise GEHValueError(
            f"LastLayerLaplace: the output of the model is that of layer {head.name!r} ({what}) in the first rows, but "
            "not in others, as behind a ReLU or a clamp; pass a model that returns the output of its last linear layer."
        )


def _path(name: str) -> str:
    """Return the dotted name as ``get_submodule`` takes it: empty for the model itself."""
    return "" if name == "(model)" else name


def _is_pointwise(module: nn.Module) -> bool:
    """Return whether a linear layer maps the features of one position to its outputs."""
    if not isinstance(module, nn.modules.conv._ConvNd):
        return True
    return all(size == 1 for size in (*module.kernel_size, *module.stride)) and module.groups == 1


@torch.no_grad()
def _record_calls(model: nn.Module, call: Callable[[], Tensor]) -> tuple[dict[str, _Call], Tensor]:
    """Run the model; return the calls of its linear layers by name, in the order of their last call, and its output."""
    calls: dict[str, _Call] = {}
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, _LINEAR) and _is_pointwise(module):

            def note(module: nn.Module, args: Any, out: Tensor, name: str = name or "(model)") -> None:
                before = calls.pop(name, None)
                calls[name] = _Call(args[0].detach().clone(), out.detach().clone(), 1 if before is None else 2)

            handles.append(module.register_forward_hook(note))
    try:
        output = call()
    finally:
        for handle in handles:
            handle.remove()
    return calls, output


def _close(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal up to rounding."""
    return one.shape == other.shape and bool(((one - other).abs() <= _ROUNDING * other.abs().max()).all())


@torch.no_grad()
def _moves(module: nn.Module, z: Tensor, call: Callable[[], Tensor], output: Tensor) -> tuple[Tensor, Tensor, float]:
    """Shift the layer's output z by random numbers.

    Returns
    -------
    tuple
        How far the model's output moved (n, C), the shifts (n, C), and the rounding errors of the former.
    """
    generator = torch.Generator().manual_seed(0)
    shift = torch.randn(z.shape, generator=generator).to(z)
    with forward_hook(module, lambda module, args, out: out + shift):
        moved = by_row(call()).double() - by_row(output).double()
    rounding = 4 * torch.finfo(output.dtype).eps * float(output.abs().max())
    return moved.cpu(), shift.flatten(1).double().cpu(), rounding


def _slope(module: nn.Module, z: Tensor, call: Callable[[], Tensor], output: Tensor) -> Tensor | None:
    """Return the factor (C,) of the layer's output z in the model's output; None if that is no constant."""
    moved, shift, rounding = _moves(module, z, call, output)
    slope = (moved * shift).sum(0) / shift.square().sum(0)
    return slope if _fits_slope(slope, moved, shift, rounding) and slope.all() else None


def _fits_slope(slope: Tensor, moved: Tensor, shift: Tensor, rounding: float) -> bool:
    """Return whether outputs moved (n, C) by ``slope`` (C,) times the shift (n, C) in all rows."""
    return bool(((moved - slope * shift).abs() <= _ROUNDING * moved.abs().max() + rounding).all())


def _make_head(model: nn.Module, name: str, recorded: _Call, link: str, slope: Tensor | None) -> Head:
    """Return a head, unless it is called several times, at several positions, or has weights that cannot be drawn.

    ``slope`` is None where the output is the link of z itself.
    """
    module: Any = model.get_submodule(_path(name))
    weight, bias = module.weight, module.bias
    if recorded.count > 1:
        raise GEHValueError(
            f"LastLayerLaplace: layer {name!r} is called several times in a forward pass; a head must be called once."
        )
    if recorded.z[0].numel() != len(weight):
        raise GEHValueError(
            f"LastLayerLaplace: layer {name!r} returns {tuple(recorded.z.shape[1:])} per row, predictions at several "
            f"positions; it must return {len(weight)} numbers per row."
        )
    if not weight.is_floating_point():
        raise GEHTypeError(
            f"LastLayerLaplace: the weights of layer {name!r} are {weight.dtype}, which has no Gaussian distribution; "
            "pass the network from before it was quantised."
        )
    matrix = weight.detach().flatten(1).double().cpu()
    if bias is not None:
        matrix = torch.cat([matrix, bias.detach().double().cpu()[:, None]], dim=1)
    factors = torch.ones(len(matrix)) if slope is None else slope
    head = Head(name, matrix, bias is not None, link, factors.double(), slope is None)
    _check_product(head, module, recorded)
    return head


def _check_product(head: Head, module: nn.Module, recorded: _Call) -> None:
    """Raise if the layer returns something else than W h + b: draws of W and b would leave that out."""
    features, z = head.features(recorded.x), recorded.z.flatten(1).double().cpu()
    # Rounding is that of the terms of the sum, in half precision several times.
    rounding = max(_PRODUCT_ROUNDING, 8 * torch.finfo(recorded.z.dtype).eps)
    allowed = rounding * (features.abs() @ head.weight.abs().T).max()
    if bool(((features @ head.weight.T - z).abs() > allowed).any()):
        raise GEHTypeError(
            f"LastLayerLaplace: layer {head.name!r}, a {type(module).__name__}, does not return its weights times its "
            "inputs plus its bias, as layers with adapters (LoRA), hooks or a forward of their own do; merge the "
            "adapter into the weights, or pass another posterior, such as SWAG or WeightSamples."
        )


def _list_candidates(model: nn.Module) -> str:
    """Return the names of the linear layers, the last ones first, for messages."""
    names = [name or "(model)" for name, module in model.named_modules() if isinstance(module, _LINEAR)][::-1]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(map(repr, names[:_MAX_NAMED])) + more if names else "the model has none"


def _no_head(model: nn.Module, chosen: bool, names: list[str], affine: list[str], output: Tensor) -> str:
    """Return the error message for a model without a head, or with several."""
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        return (
            "LastLayerLaplace: the model is scripted or frozen, so that its layers and weights cannot be replaced; "
            "pass the module from before torch.jit.script, trace or freeze."
        )
    if len(affine) > 1:
        return (
            f"LastLayerLaplace: the output is the sum of several linear layers, {', '.join(map(repr, affine))}; pass "
            "layer= to choose one."
        )
    what = f"the model's output, {tuple(output.shape[1:])} per row, is not the output of"
    if chosen:
        return (
            f"LastLayerLaplace: {what} layer={names[0]!r} times constants, nor its softmax or sigmoid; pass a model "
            "that returns the output of its last linear layer."
        )
    return (
        f"LastLayerLaplace: {what} a linear layer, nor its softmax or sigmoid. Linear layers, the last ones first: "
        f"{_list_candidates(model)}. Pass a model that returns the output of its last linear layer, or another "
        "posterior, such as SWAG or WeightSamples."
    )
