"""Operations on batches of images: random affine transforms, Gaussian blur, total variation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class RandomTransform:
    """Random shift, rotation and zoom of each image, uniform within the given ranges.

    A pattern that excites a unit only at one exact position, angle or size is usually an artefact of single pixels.
    Under random transforms such patterns do not survive gradient ascent.

    Attributes
    ----------
    jitter
        Largest shift in pixels, in each direction.
    rotate
        Largest rotation in degrees.
    scale
        Largest zoom, as a share of the size: 0.05 is up to 5 % larger or smaller.
    """

    jitter: float = 0.0
    rotate: float = 0.0
    scale: float = 0.0

    def __bool__(self) -> bool:
        """Whether images change at all."""
        return bool(self.jitter or self.rotate or self.scale)

    def __call__(self, images: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """Return transformed images (n, C, H, W); pixels outside the image are those reflected at its border.

        There is one generator per image, on the CPU, so that results depend neither on the device nor on the other
        images of the batch.
        """
        count = len(images)
        height, width = images.shape[-2:]
        random = 2 * torch.stack([torch.rand(4, generator=generator) for generator in generators]).to(images) - 1
        angle = random[:, 0] * math.radians(self.rotate)
        zoom = 1 / (1 + random[:, 1] * self.scale)
        # Coordinates of affine_grid run from -1 to 1 in both directions, so rotations need the aspect ratio.
        ratio = height / width
        theta = images.new_zeros(count, 2, 3)
        theta[:, 0, 0] = zoom * angle.cos()
        theta[:, 0, 1] = -zoom * angle.sin() * ratio
        theta[:, 1, 0] = zoom * angle.sin() / ratio
        theta[:, 1, 1] = zoom * angle.cos()
        theta[:, 0, 2] = random[:, 2] * 2 * self.jitter / width
        theta[:, 1, 2] = random[:, 3] * 2 * self.jitter / height
        grid = F.affine_grid(theta, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def gaussian_blur(images: Tensor, sigma: float) -> Tensor:
    """Return images (n, C, H, W) convolved with a Gaussian of standard deviation ``sigma`` pixels.

    The kernel extends over 3 sigma; borders are replicated, so that a constant image stays constant.
    """
    radius = max(1, math.ceil(3 * sigma))
    offsets = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
    kernel = torch.exp(-(offsets**2) / (2 * sigma**2))
    kernel = kernel / kernel.sum()
    channels = images.shape[1]
    # The Gaussian is separable: one pass along the height, one along the width.
    for dim, padding in ((2, (0, 0, radius, radius)), (3, (radius, radius, 0, 0))):
        shape = [1, 1, 1, 1]
        shape[dim] = len(kernel)
        weight = kernel.reshape(shape).expand(channels, 1, *shape[2:])
        images = F.conv2d(F.pad(images, padding, mode="replicate"), weight, groups=channels)
    return images


def total_variation(images: Tensor) -> Tensor:
    """Return the total variation (n,) of images (n, C, H, W).

    It is mean |x[h+1, w] - x[h, w]| + mean |x[h, w+1] - x[h, w]|, with means over channels and pixels.

    >>> total_variation(torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]]))
    tensor([1.])
    """
    vertical = (images[:, :, 1:] - images[:, :, :-1]).abs().flatten(1).mean(dim=1)
    horizontal = (images[:, :, :, 1:] - images[:, :, :, :-1]).abs().flatten(1).mean(dim=1)
    return vertical + horizontal
