"""Gradient ascent reaches maxima that are known in closed form, and excites both units of a pair."""

import numpy as np
import pytest
import torch
from state_comparison import model_state
from torch import nn

import geh_explain as geh
from geh_explain.interpret import maximise
from geh_explain.interpret.ascent.images import total_variation
from geh_explain.vision import torchvision

W = torch.tensor([[1.0, -2.0, 0.5, 3.0], [0.5, 1.0, -1.0, 0.25]])


def linear(weight=W, *layers):
    net = nn.Sequential(nn.Linear(weight.shape[1], weight.shape[0]), *layers)
    with torch.no_grad():
        net[0].weight.copy_(weight)
        net[0].bias.zero_()
    return net.eval()


def ascend(net, layer, units, shape, **options):
    return maximise(net, layer, units, shape, **{"progress": False} | options)


def test_a_linear_unit_in_a_ball_is_its_weights():
    maximised = ascend(linear(), "0", [0, 1], (4,), radius=2.0)
    for row, weight in zip(maximised.inputs, W, strict=True):
        torch.testing.assert_close(row, 2 * weight / weight.norm(), atol=2e-3, rtol=0)
    np.testing.assert_allclose(maximised.scores, 2 * W.norm(dim=1), rtol=1e-4)


def test_a_linear_unit_in_a_box_is_the_corner_of_its_signs():
    maximised = ascend(linear(), "0", None, (4,), limits=(-3, 3))
    assert torch.equal(maximised.inputs, 3 * W.sign())


def test_limits_may_differ_by_feature():
    high = torch.tensor([1.0, 2.0, 3.0, 4.0])
    maximised = ascend(linear(), "0", 0, (4,), limits=(0, high), lr=0.2)
    assert torch.equal(maximised.inputs[0], torch.tensor([1.0, 0.0, 3.0, 4.0]))


def test_no_step_size_is_the_default_one():
    default, none, smaller = (
        ascend(linear(), "0", 0, (4,), limits=(-1, 1), steps=3, **options)
        for options in ({}, {"lr": None}, {"lr": 0.01})
    )
    assert torch.equal(none.inputs, default.inputs)
    assert none.scores[0] > smaller.scores[0] > 0


def test_steps_scale_with_the_bounds():
    assert torch.equal(ascend(linear(), "0", 0, (4,), limits=(0, 1000)).inputs[0], 500 * (W[0].sign() + 1))
    on_sphere = ascend(linear(), "0", 0, 4, radius=100.0).inputs[0]
    torch.testing.assert_close(on_sphere, 100 * W[0] / W[0].norm(), atol=0.1, rtol=0)


def test_tensors_from_inference_mode_or_with_gradients_are_accepted():
    with torch.inference_mode():
        mask, start, direction = torch.ones(4), torch.zeros(4), torch.tensor([1.0, -1.0])
    maximised = ascend(linear(), "0", direction, (4,), limits=(-1, 1), mask=mask, start=start)
    assert torch.equal(maximised.inputs[0], (W[0] - W[1]).sign())
    maximised = ascend(
        linear(), "0", torch.tensor([1, 0]), (4,), limits=(-1, 1), start=torch.zeros(4, requires_grad=True)
    )
    assert torch.equal(maximised.inputs, W.flip(0).sign())


def test_a_blur_requires_the_pixel_parametrisation():
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 1))
    with pytest.raises(geh.GEHError, match="blur=1"):
        ascend(net, "1", 0, (1, 4, 4), blur=1.0)


def test_a_penalty_on_the_norm_gives_the_weights():
    maximised = ascend(linear(), "0", 0, (4,), l2=0.5, steps=600)
    torch.testing.assert_close(maximised.inputs[0], W[0], atol=1e-2, rtol=0)


def test_a_direction_is_one_objective():
    direction = torch.tensor([1.0, -1.0])
    maximised = ascend(linear(), "0", direction, (4,), limits=(-1, 1))
    assert torch.equal(maximised.inputs[0], (W[0] - W[1]).sign())
    assert maximised.names == ["direction"]


