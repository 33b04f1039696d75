"""Operations on images: random transforms, blur and total variation."""

import pytest
import torch

from geh_explain.interpret.ascent.images import RandomTransform, gaussian_blur, total_variation


def test_random_transforms_shift_and_rotate_within_their_range():
    image = torch.zeros(1, 1, 21, 21)
    image[..., 10, 10] = 1.0
    generator = torch.Generator().manual_seed(0)
    shifted = [RandomTransform(jitter=5)(image, [generator]) for _ in range(50)]
    centres = torch.stack([(m[0, 0] / m.sum()).sum(0) @ torch.arange(21.0) for m in shifted])
    assert 2 < float(centres.std()) < 4  # uniform within 5: 2.9
    assert float((centres - 10).abs().max()) <= 5.01
    rotated = RandomTransform(rotate=30)(torch.eye(21)[None, None], [generator])
    assert not torch.equal(rotated, torch.eye(21)[None, None])


def test_a_blur_keeps_the_sum_and_has_variance_sigma_squared():
    image = torch.zeros(1, 2, 31, 31)
    image[..., 15, 15] = 1.0
    blurred = gaussian_blur(image, 2.0)
    torch.testing.assert_close(blurred.sum(dim=(2, 3)), torch.ones(1, 2))
    variance = (blurred[0, 0].sum(0) * (torch.arange(31.0) - 15) ** 2).sum()
    assert float(variance) == pytest.approx(4.0, rel=0.05)


def test_total_variation_is_the_mean_absolute_difference_of_neighbours():
    image = torch.tensor([[0.0, 1.0, 3.0], [2.0, 2.0, 2.0]])[None, None]
    vertical = (2 + 1 + 1) / 3
    horizontal = (1 + 2 + 0 + 0) / 4
    assert float(total_variation(image)) == pytest.approx(vertical + horizontal)
    assert float(total_variation(torch.ones(1, 2, 4, 4))) == 0
