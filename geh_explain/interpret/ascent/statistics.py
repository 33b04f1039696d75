"""Statistics of images: mean, colours and amplitudes of frequencies, which images by gradient ascent keep."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from geh_explain.interpret.ascent.bounds import Bounds

#: Contrast of photographs: their standard deviation as a share of the range of values.
_CONTRAST = 0.18
#: Correlation of the colours of photographs.
_COLOUR_CORRELATION = 0.9
#: Images are aligned if their mean image varies by more than this share of the pixels' variance.
_ALIGNED = 0.1
#: Smallest variance of a pixel or colour, as a share of the mean one; it avoids divisions by 0.
_FLOOR = 1e-6


@dataclass(frozen=True)
class ImageStatistics:
    """Mean, colours and amplitudes of images x (C, H, W).

        x = mean + std * (mix z),    |rfft2(z)(f)| = amplitude(f)

    for z (C, H, W), decorrelated colours. The amplitude is the same for all frequencies of one length |f|, rounded to
    full waves per image. The contrast of z, the root of the sum over |f| > 0, is the mean contrast of the images.

    Attributes
    ----------
    mean, std
        Mean and standard deviation, (C, H, W) for aligned images, such as centred digits, else (C, 1, 1).
    mix
        Symmetric square root (C, C) of the correlation of the colours.
    amplitude
        Root mean square (C, H, W // 2 + 1) of the coefficients of ``rfft2(z, norm="ortho")``.
    size
        Height and width of images.
    """

    mean: Tensor
    std: Tensor
    mix: Tensor
    amplitude: Tensor
    size: tuple[int, int]

    @classmethod
    def measure(cls, images: Tensor) -> ImageStatistics:
        """Return the statistics of images (n, C, H, W)."""
        dims = (0,) if _are_aligned(images) else (0, 2, 3)
        mean = images.mean(dim=dims, keepdim=True)[0]
        variance = (images - mean).square().mean(dim=dims, keepdim=True)[0]
        # A constant colour or pixel stays constant.
        std = torch.where(variance > _FLOOR * variance.mean(), variance, torch.zeros_like(variance)).sqrt()
        standard = torch.where(std > 0, (images - mean) / torch.where(std > 0, std, 1), torch.zeros_like(images))
        correlation = torch.einsum("nchw,ndhw->cd", standard, standard) / (standard[:, 0].numel())
        values, vectors = torch.linalg.eigh(correlation)
        roots = values.clamp_min(_FLOOR * float(values.max().clamp_min(_FLOOR))).sqrt()
        decorrelated = torch.einsum("cd,ndhw->nchw", (vectors / roots) @ vectors.T, standard)
        height, width = images.shape[-2:]
        power = torch.fft.rfft2(decorrelated, norm="ortho").abs().square()
        amplitude = _ring_means(power.mean(dim=0), height, width).sqrt()
        # The mean contrast: a few images of high contrast would raise the root mean square.
        contrast = decorrelated.std(dim=(2, 3), correction=0)
        typical = contrast.mean(dim=0) / contrast.square().mean(dim=0).sqrt().clamp_min(_FLOOR)
        amplitude[:, frequencies(height, width) > 0] *= typical[:, None]
        return cls(mean, std, (vectors * roots) @ vectors.T, amplitude, (height, width))

    @classmethod
    def of_photographs(cls, template: Tensor, bounds: Bounds) -> ImageStatistics:
        """Return typical statistics of photographs, for images like ``template`` (C, H, W).

        Amplitudes fall as 1 / |f|. Mean and contrast are those of photographs within the box; without a box the mean
        is 0 and the standard deviation 1, as of normalised inputs. Three colours have correlation 0.9.
        """
        channels, height, width = template.shape
        has_box = bounds.box is not None
        contrast = _CONTRAST * bounds.span if has_box else 1.0
        correlation = torch.eye(channels).to(template)
        if channels == 3:
            correlation = (1 - _COLOUR_CORRELATION) * correlation + _COLOUR_CORRELATION
        values, vectors = torch.linalg.eigh(correlation)
        # The mean has frequency 0; it gets the amplitude of the lowest other frequency.
        frequency = frequencies(height, width).clamp_min(1 / max(height, width)).to(template)
        power = frequency.pow(-2).expand(channels, -1, -1)
        waves = power * _multiplicity(width).to(template) * (frequencies(height, width) > 0).to(template)
        total = waves.sum(dim=(1, 2), keepdim=True)
        # An image of one pixel has no waves.
        amplitude = (power * height * width / torch.where(total > 0, total, torch.ones_like(total))).sqrt()
        mean, std = template + bounds.centre, torch.zeros_like(template) + contrast
        return cls(mean, std, (vectors * values.sqrt()) @ vectors.T, amplitude, (height, width))


def frequencies(height: int, width: int) -> Tensor:
    """Return the lengths |f| (height, width // 2 + 1) of the frequencies of ``rfft2``, in waves per pixel."""
    squares: Tensor = torch.fft.fftfreq(height)[:, None] ** 2 + torch.fft.rfftfreq(width)[None] ** 2
    return squares.sqrt()


def _are_aligned(images: Tensor) -> bool:
    """Whether positions differ in their mean, as in centred digits, by more than the choice of images explains."""
    if len(images) < 1 / _ALIGNED:
        return False
    between = images.mean(dim=0).var(dim=(1, 2), correction=0).sum()
    total = images.var(dim=(0, 2, 3), correction=0).sum()
    return bool(between > _ALIGNED * total)


def _multiplicity(width: int) -> Tensor:
    """Return how many frequencies of ``fft2`` each column (width // 2 + 1) of ``rfft2`` stands for."""
    columns = torch.full((width // 2 + 1,), 2.0)
    columns[0] = 1
    if width % 2 == 0:
        columns[-1] = 1
    return columns


def _ring_means(power: Tensor, height: int, width: int) -> Tensor:
    """Return power (C, H, W // 2 + 1) averaged over frequencies of the same rounded length."""
    rings = (frequencies(height, width) * math.sqrt(height * width)).round().long().to(power.device)
    weight = _multiplicity(width).to(power).expand(height, -1).flatten()
    count = torch.zeros(int(rings.max()) + 1).to(power)
    sums = count.expand(len(power), -1).index_add(1, rings.flatten(), weight * power.flatten(1))
    means = sums / count.index_add(0, rings.flatten(), weight).clamp_min(1)
    return means[:, rings]