def test_masked_numbers_do_not_change():
    start = torch.full((4,), 0.5)
    maximised = ascend(linear(), "0", 0, (4,), limits=(-1, 1), mask=torch.tensor([1, 1, 0, 0]), start=start)
    assert maximised.inputs[0].tolist() == [1.0, -1.0, 0.5, 0.5]


def test_preactivations_have_a_gradient_where_relu_has_none():
    net = linear(W, nn.ReLU(inplace=True))
    with torch.no_grad():
        net[0].bias.fill_(-1.0)
    start = torch.zeros(4)  # both units are off, and flat there
    maximised = ascend(net, "1", [0, 1], (4,), limits=(-1, 1), start=start)
    assert torch.equal(maximised.inputs, W.sign())
    with pytest.raises(ValueError, match="did not change with any input that was tried"):
        ascend(net, "1", [0, 1], (4,), limits=(-1, 1), start=start, preactivation=False)


class Block(nn.Module):
    """A residual block that ends in a functional ReLU, in place."""

    def __init__(self):
        super().__init__()
        self.inner = linear(torch.eye(4) * 2)

    def forward(self, x):
        return torch.relu_(self.inner(x) + x)


def test_preactivations_of_a_functional_relu_at_the_end_of_a_block():
    net = nn.Sequential(Block(), nn.Linear(4, 1))
    maximised = ascend(net, "0", 2, (4,), limits=(-1, 1), start=-0.5 * torch.ones(4))
    assert maximised.activations[0] == (pytest.approx(3.0),)


class Hills(nn.Module):
    """Two units that are high at different places, and at one place together."""

    def forward(self, x):
        def hill(height, *centre):
            return height * torch.exp(-((x - torch.tensor(centre)) ** 2).sum(1) / 4)

        first = hill(3.0, -4.0, 0.0) + hill(2.0, 0.0, 3.0)
        second = hill(3.0, 4.0, 0.0) + hill(2.0, 0.0, 3.0)
        return torch.stack([first, second], dim=1)


