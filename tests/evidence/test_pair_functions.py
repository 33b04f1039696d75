"""The network's interactions at held-out rows: what the offset q = g - G must be, for one network and for several."""

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.data.points import Points
from geh_explain.evidence.pair_functions import HeldOutFunctions


def _networks(count):
    networks = []
    for seed in range(count):
        torch.manual_seed(seed)
        networks.append(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)).double())
    return networks


def _functions(networks, x):
    explainer = geh.GEHExplainer(networks[0], posterior=geh.posterior.Ensemble(networks))
    points, cut = explainer._setup.read(x, None, None)
    assert isinstance(points, Points)
    ensemble = geh.posterior.Ensemble(networks)
    return HeldOutFunctions(cut, points, ensemble, lambda out: out[:, 0], batch_size=None, seed=3)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10])
def test_the_offset_has_no_interaction_whatever_the_number_of_networks(count):
    """Over the corners of a rectangle in x0 and x1 the offset q has no mixed difference; the outputs have one."""
    generator = np.random.default_rng(0)
    first, others = generator.normal(size=(50, 2, 2)), generator.normal(size=(50, 1, 1))
    corners = [(a, b) for a in (0, 1) for b in (0, 1)]
    rows = [np.concatenate([first[:, [a], 0], first[:, [b], 1], others[:, 0]], axis=1) for a, b in corners]
    functions = _functions(_networks(count), torch.as_tensor(np.concatenate(rows)))
    found = functions.pairs([(0, 1), (0, 2)], advance=lambda _: None)
    signs = np.array([1, -1, -1, 1])
    outputs, local = (values.reshape(4, 50) for values in (found.outputs, found.local[:, 0]))
    assert np.abs(signs @ outputs).mean() > 1e-3
    np.testing.assert_allclose(signs @ (outputs - local), 0, atol=1e-12)


@pytest.mark.parametrize("count", [2, 5, 10])
def test_networks_that_are_the_same_are_one_network_with_other_backgrounds(count):
    """Draws share the background values out: outputs agree, interactions up to the choice of backgrounds."""
    network = _networks(1)[0]
    x = torch.as_tensor(np.random.default_rng(1).normal(size=(400, 3)))
    one = _functions([network], x).pairs([(0, 1)], advance=lambda _: None)
    several = _functions([network] * count, x).pairs([(0, 1)], advance=lambda _: None)
    np.testing.assert_allclose(several.outputs, one.outputs, atol=1e-12)
    for values, reference in ((several.local, one.local), (several.mean, one.mean)):
        assert np.corrcoef(values[:, 0], reference[:, 0])[0, 1] > 0.9


def test_each_network_uses_background_values_of_its_own_and_all_are_used():
    functions = _functions(_networks(3), torch.as_tensor(np.random.default_rng(1).normal(size=(400, 3))))
    assert len(functions._background) == 9
    own = [functions._own_background_rows(number) for number in range(3)]
    counts = [sum(len(rows) for rows, _ in part) for part in own]
    values = np.concatenate([values for part in own for _, values in part])
    assert max(counts) - min(counts) <= 1
    assert len(np.unique(values[:, 0])) == sum(counts) == sum(len(rows) for rows, _ in functions._background_rows)
