"""Gaussian forms of ramps and steps: kinked functions of a normal variable, on average.

For e normal with mean 0 and standard deviation b, the bandwidth, and u = x / b ::

    E max(x + e, 0) = x Phi(u) + b phi(u),    E [x + e > 0] = Phi(u),

with Phi and phi the standard normal distribution and density. The first and second derivatives of the ramp are Phi(u)
and phi(u) / b.
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
        parts = [
            tangent * slope
            for tangent, slope in ((tangents[0], torch.special.ndtr(u)), (tangents[1], density(u)))
            if tangent is not None
        ]
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
