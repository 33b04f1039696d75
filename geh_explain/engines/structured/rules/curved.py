"""Functions that bend: each adds its part to the Hessian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geh_explain.engines.smoothing.kinks import pool_windows
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.engines.structured.program import Jacobian, Recorder, Term, UnsupportedOp, full
from geh_explain.engines.structured.rules.calls import argument, in_place, only
from geh_explain.engines.structured.rules.linear import multiplied


class _Linked(torch.autograd.Function):
    """A value that was computed elsewhere, with its slope for the backward pass."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        return gradients[0] * ctx.saved_tensors[0], None, None


def elementwise(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a function of each number on its own."""
    x = only(recorder, args, kwargs)
    value, slope, bend = _closed_form(recorder, func, x.detach(), args, kwargs) or _derivatives(
        recorder, func, x.detach(), args, kwargs
    )
    out: Tensor = _Linked.apply(x, value, slope)  # type: ignore[no-untyped-call]
    if in_place(func, kwargs):
        out = x.copy_(out)

    move = partial(multiplied, factor=slope)
    if bend is None:
        return recorder.note([x], out, move)
    return recorder.note([x], out, move, lambda gradient, jacobian: [Term(jacobian, gradient * bend)])


def _derivatives(
    recorder: Recorder, func: Callable[..., Any], x: Tensor, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return value, slope and second derivative of an elementwise function, the last None where it is 0."""
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "inplace")}
    with torch.enable_grad():
        z = x.requires_grad_()
        value = recorder.answers.handle(_out_of_place(func), (z, *args[1:]), rest)
        if value.shape != z.shape:
            raise UnsupportedOp(f"{func.__name__}() that changes its shape")
        (slope,) = torch.autograd.grad(value.sum(), z, create_graph=True)
        bend = None
        if slope.requires_grad:
            (bend,) = torch.autograd.grad(slope.sum(), z, allow_unused=True)
    return value.detach(), slope.detach(), bend


def _closed_form(
    recorder: Recorder, func: Callable[..., Any], z: Tensor, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the same for the most common functions, at the price of one evaluation."""
    name, answers = func.__name__.strip("_"), recorder.answers
    if name == "relu" and isinstance(answers, Smoothing):
        beta = answers.beta(answers.call + 1)
        if beta is None:
            return None
        answers.call += 1
        return _softplus(z, beta, 20.0)
    if name == "softplus":
        return _softplus(z, argument(args, kwargs, 1, "beta", 1.0), argument(args, kwargs, 2, "threshold", 20.0))
    if name == "tanh":
        value = torch.tanh(z)
        slope = 1 - value * value
        return value, slope, -2 * value * slope
    if name == "sigmoid":
        value = torch.sigmoid(z)
        slope = value * (1 - value)
        return value, slope, slope * (1 - 2 * value)
    return None


def _softplus(z: Tensor, beta: float, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    slope = torch.sigmoid(beta * z)
    if z.dtype == torch.float64 or threshold < 17:  # beyond it torch continues in a straight line
        slope = torch.where(beta * z > threshold, 1.0, slope)
    return F.softplus(z, beta, threshold), slope, torch.addcmul(slope, slope, slope, value=-1).mul_(beta)


def _out_of_place(func: Callable[..., Any]) -> Callable[..., Any]:
    name = func.__name__
    if not name.endswith("_") or name.endswith("__"):
        return func
    for home in (F, torch, Tensor):
        if hasattr(home, name[:-1]):
            found: Callable[..., Any] = getattr(home, name[:-1])
            return found
    raise UnsupportedOp(f"{name}()")


def softmax(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a softmax or its logarithm, over any dimension but the rows."""
    x, dim = only(recorder, args, kwargs), argument(args, kwargs, 1, "dim")
    if dim is None or dim % x.ndim == 0 or any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values())):
        raise UnsupportedOp("a softmax over the rows")
    dim, logarithm = dim % x.ndim, "log" in func.__name__
    out: Tensor = func(*args, **kwargs)
    p = out.detach().exp() if logarithm else out.detach()

    def mean(jacobian: Tensor) -> Tensor:
        return (jacobian * p).sum(dim + 1, keepdim=True)

    def move(jacobian: Jacobian) -> Tensor:
        j = full(jacobian)
        return j - mean(j) if logarithm else p * (j - mean(j))

    def curve(gradient: Tensor, jacobian: Jacobian) -> list[Term]:
        j = full(jacobian)
        v = mean(j)
        if logarithm:
            total = gradient.sum(dim, keepdim=True)
            return [Term(j, -total * p), Term(v, total)]
        q = gradient * p
        total = q.sum(dim, keepdim=True)
        u = (j * q).sum(dim + 1, keepdim=True)
        return [Term(j, q - total * p), Term(u - total * v, torch.full_like(total, -1.0), v)]

    return recorder.note([x], out, move, curve)


def max_pool(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a maximum over windows, or the soft one that stands for it: weights p in each window, that sum to 1."""
    x = only(recorder, args, kwargs)
    if argument(args, kwargs, 6, "return_indices", False):
        raise UnsupportedOp("max pooling with indices")
    beta = recorder.answers.beta(recorder.answers.call + 1) if isinstance(recorder.answers, Smoothing) else None
    out: Tensor = recorder.answers.handle(func, args, kwargs)
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "return_indices")}
    dimensions = int(func.__name__.removesuffix("d")[-1])
    windows = partial(pool_windows, dimensions, like=out, settings=(args[1:6], rest))
    with torch.no_grad():
        seen = windows(x.detach(), outside=-float("inf"))
        if beta is None:
            p = F.one_hot(seen.argmax(0), len(seen)).movedim(-1, 0).to(x.dtype)
        else:
            p = torch.softmax(beta * seen, dim=0)

    def move(jacobian: Jacobian) -> Tensor:
        return _weighted(windows(full(jacobian)), p)

    def curve(gradient: Tensor, jacobian: Jacobian) -> list[Term]:
        assert beta is not None
        with torch.enable_grad():
            place = torch.zeros_like(x, requires_grad=True)
            (scattered,) = torch.autograd.grad(windows(place), place, beta * gradient * p)
        return [Term(jacobian, scattered), Term(_weighted(windows(full(jacobian)), p), -beta * gradient)]

    return recorder.note([x], out, move, None if beta is None else curve)


def _weighted(windows: Tensor, p: Tensor) -> Tensor:
    """Return the mean over windows (w, D, r, ...) with weights (w, n, ...)."""
    total = windows[0] * p[0]
    for window, weight in zip(windows[1:], p[1:], strict=True):
        total.addcmul_(window, weight) if window.shape == total.shape else total.add_(window * weight)
    return total
