"""Smooth forms of kinked functions.

A kinked function is a sum of ramps max(x - k, 0) and steps. In its smooth form of sharpness beta a ramp is a softplus,
r(x) = log(1 + exp(beta x)) / beta, a step a sigmoid s(x) = 1 / (1 + exp(-beta x)), and a maximum a log-sum-exp
log(sum exp(beta x)) / beta. Each is off by at most a constant over beta, except at a jump. These forms are means of the
function over a logistic distribution. What is curved beside its kinks, ELU, SELU and CELU, is replaced by its mean over
a normal distribution of the same standard deviation, pi / (sqrt(3) beta).

The second derivative of r is a bump of width 1 / beta and integral 1 at the kink. Averaged over data that cross the
kink, it is a kernel estimate of the curvature there, with bandwidth 1 / beta: a large beta has little bias and much
variance.

Each form takes ``beta`` and then the arguments of the function that it replaces, and returns what that returns. Forms
of elementwise functions also take one ``beta`` for each entry, ``(n or 1, *shape)``, or a
:class:`~geh_explain.engines.smoothing.gaussian.Bandwidth`, with which ramps and steps are Gaussian. Maxima take one
``beta`` for each of their results, with dimensions of length 1 where they reduce. Arguments ``inplace`` are ignored
here; the caller copies the result.

>>> x = torch.tensor([-1.0, 0.0, 1.0])
>>> relu(1.0, x)  # log(2) = 0.6931 at the kink
tensor([0.3133, 0.6931, 1.3133])
>>> relu(100.0, x)
tensor([0.0000, 0.0069, 1.0000])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from geh_explain.engines.smoothing.gaussian import Bandwidth, gaussian_elu, gaussian_ramp, gaussian_step
from geh_explain.engines.smoothing.pooling import adaptive_max_pool, max_pool, with_indices
from geh_explain.engines.smoothing.sharpness import BETA_TIMES_BANDWIDTH
from geh_explain.engines.twice_differentiable import softplus

#: One sharpness, or one for each entry (n or 1, *shape), or the bandwidths of a Gaussian form.
Sharpness = float | Tensor | Bandwidth

#: Constants of SELU in torch.
_SELU_SCALE = 1.0507009873554805
_SELU_ALPHA = 1.6732632423543772


def ramp(x: Tensor, beta: Sharpness) -> Tensor:
    """Return r(x) = log(1 + exp(beta x)) / beta for max(x, 0), or its Gaussian form."""
    if isinstance(beta, Bandwidth):
        return gaussian_ramp(x, beta)
    return softplus(beta * x) / beta if isinstance(beta, Tensor) else softplus(x, beta)


def step(x: Tensor, beta: Sharpness) -> Tensor:
    """Return s(x) = 1 / (1 + exp(-beta x)) for a step at 0, or its Gaussian form."""
    return gaussian_step(x, beta) if isinstance(beta, Bandwidth) else torch.sigmoid(beta * x)


def relu(beta: Sharpness, input: Tensor, inplace: bool = False) -> Tensor:
    """Return r(x)."""
    return ramp(input, beta)


def relu6(beta: Sharpness, input: Tensor, inplace: bool = False) -> Tensor:
    """Return r(x) - r(x - 6)."""
    return hardtanh(beta, input, 0.0, 6.0)


def hardtanh(
    beta: Sharpness, input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Return min_val + r(x - min_val) - r(x - max_val)."""
    return min_val + ramp(input - min_val, beta) - ramp(input - max_val, beta)


def leaky_relu(beta: Sharpness, input: Tensor, negative_slope: float | Tensor = 0.01, inplace: bool = False) -> Tensor:
    """Return a x + (1 - a) r(x), with a the ``negative_slope``."""
    return negative_slope * input + (1 - negative_slope) * ramp(input, beta)


def prelu(beta: Sharpness, input: Tensor, weight: Tensor) -> Tensor:
    """Return a x + (1 - a) r(x), with a the ``weight``, one for all channels (dimension 1) or one for each."""
    # One weight per channel broadcasts along dimension 1, which a tensor of one dimension does not have.
    shape = [1] * input.ndim
    if input.ndim > 1:
        shape[1] = weight.numel()
    return leaky_relu(beta, input, weight.reshape(shape if weight.numel() > 1 else [1] * input.ndim))


