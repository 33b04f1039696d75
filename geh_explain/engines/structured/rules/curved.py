"""Rules for curved functions: each adds terms to the Hessian."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geh_explain.engines.smoothing.gaussian import Bandwidth, ramp_derivatives
from geh_explain.engines.smoothing.pooling import pool_windows
from geh_explain.engines.smoothing.smooth_functions import Sharpness
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.engines.structured.jacobians import Jacobian, scale_rows, to_tensor
from geh_explain.engines.structured.recorder import HessianTerm, Recorder, UnsupportedOp
from geh_explain.engines.structured.rules.calls import argument, is_in_place, only_tracked, without
from geh_explain.engines.twice_differentiable import softplus_slope

#: Torch's default threshold of softplus, above which it is a straight line.
_SOFTPLUS_THRESHOLD = 20.0
#: Functions that are clamp(z, low, high), with their bounds; those of hardtanh are its arguments.
_CLIPPED_RAMPS = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0), "hardtanh": (-1.0, 1.0)}


class _KnownDerivative(torch.autograd.Function):
    """Connects a value that was computed elsewhere to its input z: the backward pass multiplies by a known slope.

    z, value and slope have the same shape. No second derivative is needed, as the Hessian term holds it. ``values`` is
    a list with the value: autograd would take a tensor that is passed and returned for a view, which no later call may
    change in place.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, values: list[Tensor], slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return values[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        return gradients[0] * ctx.saved_tensors[0], None, None


def elementwise(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a function s of each entry: s'(z) J, and the term J^T diag(g * s''(z)) J.

    Value and derivatives come from a closed form for the most common functions, else from autograd. The call itself is
    executed by the recorder's view, so that a kinked function has the derivatives of its smooth form. The result is
    connected to its input by the known slope: the backward pass that computes g does not differentiate s again.
    """
    x = only_tracked(recorder, args, kwargs)
    value, slope, second = _closed_form(recorder, func, x.detach(), args, kwargs) or _derivatives(
        recorder, func, x.detach(), args, kwargs
    )
    out: Tensor = _KnownDerivative.apply(x, [value], slope)  # type: ignore[no-untyped-call]
    # The model goes on with the tensor that it passed, which now holds the result.
    if is_in_place(func, kwargs):
        out = x.copy_(out)

    push_forward = partial(scale_rows, factor=slope)
    if second is None:
        return recorder.add_step([x], out, push_forward)
    return recorder.add_step(
        [x], out, push_forward, lambda gradient, jacobian: [HessianTerm(jacobian, gradient * second)]
    )


def _derivatives(
    recorder: Recorder, func: Callable[..., Any], x: Tensor, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return s(x), s'(x) and s''(x) of an elementwise function by autograd; the last is None where it is 0.

    s acts on each entry alone, so the gradient of the sum over entries holds the derivatives of all of them.

    Raises
    ------
    UnsupportedOp
        If the result has another shape, as a clamp with bounds that broadcast has.
    """
    options = without(kwargs, "input", "inplace")
    with torch.enable_grad():
        z = x.requires_grad_()
        value = recorder.executor.handle(_out_of_place(func), (z, *args[1:]), options)
        if value.shape != z.shape:
            raise UnsupportedOp(f"{func.__name__}() that changes its shape")
        (slope,) = torch.autograd.grad(value.sum(), z, create_graph=True)
        second = None
        if slope.requires_grad:
            (second,) = torch.autograd.grad(slope.sum(), z, allow_unused=True)
    return value.detach(), slope.detach(), second


def _closed_form(
    recorder: Recorder, func: Callable[..., Any], z: Tensor, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return s(z), s'(z) and s''(z) of the most common functions by one evaluation; None for others.

    - softplus, and ReLU, ReLU6 and hardtanh where they are smoothed: see :func:`_softplus`;
    - tanh, with y = tanh(z): 1 - y^2 and -2 y (1 - y^2);
    - sigmoid, with y = sigmoid(z): y (1 - y) and y (1 - y) (1 - 2 y).
    """
    name, executor = func.__name__.strip("_"), recorder.executor
    if name in _CLIPPED_RAMPS and isinstance(executor, Smoothing):
        form = executor.next_form(name, args, kwargs)
        if form is None:
            return None
        executor.skip_call()
        low, high = _CLIPPED_RAMPS[name]
        if name == "hardtanh":
            low, high = argument(args, kwargs, 1, "min_val", low), argument(args, kwargs, 2, "max_val", high)
        return _clipped_ramp(z, form, low, high)
    if name == "softplus":
        beta = argument(args, kwargs, 1, "beta", 1.0)
        return _softplus(z, beta, argument(args, kwargs, 2, "threshold", _SOFTPLUS_THRESHOLD))
    if name == "tanh":
        value = torch.tanh(z)
        slope = 1 - value * value
        return value, slope, -2 * value * slope
    if name == "sigmoid":
        value = torch.sigmoid(z)
        slope = value * (1 - value)
        return value, slope, slope * (1 - 2 * value)
    return None


def _clipped_ramp(z: Tensor, form: Sharpness, low: float, high: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return low + r(z - low) - r(z - high) and its first two derivatives, with r a ramp; ``high`` may be inf."""
    lower = _ramp(z - low if low else z, form)
    value = lower[0] + low if low else lower[0]
    if high == math.inf:
        return value, lower[1], lower[2]
    upper = _ramp(z - high, form)
    return value - upper[0], lower[1] - upper[1], lower[2] - upper[2]


def _ramp(z: Tensor, form: Sharpness) -> tuple[Tensor, Tensor, Tensor]:
    """Return a smooth ramp and its first two derivatives: a softplus, or the Gaussian one."""
    return ramp_derivatives(z, form) if isinstance(form, Bandwidth) else _softplus(z, form, _SOFTPLUS_THRESHOLD)


def _softplus(z: Tensor, beta: float | Tensor, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the softplus, its slope s and its second derivative beta (s - s^2)."""
    if isinstance(beta, Tensor):
        value, slope, second = _softplus(beta * z, 1.0, threshold)
        return value.div_(beta), slope, second.mul_(beta)
    slope = softplus_slope(z, beta, threshold)
    return F.softplus(z, beta, threshold), slope, torch.addcmul(slope, slope, slope, value=-1).mul_(beta)


def _out_of_place(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return the out-of-place form of a function such as ``relu_``, whose input autograd can differentiate."""
    name = func.__name__
    if not name.endswith("_") or name.endswith("__"):
        return func
    for namespace in (F, torch, Tensor):
        if hasattr(namespace, name[:-1]):
            plain: Callable[..., Any] = getattr(namespace, name[:-1])
            return plain
    raise UnsupportedOp(f"{name}()")


def softmax(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a softmax p or its logarithm, over any dimension but the rows.

    With v = sum_k p_k J_k the directions are p (J - v) for the softmax, J - v for its logarithm. Terms of the Hessian,
    sums over the entries k of the dimension, with q = g p and G = sum_k q_k:

    - softmax: J^T diag(q - G p) J, and -(u - G v)^T v plus its transpose, with u = sum_k q_k J_k;
    - logarithm, with G = sum_k g_k: -J^T diag(G p) J + G v^T v.

    Raises
    ------
    UnsupportedOp
        If the softmax is over the rows, or converts to another dtype.
    """
    x, dim = only_tracked(recorder, args, kwargs), argument(args, kwargs, 1, "dim")
    if dim is None or dim % x.ndim == 0 or any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values())):
        raise UnsupportedOp("a softmax over the rows")
    dim, logarithm = dim % x.ndim, "log" in func.__name__
    out: Tensor = func(*args, **kwargs)
    p = out.detach().exp() if logarithm else out.detach()

    def mean(jacobian: Tensor) -> Tensor:
        return (jacobian * p).sum(dim + 1, keepdim=True)

    def push_forward(jacobian: Jacobian) -> Tensor:
        """Return the directions after this step."""
        j = to_tensor(jacobian)
        return j - mean(j) if logarithm else p * (j - mean(j))

    def hessian_terms(gradient: Tensor, jacobian: Jacobian) -> list[HessianTerm]:
        """Return the terms that this step adds to local Hessians."""
        j = to_tensor(jacobian)
        v = mean(j)
        if logarithm:
            total = gradient.sum(dim, keepdim=True)
            return [HessianTerm(j, -total * p), HessianTerm(v, total)]
        q = gradient * p
        total = q.sum(dim, keepdim=True)
        u = (j * q).sum(dim + 1, keepdim=True)
        return [HessianTerm(j, q - total * p), HessianTerm(u - total * v, torch.full_like(total, -1.0), v)]

    return recorder.add_step([x], out, push_forward, hessian_terms)


def max_pool(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a maximum over windows, or its smooth form log(sum exp(beta x)) / beta.

    Its gradient in a window are weights p that sum to 1: softmax(beta x), or one-hot without smoothing. Directions are
    v = sum_k p_k J_k per window; smoothed, the terms of the Hessian are beta g (sum_k p_k J_k^T J_k - v^T v).

    Raises
    ------
    UnsupportedOp
        If the call returns indices too.
    """
    x = only_tracked(recorder, args, kwargs)
    if argument(args, kwargs, 6, "return_indices", False):
        raise UnsupportedOp("max pooling with indices")
    name = func.__name__.strip("_")
    beta = recorder.executor.next_form(name, args, kwargs) if isinstance(recorder.executor, Smoothing) else None
    assert not isinstance(beta, Bandwidth)  # windows have a sharpness, one for all or one for each
    out: Tensor = recorder.executor.handle(func, args, kwargs)
    dimensions = int(func.__name__.removesuffix("d")[-1])
    settings = (args[1:6], without(kwargs, "input", "return_indices"))
    windows = partial(pool_windows, dimensions, like=out, settings=settings)
    # Padding has value -inf, and therefore weight 0.
    with torch.no_grad():
        values = windows(x.detach(), outside=-float("inf"))
        if beta is None:
            p = F.one_hot(values.argmax(0), len(values)).movedim(-1, 0).to(x.dtype)
        else:
            p = torch.softmax(beta * values, dim=0)

    def push_forward(jacobian: Jacobian) -> Tensor:
        """Return the directions after this step."""
        return _weighted_sum(windows(to_tensor(jacobian)), p)

    if beta is None:
        return recorder.add_step([x], out, push_forward)

    def hessian_terms(gradient: Tensor, jacobian: Jacobian) -> list[HessianTerm]:
        """Return the terms that this step adds to local Hessians."""
        # Windows overlap: the weights of an entry are summed over the windows that hold it, by a backward pass.
        with torch.enable_grad():
            place = torch.zeros_like(x, requires_grad=True)
            (scattered,) = torch.autograd.grad(windows(place), place, beta * gradient * p)
        mean = _weighted_sum(windows(to_tensor(jacobian)), p)
        return [HessianTerm(jacobian, scattered), HessianTerm(mean, -beta * gradient)]

    return recorder.add_step([x], out, push_forward, hessian_terms)


def _weighted_sum(windows: Tensor, p: Tensor) -> Tensor:
    """Return the sum over the positions of windows (k, D, n or 1, ...) with weights (k, n, ...)."""
    total = windows[0] * p[0]
    for window, weight in zip(windows[1:], p[1:], strict=True):
        total.addcmul_(window, weight) if window.shape == total.shape else total.add_(window * weight)
    return total
