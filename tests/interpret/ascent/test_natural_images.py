"""Images by gradient ascent keep the mean, contrast, colours and spectrum of reference images."""

import math

import pytest
import torch
from torch import nn

from geh_explain.interpret import maximise
from geh_explain.interpret.ascent.bounds import Bounds
from geh_explain.interpret.ascent.parametrisation import NaturalImages, Phases
from geh_explain.interpret.ascent.statistics import ImageStatistics, frequencies


def generators(count, seed=0):
    return [torch.Generator().manual_seed(seed + number) for number in range(count)]


def waves(size, amplitude, count=200, seed=0):
    """Return images (n, 1, size, size) of one wave each: ``amplitude`` cos(2 pi * 3 x / size + phase)."""
    phases = 2 * math.pi * torch.rand(count, 1, 1, 1, generator=torch.Generator().manual_seed(seed))
    return amplitude * torch.cos(2 * math.pi * 3 * torch.arange(size) / size + phases).expand(-1, 1, size, -1)


def coloured_noise(count, size=16, seed=0):
    """Return images (n, 3, size, size) of smooth noise with the covariance ``mix mix^T`` of colours, and mix."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.tensor([[0.2, 0.0, 0.0], [0.15, 0.1, 0.0], [0.1, 0.1, 0.05]])
    white = torch.fft.rfft2(torch.randn(count, 3, size, size, generator=generator), norm="ortho")
    smooth = torch.fft.irfft2(white / frequencies(size, size).clamp_min(1 / size), s=(size, size), norm="ortho")
    smooth = smooth / smooth.std()
    return 0.5 + torch.einsum("cd,ndhw->nchw", mix, smooth), mix


def test_amplitudes_of_single_waves_are_those_of_their_frequency():
    statistics = ImageStatistics.measure(waves(12, amplitude=3.0))
    assert float(statistics.std) == pytest.approx(3 / math.sqrt(2), rel=1e-3)
    assert float(statistics.mean) == pytest.approx(0, abs=1e-3)
    # Of variance 1, the wave has |F|^2 = 12 * 12 / 2 at each of its two frequencies, of 16 on the ring of length 3.
    length = (12 * frequencies(12, 12)).round()
    ring = statistics.amplitude[0][length == 3]
    full = torch.fft.fftfreq(12)
    n_on_ring = int(((12 * (full[:, None] ** 2 + full**2).sqrt()).round() == 3).sum())
    torch.testing.assert_close(ring**2, torch.full_like(ring, 2 * 72 / n_on_ring), rtol=1e-3, atol=0)
    assert float(statistics.amplitude[0][length != 3].max()) < 1e-3


def test_natural_images_have_the_colours_and_the_contrast_of_the_reference():
    images, mix = coloured_noise(400)
    parametrisation = NaturalImages(ImageStatistics.measure(images), Bounds(), generators(400))
    with torch.no_grad():
        parametrisation.parameters.mul_(7)  # the norm of the coefficients does not matter
        drawn = parametrisation.inputs()
    centred = (drawn - drawn.mean(dim=(2, 3), keepdim=True)).transpose(0, 1).flatten(1)
    std = mix.norm(dim=1)
    torch.testing.assert_close(torch.corrcoef(centred), mix @ mix.T / (std[:, None] * std), rtol=0, atol=0.05)
    contrast = images.std(dim=(2, 3)).mean(dim=0)
    torch.testing.assert_close(drawn.std(dim=(2, 3)).mean(dim=0), contrast, rtol=0.05, atol=0)
    torch.testing.assert_close(drawn.mean(dim=(0, 2, 3)), torch.full((3,), 0.5), rtol=0, atol=0.02)


def test_phases_keep_the_power_spectrum_of_the_reference():
    statistics = ImageStatistics.measure(coloured_noise(200)[0])
    parametrisation = Phases(statistics, Bounds(), generators(2))
    image = parametrisation.inputs().detach()
    unmixed = torch.einsum(
        "cd,ndhw->nchw", torch.linalg.inv(statistics.mix), (image - statistics.mean) / statistics.std
    )
    power = torch.fft.rfft2(unmixed, norm="ortho").abs()[:, :, :, 1:-1]  # other columns are their own mirror images
    torch.testing.assert_close(power, statistics.amplitude[:, :, 1:-1].expand_as(power), rtol=1e-3, atol=1e-4)


def test_photographs_have_amplitudes_that_fall_as_one_over_the_frequency():
    box = Bounds(torch.zeros(3, 32, 32), torch.full((3, 32, 32), 10.0))
    statistics = ImageStatistics.of_photographs(torch.zeros(3, 32, 32), box)
    weighted = (statistics.amplitude * frequencies(32, 32))[:, 1:, 1:]
    torch.testing.assert_close(weighted, weighted[0, 0, 0].expand_as(weighted))
    drawn = NaturalImages(statistics, Bounds(), generators(100)).inputs().detach()
    # Frequency 0 starts at 0: its share of the energy goes to the others.
    assert float(drawn.std()) == pytest.approx(1.8, rel=0.05)
    assert float(drawn.mean()) == pytest.approx(5, abs=0.01)
    correlation = torch.corrcoef((drawn - drawn.mean()).transpose(0, 1).flatten(1))
    assert float(correlation[0, 1]) == pytest.approx(0.9, abs=0.02)


def test_pixels_that_are_constant_in_aligned_images_stay_constant():
    images = torch.zeros(50, 1, 8, 8)
    images[:, :, 2:6, 2:6] = 0.5 + 0.2 * torch.rand(50, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).eval()
    found = maximise(net, "1", 0, (1, 8, 8), reference=images, jitter=0, rotate=0, scale=0, progress=False).inputs
    border = torch.ones(8, 8, dtype=torch.bool)
    border[2:6, 2:6] = False
    assert bool((found[0, 0][border] == 0).all())
    assert float(found[0, 0][~border].std()) > 0.01


def test_images_stay_within_the_range_of_each_colour_of_the_reference():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 144, 1)).eval()
    mean, std = torch.tensor([0.0, 5.0, -50.0])[:, None, None], torch.tensor([1.0, 0.1, 10.0])[:, None, None]
    reference = mean + std * (torch.rand(80, 3, 16, 16) - 0.5)
    found = maximise(net, "0", [0, 1], (3, 16, 16), reference=reference, steps=40, progress=False).inputs
    low, high = reference.amin(dim=(0, 2, 3))[:, None, None], reference.amax(dim=(0, 2, 3))[:, None, None]
    assert bool(((found >= low) & (found <= high)).all())
    # The contrast of each colour is that of the reference, up to clipping.
    ratio = (found.std(dim=(2, 3)) / reference.std(dim=(0, 2, 3))).flatten()
    assert float(ratio.min()) > 0.7
    assert float(ratio.max()) < 1.2


def test_a_natural_image_excites_a_filter_more_than_any_reference_image():
    """A filter for vertical edges: the images have the same power at all angles, so the best one is found by ascent."""
    edge = torch.tensor([[-1.0, 0.0, 1.0]] * 3)
    net = nn.Sequential(nn.Conv2d(1, 1, 3, bias=False), nn.ReLU()).eval()
    with torch.no_grad():
        net[0].weight.copy_(edge[None, None])
    images = coloured_noise(200)[0].mean(dim=1, keepdim=True)
    found = maximise(net, "1", 0, (1, 16, 16), reference=images, preactivation=False, progress=False)
    with torch.no_grad():
        best = net(images).mean(dim=(1, 2, 3)).max()
    assert found.scores[0] > 1.3 * best
    assert float(found.inputs.std()) == pytest.approx(float(images.std()), rel=0.15)


def test_an_image_with_few_colours_has_no_colour_but_theirs():
    grey = torch.rand(30, 1, 8, 8, generator=torch.Generator().manual_seed(0)).expand(-1, 3, -1, -1)
    net = nn.Sequential(nn.Conv2d(3, 2, 3)).eval()
    found = maximise(net, "0", 0, (3, 8, 8), reference=grey, steps=10, progress=False).inputs[0]
    torch.testing.assert_close(found[0], found[1], atol=5e-3, rtol=0)
    torch.testing.assert_close(found[0], found[2], atol=5e-3, rtol=0)


def test_an_image_of_one_pixel_has_no_waves():
    net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Tanh())
    for parametrisation in ("natural", "phase"):
        found = maximise(net, "0", [0, 1], (3, 1, 1), parametrisation=parametrisation, steps=5, progress=False)
        assert torch.isfinite(torch.as_tensor(found.inputs)).all()
