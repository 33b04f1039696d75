"""Units that are independent of all others, and what their whole interaction adds to the test on held-out labels."""

import numpy as np
import pytest
import torch

import geh_explain as geh
from geh_explain.evidence import pair_tests
from geh_explain.evidence.independence import independent_units


def uniform(rows, units, seed):
    return np.random.default_rng(seed).uniform(-1, 1, (rows, units))


def test_independent_units_are_rarely_taken_for_dependent_ones():
    """Three kinds of tests have a level of 5 % each for all units of a table together."""
    found = np.array([independent_units(uniform(1000, 6, seed), 34) for seed in range(60)])
    assert found.mean() > 0.9
    assert found.all(axis=1).mean() > 0.75


def depend_linearly(x):
    x[:, 1] += 0.2 * x[:, 0]


def depend_by_spread(x):
    x[:, 1] *= 0.5 + np.abs(x[:, 0])


def depend_by_product(x):
    """Three units of which any two are independent."""
    x[:, 2] = np.abs(x[:, 2]) * np.sign(x[:, 0] * x[:, 1])


@pytest.mark.parametrize("depend", [depend_linearly, depend_by_spread])
def test_units_that_depend_on_another_are_found(depend):
    for seed in range(5):
        x = uniform(2000, 6, seed)
        depend(x)
        assert not independent_units(x, 34)[:2].any()


def depend_by_product_of_a_square(x):
    x[:, 2] = np.abs(x[:, 2]) * np.sign((np.abs(x[:, 0]) - 0.5) * x[:, 1])


@pytest.mark.parametrize("depend", [depend_by_product, depend_by_product_of_a_square])
def test_a_unit_that_depends_on_two_others_together_is_found(depend):
    for seed in range(5):
        x = uniform(2000, 6, seed)
        depend(x)
        assert not independent_units(x, 34)[2]


def test_a_unit_that_is_a_function_of_another_is_found_though_no_polynomial_shows_it():
    for seed in range(5):
        x = uniform(500, 4, seed)
        x[:, 1] = 40 * x[:, 0] % 1
        assert not independent_units(x, 34)[:2].any()


def test_units_whose_mean_few_quantiles_miss_do_not_count():
    """One row of a hundred is far away: the largest of 34 quantiles is that of 98.5 %."""
    x = uniform(2000, 4, 0)
    x[:20, 0] += 30
    assert not independent_units(x, 34)[0]


def test_units_with_frequent_values_and_few_rows_do_not_count():
    x = uniform(2000, 4, 0)
    x[:, 0] = np.round(x[:, 0])
    x[:, 1] = np.maximum(x[:, 1], 0)
    x[:, 2] = 1
    assert independent_units(x, 34).tolist() == [False, False, False, True]
    assert not independent_units(uniform(50, 4, 0), 34).any()
    assert not independent_units(uniform(80, 1, 0), 34).any()


def product(x):
    return x[:, 0] * x[:, 1] * x[:, 2] * x[:, 3] + x[:, 4]


def test_interactions_of_four_independent_units_are_found():
    """Their mean over other units is 0, and so is what products of three units explain."""
    explainer = geh.GEHExplainer(product, posterior=geh.posterior.PointEstimate())
    first, second = np.triu_indices(5, 1)
    count = 0
    for seed in range(4):
        x = torch.as_tensor(uniform(2000, 5, seed))
        y = product(x) + 0.1 * torch.randn(2000, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
        evidence = explainer.test_pairs(x, y, progress=False)
        independent = independent_units(x.numpy(), 34)
        found = (second < 4) & independent[first] & independent[second]
        assert (evidence.p_value[found] < 1e-6).all()
        assert (np.nan_to_num(evidence.p_value[second == 4], nan=1) > 0.001).all()
        count += found.sum()
    assert count >= 16  # of 24 pairs


def test_only_single_networks_are_tested_by_their_whole_interaction(monkeypatch):
    """Draws share background values out, and parts of the quantiles do not stand for the distribution."""
    asked = []
    monkeypatch.setattr(pair_tests, "independent_units", lambda values, count: asked.append(count) or values[0] > 9)
    x = torch.as_tensor(uniform(200, 3, 0))
    networks = [torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).double()] * 2
    for posterior in (geh.posterior.Ensemble(networks), geh.posterior.PointEstimate()):
        assert not asked
        y = networks[0](x)[:, 0].detach()
        geh.GEHExplainer(networks[0], posterior=posterior).test_pairs(x, y, progress=False)
    assert asked == [34]


def test_pairs_that_labels_lack_are_found_at_the_nominal_level():
    """The network has an error of four units, and main effects of another shape; there is no noise in the labels."""

    def model(x):
        return torch.exp(x[:, 0]) + 0.3 * x[:, 1] * x[:, 2] * x[:, 3] * x[:, 4] + 0.2 * x[:, 0] * x[:, 5]

    explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    first, second = np.triu_indices(6, 1)
    tested = ((first > 0) & (second < 5)) | ((first == 0) & (second == 5))
    p_values = []
    for seed in range(25):
        x = torch.as_tensor(uniform(1000, 6, seed))
        y = torch.exp(x[:, 0]) + torch.sin(3 * x[:, 5]) + x[:, 0] * x[:, 1] * x[:, 3] + torch.relu(x[:, 2] + x[:, 4])
        null = tested & ~((first == 1) & (second == 3)) & ~((first == 2) & (second == 4))
        p_values.append(explainer.test_pairs(x, y, progress=False).p_value[null])
    p_values = np.array(p_values)
    assert 0.01 < np.nanmean(p_values < 0.05) < 0.1
    assert np.nanmean(p_values < 0.5) == pytest.approx(0.5, abs=0.12)
