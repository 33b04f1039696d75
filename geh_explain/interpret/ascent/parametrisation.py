"""Parametrisations of inputs: the variables that gradient ascent optimises."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from geh_explain.interpret.ascent.bounds import Bounds
from geh_explain.interpret.ascent.images import gaussian_blur
from geh_explain.interpret.ascent.statistics import ImageStatistics, frequencies

#: Shares of the limits to which a start is clipped: at the limits themselves the logit is infinite.
_LOGIT_LOW = 0.01
_LOGIT_HIGH = 0.99
#: Smallest energy of an image, which avoids a division by 0.
_MIN_ENERGY = 1e-12


class Parametrisation(ABC):
    """Map from optimised variables to inputs ``(n, *shape)``; ``parameters`` is a leaf tensor with gradients."""

    parameters: Tensor

    @abstractmethod
    def inputs(self) -> Tensor:
        """Return the inputs, differentiable in the parameters."""

    def keep(self, rows: Tensor) -> None:
        """Drop all inputs but those in the mask ``rows`` (n,)."""
        self.parameters = self.parameters.detach()[rows].requires_grad_()

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
        """Return the inputs of the network for the current parameters."""
        return self.bounds.centre + self.bounds.span * self.parameters

    @torch.no_grad()
    def project(self, blur: float) -> None:
        inputs = self.inputs()
        smoothed = gaussian_blur(inputs, blur) if blur else inputs
        self.parameters.copy_(self._to_parameters(self.bounds.project(smoothed)))

    def _to_parameters(self, inputs: Tensor) -> Tensor:
        return (inputs - self.bounds.centre) / self.bounds.span


class NaturalImages(Parametrisation):
    """Fourier coefficients in units of the amplitudes of natural images.

    With coefficients c (C, H, W // 2 + 1) and the statistics of images, the image is

        x = mean + std * (mix irfft2(amplitude * c * r)),    r = sqrt(sum amplitude^2 / sum |amplitude * c|^2)

    clipped to the box. The sums run over the frequencies other than 0 of one decorrelated colour: colours and contrast
    are those of the statistics, whatever the coefficients, and equal steps in c favour the frequencies that natural
    images favour. At frequency 0 r = 1 / sqrt(1 + |c|^2), which bounds the mean of the image. The gradient passes the
    clipping unchanged, so that clipped pixels can return.

    Parameters
    ----------
    statistics
        Statistics of images that the result keeps.
    bounds
        Allowed images.
    generators
        One source of random coefficients per image.
    """

    def __init__(self, statistics: ImageStatistics, bounds: Bounds, generators: Sequence[torch.Generator]) -> None:
        self.statistics = statistics
        self.bounds = bounds
        amplitude = statistics.amplitude
        random = [torch.randn(*amplitude.shape, 2, generator=generator) for generator in generators]
        coefficients = torch.stack(random).to(amplitude) / math.sqrt(2)
        # The image starts with the mean of the statistics: frequency 0 is 0.
        coefficients[:, :, 0, 0] = 0
        # Optimisers work on real numbers: the last dimension holds real and imaginary parts.
        self.parameters = coefficients.requires_grad_()

    def inputs(self) -> Tensor:
        """Return the inputs of the network for the current parameters."""
        amplitude = self.statistics.amplitude
        is_wave = (frequencies(*self.statistics.size) > 0).to(amplitude)
        squares = self.parameters.square().sum(dim=-1)
        power = amplitude.square() * is_wave
        energy = (power * squares).sum(dim=(2, 3), keepdim=True).clamp_min(_MIN_ENERGY)
        waves = (power.sum(dim=(1, 2), keepdim=True) / energy).sqrt()
        ratio = is_wave * waves + (1 - is_wave) / (1 + squares).sqrt()
        return self._image(torch.view_as_complex(self.parameters) * (amplitude * ratio))

    def _image(self, spectrum: Tensor) -> Tensor:
        """Return images (n, C, H, W) with the Fourier coefficients ``spectrum`` of decorrelated colours."""
        statistics = self.statistics
        waves = torch.fft.irfft2(spectrum, s=statistics.size, norm="ortho")
        image = statistics.mean + statistics.std * torch.einsum("cd,ndhw->nchw", statistics.mix, waves)
        return image + (self.bounds.project(image) - image).detach()


class Phases(NaturalImages):
    """Phases p of Fourier coefficients with fixed amplitudes (MACO, Fel et al. 2023).

    The coefficients of :class:`NaturalImages` are c = exp(i p): the power spectrum, too, is that of the statistics.
    """

    def __init__(self, statistics: ImageStatistics, bounds: Bounds, generators: Sequence[torch.Generator]) -> None:
        super().__init__(statistics, bounds, generators)
        phases = torch.view_as_complex(self.parameters.detach()).angle()
        # The mean of the image starts at that of the statistics: the real part of exp(i pi / 2) is 0.
        phases[:, :, 0, 0] = math.pi / 2
        self.parameters = phases.requires_grad_()

    def inputs(self) -> Tensor:
        """Return the inputs of the network for the current parameters."""
        return self._image(torch.polar(self.statistics.amplitude.expand_as(self.parameters), self.parameters))


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
        # The mean has frequency 0; it gets the weight of the lowest other frequency.
        frequency = frequencies(height, width).clamp_min(1 / max(height, width)).to(start)
        self.weight = math.sqrt(height * width) / (frequency * max(height, width))
        spectrum = torch.fft.rfft2(_to_logits(start, bounds), norm="ortho") / self.weight
        # Optimisers work on real numbers: the last dimension holds real and imaginary parts.
        self.parameters = torch.view_as_real(spectrum).clone().requires_grad_()

    def inputs(self) -> Tensor:
        """Return the inputs of the network for the current parameters."""
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
