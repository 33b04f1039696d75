"""The network's interactions at held-out rows: what the offset q = g - G must be, for one network and for several."""

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.data.points import Points
from geh_explain.evidence.pair_functions import HeldOutFunctions, lattice_order


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


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 10])
def test_the_offset_has_no_interaction_whatever_the_number_of_networks(count, independent):
    """Over the corners of a rectangle in x0 and x1 the offset q has no mixed difference; the outputs have one."""
    generator = np.random.default_rng(0)
    first, others = generator.normal(size=(50, 2, 2)), generator.normal(size=(50, 1, 1))
    corners = [(a, b) for a in (0, 1) for b in (0, 1)]
    rows = [np.concatenate([first[:, [a], 0], first[:, [b], 1], others[:, 0]], axis=1) for a, b in corners]
    functions = _functions(_networks(count), torch.as_tensor(np.concatenate(rows)))
    units = np.full(3, independent)
    without = functions.without([(0, 1), (0, 2)], lambda _: None, units)[:, :, 0]
    signs = np.array([1, -1, -1, 1])
    outputs, offset = (values.reshape(4, 50) for values in (functions.outputs(), without[0] + without[1] - without[2]))
    assert np.abs(signs @ outputs).mean() > 1e-3
    np.testing.assert_allclose(signs @ offset, 0, atol=1e-12)


@pytest.mark.parametrize("count", [2, 5, 10])
def test_networks_that_are_the_same_are_one_network_with_other_backgrounds(count):
    """Draws share the background values out: outputs agree, interactions up to the choice of backgrounds."""
    network = _networks(1)[0]
    x = torch.as_tensor(np.random.default_rng(1).normal(size=(400, 3)))
    one, several = _functions([network], x), _functions([network] * count, x)
    np.testing.assert_allclose(several.outputs(), one.outputs(), atol=1e-12)
    pairs = [(0, 1)]
    means = [functions.mean_interactions(pairs, lambda _: None).at_rows((0, 1)) for functions in (one, several)]
    assert np.corrcoef(*means)[0, 1] > 0.9
    found = [functions.without(pairs, lambda _: None, np.zeros(3, dtype=bool))[:3] for functions in (one, several)]
    for own, shared in zip(*found, strict=True):
        assert np.corrcoef(own[:, 0], shared[:, 0])[0, 1] > 0.9


def test_of_independent_units_the_local_interaction_has_the_mean_0_given_the_others():
    """For x0 x1^2 x2 it is (x0 - E x0) (x1^2 - E x1^2) x2: sums over one of the two units are 0."""
    x = np.random.default_rng(2).uniform(size=(4000, 3))
    functions = _functions([lambda x: (x[:, 0] * x[:, 1] ** 2 * x[:, 2])[:, None]], torch.as_tensor(x))
    without = functions.without([(0, 1)], lambda _: None, np.ones(3, dtype=bool))[:, :, 0]
    local = functions.outputs() - without[0] - without[1] + without[2]
    centred = x[:, 0] - x[:, 0].mean(), x[:, 1] ** 2 - (x[:, 1] ** 2).mean()
    expected = centred[0] * centred[1] * x[:, 2]
    np.testing.assert_allclose(local, expected, atol=0.01 * np.ptp(expected))
    # The slope over the ranks of x0, of standard deviation 1, is that over x0 times its standard deviation.
    slope = x[:, 0].std() * centred[1] * x[:, 2]
    np.testing.assert_allclose(without[3], slope, atol=0.03 * np.ptp(slope))


def test_a_lattice_has_every_value_once_and_little_correlation():
    for count in (2, 5, 8, 32, 33, 36):
        assert sorted(lattice_order(count)) == list(range(count))
    for count in (34, 55):
        assert abs(np.corrcoef(np.arange(count), lattice_order(count))[0, 1]) < 0.05


def test_each_network_uses_background_values_of_its_own_and_all_are_used():
    functions = _functions(_networks(3), torch.as_tensor(np.random.default_rng(1).normal(size=(400, 3))))
    assert len(functions._background) == 9
    own = [functions._own_background_rows(number) for number in range(3)]
    counts = [sum(len(rows) for rows, _ in part) for part in own]
    values = np.concatenate([values for part in own for _, values in part])
    assert max(counts) - min(counts) <= 1
    assert len(np.unique(values[:, 0])) == sum(counts) == sum(len(rows) for rows, _ in functions._background_rows)


def test_all_members_of_an_ensemble_are_tested_and_at_most_32():
    x = torch.as_tensor(np.random.default_rng(1).normal(size=(100, 3)))
    for count, tested in ((20, 20), (40, 32)):
        networks = _networks(count)
        with torch.no_grad():
            mean = torch.stack([network(x)[:, 0] for network in networks[:tested]]).mean(0)
        np.testing.assert_allclose(_functions(networks, x).outputs(), mean.numpy(), atol=1e-12)


def test_background_rows_do_not_follow_the_order_of_the_rows():
    """Rows in the order of time, 32 days of 24 hours: every 24th row would be the same hour."""
    hours = np.arange(32 * 24) % 24
    x = torch.as_tensor(np.column_stack([hours, *np.random.default_rng(0).normal(size=(2, len(hours)))]))
    (rows, values), *_ = _functions(_networks(1), x)._background_rows
    assert len(rows) == 32
    assert len(np.unique(values[:, 0])) > 12
