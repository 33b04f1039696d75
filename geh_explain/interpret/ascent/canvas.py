"""What gradient ascent paints on: numbers themselves, or the spectrum of an image."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from geh_explain.interpret.ascent.images import blurred


@dataclass(frozen=True)
class Bounds:
    """Where inputs may lie: ``low`` to ``high`` for each number, and no further than ``radius`` from 0."""

    low: Tensor | None = None
    high: Tensor | None = None
    radius: float | None = None

    def inside(self, x: Tensor) -> Tensor:
        """Return the nearest allowed inputs."""
        if self.low is not None and self.high is not None:
            x = torch.minimum(torch.maximum(x, self.low), self.high)
        if self.radius is not None:
            norms = x.flatten(1).norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
            x = x * (self.radius / norms).clamp(max=1).reshape(-1, *(1 for _ in x.shape[1:]))
        return x

    @property
    def middle(self) -> Tensor | float:
        """Where to begin."""
        return 0.0 if self.low is None or self.high is None else (self.low + self.high) / 2

    @property
    def span(self) -> Tensor | float:
        """How far inputs can move, by which steps are measured: 1 where there are no bounds."""
        if self.low is None or self.high is None:
            return self.radius or 1.0
        return torch.where(self.high > self.low, self.high - self.low, torch.ones_like(self.low))


class Canvas(ABC):
    """Parameters that make inputs (n, *shape)."""

    parameters: Tensor

    @abstractmethod
    def inputs(self) -> Tensor:
        """Return the inputs that the parameters stand for."""

    def settle(self, blur: float) -> None:  # noqa: B027
        """Bring the parameters back to where they are allowed, after a step; ``blur`` may smooth them."""


class Pixels(Canvas):
    """Every number is a parameter of its own, measured by how far it can move."""

    def __init__(self, start: Tensor, bounds: Bounds) -> None:
        self.bounds = bounds
        self.parameters = self._parameters(bounds.inside(start)).clone().requires_grad_()

    def inputs(self) -> Tensor:
        return self.bounds.middle + self.bounds.span * self.parameters

    @torch.no_grad()
    def settle(self, blur: float) -> None:
        value = self.inputs()
        self.parameters.copy_(self._parameters(self.bounds.inside(blurred(value, blur) if blur else value)))

    def _parameters(self, value: Tensor) -> Tensor:
        return (value - self.bounds.middle) / self.bounds.span


class Spectrum(Canvas):
    """The Fourier coefficients of an image are the parameters, weighted so that all frequencies change alike.

    Steps in pixels favour high frequencies, which look like noise; natural images have mostly low ones.
    """

    def __init__(self, start: Tensor, bounds: Bounds) -> None:
        self.bounds, self.shape = bounds, start.shape
        height, width = start.shape[-2:]
        down = torch.fft.fftfreq(height, device=start.device)[:, None]
        across = torch.fft.rfftfreq(width, device=start.device)[None]
        frequency = (down**2 + across**2).sqrt().clamp_min(1 / max(height, width))
        self.weight = (math.sqrt(height * width) / (frequency * max(height, width))).to(start.dtype)
        unbounded = start if bounds.low is None else _unsquashed(start, bounds)
        spectrum = torch.fft.rfft2(unbounded, norm="ortho") / self.weight
        self.parameters = torch.view_as_real(spectrum).clone().requires_grad_()

    def inputs(self) -> Tensor:
        spectrum = torch.view_as_complex(self.parameters) * self.weight
        image = torch.fft.irfft2(spectrum, s=self.shape[-2:], norm="ortho")
        if self.bounds.low is not None and self.bounds.high is not None:
            image = self.bounds.low + (self.bounds.high - self.bounds.low) * torch.sigmoid(image)
        return Bounds(radius=self.bounds.radius).inside(image)


def _unsquashed(x: Tensor, bounds: Bounds) -> Tensor:
    assert bounds.low is not None
    return torch.logit(((x - bounds.low) / bounds.span).clamp(0.01, 0.99))
