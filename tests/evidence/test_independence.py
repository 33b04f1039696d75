"""Units that are independent of all others, and what their whole interaction adds to the test on held-out labels."""

import numpy as np
import pytest
import torch

import geh_explain as geh
from geh_explain.evidence.independence import independent_units


def uniform(rows, units, seed):
    return np.random.default_rng(seed).uniform(-1, 1, (rows, units))


def test_independent_units_are_rarely_taken_for_dependent_ones():
    """Both kinds of tests have a level of 10 % for all units of a table together."""
    found = np.array([independent_units(uniform(1000, 6, seed)) for seed in range(60)])
    assert found.mean() > 0.93
    assert found.all(axis=1).mean() > 0.7


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
        assert not independent_units(x)[:2].any()


def test_a_unit_that_depends_on_a_product_is_found():
    for seed in range(5):
        x = uniform(2000, 6, seed)
        depend_by_product(x)
        assert not independent_units(x)[2]


def test_units_with_frequent_values_and_few_rows_do_not_count():
    x = uniform(2000, 4, 0)
    x[:, 0] = np.round(x[:, 0])
    x[:, 1] = np.maximum(x[:, 1], 0)
    x[:, 2] = 1
    assert independent_units(x).tolist() == [False, False, False, True]
    assert not independent_units(uniform(80, 4, 0)).any()
    assert not independent_units(uniform(80, 1, 0)).any()


def product(x):
    return x[:, 0] * x[:, 1] * x[:, 2] * x[:, 3] + x[:, 4]


def test_interactions_of_four_independent_units_are_found():
    """Their mean over other units is 0, and so is what products of three units explain."""
    x = torch.as_tensor(uniform(2000, 5, 1))
    y = product(x) + 0.1 * torch.randn(2000, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    explainer = geh.GEHExplainer(product, posterior=geh.posterior.PointEstimate())
    evidence = explainer.test_pairs(x, y, progress=False)
    second = np.triu_indices(5, 1)[1]
    interact = second < 4
    assert (evidence.p_value[interact] < 1e-6).all()
    np.testing.assert_allclose(evidence.slope[interact], 1, atol=0.2)
    assert np.isnan(evidence.p_value[~interact]).all() or (evidence.p_value[~interact] > 0.001).all()


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
