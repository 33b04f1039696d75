"""Gradient ascent ends where the answer is known, and both units of a pair respond."""

import numpy as np
import pytest
import torch
from borrowing import model_state
from torch import nn

import geh_explain as geh
from geh_explain.interpret import maximise
from geh_explain.interpret.ascent.images import Shake, blurred, roughness
from geh_explain.interpret.ascent.objectives import soft_minimum
from geh_explain.vision import torchvision

W = torch.tensor([[1.0, -2.0, 0.5, 3.0], [0.5, 1.0, -1.0, 0.25]])


def linear(weight=W, *more):
    net = nn.Sequential(nn.Linear(weight.shape[1], weight.shape[0]), *more)
    with torch.no_grad():
        net[0].weight.copy_(weight)
        net[0].bias.zero_()
    return net.eval()


def climb(net, layer, units, shape, **options):
    return maximise(net, layer, units, shape, **{"progress": False} | options)


def test_a_linear_unit_in_a_ball_is_its_weights():
    found = climb(linear(), "0", [0, 1], (4,), radius=2.0)
    for row, weight in zip(found.inputs, W, strict=True):
        torch.testing.assert_close(row, 2 * weight / weight.norm(), atol=2e-3, rtol=0)
    np.testing.assert_allclose(found.scores, 2 * W.norm(dim=1), rtol=1e-4)


def test_a_linear_unit_in_a_box_is_the_corner_of_its_signs():
    found = climb(linear(), "0", None, (4,), limits=(-3, 3))
    assert torch.equal(found.inputs, 3 * W.sign())


def test_limits_may_differ_by_feature():
    high = torch.tensor([1.0, 2.0, 3.0, 4.0])
    found = climb(linear(), "0", 0, (4,), limits=(0, high), lr=0.2)
    assert torch.equal(found.inputs[0], torch.tensor([1.0, 0.0, 3.0, 4.0]))


def test_steps_are_measured_by_how_far_inputs_can_move():
    assert torch.equal(climb(linear(), "0", 0, (4,), limits=(0, 1000)).inputs[0], 500 * (W[0].sign() + 1))
    far = climb(linear(), "0", 0, 4, radius=100.0).inputs[0]
    torch.testing.assert_close(far, 100 * W[0] / W[0].norm(), atol=0.1, rtol=0)


def test_tensors_may_come_from_anywhere():
    with torch.inference_mode():
        mask, start, direction = torch.ones(4), torch.zeros(4), torch.tensor([1.0, -1.0])
    found = climb(linear(), "0", direction, (4,), limits=(-1, 1), mask=mask, start=start)
    assert torch.equal(found.inputs[0], (W[0] - W[1]).sign())
    found = climb(linear(), "0", torch.tensor([1, 0]), (4,), limits=(-1, 1), start=torch.zeros(4, requires_grad=True))
    assert torch.equal(found.inputs, W.flip(0).sign())


def test_a_blur_wants_pixels():
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 1))
    with pytest.raises(geh.GEHError, match="blur=1"):
        climb(net, "1", 0, (1, 4, 4), blur=1.0)


def test_a_penalty_on_the_norm_gives_weights_too():
    found = climb(linear(), "0", 0, (4,), l2=0.5, steps=600)
    torch.testing.assert_close(found.inputs[0], W[0], atol=1e-2, rtol=0)


def test_a_direction_is_climbed_as_one():
    direction = torch.tensor([1.0, -1.0])
    found = climb(linear(), "0", direction, (4,), limits=(-1, 1))
    assert torch.equal(found.inputs[0], (W[0] - W[1]).sign())
    assert found.names == ["direction"]


def test_only_what_the_mask_leaves_free_changes():
    start = torch.full((4,), 0.5)
    found = climb(linear(), "0", 0, (4,), limits=(-1, 1), mask=torch.tensor([1, 1, 0, 0]), start=start)
    assert found.inputs[0].tolist() == [1.0, -1.0, 0.5, 0.5]


def test_preactivations_lead_out_of_a_dead_relu():
    net = linear(W, nn.ReLU(inplace=True))
    with torch.no_grad():
        net[0].bias.fill_(-1.0)
    start = torch.zeros(4)  # both units are off, and flat there
    found = climb(net, "1", [0, 1], (4,), limits=(-1, 1), start=start)
    assert torch.equal(found.inputs, W.sign())
    with pytest.raises(ValueError, match="did not change with any input that was tried"):
        climb(net, "1", [0, 1], (4,), limits=(-1, 1), start=start, preactivation=False)


