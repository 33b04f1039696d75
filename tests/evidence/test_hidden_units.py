"""The held-out test at hidden layers: neurons, channels and tokens whose interactions are known."""

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh

POINT = geh.posterior.PointEstimate()


class Above(nn.Module):
    """The part of a network above a layer, a function of its output."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def forward(self, a):
        return self._function(a)


def p_values(below, above, x, signal, seed, units=None, noise=0.5):
    """Return p-values (D, D) of the pairs at the output of ``below``, and this output.

    Labels are ``signal`` of the output plus noise.
    """
    with torch.no_grad():
        a = below(x)
        y = signal(a).numpy() + noise * np.random.default_rng(seed).normal(size=len(x))
    explainer = geh.GEHExplainer(nn.Sequential(below, Above(above)), "0", posterior=POINT, units=units)
    evidence = explainer.test_pairs(x, y, progress=False)
    count = int((1 + np.sqrt(1 + 8 * len(evidence.p_value))) / 2)
    matrix = np.full((count, count), np.nan)
    matrix[np.triu_indices(count, 1)] = evidence.p_value
    return matrix


def relu_layer(seed):
    """Return six ReLU units of twelve inputs: one is dead, and half of the values of the others are 0."""
    torch.manual_seed(seed)
    linear = nn.Linear(12, 6)
    with torch.no_grad():
        linear.weight.normal_(0, 0.4)
        linear.bias.zero_()
        linear.bias[5] = -50
    return nn.Sequential(linear, nn.ReLU()), torch.randn(800, 12)


def test_a_product_of_two_relu_units_is_found():
    below, x = relu_layer(0)
    found = p_values(
        below,
        lambda a: a[:, 0] * a[:, 1] + 0.5 * a[:, 2] * a[:, 3],
        x,
        lambda a: 1.5 * a[:, 0] * a[:, 1] + a[:, 2] ** 2 - a[:, 3] + torch.sin(2 * a[:, 4]),
        seed=0,
    )
    assert found[0, 1] < 1e-6
    assert found[2, 3] > 0.01
    # A unit that is 0 in all rows interacts with none.
    np.testing.assert_array_equal(found[:5, 5], 1)


@pytest.mark.filterwarnings("ignore:evidence. the outputs explain none")
def test_the_level_holds_for_sparse_units():
    found = []
    for seed in range(20):
        below, x = relu_layer(seed)
        matrix = p_values(
            below,
            lambda a: a[:, 0] * a[:, 1] - 0.5 * a[:, 2] * a[:, 3] + a[:, 1] * a[:, 4],
            x,
            lambda a: 2 * a[:, 0] ** 2 + torch.sin(3 * a[:, 1]) + a[:, 2] ** 2 - a[:, 3] + (a[:, 4] > 0.5),
            seed,
        )
        found += [matrix[0, 1] < 0.05, matrix[2, 3] < 0.05, matrix[1, 4] < 0.05]
    assert np.mean(found) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(found))


def convolutions(seed):
    """Return two convolutions with pooling, four channels of 2 x 2 positions, and images."""
    torch.manual_seed(seed)
    below = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Tanh(), nn.AvgPool2d(4))
    with torch.no_grad():
        below[2].weight *= 3
    return below, torch.randn(800, 1, 12, 12)


@pytest.mark.filterwarnings("ignore:evidence. the outputs explain none")
def test_a_product_of_two_channels_is_found_beside_effects_within_channels():
    below, x = convolutions(0)

    def product(a):
        means, largest = a.mean(dim=(2, 3)), a.amax(dim=(2, 3))
        return 30 * means[:, 0] * means[:, 1] - 30 * means[:, 2] * means[:, 3] + 3 * largest.sum(dim=1)

    def signal(a):
        means, largest = a.mean(dim=(2, 3)), a.amax(dim=(2, 3))
        return 60 * means[:, 0] * means[:, 1] + 3 * largest.sum(dim=1) + 20 * a[:, 2, 0, 0] * a[:, 2, 1, 1]

    found = p_values(below, product, x, signal, seed=0, units=geh.units.Channels(), noise=0.3)
    assert found[0, 1] < 1e-3
    assert found[2, 3] > 0.01


def test_a_product_of_two_tokens_is_found_beside_any_effects_of_single_tokens():
    torch.manual_seed(0)
    below = nn.Embedding(10, 3)
    tokens = torch.randint(10, (800, 4))
    effects = torch.randn(4, 10)

    def signal(a):
        means = a.mean(dim=2)
        single = sum(effects[k][tokens[:, k]] for k in range(4))
        return 2 * means[:, 0] * means[:, 1] + single

    found = p_values(
        below,
        lambda a: a.mean(dim=2)[:, 0] * a.mean(dim=2)[:, 1] + a.mean(dim=2)[:, 2] * a.mean(dim=2)[:, 3],
        tokens,
        signal,
        seed=0,
        units=geh.units.Tokens(),
    )
    assert found[0, 1] < 1e-4
    assert found[2, 3] > 0.01
