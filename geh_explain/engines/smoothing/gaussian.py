"""Gaussian forms of ramps, steps and ELU: kinked functions of a normal variable, on average.

For e normal with mean 0 and standard deviation b, the bandwidth, and u = x / b ::

    E max(x + e, 0) = x Phi(u) + b phi(u),    E [x + e > 0] = Phi(u),
    E [x + e < 0] exp(x + e) = exp(x + b^2 / 2) Phi(-u - b),

with Phi and phi the standard normal distribution and density. The first and second derivatives of the ramp are Phi(u)
and phi(u) / b, those of the mean S of the exponential below 0 are S - phi(u) / b and S - phi(u) / b + u phi(u) / b^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: Smallest bandwidth: that of entries that do not depend on the units, whose kinks stay as they are.
_SMALLEST = 1e-30
_ROOT_TWO_PI = math.sqrt(2 * math.pi)
#: The density at 0.
_HIGHEST = 1 / _ROOT_TWO_PI


@dataclass(frozen=True)
class Bandwidth:
    """Bandwidths of Gaussian smoothing.

    Attributes
    ----------
    values
        Standard deviations b > 0, in the shape of what enters a kinked function, or broadcasting to it.
    """

    values: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Bandwidth:
        """Return bandwidths that are not 0, so that quotients exist."""
        return cls(values.clamp_min(_SMALLEST))


def density(u: Tensor) -> Tensor:
    """Return the standard normal density phi(u)."""
    return torch.exp(-0.5 * u * u) * _HIGHEST


def gaussian_step(x: Tensor, bandwidth: Bandwidth) -> Tensor:
    """Return Phi(x / b).

    >>> gaussian_step(torch.tensor([-1.0, 0.0, 1.0]), Bandwidth(torch.ones(3)))
    tensor([0.1587, 0.5000, 0.8413])
    """
    result: Tensor = torch.special.ndtr(x / bandwidth.values)
    return result


class _GaussianRamp(torch.autograd.Function):
    """x Phi(x / b) + b phi(x / b), with its derivatives Phi(x / b) in x and phi(x / b) in b."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, b: Tensor) -> Tensor:
        u = x / b
        result: Tensor = x * torch.special.ndtr(u) + b * density(u)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, Tensor | None]:
        x, b = ctx.saved_tensors
        u = x / b
        of_x = _unbroadcast(gradients[0] * torch.special.ndtr(u), x) if ctx.needs_input_grad[0] else None
        of_b = _unbroadcast(gradients[0] * density(u), b) if ctx.needs_input_grad[1] else None
        return of_x, of_b

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, b = ctx.saved_tensors
        u = x / b
        return _directional(tangents, (torch.special.ndtr(u), density(u)))


def _directional(tangents: tuple[Any, ...], slopes: tuple[Tensor, Tensor]) -> Tensor:
    """Return the sum of tangents times slopes, without tangents that are None."""
    parts = [tangent * slope for tangent, slope in zip(tangents, slopes, strict=True) if tangent is not None]
    total: Tensor = sum(parts[1:], parts[0])
    return total


def _unbroadcast(gradient: Tensor, like: Tensor) -> Tensor:
    """Return a gradient summed to the shape of ``like``, which may have been broadcast."""
    return gradient if gradient.shape == like.shape else gradient.sum_to_size(like.shape)


def gaussian_ramp(x: Tensor, bandwidth: Bandwidth) -> Tensor:
    """Return x Phi(x / b) + b phi(x / b).

    >>> gaussian_ramp(torch.tensor([-1.0, 0.0, 1.0]), Bandwidth(torch.ones(3)))  # 1 / sqrt(2 pi) = 0.3989 at the kink
    tensor([0.0833, 0.3989, 1.0833])
    """
    result: Tensor = _GaussianRamp.apply(x, bandwidth.values)  # type: ignore[no-untyped-call]
    return result


