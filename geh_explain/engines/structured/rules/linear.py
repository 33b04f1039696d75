"""Rules for linear maps: they act on directions as on values, and add nothing to the Hessian."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

from geh_explain.engines.structured.jacobians import (
    DeferredProduct,
    DiagonalJacobian,
    Jacobian,
    UniformJacobian,
    UnitJacobian,
    scale_rows,
    to_tensor,
)
from geh_explain.engines.structured.recorder import Recorder, UnsupportedOp
from geh_explain.engines.structured.rules.calls import argument, is_in_place, only_tracked, without

#: Zeros are left out of the products of this many rows at most, with this many numbers at least in the directions of
#: each, where at most this part of the factors is not 0.
_MAX_PRODUCTS = 8
_MIN_NUMBERS = 2**16
_MAX_SHARE = 0.7


def linear_layer(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record x W^T + b: J W^T.

    A diagonal Jacobian of a vector needs no matrix product: its directions are the columns of W, times the factors.
    """
    x, weight = only_tracked(recorder, args, kwargs), argument(args, kwargs, 1, "weight")
    out: Tensor = func(*args, **kwargs)
    recorder.add_work(math.prod(out.shape[1:]) * x.shape[-1])

    def push_forward(jacobian: Jacobian) -> Tensor:
        """Return the directions after this step."""
        if isinstance(jacobian, DiagonalJacobian) and len(jacobian.shape) == 1:
            directions: Tensor = jacobian.scale.T[:, :, None] * weight.T.contiguous()[:, None]
            return directions
        if isinstance(jacobian, UnitJacobian):
            return jacobian.push_linear(weight)
        if isinstance(jacobian, DeferredProduct):
            product = _product_by_table(jacobian, weight)
            product = _product_without_zeros(jacobian, weight) if product is None else product
            if product is not None:
                return product
        directions = to_tensor(jacobian)
        if directions.stride(0) < directions.stride(1):  # rows first in memory, as _product_by_table() leaves them
            return F.linear(directions.transpose(0, 1), weight).transpose(0, 1)
        return F.linear(directions, weight)

    return recorder.add_step([x], out, push_forward)


def _product_by_table(jacobian: DeferredProduct, weight: Tensor) -> Tensor | None:
    """Return (f J) W^T for directions J that all rows share and factors f per row, without forming f J.

    The products of J and W are tabulated, (width, D * outputs), and one matrix product with f (n, width) does the rest.
    Returns None where there are too few rows for that to pay, or where J or f has another form.
    """
    base, factor = jacobian.base, jacobian.factor
    if factor is None or base.shape[1] != 1 or base.ndim != 3 or factor.shape[0] < 2 * weight.shape[0]:
        return None
    table = base[:, 0].T[:, :, None] * weight.T[:, None]
    product = factor @ table.reshape(table.shape[0], -1)
    return product.reshape(-1, *table.shape[1:]).transpose(0, 1)


def _product_without_zeros(jacobian: DeferredProduct, weight: Tensor) -> Tensor | None:
    """Return (f J) W^T by one matrix product for each row, without the entries at which its factors f are 0.

    These are the inactive units of a layer, whose kinks are away. Returns None where the products are small, there are
    many of them, or few factors are 0.
    """
    base, factor = jacobian.base, jacobian.factor
    if factor is None or base.ndim != 3 or len(factor) > _MAX_PRODUCTS or base[:, 0].numel() < _MIN_NUMBERS:
        return None
    if int(torch.count_nonzero(factor, dim=1).max()) > _MAX_SHARE * factor.shape[1]:
        return None
    found = []
    for row, factors in enumerate(factor):
        entries = factors.nonzero()[:, 0]
        directions = base[:, row if base.shape[1] > 1 else 0].index_select(1, entries) * factors[entries]
        found.append(F.linear(directions, weight.index_select(1, entries)))
    return torch.stack(found, dim=1)


