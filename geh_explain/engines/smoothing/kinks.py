"""Smooth forms of functions with kinks.

A kinked function is a sum of ramps max(x - k, 0) and steps; a ramp becomes a softplus, a step a sigmoid,
a maximum a log-sum-exp, all of sharpness ``beta``. Averaged over data that cross the kink, the second
derivative of the softplus is a kernel estimate of the curvature that sits on it, and 1 / beta is the
bandwidth.

Each form takes ``beta`` and then the arguments of the function it stands for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geh_explain.engines.smoothing.kernels import softplus


def ramp(x: Tensor, beta: float) -> Tensor:
    """Return max(x, 0), smoothed."""
    return softplus(x, beta)


def relu(beta: float, input: Tensor, inplace: bool = False) -> Tensor:
    return ramp(input, beta)


def relu6(beta: float, input: Tensor, inplace: bool = False) -> Tensor:
    return hardtanh(beta, input, 0.0, 6.0)


def hardtanh(beta: float, input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    return min_val + ramp(input - min_val, beta) - ramp(input - max_val, beta)


def leaky_relu(beta: float, input: Tensor, negative_slope: float | Tensor = 0.01, inplace: bool = False) -> Tensor:
    return negative_slope * input + (1 - negative_slope) * ramp(input, beta)


def prelu(beta: float, input: Tensor, weight: Tensor) -> Tensor:
    shape = [1] * input.ndim
    if input.ndim > 1:
        shape[1] = weight.numel()
    return leaky_relu(beta, input, weight.reshape(shape if weight.numel() > 1 else [1] * input.ndim))


def rrelu(
    beta: float,
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    return leaky_relu(beta, input, (lower + upper) / 2)


def elu(beta: float, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    return ramp(input, beta) + alpha * torch.expm1(-ramp(-input, beta))


def selu(beta: float, input: Tensor, inplace: bool = False) -> Tensor:
    return 1.0507009873554805 * elu(beta, input, 1.6732632423543772)


def hardsigmoid(beta: float, input: Tensor, inplace: bool = False) -> Tensor:
    return (ramp(input + 3, beta) - ramp(input - 3, beta)) / 6


def hardswish(beta: float, input: Tensor, inplace: bool = False) -> Tensor:
    return input * hardsigmoid(beta, input)


def hardshrink(beta: float, input: Tensor, lambd: float = 0.5) -> Tensor:
    return input * (torch.sigmoid(beta * (input - lambd)) + torch.sigmoid(beta * (-input - lambd)))


def softshrink(beta: float, input: Tensor, lambd: float = 0.5) -> Tensor:
    return ramp(input - lambd, beta) - ramp(-input - lambd, beta)


def threshold(beta: float, input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    # A ramp from the threshold on, and the step from the value up to it.
    step = (threshold - value) * torch.sigmoid(beta * (input - threshold))
    return value + ramp(input - threshold, beta) + step


def absolute(beta: float, input: Tensor) -> Tensor:
    return ramp(input, beta) + ramp(-input, beta)


def clamp(beta: float, input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    result = input if min is None else min + ramp(input - min, beta)
    return result if max is None else max - ramp(max - result, beta)


def clamp_min(beta: float, input: Tensor, min: Any) -> Tensor:
    return clamp(beta, input, min=min)


def clamp_max(beta: float, input: Tensor, max: Any) -> Tensor:
    return clamp(beta, input, max=max)


def maximum(beta: float, input: Tensor, other: Tensor) -> Tensor:
    return other + ramp(input - other, beta)


def minimum(beta: float, input: Tensor, other: Tensor) -> Tensor:
    return input - ramp(input - other, beta)


def amax(beta: float, input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return torch.logsumexp(beta * input, tuple(range(input.ndim)) if dim == () or dim == [] else dim, keepdim) / beta


def amin(beta: float, input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return -amax(beta, -input, dim, keepdim)


def reduce_max(beta: float, input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """Stand for torch.max in its three forms: of two tensors, over everything, over one dimension."""
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return maximum(beta, input, other)
    if dim is None:
        return amax(beta, input)
    indices = input.argmax(dim, keepdim)
    return torch.return_types.max((amax(beta, input, dim, keepdim), indices))


def reduce_min(beta: float, input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """Stand for torch.min in its three forms."""
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return minimum(beta, input, other)
    if dim is None:
        return amin(beta, input)
    indices = input.argmin(dim, keepdim)
    return torch.return_types.min((amin(beta, input, dim, keepdim), indices))


def _max_pool(dimensions: int) -> Callable[..., Any]:
    def pool(
        beta: float,
        input: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        settings = (kernel_size, stride or kernel_size, padding, dilation)
        hard, indices = getattr(F, f"max_pool{dimensions}d")(input.detach(), *settings, ceil_mode, return_indices=True)
        windows = pool_windows(dimensions, input, hard, (settings, {}), outside=-float("inf"))
        soft = _soft_maximum(beta, windows, hard)
        return (soft, indices) if return_indices else soft

    return pool


def pool_windows(
    dimensions: int,
    input: Tensor,
    like: Tensor,
    settings: tuple[Sequence[Any], dict[str, Any]],
    outside: float = 0.0,
) -> Tensor:
    """Return what each place of the pooling windows sees, (places, ...), for an output shaped as ``like``.

    ``settings`` are the arguments of the pooling after its input, by position and by name; ``outside`` is what windows
    see beyond the edges. The input may have further dimensions before those of a row.
    """
    given = dict(zip(("kernel_size", "stride", "padding", "dilation"), settings[0], strict=False)) | settings[1]
    size, gap = _tuple(given["kernel_size"], dimensions), _tuple(given.get("dilation", 1), dimensions)
    step, pad = _tuple(given.get("stride") or size, dimensions), _tuple(given.get("padding", 0), dimensions)
    first, counts = input.ndim - dimensions, like.shape[like.ndim - dimensions :]
    # Room on the far side for windows that ceil_mode lets stick out.
    reach = [(counts[d] - 1) * step[d] + (size[d] - 1) * gap[d] + 1 for d in range(dimensions)]
    far = [max(0, reach[d] - input.shape[first + d] - pad[d]) for d in range(dimensions)]
    padded = F.pad(input, [side for d in reversed(range(dimensions)) for side in (pad[d], far[d])], value=outside)
    places = []
    for offset in itertools.product(*(range(count) for count in size)):
        view = padded
        for d in range(dimensions):
            start = offset[d] * gap[d]
            view = view.narrow(first + d, start, (counts[d] - 1) * step[d] + 1)
            view = view[(slice(None),) * (first + d) + (slice(None, None, step[d]),)]
        places.append(view)
    return torch.stack(places)


def _adaptive_max_pool(dimensions: int) -> Callable[..., Any]:
    def pool(beta: float, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        hard, indices = getattr(F, f"adaptive_max_pool{dimensions}d")(input.detach(), output_size, return_indices=True)
        first, cells = input.ndim - dimensions, []
        sizes = [(input.shape[first + d], hard.shape[first + d]) for d in range(dimensions)]
        for cell in itertools.product(*(range(count) for _, count in sizes)):
            view = input
            for d, (length, count) in enumerate(sizes):
                start, stop = cell[d] * length // count, -(-(cell[d] + 1) * length // count)
                view = view.narrow(first + d, start, stop - start)
            cells.append(amax(beta, view, tuple(range(first, input.ndim))))
        soft = torch.stack(cells, dim=-1).reshape(hard.shape)
        return (soft, indices) if return_indices else soft

    return pool


def _soft_maximum(beta: float, values: Tensor, highest: Tensor) -> Tensor:
    """Return the log-sum-exp over dimension 0, shifted by its ``highest`` values; -inf counts as absent."""
    return highest + torch.exp(beta * (values - highest)).sum(dim=0).log() / beta


def _tuple(value: int | Sequence[int], dimensions: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dimensions if len(values) == 1 else values


def _with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: pool(*args, **(kwargs | {"return_indices": True}))


#: The smooth form of each kinked function, by the name torch calls it (without underscores around it).
FORMS: dict[str, Callable[..., Any]] = {
    "relu": relu,
    "relu6": relu6,
    "hardtanh": hardtanh,
    "leaky_relu": leaky_relu,
    "prelu": prelu,
    "rrelu": rrelu,
    "elu": elu,
    "selu": selu,
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "hardshrink": hardshrink,
    "softshrink": softshrink,
    "threshold": threshold,
    "abs": absolute,
    "absolute": absolute,
    "clamp": clamp,
    "clip": clamp,
    "clamp_min": clamp_min,
    "clamp_max": clamp_max,
    "maximum": maximum,
    "minimum": minimum,
    "amax": amax,
    "amin": amin,
    "max": reduce_max,
    "min": reduce_min,
    **{f"max_pool{d}d": _max_pool(d) for d in (1, 2, 3)},
    **{f"max_pool{d}d_with_indices": _with_indices(_max_pool(d)) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d": _adaptive_max_pool(d) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d_with_indices": _with_indices(_adaptive_max_pool(d)) for d in (1, 2, 3)},
}
