"""The table of rules: which rule handles which torch function.

To support another function, add its ``__name__`` in torch, without underscores around it, to ``_RULES``: that of
``F.logsigmoid`` is ``log_sigmoid``. In-place forms
(``add_``) and operators (``__add__``) share the entry of the plain name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from geh_explain.engines.structured.recorder import Recorder, Rule, UnsupportedOp
from geh_explain.engines.structured.rules.arithmetic import add, divide, multiply, negative
from geh_explain.engines.structured.rules.calls import argument, is_in_place, only_tracked
from geh_explain.engines.structured.rules.curved import elementwise, max_pool, softmax
from geh_explain.engines.structured.rules.linear import (
    batch_norm,
    concatenate,
    convolution,
    dropout,
    linear_by_draw,
    linear_layer,
    pooling,
    rearrange,
    reshape,
    where,
)


def apply_rule(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Execute one torch call by the rule of its function, which records it; calls on constants are executed only.

    Raises
    ------
    UnsupportedOp
        If the call depends on the units, returns floating-point numbers, and has no rule.
    """
    if not recorder.check_followed((args, kwargs)):
        return recorder.executor.handle(func, args, kwargs)
    if not torch.is_grad_enabled():
        return _without_gradients(recorder, func, args, kwargs)
    # __add__, add_ and add share one rule.
    name = getattr(func, "__name__", "").strip("_")
    rule = _RULES.get(name)
    if rule is not None:
        return rule(recorder, func, args, kwargs)
    out = recorder.executor.handle(func, args, kwargs)
    # Shapes, sizes and comparisons have no derivative.
    if any(_has_derivative(value) for value in tree_leaves(out)):
        raise UnsupportedOp(f"{name}()")
    return out


def _has_derivative(value: Any) -> bool:
    """Return whether a value is a tensor of real or complex numbers."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _without_gradients(
    recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Execute a call under torch.no_grad(), whose result is a constant for autograd; changes in place are refused."""
    if is_in_place(func, kwargs):
        raise UnsupportedOp("a tensor that is changed in place under torch.no_grad()")
    recorder.note_detached()
    return recorder.executor.handle(func, args, kwargs)


def _layer_norm(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a layer normalisation by its parts: c = x - mean(x), then c / sqrt(mean(c^2) + eps) weight + bias.

    Each part has a rule, so that no second derivative of the whole is needed.
    """
    x = only_tracked(recorder, args, kwargs)
    shape, weight = argument(args, kwargs, 1, "normalized_shape"), argument(args, kwargs, 2, "weight")
    bias, eps = argument(args, kwargs, 3, "bias"), argument(args, kwargs, 4, "eps", 1e-5)
    dims = tuple(range(-len(shape), 0))

    def call(function: Callable[..., Tensor], *values: Any, **options: Any) -> Tensor:
        result: Tensor = apply_rule(recorder, function, values, options)
        return result

    centred = call(torch.sub, x, call(torch.mean, x, dims, keepdim=True))
    variance = call(torch.mean, call(torch.square, centred), dims, keepdim=True)
    out = call(torch.mul, centred, call(torch.rsqrt, call(torch.add, variance, eps)))
    out = out if weight is None else call(torch.mul, out, weight)
    return out if bias is None else call(torch.add, out, bias)


def _constant(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Execute a call whose result does not depend on the units, such as ``detach`` or ``zeros_like``.

    Its result is not tracked, so that it is a constant for all further calls.
    """
    if func.__name__ == "detach":
        recorder.note_detached()
    return func(*args, **kwargs)


def _refuse(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Refuse a call that returns no tensor but changes derivatives, such as a hook on a gradient."""
    raise UnsupportedOp(f"{func.__name__}()")


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    """Return table entries with one rule for several names, separated by spaces."""
    return dict.fromkeys(names.split(), rule)


_RULES: dict[str, Rule] = {
    "linear": linear_layer,
    "linear_by_draw": linear_by_draw,
    **_named(convolution, "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"),
    **_named(pooling, "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"),
    **_named(pooling, "interpolate pixel_shuffle pixel_unshuffle"),
    "batch_norm": batch_norm,
    **_named(dropout, "dropout dropout1d dropout2d dropout3d feature_dropout"),
    **_named(reshape, "view reshape flatten squeeze unsqueeze unflatten view_as reshape_as contiguous clone"),
    **_named(reshape, "to float double type_as type positive"),
    **_named(rearrange, "getitem permute transpose swapaxes movedim narrow select index_select chunk split"),
    **_named(rearrange, "tensor_split unbind flip roll pad mean sum"),
    **_named(concatenate, "cat concat concatenate stack"),
    **_named(add, "add radd iadd sub subtract rsub isub"),
    **_named(multiply, "mul multiply rmul imul"),
    **_named(divide, "div divide true_divide truediv rdiv idiv"),
    **_named(negative, "neg negative"),
    **_named(elementwise, "tanh sigmoid softplus gelu silu mish log_sigmoid softsign tanhshrink"),
    **_named(elementwise, "exp exp2 expm1 log log1p log2 log10 sin cos tan atan asinh sinh cosh erf"),
    **_named(elementwise, "sqrt rsqrt square pow reciprocal abs absolute clamp clip clamp_min clamp_max"),
    **_named(elementwise, "relu relu6 hardtanh leaky_relu prelu rrelu elu celu selu threshold"),
    **_named(elementwise, "hardsigmoid hardswish hardshrink softshrink"),
    **_named(softmax, "softmax log_softmax"),
    **_named(max_pool, "max_pool1d max_pool2d max_pool3d"),
    "layer_norm": _layer_norm,
    "where": where,
    "register_hook": _refuse,
    **_named(_constant, "detach new_zeros new_ones new_full new_empty new_tensor zeros_like ones_like full_like"),
}