def linear_by_draw(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record x W_b^T + c_b with the weights (B, C, F) of several draws: J W_b^T, where J is that of the draw's rows."""
    x, weight = only_tracked(recorder, args, kwargs), argument(args, kwargs, 1, "weight")
    out: Tensor = func(*args, **kwargs)
    recorder.add_work(math.prod(out.shape[1:]) * x.shape[-1])
    n_draws, n_rows = len(weight), len(x) // len(weight)

    def push_forward(jacobian: Jacobian) -> Tensor:
        """Return the directions after this step."""
        if isinstance(jacobian, DiagonalJacobian) and len(jacobian.shape) == 1:
            columns = weight.permute(2, 0, 1).repeat_interleave(n_rows, dim=1)
            product: Tensor = jacobian.scale.T[:, :, None] * columns
            return product
        if isinstance(jacobian, UnitJacobian):
            return torch.cat([jacobian.push_linear(part).expand(-1, n_rows, -1) for part in weight], dim=1)
        if isinstance(jacobian, DeferredProduct):
            tabulated = _product_by_tables(jacobian, weight)
            if tabulated is not None:
                return tabulated
        directions = to_tensor(jacobian)
        if directions.shape[1] == 1:
            # Directions that all rows share: one product per draw.
            expanded = directions.transpose(0, 1).expand(n_draws, *(-1 for _ in directions.shape[1:]))
            pushed: Tensor = func(expanded, weight, None)
            return pushed.transpose(0, 1).repeat_interleave(n_rows, dim=1)
        by_draw = directions.reshape(len(directions), n_draws, n_rows, *directions.shape[2:]).transpose(0, 1)
        pushed = func(by_draw.contiguous(), weight, None)
        return pushed.transpose(0, 1).reshape(len(directions), len(x), *pushed.shape[3:])

    return recorder.add_step([x], out, push_forward)


def _product_by_tables(jacobian: DeferredProduct, weight: Tensor) -> Tensor | None:
    """Return (f J) W_b^T as :func:`_product_by_table` does, with a table for each draw."""
    base, factor = jacobian.base, jacobian.factor
    if factor is None or base.shape[1] != 1 or base.ndim != 3 or factor.shape[0] < 2 * len(weight) * weight.shape[1]:
        return None
    tables = base[:, 0].T[None, :, :, None] * weight.transpose(1, 2)[:, :, None]
    product = torch.bmm(factor.reshape(len(weight), -1, factor.shape[1]), tables.flatten(2))
    return product.reshape(-1, *tables.shape[2:]).transpose(0, 1)


def convolution(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a convolution, or a transposed one: the same convolution of J, without the bias.

    Directions and rows form one batch.
    """
    x, weight = only_tracked(recorder, args, kwargs), argument(args, kwargs, 1, "weight")
    out: Tensor = func(*args, **kwargs)
    # Each output entry takes one product per kernel weight; in a transposed convolution each input entry does.
    transposed = "transpose" in func.__name__
    recorder.add_work((x if transposed else out)[0].numel() * weight[0].numel())
    options = without(kwargs, "input", "weight", "bias")
    push_forward = _over_batch(lambda j: func(j, weight, None, *args[3:], **options))
    # A kernel of one entry mixes channels only, unless it adds padding.
    pointwise = weight[0, 0].numel() == 1 and x.shape[2:] == out.shape[2:]

    def push_uniform(jacobian: Jacobian) -> Jacobian:
        if not isinstance(jacobian, UniformJacobian):
            return push_forward(jacobian)
        one_position = UniformJacobian(jacobian.base, (jacobian.shape[0], *(1 for _ in x.shape[2:])))
        return UniformJacobian(to_tensor(push_forward(one_position)).flatten(2), tuple(out.shape[1:]))

    return recorder.add_step([x], out, push_uniform if pointwise else push_forward, keeps_uniform=pointwise)


def pooling(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a linear function of each row, such as average pooling or interpolation: the same function of J."""
    x = only_tracked(recorder, args, kwargs)
    out: Tensor = func(*args, **kwargs)
    options = without(kwargs, "input")
    return recorder.add_step([x], out, _over_batch(lambda j: func(j, *args[1:], **options)))


def _over_batch(function: Callable[[Tensor], Tensor]) -> Callable[..., Jacobian]:
    """Return a function of Jacobians ``(D, n, *shape)`` that applies ``function`` to the D * n rows of a batch."""

    def push_forward(jacobian: Jacobian) -> Tensor:
        """Return the directions after this step."""
        directions = to_tensor(jacobian)
        out = function(directions.flatten(0, 1))
        return out.reshape(*directions.shape[:2], *out.shape[1:])

    return push_forward


def batch_norm(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a batch normalisation with running statistics: J weight / sqrt(variance + eps).

    Raises
    ------
    UnsupportedOp
        If it uses the statistics of the batch, which mix the rows.
    """
    x = only_tracked(recorder, args, kwargs)
    out: Tensor = func(*args, **kwargs)
    variance = argument(args, kwargs, 2, "running_var")
    if argument(args, kwargs, 5, "training", False) or variance is None:
        raise UnsupportedOp("batch statistics")
    scale = torch.rsqrt(variance + argument(args, kwargs, 7, "eps", 1e-5))
    weight = argument(args, kwargs, 3, "weight")
    scale = (scale if weight is None else scale * weight).reshape(-1, *(1 for _ in x.shape[2:]))
    return recorder.add_step([x], out, partial(scale_rows, factor=scale), keeps_uniform=True)


def reshape(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a call that keeps the entries of a row in their order, such as a view, a copy or a change of dtype."""
    x: Tensor = args[0] if args else kwargs["input"]
    out: Tensor = func(*args, **kwargs)
    if out is x or not recorder.is_tracked(x):  # not tracked: a constant, shaped by view_as(tracked tensor)
        return out
    shape = tuple(out.shape[1:])

    def push_forward(jacobian: Jacobian) -> Jacobian:
        """Return the directions after this step."""
        if isinstance(jacobian, DiagonalJacobian):
            return DiagonalJacobian(jacobian.scale.to(out.dtype), shape)
        if isinstance(jacobian, UnitJacobian) and (jacobian.shape, jacobian.scale.dtype) == (shape, out.dtype):
            return jacobian
        directions = to_tensor(jacobian)
        return directions.to(out.dtype).reshape(*directions.shape[:2], *shape)

    return recorder.add_step([x], out, push_forward)


def rearrange(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Record a linear function of one tensor with one or several results, such as indexing or a mean.

    The function is applied to each direction by ``vmap``. Rows may not be moved or mixed, which is tested by
    :func:`_check_rows_stay_apart`, as indices and dimensions come in too many forms to be read.
    """
    x = only_tracked(recorder, args, kwargs)
    out = func(*args, **kwargs)
    function = _linear_part(func, args, without(kwargs, "input"))
    _check_rows_stay_apart(function, [x])
    if isinstance(out, Tensor):
        return recorder.add_step([x], out, lambda jacobian: _over_directions(function, [to_tensor(jacobian)], x))
    for number, part in enumerate(out):
        recorder.add_step(
            [x],
            part,
            lambda jacobian, number=number: _over_directions(lambda j: function(j)[number], [to_tensor(jacobian)], x),
        )
    return out


def _linear_part(func: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]) -> Callable[[Tensor], Any]:
    """Return the function of the first argument alone, without constants that it adds: the value of a padding."""
    if func.__name__ == "pad" and argument(args, options, 2, "mode", "constant") == "constant":
        widths = argument(args, options, 1, "pad")
        return lambda x: F.pad(x, widths)
    return lambda x: func(x, *args[1:], **options)


def concatenate(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record the concatenation of several tensors; constant ones contribute directions of 0."""
    parts: list[Tensor] = list(args[0] if args else kwargs["tensors"])
    options = without(kwargs, "tensors")
    out: Tensor = func(parts, *args[1:], **options)
    tracked = [recorder.is_tracked(part) for part in parts]
    sources = [part for part, is_tracked in zip(parts, tracked, strict=True) if is_tracked]

    def function(*values: Tensor) -> Tensor:
        remaining = iter(values)
        joined = [
            next(remaining) if is_tracked else torch.zeros_like(part)
            for part, is_tracked in zip(parts, tracked, strict=True)
        ]
        result: Tensor = func(joined, *args[1:], **options)
        return result

    _check_rows_stay_apart(function, sources)
    return recorder.add_step(
        sources, out, lambda *jacobians: _over_directions(function, [to_tensor(j) for j in jacobians], *sources)
    )


def _over_directions(function: Callable[..., Tensor], jacobians: list[Tensor], *like: Tensor) -> Tensor:
    """Return a linear function of each direction, (D, n or 1, ...).

    Parameters
    ----------
    function
        Takes tensors ``(n, *shape)`` as the network does, and returns one.
    jacobians
        Directions ``(D, n or 1, *shape)`` of each of its arguments.
    like
        The arguments themselves, for their shapes.
    """
    # The function may use the number of rows, so shared directions are expanded, and cut to one row again.
    shared = all(jacobian.shape[1] == 1 for jacobian in jacobians)
    directions = [jacobian.expand(-1, len(x), *x.shape[1:]) for jacobian, x in zip(jacobians, like, strict=True)]
    out: Tensor = torch.func.vmap(function)(*directions)
    return out[:, :1] if shared else out


def _check_rows_stay_apart(function: Callable[..., Any], sources: list[Tensor]) -> None:
    """Refuse a linear function whose rows depend on other rows, by trying it.

    If row k of the result depends on row k of the input only, then ones times k in row k become the result for ones,
    times k in row k.

    Raises
    ------
    UnsupportedOp
        If that is not so.
    """
    with torch.no_grad():
        ones = [torch.ones_like(x) for x in sources]
        number = torch.arange(1.0, len(ones[0]) + 1, device=ones[0].device, dtype=ones[0].dtype)
        numbered = [number.reshape(-1, *(1 for _ in x.shape[1:])) * x for x in ones]
        for plain, marked in zip(tree_leaves(function(*ones)), tree_leaves(function(*numbered)), strict=True):
            if plain.ndim == 0 or len(plain) != len(number):
                raise UnsupportedOp("a call that moves or mixes the rows")
            if not torch.allclose(marked, plain * number.reshape(-1, *(1 for _ in plain.shape[1:]))):
                raise UnsupportedOp("a call that moves or mixes the rows")


def dropout(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record dropout as a product with its mask: J mask.

    The mask is that of the draw, as posteriors intercept dropout; a mask that all rows share keeps directions shared.
    """
    x = only_tracked(recorder, args, kwargs)
    options = without(kwargs, "input", "inplace")
    # Dropout of ones is the mask, with its factor 1 / (1 - p).
    ones = torch.ones_like(x)
    mask = func(ones, *args[1:], **options).detach()
    is_off = mask.data_ptr() == ones.data_ptr()
    if is_off and not is_in_place(func, kwargs):
        return x
    return times(recorder, x, mask, is_in_place(func, kwargs))


def times(recorder: Recorder, x: Tensor, factor: float | Tensor, in_place: bool) -> Tensor:
    """Record x * factor with a factor that does not depend on the units: J factor.

    The factor is a number or a tensor that broadcasts to x, such as a dropout mask.
    """
    out = x.mul_(factor) if in_place else x * factor
    if out.ndim != x.ndim:
        raise UnsupportedOp("a product that adds dimensions")
    return recorder.add_step([x], out, partial(scale_rows, factor=factor))


def where(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a choice by a condition, which is constant almost everywhere: J_a where it holds, J_b elsewhere.

    Jumps and kinks at the edge of the condition have no second derivative; they are not smoothed.
    """
    condition, a = argument(args, kwargs, 0, "condition"), argument(args, kwargs, 1, "input")
    b = argument(args, kwargs, 2, "other")
    if isinstance(a, Tensor) and a.dtype == torch.bool:  # x.where(condition, other)
        condition, a = a, condition
    out: Tensor = func(*args, **kwargs)
    parts = [(x, mask) for x, mask in ((a, condition), (b, ~condition)) if recorder.is_tracked(x)]
    if any(x.ndim != out.ndim for x, _ in parts) or condition.ndim != out.ndim:
        raise UnsupportedOp("a choice that adds dimensions")

    def push_forward(*jacobians: Jacobian) -> Tensor:
        """Return the directions after this step."""
        masked = [torch.where(mask, to_tensor(j), 0.0) for j, (_, mask) in zip(jacobians, parts, strict=True)]
        return masked[0] if len(masked) == 1 else masked[0] + masked[1]

    return recorder.add_step([x for x, _ in parts], out, push_forward)
