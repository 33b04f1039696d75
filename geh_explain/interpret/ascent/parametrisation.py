"""Parametrisations of inputs: the variables that gradient ascent optimises, and the bounds of the inputs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from geh_explain.interpret.ascent.images import gaussian_blur

#: Shares of the limits to which a start is clipped: at the limits themselves the logit is infinite.
_LOGIT_LOW = 0.01
_LOGIT_HIGH = 0.99


@dataclass(frozen=True)
class Bounds:
    """Allowed inputs: a box, a ball around 0, both, or everything.

    Attributes
    ----------
    low, high
        Lowest and highest value of each number, tensors of the shape of one input; both None for no box.
    radius
        Largest Euclidean norm of an input; None for no ball.
    """

    low: Tensor | None = None
    high: Tensor | None = None
    radius: float | None = None

    @property
    def box(self) -> tuple[Tensor, Tensor] | None:
        """Both corners of the box, or None."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def project(self, x: Tensor) -> Tensor:
        """Return inputs ``(n, *shape)`` clipped to the box, then scaled down to the ball."""
        if self.box is not None:
            low, high = self.box
            x = torch.minimum(torch.maximum(x, low), high)
        if self.radius is not None:
            norms = x.flatten(1).norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
            x = x * (self.radius / norms).clamp(max=1).reshape(-1, *(1 for _ in x.shape[1:]))
        return x

    @property
    def centre(self) -> Tensor | float:
        """Centre of the box, 0 if there is none."""
        return 0.0 if self.box is None else (self.box[0] + self.box[1]) / 2

    @property
    def span(self) -> Tensor | float:
        """Unit in which steps are measured: the width of the box, else the radius, else 1."""
        if self.box is None:
            return self.radius or 1.0
        low, high = self.box
        # A number with equal limits is constant; its span of 1 avoids a division by 0.
        return torch.where(high > low, high - low, torch.ones_like(low))


class Parametrisation(ABC):
    """Map from optimised variables to inputs ``(n, *shape)``; ``parameters`` is a leaf tensor with gradients."""

    parameters: Tensor

    @abstractmethod
    def inputs(self) -> Tensor:
        """Return the inputs, differentiable in the parameters."""

    def project(self, blur: float) -> None:  # noqa: B027
        """Project the parameters to the bounds after a step, with a blur of ``blur`` pixels before if that is not 0.

        The default does nothing, for parametrisations whose inputs are always within the bounds.
        """


class Pixels(Parametrisation):
    """One parameter per number: x = centre + span * parameters.

    Parameters
    ----------
    start
        Inputs ``(n, *shape)`` at the first step; projected to the bounds.
    bounds
        Allowed inputs, which also define centre and span.
    """

    def __init__(self, start: Tensor, bounds: Bounds) -> None:
        self.bounds = bounds
        self.parameters = self._to_parameters(bounds.project(start)).clone().requires_grad_()

    def inputs(self) -> Tensor:
        return self.bounds.centre + self.bounds.span * self.parameters

    @torch.no_grad()
    def project(self, blur: float) -> None:
        inputs = self.inputs()
        smoothed = gaussian_blur(inputs, blur) if blur else inputs
        self.parameters.copy_(self._to_parameters(self.bounds.project(smoothed)))

    def _to_parameters(self, inputs: Tensor) -> Tensor:
        return (inputs - self.bounds.centre) / self.bounds.span


class Spectrum(Parametrisation):
    """Weighted Fourier coefficients of images.

    With coefficients c and weights w(f) = sqrt(H W) / (max(H, W) |f|) for the frequency f, the image is

        x = low + (high - low) * sigmoid(irfft2(w * c))

    or irfft2(w * c) without a box. Steps in pixels favour high frequencies, which look like noise. The weights, which
    fall with the frequency as the amplitudes of natural images do, favour low ones.

    Parameters
    ----------
    start
        Images (n, C, H, W) at the first step.
    bounds
        Allowed images.
    """

    def __init__(self, start: Tensor, bounds: Bounds) -> None:
        self.bounds = bounds
        height, width = start.shape[-2:]
        self._size = (height, width)
        vertical = torch.fft.fftfreq(height, device=start.device)[:, None]
        horizontal = torch.fft.rfftfreq(width, device=start.device)[None]
        # The mean has frequency 0; it gets the weight of the lowest other frequency.
        frequency = (vertical**2 + horizontal**2).sqrt().clamp_min(1 / max(height, width))
        self.weight = (math.sqrt(height * width) / (frequency * max(height, width))).to(start.dtype)
        spectrum = torch.fft.rfft2(_to_logits(start, bounds), norm="ortho") / self.weight
        # Optimisers work on real numbers: the last dimension holds real and imaginary parts.
        self.parameters = torch.view_as_real(spectrum).clone().requires_grad_()

    def inputs(self) -> Tensor:
        spectrum = torch.view_as_complex(self.parameters) * self.weight
        image = torch.fft.irfft2(spectrum, s=self._size, norm="ortho")
        if self.bounds.box is not None:
            low, high = self.bounds.box
            image = low + (high - low) * torch.sigmoid(image)
        return Bounds(radius=self.bounds.radius).project(image)


def _to_logits(images: Tensor, bounds: Bounds) -> Tensor:
    """Return the images before the sigmoid that keeps them in the box; the images themselves without a box."""
    if bounds.box is None:
        return images
    return torch.logit(((images - bounds.box[0]) / bounds.span).clamp(_LOGIT_LOW, _LOGIT_HIGH))