def test_a_pair_is_maximised_where_both_units_respond():
    net = nn.Sequential(Hills(), nn.Linear(2, 1))
    inputs = 8 * torch.rand(400, 2, generator=torch.Generator().manual_seed(0)) - 4
    maximised = ascend(net, "0", [(0, 1)], (2,), limits=(-6, 6), restarts=8, reference=inputs, lr=0.1)
    assert min(maximised.activations[0]) > 1.9
    torch.testing.assert_close(maximised.inputs[0], torch.tensor([0.0, 3.0]), atol=0.2, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_the_soft_minimum_raises_the_lower_unit(seed):
    """A sum would grow with one unit alone, a product with two that are far below 0."""
    net = linear(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    maximised = ascend(net, "0", [(0, 1)], (2,), limits=(-1, 1), start=torch.tensor([-0.9, -0.9]), seed=seed)
    assert maximised.inputs[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("parametrisation", ["pixel", "fourier"])
def test_images_of_any_number_of_channels(channels, parametrisation):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(channels, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 144, 1)).eval()
    options = {"parametrisation": parametrisation, "limits": (0, 1), "steps": 60}
    maximised = ascend(net, "0", [0, 3], (channels, 16, 16), **options)
    assert maximised.inputs.shape == (2, channels, 16, 16)
    assert 0 <= float(maximised.inputs.min()) <= float(maximised.inputs.max()) <= 1
    with torch.no_grad():
        noise = net[0](torch.rand(200, channels, 16, 16)).mean(dim=(2, 3))
    assert maximised.scores[0] > noise[:, 0].max()
    assert maximised.scores[1] > noise[:, 3].max()


def relative_variation(images):
    return float(total_variation(images) / images.std())


@pytest.mark.parametrize("seed", range(3))
def test_the_spectrum_gives_smoother_images(seed):
    """The unit has white-noise weights, so that only the parametrisation favours low frequencies."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 1)).eval()
    rough, smooth = (
        ascend(net, "1", 0, (1, 16, 16), parametrisation=kind, limits=(0, 1), steps=10).inputs
        for kind in ("pixel", "fourier")
    )
    assert relative_variation(smooth) < 0.8 * relative_variation(rough)


@pytest.mark.parametrize("change", [{"tv": 1.0}, {"blur": 1.0}])
def test_smoothing_smooths(change):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 1)).eval()
    plain, smoothed = (
        ascend(net, "1", 0, (1, 16, 16), parametrisation="pixel", limits=(0, 1), steps=40, **options).inputs
        for options in ({}, change)
    )
    assert float(total_variation(smoothed)) < 0.8 * float(total_variation(plain))


def test_same_seed_same_input():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh()).eval()
    one, two, other = (ascend(net, "1", 0, (1, 8, 8), steps=20, seed=seed).inputs for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_the_model_and_the_random_state_are_unchanged():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1)).train()
    before, state = model_state(net), torch.get_rng_state()
    ascend(net, "1", [0, (1, 2)], (4,), steps=5)
    assert model_state(net) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_batches_do_not_change_the_result():
    one_batch, split = (
        ascend(linear(), "0", None, (4,), limits=(-1, 1), restarts=3, batch_size=size) for size in (32, 2)
    )
    assert torch.equal(one_batch.inputs, split.inputs)


def test_the_repr_is_short():
    maximised = ascend(linear(torch.eye(9)), "0", None, (9,), steps=1)
    assert repr(maximised) == "Maximised(9 inputs (9,): 0[0], 0[1], 0[2], ...)"


def test_channels_of_a_torchvision_network():
    torch.manual_seed(0)
    net = torchvision("models").resnet18(weights=None).eval()
    maximised = ascend(net, "layer2", [0, (1, 2)], (3, 32, 32), steps=3)
    assert maximised.inputs.shape == (2, 3, 32, 32)
    assert maximised.names == ["layer2[0]", "layer2[1] and layer2[2]"]


WRONG = {
    "unknown unit": ({"units": 7}, "there are 2 units"),
    "no pair": ({"units": [(0, 0)]}, "two different units"),
    "three": ({"units": [(0, 1, 0)]}, "is not a pair"),
    "words": ({"units": ["0"]}, "units: '0' is not supported"),
    "nothing": ({"units": []}, "units=\\[\\] is empty"),
    "short direction": ({"units": torch.ones(3)}, "a direction has shape"),
    "no limits": ({"limits": 3}, "limits=3 is not a pair"),
    "crossed limits": ({"limits": (1, 0)}, "the lowest not above the highest"),
    "half a limit": ({"limits": (0, None)}, "give both ends"),
    "endless limits": ({"limits": (0, float("inf"))}, "must be finite"),
    "wide mask": ({"mask": torch.ones(9)}, "mask does not fit"),
    "mask of nothing": ({"mask": torch.zeros(4)}, "at least one must be positive"),
    "radius": ({"radius": -1}, "radius=-1"),
    "radius and limits": ({"radius": 1, "limits": (0, 1)}, "without limits"),
    "no number": ({"lr": "fast"}, "lr='fast'"),
    "NaN": ({"l2": float("nan")}, "l2=nan"),
    "no unit set": ({"unit_set": [1]}, "unit_set="),
    "a unit set": ({"units": geh.units.Channels()}, "unit_set="),
    "another reference": ({"reference": torch.zeros(20, 3)}, "reference: its rows have shape"),
    "no shape": ({"shape": None}, "shape=None"),
    "shape": ({"shape": (3,)}, "shape: the model does not take rows of shape"),
    "steps": ({"steps": 0}, "steps=0"),
    "parametrisation": ({"parametrisation": "wavelet"}, "parametrisation='wavelet'"),
    "a table in Fourier space": ({"parametrisation": "fourier"}, "is not an image"),
    "a table that jitters": ({"jitter": 2}, "is not an image"),
    "the inputs": ({"layer": None}, "name a hidden layer"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_raise(name):
    change, words = WRONG[name]
    arguments = {"layer": "0", "units": 0, "shape": (4,)} | change
    with pytest.raises(geh.GEHError, match=words):
        ascend(linear(), **arguments)