def rrelu(
    beta: Sharpness,
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Return a x + (1 - a) r(x), with a = (lower + upper) / 2, the slope in eval mode."""
    return leaky_relu(beta, input, (lower + upper) / 2)


def elu(beta: Sharpness, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return the mean of ELU over a normal distribution, which has the bandwidth pi / (sqrt(3) beta).

    ELU is curved beside its kink. A softplus inside of its exponential would change that curvature, too.
    """
    if not isinstance(beta, Bandwidth):
        beta = Bandwidth.of(torch.as_tensor(BETA_TIMES_BANDWIDTH / beta).to(input))
    return gaussian_elu(input, beta, alpha)


def celu(beta: Sharpness, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return alpha ELU(x / alpha), the mean of CELU over the same distribution as :func:`elu`."""
    bandwidth = beta.values if isinstance(beta, Bandwidth) else BETA_TIMES_BANDWIDTH / beta
    return alpha * elu(Bandwidth(torch.as_tensor(bandwidth / alpha).to(input)), input / alpha)


def selu(beta: Sharpness, input: Tensor, inplace: bool = False) -> Tensor:
    """Return the smooth ELU with SELU's alpha, times SELU's scale."""
    return _SELU_SCALE * elu(beta, input, _SELU_ALPHA)


def hardsigmoid(beta: Sharpness, input: Tensor, inplace: bool = False) -> Tensor:
    """Return (r(x + 3) - r(x - 3)) / 6."""
    return (ramp(input + 3, beta) - ramp(input - 3, beta)) / 6


def hardswish(beta: Sharpness, input: Tensor, inplace: bool = False) -> Tensor:
    """Return x (r(x + 3) - r(x - 3)) / 6 + b^2 (s(x + 3) - s(x - 3)) / 6, with b the bandwidth.

    The second term is what the mean of a product with x has more, exactly for a normal distribution.
    """
    b = beta.values if isinstance(beta, Bandwidth) else BETA_TIMES_BANDWIDTH / beta
    return input * hardsigmoid(beta, input) + b * b * (step(input + 3, beta) - step(input - 3, beta)) / 6


def hardshrink(beta: Sharpness, input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return r(x - lambd) - r(-x - lambd) + lambd (s(x - lambd) - s(-x - lambd)): softshrink, and the jumps."""
    return softshrink(beta, input, lambd) + lambd * (step(input - lambd, beta) - step(-input - lambd, beta))


def softshrink(beta: Sharpness, input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return r(x - lambd) - r(-x - lambd)."""
    return ramp(input - lambd, beta) - ramp(-input - lambd, beta)


def threshold(beta: Sharpness, input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Return v + r(x - k) + (k - v) s(x - k), with k the ``threshold`` and v the ``value`` below it."""
    # A ramp from the threshold on, and the jump from the value up to the threshold.
    jump = (threshold - value) * step(input - threshold, beta)
    return value + ramp(input - threshold, beta) + jump


def absolute(beta: Sharpness, input: Tensor) -> Tensor:
    """Return r(x) + r(-x)."""
    return ramp(input, beta) + ramp(-input, beta)


def clamp(beta: Sharpness, input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Return min + r(x - min) - r(x - max); either bound may be None, then min + r(x - min) or max - r(max - x)."""
    if min is None:
        return input if max is None else max - ramp(max - input, beta)
    if max is None:
        return min + ramp(input - min, beta)  # type: ignore[no-any-return]
    # The result of torch is max where the bounds are in the wrong order.
    low = max - (max - min).clamp_min(0) if isinstance(max - min, Tensor) else max - abs(max - min) * (max > min)
    return low + ramp(input - low, beta) - ramp(input - max, beta)  # type: ignore[no-any-return]


def clamp_min(beta: Sharpness, input: Tensor, min: Any) -> Tensor:
    """Return min + r(x - min)."""
    return clamp(beta, input, min=min)


def clamp_max(beta: Sharpness, input: Tensor, max: Any) -> Tensor:
    """Return max - r(max - x)."""
    return clamp(beta, input, max=max)


def maximum(beta: Sharpness, input: Tensor, other: Tensor) -> Tensor:
    """Return y + r(x - y), with y the ``other`` tensor."""
    return other + ramp(input - other, beta)


def minimum(beta: Sharpness, input: Tensor, other: Tensor) -> Tensor:
    """Return x - r(x - y), with y the ``other`` tensor."""
    return input - ramp(input - other, beta)


def amax(beta: float | Tensor, input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """Return log(sum exp(beta x)) / beta over ``dim``, over everything where it is empty."""
    dim = tuple(range(input.ndim)) if dim == () or dim == [] else dim
    if isinstance(beta, Tensor):
        result = torch.logsumexp(beta * input, dim, keepdim=True) / beta
        return result if keepdim else result.squeeze(dim)
    return torch.logsumexp(beta * input, dim, keepdim) / beta


def amin(beta: float | Tensor, input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """Return -log(sum exp(-beta x)) / beta over ``dim``, over everything where it is empty."""
    return -amax(beta, -input, dim, keepdim)


def reduce_max(
    beta: float | Tensor, input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None
) -> Any:
    """Replace torch.max in its three forms: of two tensors, over everything, over one dimension with indices."""
    # torch.max(x, y) passes the other tensor in the place of dim.
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return maximum(beta, input, other)
    if dim is None:
        return amax(beta, input)
    indices = input.argmax(dim, keepdim)
    return torch.return_types.max((amax(beta, input, dim, keepdim), indices))


def reduce_min(
    beta: float | Tensor, input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None
) -> Any:
    """Replace torch.min in its three forms: of two tensors, over everything, over one dimension with indices."""
    other = dim if isinstance(dim, Tensor) else other
    if other is not None:
        return minimum(beta, input, other)
    if dim is None:
        return amin(beta, input)
    indices = input.argmin(dim, keepdim)
    return torch.return_types.min((amin(beta, input, dim, keepdim), indices))


def slope_jumps(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether the slope of a function jumps somewhere; that of CELU, and of ELU with alpha = 1, does not.

    >>> slope_jumps("elu", (torch.zeros(2), 1.0), {}), slope_jumps("elu", (torch.zeros(2),), {"alpha": 0.5})
    (False, True)
    """
    return name != "celu" and (name != "elu" or (args[1] if len(args) > 1 else kwargs.get("alpha", 1.0)) != 1)


#: The smooth form of each kinked function, by the function's name in torch, without underscores around it.
FORMS: dict[str, Callable[..., Any]] = {
    "relu": relu,
    "relu6": relu6,
    "hardtanh": hardtanh,
    "leaky_relu": leaky_relu,
    "prelu": prelu,
    "rrelu": rrelu,
    "elu": elu,
    "celu": celu,
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
    "fmax": maximum,
    "fmin": minimum,
    "amax": amax,
    "amin": amin,
    "max": reduce_max,
    "min": reduce_min,
    **{f"max_pool{d}d": max_pool(d) for d in (1, 2, 3)},
    **{f"max_pool{d}d_with_indices": with_indices(max_pool(d)) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d": adaptive_max_pool(d) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d_with_indices": with_indices(adaptive_max_pool(d)) for d in (1, 2, 3)},
}