class Block(nn.Module):
    """A residual block that ends in a functional ReLU, in place."""

    def __init__(self):
        super().__init__()
        self.inner = linear(torch.eye(4) * 2)

    def forward(self, x):
        return torch.relu_(self.inner(x) + x)


def test_preactivations_are_seen_at_the_end_of_a_block():
    net = nn.Sequential(Block(), nn.Linear(4, 1))
    found = climb(net, "0", 2, (4,), limits=(-1, 1), start=-0.5 * torch.ones(4))
    assert found.activations[0] == (pytest.approx(3.0),)


class Hills(nn.Module):
    """Two units that are high at different places, and at one place together."""

    def forward(self, x):
        def hill(height, *centre):
            return height * torch.exp(-((x - torch.tensor(centre)) ** 2).sum(1) / 4)

        first = hill(3.0, -4.0, 0.0) + hill(2.0, 0.0, 3.0)
        second = hill(3.0, 4.0, 0.0) + hill(2.0, 0.0, 3.0)
        return torch.stack([first, second], dim=1)


def test_both_units_of_a_pair_respond_where_they_can():
    net = nn.Sequential(Hills(), nn.Linear(2, 1))
    inputs = 8 * torch.rand(400, 2, generator=torch.Generator().manual_seed(0)) - 4
    found = climb(net, "0", [(0, 1)], (2,), limits=(-6, 6), restarts=8, reference=inputs, lr=0.1)
    assert min(found.activations[0]) > 1.9
    torch.testing.assert_close(found.inputs[0], torch.tensor([0.0, 3.0]), atol=0.2, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_the_soft_minimum_raises_the_lower_unit(seed):
    """A sum would be content with one unit, a product with two that are far below 0."""
    net = linear(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    found = climb(net, "0", [(0, 1)], (2,), limits=(-1, 1), start=torch.tensor([-0.9, -0.9]), seed=seed)
    assert found.inputs[0].tolist() == [1.0, 1.0]


def test_the_soft_minimum_is_close_to_the_minimum():
    values = torch.randn(200, 2) * 5
    distance = soft_minimum(values) - values.amin(dim=1)
    assert bool((distance >= 0).all())
    assert bool((distance <= np.log(2) / 4 + 1e-6).all())
    torch.testing.assert_close(soft_minimum(torch.full((1, 2), 3.0)), torch.tensor([3.0]))


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("parametrisation", ["pixel", "fourier"])
def test_images_of_any_number_of_channels(channels, parametrisation):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(channels, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 144, 1)).eval()
    given = {"parametrisation": parametrisation, "limits": (0, 1), "steps": 60}
    found = climb(net, "0", [0, 3], (channels, 16, 16), **given)
    assert found.inputs.shape == (2, channels, 16, 16)
    assert 0 <= float(found.inputs.min()) <= float(found.inputs.max()) <= 1
    with torch.no_grad():
        noise = net[0](torch.rand(200, channels, 16, 16)).mean(dim=(2, 3))
    assert found.scores[0] > noise[:, 0].max()
    assert found.scores[1] > noise[:, 3].max()


def relative_roughness(images):
    return float(roughness(images) / images.std())


@pytest.mark.parametrize("seed", range(3))
def test_the_spectrum_gives_smoother_images(seed):
    """Of a unit that likes white noise: low frequencies come first."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 1)).eval()
    rough, smooth = (
        climb(net, "1", 0, (1, 16, 16), parametrisation=kind, limits=(0, 1), steps=10).inputs
        for kind in ("pixel", "fourier")
    )
    assert relative_roughness(smooth) < 0.8 * relative_roughness(rough)


@pytest.mark.parametrize("change", [{"tv": 1.0}, {"blur": 1.0}])
def test_smoothing_smooths(change):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 1)).eval()
    plain, smoothed = (
        climb(net, "1", 0, (1, 16, 16), parametrisation="pixel", limits=(0, 1), steps=40, **more).inputs
        for more in ({}, change)
    )
    assert float(roughness(smoothed)) < 0.8 * float(roughness(plain))


def test_same_seed_same_input():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh()).eval()
    one, two, other = (climb(net, "1", 0, (1, 8, 8), steps=20, seed=seed).inputs for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_the_model_comes_back_untouched():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1)).train()
    before, state = model_state(net), torch.get_rng_state()
    climb(net, "1", [0, (1, 2)], (4,), steps=5)
    assert model_state(net) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_a_batch_at_a_time_gives_every_unit_its_own():
    check_int, split = (
        climb(linear(), "0", None, (4,), limits=(-1, 1), restarts=3, batch_size=size) for size in (32, 2)
    )
    assert torch.equal(check_int.inputs, split.inputs)


def test_channels_of_a_torchvision_network():
    torch.manual_seed(0)
    net = torchvision("models").resnet18(weights=None).eval()
    found = climb(net, "layer2", [0, (1, 2)], (3, 32, 32), steps=3)
    assert found.inputs.shape == (2, 3, 32, 32)
    assert found.names == ["layer2[0]", "layer2[1] and layer2[2]"]


def test_shaking_moves_images_about():
    image = torch.zeros(1, 1, 21, 21)
    image[..., 10, 10] = 1.0
    generator = torch.Generator().manual_seed(0)
    moved = [Shake(jitter=5)(image, generator) for _ in range(50)]
    centres = torch.stack([(m[0, 0] / m.sum()).sum(0) @ torch.arange(21.0) for m in moved])
    assert 2 < float(centres.std()) < 4  # uniform within 5: 2.9
    assert float((centres - 10).abs().max()) <= 5.01
    turned = Shake(rotate=30)(torch.eye(21)[None, None], generator)
    assert not torch.equal(turned, torch.eye(21)[None, None])


def test_a_blur_keeps_the_mass():
    image = torch.zeros(1, 2, 31, 31)
    image[..., 15, 15] = 1.0
    soft = blurred(image, 2.0)
    torch.testing.assert_close(soft.sum(dim=(2, 3)), torch.ones(1, 2))
    spread = (soft[0, 0].sum(0) * (torch.arange(31.0) - 15) ** 2).sum()
    assert float(spread) == pytest.approx(4.0, rel=0.05)


WRONG = {
    "unknown unit": ({"units": 7}, "there are 2 units"),
    "no pair": ({"units": [(0, 0)]}, "two different units"),
    "three": ({"units": [(0, 1, 0)]}, "is not a pair"),
    "words": ({"units": ["0"]}, "units: '0' is not understood"),
    "nothing": ({"units": []}, "units=\\[\\] is empty"),
    "short direction": ({"units": torch.ones(3)}, "a direction has shape"),
    "no limits": ({"limits": 3}, "limits=3 is not a pair"),
    "crossed limits": ({"limits": (1, 0)}, "the lowest not above the highest"),
    "half a limit": ({"limits": (0, None)}, "give both ends"),
    "endless limits": ({"limits": (0, float("inf"))}, "must be finite"),
    "wide mask": ({"mask": torch.ones(9)}, "mask does not fit"),
    "mask of nothing": ({"mask": torch.zeros(4)}, "leave something free"),
    "radius": ({"radius": -1}, "radius=-1"),
    "radius and limits": ({"radius": 1, "limits": (0, 1)}, "without limits"),
    "no number": ({"lr": "fast"}, "lr='fast'"),
    "NaN": ({"l2": float("nan")}, "l2=nan"),
    "no unit set": ({"unit_set": [1]}, "unit_set="),
    "a unit set": ({"units": geh.units.Channels()}, "unit_set="),
    "another reference": ({"reference": torch.randn(20, 3)}, "reference: its rows have shape"),
    "no shape": ({"shape": None}, "shape=None"),
    "shape": ({"shape": (3,)}, "shape: the model does not take rows of shape"),
    "steps": ({"steps": 0}, "steps=0"),
    "parametrisation": ({"parametrisation": "wavelet"}, "parametrisation='wavelet'"),
    "a table in Fourier space": ({"parametrisation": "fourier"}, "is no image"),
    "a table that jitters": ({"jitter": 2}, "is no image"),
    "the inputs": ({"layer": None}, "name a hidden layer"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_said(name):
    change, words = WRONG[name]
    given = {"layer": "0", "units": 0, "shape": (4,)} | change
    with pytest.raises(geh.GEHError, match=words):
        climb(linear(), **given)