class _LowerExponential(torch.autograd.Function):
    """S = exp(x + b^2 / 2) Phi(-x / b - b), with its derivatives in x and in b.

    The derivative in b is b times the second derivative in x, as that of any Gaussian mean is.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, b: Tensor) -> Tensor:
        u = x / b
        v = u + b
        # v^2 = u^2 + 2 x + b^2: with erfcx no large exponents of different signs are added.
        above = 0.5 * torch.special.erfcx(v.clamp_min(0) / math.sqrt(2)) * torch.exp(-0.5 * u * u)
        below = torch.exp((x + 0.5 * b * b).clamp_max(0)) * torch.special.ndtr(-v)
        return torch.where(v > 0, above, below)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def _slopes(x: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        u = x / b
        height = density(u)
        mean = _LowerExponential.apply(x, b)  # type: ignore[no-untyped-call]
        return mean - height / b, b * mean - height + u * height / b

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, Tensor | None]:
        x, b = ctx.saved_tensors
        of_x, of_b = _LowerExponential._slopes(x, b)
        return (
            _unbroadcast(gradients[0] * of_x, x) if ctx.needs_input_grad[0] else None,
            _unbroadcast(gradients[0] * of_b, b) if ctx.needs_input_grad[1] else None,
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, b = ctx.saved_tensors
        return _directional(tangents, _LowerExponential._slopes(x, b))


class _GaussianElu(torch.autograd.Function):
    """r + alpha (S + Phi(u) - 1), with r the ramp, and its derivatives in x and in b.

    They are Phi(u) + alpha S and (1 - alpha) phi(u) + alpha b S, in which the jumps of S and of Phi cancel.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, b: Tensor, alpha: float) -> Tensor:
        u = x / b
        below = _LowerExponential.forward(x, b) - torch.special.ndtr(-u)
        result: Tensor = x * torch.special.ndtr(u) + b * density(u) + alpha * below
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])
        ctx.alpha = inputs[2]

    @staticmethod
    def _slopes(x: Tensor, b: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        u = x / b
        below = alpha * _LowerExponential.apply(x, b)  # type: ignore[no-untyped-call]
        return torch.special.ndtr(u) + below, (1 - alpha) * density(u) + b * below

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, Tensor | None, None]:
        x, b = ctx.saved_tensors
        of_x, of_b = _GaussianElu._slopes(x, b, ctx.alpha)
        return (
            _unbroadcast(gradients[0] * of_x, x) if ctx.needs_input_grad[0] else None,
            _unbroadcast(gradients[0] * of_b, b) if ctx.needs_input_grad[1] else None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, b = ctx.saved_tensors
        return _directional(tangents[:2], _GaussianElu._slopes(x, b, ctx.alpha))


def gaussian_elu(x: Tensor, bandwidth: Bandwidth, alpha: float = 1.0) -> Tensor:
    """Return the mean of ELU, x Phi(u) + b phi(u) + alpha (exp(x + b^2 / 2) Phi(-u - b) - Phi(-u)).

    >>> gaussian_elu(torch.tensor([-1.0, 0.0, 1.0]), Bandwidth(torch.ones(3)))
    tensor([-0.4548,  0.1605,  1.0266])
    """
    result: Tensor = _GaussianElu.apply(x, bandwidth.values, alpha)  # type: ignore[no-untyped-call]
    return result


def ramp_derivatives(x: Tensor, bandwidth: Bandwidth) -> tuple[Tensor, Tensor, Tensor]:
    """Return the Gaussian ramp, its slope Phi(u) and its second derivative phi(u) / b.

    Far from the kink, where phi(u) is less than the rounding of phi(0), the slope is exactly 0 or 1 and the second
    derivative exactly 0.

    >>> [part.item() for part in ramp_derivatives(torch.tensor([10.0]), Bandwidth(torch.ones(1)))]
    [10.0, 1.0, 0.0]
    """
    b = bandwidth.values
    u = x / b
    slope, height = torch.special.ndtr(u), density(u)
    # Exactly 0 or 1 where it rounds to that beside other entries: the structured engine leaves zeros out.
    near = height > torch.finfo(x.dtype).eps * _HIGHEST
    return x * slope + b * height, torch.where(near, slope, (x > 0).to(slope)), torch.where(near, height / b, 0.0)
