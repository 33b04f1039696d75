"""Images of another type or range than those of the training, layers of one pixel, a single image."""

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.run.input_range import _thinned

pytestmark = pytest.mark.usefixtures("seeded")
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Pixel(nn.Module):
    """A network whose second convolution has one position."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.fc = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 6), nn.Linear(5, 2)

    def forward(self, x):
        return self.fc(torch.tanh(self.conv2(torch.tanh(self.conv1(x)))).flatten(1))


def explain(model, x, layer="conv1", **options):
    explainer = geh.GEHExplainer(model, layer, output="probability", posterior=geh.posterior.PointEstimate(), **options)
    return explainer.explain(x, 0, groups=1, progress=False)


# Bytes


@pytest.mark.parametrize("layer", [None, "conv1"])
def test_images_of_bytes_are_refused_with_the_conversion(layer):
    images = np.zeros((4, 3, 8, 8), dtype=np.uint8)
    units = geh.units.Patches(4) if layer is None else None
    with pytest.raises(geh.GEHError, match=r"images.float\(\) / 255, then normalised as in training"):
        explain(Pixel(), images, layer, units=units)
    with pytest.raises(geh.GEHError, match=r"images.permute\(0, 3, 1, 2\).float\(\) / 255"):
        explain(Pixel(), images.transpose(0, 2, 3, 1), layer, units=units)


def test_a_model_that_takes_bytes_may_have_them():
    class TakesBytes(Pixel):
        def forward(self, x):
            return super().forward(x.float() / 255)

    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    assert explain(TakesBytes(), images).geh.mean[0, 1] > 0


# Range


@pytest.mark.parametrize(
    "attributes",
    [
        {"default_cfg": {"mean": tuple(MEAN), "std": tuple(STD)}},
        {"pretrained_cfg": {"mean": MEAN, "std": STD}},
        {"image_mean": MEAN, "image_std": STD},
    ],
)
def test_images_that_are_not_normalised_are_reported(attributes):
    model = Pixel()
    for name, value in attributes.items():
        setattr(model, name, value)
    images = torch.rand(6, 3, 8, 8)
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    explain(model, (images - mean) / std)
    with pytest.warns(geh.GEHWarning, match="between 0 and 1, as those of images before they are normalised"):
        explain(model, images)
    with pytest.warns(geh.GEHWarning, match=r"9\d% of their values, from .* to .*, are outside of the range"):
        explain(model, 255 * images)


def test_a_network_without_known_preprocessing_is_not_reported():
    model = Pixel()
    model.default_cfg = {"mean": None, "std": "unknown"}
    assert explain(model, 255 * torch.rand(6, 3, 8, 8)).settings["warnings"] == []


def test_a_batch_normalisation_of_the_inputs_tells_their_range():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    x = 50 + 2 * torch.randn(200, 3)
    for _ in range(100):
        net(x)
    explain(net, x[:50], layer=None)
    with pytest.warns(geh.GEHWarning, match=r"channel \d has mean .*, but the first layer, '0', saw 50"):
        explain(net, (x[:50] - 50) / 2, layer=None)


def test_a_batch_normalisation_further_above_tells_nothing_about_the_inputs():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 2))
    x = 50 + 2 * torch.randn(200, 3)
    for _ in range(100):
        net(x)
    assert explain(net, x[:20], layer=None).settings["warnings"] == []


# One pixel, one image


def test_channels_of_one_pixel_are_its_neurons():
    model, x = Pixel(), torch.randn(6, 3, 8, 8)
    default, channels, neurons = (
        explain(model, x, "conv2", units=units) for units in (None, geh.units.Channels(), geh.units.Neurons())
    )
    assert default.settings["units"] == "Channels(dim=1)"
    hessians = torch.func.vmap(torch.func.hessian(lambda a: model.fc(torch.tanh(a)).softmax(0)[0]))(
        model.conv2(torch.tanh(model.conv1(x))).flatten(1)
    )
    expected = hessians.mean(0).abs().detach().numpy()[np.triu_indices(5, 1)]
    for result in (default, channels, neurons):
        np.testing.assert_allclose(result.geh.draws[0], expected, rtol=1e-4, atol=1e-7)


def test_one_image_has_the_scores_of_its_local_hessian():
    model, x = Pixel(), torch.randn(6, 3, 8, 8)
    of_each = [explain(model, x[row : row + 1]) for row in range(6)]
    together = explain(model, x)
    signed = np.mean([result.signed[0, 0] for result in of_each], axis=0)
    np.testing.assert_allclose(together.signed[0, 0], signed, rtol=1e-4, atol=1e-7)


def test_an_image_without_a_batch_dimension_is_refused():
    with pytest.raises(geh.GEHError, match=r"inputs\[None\] for a single image"):
        explain(Pixel(), torch.randn(3, 8, 8))


def test_large_images_are_looked_at_in_part():
    # 64 images of a camera, in double precision, would take gigabytes.
    assert _thinned(torch.zeros(2, 3, 1030, 600)).shape == (2, 3, 258, 300)
    assert _thinned(torch.zeros(2, 3, 32, 40)).shape == (2, 3, 32, 40)
    assert _thinned(torch.zeros(5, 7)).shape == (5, 7)
