"""Small changes of images that what they show should survive, and how rough an image is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Shake:
    """Random shifts by up to ``jitter`` pixels, rotations by up to ``rotate`` degrees, zooms by up to ``scale``.

    A pattern that only works at one place, angle or size is an accident of pixels.
    """

    jitter: float = 0.0
    rotate: float = 0.0
    scale: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.jitter or self.rotate or self.scale)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return images (n, C, H, W), each moved in its own way; the generator lives on the CPU."""
        count, (height, width) = len(images), images.shape[-2:]
        random = 2 * torch.rand(count, 4, generator=generator).to(images) - 1
        angle = random[:, 0] * math.radians(self.rotate)
        zoom = 1 / (1 + random[:, 1] * self.scale)
        ratio = height / width
        theta = images.new_zeros(count, 2, 3)
        theta[:, 0, 0], theta[:, 0, 1] = zoom * angle.cos(), -zoom * angle.sin() * ratio
        theta[:, 1, 0], theta[:, 1, 1] = zoom * angle.sin() / ratio, zoom * angle.cos()
        theta[:, 0, 2], theta[:, 1, 2] = random[:, 2] * 2 * self.jitter / width, random[:, 3] * 2 * self.jitter / height
        grid = F.affine_grid(theta, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def blurred(images: Tensor, sigma: float) -> Tensor:
    """Return images (n, C, H, W) under a Gaussian blur of ``sigma`` pixels."""
    reach = max(1, math.ceil(3 * sigma))
    offsets = torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype)
    kernel = torch.exp(-(offsets**2) / (2 * sigma**2))
    kernel = kernel / kernel.sum()
    channels = images.shape[1]
    for dim, padding in ((2, (0, 0, reach, reach)), (3, (reach, reach, 0, 0))):
        shape = [1, 1, 1, 1]
        shape[dim] = len(kernel)
        weight = kernel.reshape(shape).expand(channels, 1, *shape[2:])
        images = F.conv2d(F.pad(images, padding, mode="replicate"), weight, groups=channels)
    return images


def roughness(images: Tensor) -> Tensor:
    """Return the total variation (n,) of images (n, C, H, W): the mean absolute difference of neighbours."""
    down = (images[:, :, 1:] - images[:, :, :-1]).abs().flatten(1).mean(dim=1)
    across = (images[:, :, :, 1:] - images[:, :, :, :-1]).abs().flatten(1).mean(dim=1)
    return down + across
