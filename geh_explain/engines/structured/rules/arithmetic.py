"""Sums, products and quotients, of which the last two bend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from geh_explain.engines.structured.program import Jacobian, Recorder, Scaled, Term, UnsupportedOp, full
from geh_explain.engines.structured.rules.calls import argument, in_place, only
from geh_explain.engines.structured.rules.curved import elementwise
from geh_explain.engines.structured.rules.linear import times


def add(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a sum or a difference."""
    a, b = _pair(args, kwargs)
    if set(kwargs) - {"input", "other"}:
        raise UnsupportedOp("add() with alpha")
    name = func.__name__.strip("_")
    signs = (-1, 1) if name == "rsub" else (1, -1 if "sub" in name else 1)
    terms = [(x, sign) for x, sign in ((a, signs[0]), (b, signs[1])) if recorder.slot(x) is not None]
    out: Tensor = func(*args, **kwargs)
    if any(x.ndim != out.ndim for x, _ in terms):
        raise UnsupportedOp("a sum that adds dimensions")
    shape = tuple(out.shape[1:])

    def move(*jacobians: Jacobian) -> Jacobian:
        if len(jacobians) == 1 and isinstance(jacobians[0], Scaled) and jacobians[0].shape == shape:
            return Scaled(jacobians[0].scale * terms[0][1], shape)
        total: Tensor | None = None
        for jacobian, (_, sign) in zip(jacobians, terms, strict=True):
            part = full(jacobian) if sign == 1 else -full(jacobian)
            total = part if total is None else total + part
        assert total is not None
        return total.expand(*total.shape[:2], *shape)

    return recorder.note([x for x, _ in terms], out, move)


def negative(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a change of sign."""
    return times(recorder, only(recorder, args, kwargs), -1.0, in_place(func, kwargs))


def _pair(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    return argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "other")


def multiply(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a product, of which one factor or both may depend on the units."""
    a, b = _pair(args, kwargs)
    if recorder.slot(b) is None:
        return times(recorder, a, b, in_place(func, kwargs))
    if recorder.slot(a) is None:
        if in_place(func, kwargs):
            raise UnsupportedOp("a product in place")
        return times(recorder, b, a, False)
    return _product(recorder, a, b, in_place(func, kwargs))


def _product(recorder: Recorder, a: Tensor, b: Tensor, in_place: bool) -> Tensor:
    """Follow a product of two tensors that both depend on the units."""
    if a.ndim != b.ndim:
        raise UnsupportedOp("a product that adds dimensions")
    left, right = a.detach().clone() if in_place else a.detach(), b.detach()
    out = a.mul_(b) if in_place else a * b
    shape = tuple(out.shape[1:])

    def move(j: Jacobian, k: Jacobian) -> Tensor:
        return full(j) * right + full(k) * left

    def curve(gradient: Tensor, j: Jacobian, k: Jacobian) -> list[Term]:
        left, right = full(j), full(k)
        return [Term(left.expand(*left.shape[:2], *shape), gradient, right.expand(*right.shape[:2], *shape))]

    return recorder.note([a, b], out, move, curve)


def divide(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a quotient, as a product with the inverse."""
    a, b = _pair(args, kwargs)
    if set(kwargs) - {"input", "other"}:
        raise UnsupportedOp("a division that rounds")
    if func.__name__.strip("_").startswith("r"):
        a, b = b, a
    if recorder.slot(b) is None:
        return times(recorder, a, 1 / b, in_place(func, kwargs))
    if in_place(func, kwargs):
        raise UnsupportedOp("a division in place")
    inverse = elementwise(recorder, torch.reciprocal, (b,), {})
    return times(recorder, inverse, a, False) if recorder.slot(a) is None else _product(recorder, a, inverse, False)
