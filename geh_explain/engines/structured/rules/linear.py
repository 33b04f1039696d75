"""Linear maps: they carry directions on as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

from geh_explain.engines.structured.program import Jacobian, Recorder, Scaled, UnsupportedOp, Weighted, full, shared
from geh_explain.engines.structured.rules.calls import argument, in_place, only


def linear(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a linear layer."""
    x, weight = only(recorder, args, kwargs), argument(args, kwargs, 1, "weight")
    out: Tensor = func(*args, **kwargs)
    recorder.work += math.prod(out.shape[1:]) * x.shape[-1]

    def move(jacobian: Jacobian) -> Tensor:
        if isinstance(jacobian, Scaled) and len(jacobian.shape) == 1:
            moved: Tensor = jacobian.scale.T[:, :, None] * weight.T.contiguous()[:, None]
            return moved
        if isinstance(jacobian, Weighted):
            quick = _product_of_shared(jacobian, weight)
            if quick is not None:
                return quick
        directions = full(jacobian)
        if directions.stride(0) < directions.stride(1):  # rows first, as that product leaves them
            return F.linear(directions.transpose(0, 1), weight).transpose(0, 1)
        return F.linear(directions, weight)

    return recorder.note([x], out, move)


def _product_of_shared(jacobian: Weighted, weight: Tensor) -> Tensor | None:
    """Take directions that rows share but for their factors through a linear map, without multiplying them out.

    The map's products with the directions are tabled, which pays where rows are many (None where they are not).
    """
    base, factor = jacobian.base, jacobian.factor
    if factor is None or base.shape[1] != 1 or base.ndim != 3 or factor.shape[0] < 2 * weight.shape[0]:
        return None
    table = base[:, 0].T[:, :, None] * weight.T[:, None]
    moved = factor @ table.reshape(table.shape[0], -1)
    return moved.reshape(-1, *table.shape[1:]).transpose(0, 1)


