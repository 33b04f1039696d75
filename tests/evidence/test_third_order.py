"""Slopes of interactions whose sign depends on a third unit: labels may have this part, the mean, or both."""

import numpy as np
import pytest
import torch

import geh_explain as geh
from geh_explain.evidence.explained import Explained
from geh_explain.evidence.third_order import ThirdOrderShares


def network(x):
    """Return x0 x1 + 2 x0 x1 x2 + x3, whose interaction of x0 and x1 has the mean 1 and the mean size 1.8."""
    return x[:, 0] * x[:, 1] + 2 * x[:, 0] * x[:, 1] * x[:, 2] + x[:, 3]


def explain(truth, groups, binary=False, seed=0):
    """Return the row of x0 and x1, of a network above and labels with a part of its interaction."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3000, 4, generator=generator)
    mean = truth(x) + x[:, 3]
    if binary:
        y = (torch.rand(len(x), generator=generator) < torch.sigmoid(mean)).long()
    else:
        y = mean + torch.randn(len(x), generator=generator)
    model = (lambda x: network(x)[:, None]) if binary else network
    explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    table = explainer.explain(x, groups=groups, evidence=(x, y), progress=False, seed=seed).table()
    return table.set_index(["unit_i", "unit_j"]).loc[("x0", "x1")]


def only_third(x):
    return 2 * x[:, 0] * x[:, 1] * x[:, 2]


def only_mean(x):
    return x[:, 0] * x[:, 1]


def both(x):
    return only_third(x) + only_mean(x)


@pytest.mark.parametrize("binary", [False, True])
def test_one_group_averages_over_the_third_unit_and_so_does_the_slope(binary):
    with pytest.warns(geh.GEHWarning, match="depends on a third unit: x0 × x1"):
        row = explain(only_third, groups=1, binary=binary)
    assert row["p_value"] < 1e-6
    assert row["slope"] < 0.3
    assert row["supported"] < 0.3 * row["mean"]


@pytest.mark.filterwarnings("ignore:evidence. the outputs explain none")
@pytest.mark.parametrize("binary", [False, True])
def test_with_one_group_labels_with_the_mean_interaction_support_all_of_the_score(binary):
    row = explain(only_mean, groups=1, binary=binary)
    assert row["p_value"] < 1e-6
    assert row["supported"] > 0.85 * row["mean"]


def test_groups_of_the_third_unit_have_both_parts():
    """In groups of positive and of negative x2 the two parts are 1 and 2 E|x2| = 1.6 in size."""
    sizes = {truth.__name__: explain(truth, groups=8) for truth in (only_third, both)}
    assert sizes["both"]["supported"] > 0.85 * sizes["both"]["mean"]
    partly = sizes["only_third"]
    assert 0.4 * partly["mean"] < partly["supported"] < 0.9 * partly["mean"]


@pytest.mark.filterwarnings("ignore:evidence. the outputs explain none")
@pytest.mark.parametrize("truth", [only_third, only_mean, both])
@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.filterwarnings("ignore:evidence. the labels contain an interaction")
def test_supported_scores_agree_with_the_interval_for_the_truth(truth, groups):
    row = explain(truth, groups=groups, seed=1)
    margin = 0.15 * row["mean"]
    assert row["true_low"] - margin < row["supported"] < row["true_high"] + margin


def test_without_explained_points_the_weight_is_the_share_of_the_variance():
    """Products of three have 4 times the variance of the mean interaction, so the slope is about 4 / 5."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3000, 4, generator=generator)
    y = only_third(x) + x[:, 3] + torch.randn(len(x), generator=generator)
    explainer = geh.GEHExplainer(network, posterior=geh.posterior.PointEstimate())
    evidence = explainer.test_pairs(x, y, progress=False)
    assert 0.6 < evidence.slope[0] < 0.95
    assert not any("third unit" in message for message in evidence.warnings)


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.filterwarnings("ignore:evidence. the labels contain an interaction")
def test_a_result_without_its_points_weights_both_parts_by_its_groups(groups):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3000, 4, generator=generator)
    y = only_third(x) + x[:, 3] + torch.randn(len(x), generator=generator)
    explainer = geh.GEHExplainer(network, posterior=geh.posterior.PointEstimate())
    result = explainer.explain(x, groups=groups, progress=False)
    without, with_points = (
        explainer.test(result, x, y, explained=points, progress=False).evidence.slope[0] for points in (None, x)
    )
    assert abs(without - with_points) < 0.15


def test_shares_are_between_0_and_1_and_constant_units_have_none():
    values = np.random.default_rng(0).normal(size=(200, 3))
    values[:, 2] = 5.0
    points = Explained(values, np.zeros(200, int), np.ones(1), np.array([[0.1, 0.0]]), np.ones(3))
    shares = ThirdOrderShares(values, points)
    assert shares.of_pair((0, 1), 0, np.array([1e6])) == 0
    assert shares.of_pair((0, 1), 1, np.array([1.0])) == 0
    values[:, 2] = np.arange(200.0)
    points = Explained(values + 1, np.zeros(200, int), np.ones(1), np.array([[0.1]]), np.ones(3))
    assert ThirdOrderShares(values, points).of_pair((0, 1), 0, np.array([1e6])) == 1
    assert ThirdOrderShares(values, points).of_pair((0, 1), 0, np.array([-1e6])) == 0


def test_a_unit_with_two_values_has_a_part_that_depends_on_a_third_unit():
    """Of x0 x1 (2 x2 - 1), with x2 of 0 or 1, x1 and x2 have the mean 0, and in groups of x0 the size 2 |x0|."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 3, generator=generator)
    x[:, 2] = (x[:, 2] > 0).float()
    model = lambda x: x[:, 0] * x[:, 1] * (2 * x[:, 2] - 1)  # noqa: E731
    y = model(x) + torch.randn(len(x), generator=generator)
    explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    with pytest.warns(geh.GEHWarning, match="x2 holds 0 and 1 only"):
        table = explainer.explain(x, groups=8, evidence=(x, y), progress=False).table()
    assert (table["supported"] > 0.85 * table["mean"]).all()


def test_an_interaction_that_is_a_function_of_one_unit_is_not_supported():
    """Two measures of ten shapes: what they do together at these rows, one of them does alone."""
    rng = np.random.default_rng(0)
    shape = rng.integers(10, size=400)
    width, height = rng.normal(size=(2, 10))
    x = np.column_stack([width[shape], height[shape], rng.normal(size=400)])
    y = x[:, 0] * x[:, 1] + x[:, 2] + 0.1 * rng.normal(size=400)
    explainer = geh.GEHExplainer(
        lambda x: x[:, 0] * x[:, 1] + x[:, 2] * (1 + 0.5 * x[:, 1]), posterior=geh.posterior.PointEstimate()
    )
    with pytest.warns(geh.GEHWarning, match=r"1 pair\(s\) cannot be tested, since other units determine .* x0 × x1"):
        evidence = explainer.test_pairs(torch.tensor(x), y, progress=False)
    assert evidence.p_value[0] == 1
    assert evidence.shrinkage[0] == 0