def convolution(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a convolution, or a transposed one."""
    x, weight = only(recorder, args, kwargs), argument(args, kwargs, 1, "weight")
    out: Tensor = func(*args, **kwargs)
    transposed = "transpose" in func.__name__
    recorder.work += (x if transposed else out)[0].numel() * weight[0].numel()
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "weight", "bias")}
    return recorder.note([x], out, _batched(lambda j: func(j, weight, None, *args[3:], **rest)))


def pooling(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a function that is linear, and takes the rows one by one."""
    x = only(recorder, args, kwargs)
    out: Tensor = func(*args, **kwargs)
    rest = {key: value for key, value in kwargs.items() if key != "input"}
    return recorder.note([x], out, _batched(lambda j: func(j, *args[1:], **rest)))


def _batched(function: Callable[[Tensor], Tensor]) -> Callable[..., Jacobian]:
    """Let directions be rows of a batch."""

    def move(jacobian: Jacobian) -> Tensor:
        value = full(jacobian)
        out = function(value.flatten(0, 1))
        return out.reshape(*value.shape[:2], *out.shape[1:])

    return move


def batch_norm(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a normalisation with running statistics."""
    x = only(recorder, args, kwargs)
    out: Tensor = func(*args, **kwargs)
    variance = argument(args, kwargs, 2, "running_var")
    if argument(args, kwargs, 5, "training", False) or variance is None:
        raise UnsupportedOp("batch statistics")
    scale = torch.rsqrt(variance + argument(args, kwargs, 7, "eps", 1e-5))
    weight = argument(args, kwargs, 3, "weight")
    scale = (scale if weight is None else scale * weight).reshape(-1, *(1 for _ in x.shape[2:]))
    return recorder.note([x], out, partial(multiplied, factor=scale))


def reshaped(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a call that leaves the numbers of a row in their order."""
    x: Tensor = args[0] if args else kwargs["input"]
    out: Tensor = func(*args, **kwargs)
    if out is x or recorder.slot(x) is None:  # a constant made like something that is followed
        return out
    shape = tuple(out.shape[1:])

    def move(jacobian: Jacobian) -> Jacobian:
        if isinstance(jacobian, Scaled):
            return Scaled(jacobian.scale.to(out.dtype), shape)
        directions = full(jacobian)
        return directions.to(out.dtype).reshape(*directions.shape[:2], *shape)

    return recorder.note([x], out, move)


def rearranged(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Follow a linear function of one tensor that may put out several, such as indexing or a mean."""
    x = only(recorder, args, kwargs)
    out = func(*args, **kwargs)
    rest = {key: value for key, value in kwargs.items() if key != "input"}
    function = _homogeneous(func, args, rest)
    _check_rows(function, [x])
    if isinstance(out, Tensor):
        return recorder.note([x], out, lambda jacobian: _mapped(function, [full(jacobian)], x))
    for number, part in enumerate(out):
        recorder.note(
            [x], part, lambda jacobian, number=number: _mapped(lambda j: function(j)[number], [full(jacobian)], x)
        )
    return out


def _homogeneous(func: Callable[..., Any], args: Sequence[Any], rest: dict[str, Any]) -> Callable[[Tensor], Any]:
    """Return the function of the first argument alone, without what it adds by itself."""
    if func.__name__ == "pad" and argument(args, rest, 2, "mode", "constant") == "constant":
        widths = argument(args, rest, 1, "pad")
        return lambda x: F.pad(x, widths)
    return lambda x: func(x, *args[1:], **rest)


def joined(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow the concatenation of several tensors, some of which may be constant."""
    parts: list[Tensor] = list(args[0] if args else kwargs["tensors"])
    rest = {key: value for key, value in kwargs.items() if key != "tensors"}
    out: Tensor = func(parts, *args[1:], **rest)
    sources = [part for part in parts if recorder.slot(part) is not None]
    followed = [recorder.slot(part) is not None for part in parts]

    def function(*values: Tensor) -> Tensor:
        given = iter(values)
        joined = [next(given) if known else torch.zeros_like(part) for part, known in zip(parts, followed, strict=True)]
        result: Tensor = func(joined, *args[1:], **rest)
        return result

    _check_rows(function, sources)
    return recorder.note(sources, out, lambda *jacobians: _mapped(function, [full(j) for j in jacobians], *sources))


def _mapped(function: Callable[..., Tensor], jacobians: list[Tensor], *like: Tensor) -> Tensor:
    """Apply a linear function to every direction."""
    shared = all(jacobian.shape[1] == 1 for jacobian in jacobians)
    given = [jacobian.expand(-1, len(x), *x.shape[1:]) for jacobian, x in zip(jacobians, like, strict=True)]
    out: Tensor = torch.func.vmap(function)(*given)
    return out[:, :1] if shared else out


def _check_rows(function: Callable[..., Any], sources: list[Tensor]) -> None:
    """Refuse a linear function whose rows depend on other rows than their own, by trying it."""
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
    """Follow dropout: a product with its mask."""
    x = only(recorder, args, kwargs)
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "inplace")}
    # What dropout makes of ones is what it multiplies by.
    ones = torch.ones_like(x)
    mask = func(ones, *args[1:], **rest).detach()
    if mask.data_ptr() == ones.data_ptr() and not in_place(func, kwargs):  # switched off
        return x
    return times(recorder, x, mask, in_place(func, kwargs))


def times(recorder: Recorder, x: Tensor, factor: float | Tensor, in_place: bool) -> Tensor:
    """Follow a product with something that does not depend on the units."""
    out = x.mul_(factor) if in_place else x * factor
    if out.ndim != x.ndim:
        raise UnsupportedOp("a product that adds dimensions")
    return recorder.note([x], out, partial(multiplied, factor=factor))


def multiplied(jacobian: Jacobian, factor: float | Tensor) -> Jacobian:
    """Return directions times a number, or times a tensor that broadcasts to (rows, ...) from the right."""
    if isinstance(jacobian, Weighted) and jacobian.factor is not None:
        product = jacobian.factor * factor
        if product.shape == jacobian.factor.shape:
            return Weighted(jacobian.base, product)
    if isinstance(factor, Tensor) and shared(jacobian):
        factor = _one_row(factor, len(jacobian.shape) + 1 if isinstance(jacobian, Scaled) else full(jacobian).ndim - 1)
    if isinstance(jacobian, Scaled):
        scale = jacobian.scale.reshape(-1, *jacobian.shape) * factor
        if scale.shape[1:] == jacobian.shape:
            return Scaled(scale.reshape(len(scale), -1), jacobian.shape)
    directions = full(jacobian)
    if isinstance(factor, Tensor) and factor.ndim and factor.shape[0] > 1 and factor.shape[1:] == directions.shape[2:]:
        return Weighted(directions, factor)
    return directions * factor


def _one_row(factor: Tensor, ndim: int) -> Tensor:
    """Return a factor that is the same for all rows, such as a dropout mask, as one row."""
    if factor.ndim < ndim or len(factor) == 1:
        return factor
    first = factor[:1]
    return first if torch.equal(factor, first.expand_as(factor)) else factor


def where(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a choice by a condition, which is itself a constant almost everywhere."""
    condition, a = argument(args, kwargs, 0, "condition"), argument(args, kwargs, 1, "input")
    b = argument(args, kwargs, 2, "other")
    if isinstance(a, Tensor) and a.dtype == torch.bool:  # x.where(condition, other)
        condition, a = a, condition
    out: Tensor = func(*args, **kwargs)
    parts = [(x, where) for x, where in ((a, condition), (b, ~condition)) if recorder.slot(x) is not None]
    if any(x.ndim != out.ndim for x, _ in parts) or condition.ndim != out.ndim:
        raise UnsupportedOp("a choice that adds dimensions")

    def move(*jacobians: Jacobian) -> Tensor:
        moved = [torch.where(where, full(j), 0.0) for j, (_, where) in zip(jacobians, parts, strict=True)]
        return moved[0] if len(moved) == 1 else moved[0] + moved[1]

    return recorder.note([x for x, _ in parts], out, move)
