"""Comparisons of results with categories: differences of contrasts, common weights, other levels."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from expected_errors import refused
from explaining import explain_draws, explain_point, random_points
from scipy import stats
from torch import nn

import geh_explain as geh
from geh_explain.posterior import Ensemble
from geh_explain.units import Categorical

ROWS = 120
UNITS = Categorical({"c": [0, 1, 2], "d": [3]})


def points(codes=(0, 0, 0, 1, 1, 2), rows=ROWS, seed=0):
    chosen = torch.tensor(codes).repeat(rows // len(codes))
    columns = torch.eye(3, dtype=torch.double)[chosen], (torch.arange(rows) % 4 // 2)[:, None]
    return torch.cat([*columns, random_points(rows, 2, seed=seed)], dim=1)


def sloped(*slopes):
    """Return a function whose slope of x4 is ``slopes`` at the levels of c, plus d x5."""
    return lambda x: x[:, :3] @ torch.tensor(slopes, dtype=torch.double) * x[:, 4] + x[:, 3] * x[:, 5]


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()


#: Weights of (0, 1), (0, 2), (1, 2) for shares 1/2, 1/3, 1/6.
WEIGHTS = np.array([6, 3, 2]) / 11


@pytest.mark.parametrize("measure", ["groups", "mean"])
def test_the_difference_of_a_pair_is_the_weighted_mean_of_those_of_its_contrasts(measure):
    """Contrasts 2, -1, -3 and 1, 4, 3: with their signs they would cancel in part."""
    labels = np.arange(ROWS) % 3
    one, other = (explain_point(sloped(*s), points(), units=UNITS, groups=labels) for s in ((1, 3, 0), (0, 1, 4)))
    comparison = one.compare(other, measure=measure)
    table = comparison.table().set_index(["unit_i", "unit_j"])
    row = table.loc[("c", "x4")]
    np.testing.assert_allclose(row["mean_a"], WEIGHTS @ [2, 1, 3])
    np.testing.assert_allclose(row["mean_b"], WEIGHTS @ [1, 4, 3])
    np.testing.assert_allclose(row["difference"], WEIGHTS @ [1, 5, 6])
    assert row["different"]
    np.testing.assert_allclose(table.loc[("d", "x5")][["difference", "p_value"]].astype(float), [0, 1], atol=1e-12)
    # Signs are those of the sum of both: contrasts 3, 3 and 0.
    regions = comparison.regions("c", "x4")
    np.testing.assert_allclose(regions["mean_a"], WEIGHTS @ [2, -1, -3])
    np.testing.assert_allclose(regions["mean_b"], WEIGHTS @ [1, 4, 3])
    np.testing.assert_allclose(regions["difference"], regions["mean_a"] - regions["mean_b"])


def test_a_category_with_two_levels_keeps_the_sign_of_its_difference():
    one, other = (
        explain_point(lambda x, k=k: k * x[:, 3] * x[:, 5] ** 2 + x[:, 4], points(), units=UNITS) for k in (1.0, 3.0)
    )
    row = one.compare(other).table(unit="d").set_index(["unit_i", "unit_j"]).loc[("d", "x5")]
    assert row["mean_a"] - row["mean_b"] == pytest.approx(row["difference"])
    slopes = 2 * points()[:, 5].numpy()
    expected = stats.ttest_ind(slopes, 3 * slopes, equal_var=False)
    assert row["p_value"] == pytest.approx(expected.pvalue)
    np.testing.assert_allclose([row["low"], row["high"]], expected.confidence_interval(0.95))


def brute_force(one, other, x, labels):
    """Return the difference and the p-value of c and x4, one contrast and one group after the other."""

    def slope(model, level):
        moved = torch.cat([torch.eye(3).to(x)[[level] * len(x)], x[:, 3:]], dim=1).requires_grad_()
        return torch.autograd.grad(model(moved).sum(), moved)[0][:, 4].numpy()

    size, p_values = 0.0, []
    for weight, (a, b) in zip(WEIGHTS, itertools.combinations(range(3), 2), strict=True):
        h, g = (slope(model, b) - slope(model, a) for model in (one, other))
        tests = []
        for m in range(3):
            inside = labels == m
            size += weight * inside.mean() * abs(h[inside].mean() - g[inside].mean())
            tests.append(stats.ttest_ind(h[inside], g[inside], equal_var=False).pvalue)
        p_values.append(simes(tests))
    return size, simes(p_values)


def simes(p_values):
    return min(1.0, min(len(p_values) * p / rank for rank, p in enumerate(sorted(p_values), 1)))


def test_two_networks_have_the_differences_of_brute_force():
    x, labels = points(), np.arange(ROWS) % 3
    one, other = network(0), network(1)
    comparison = explain_point(one, x, units=UNITS, groups=labels).compare(
        explain_point(other, x, units=UNITS, groups=labels)
    )
    size, p_value = brute_force(one, other, x, labels)
    row = comparison.table().set_index(["unit_i", "unit_j"]).loc[("c", "x4")]
    assert comparison.measure == "groups"
    assert row["difference"] == pytest.approx(size, abs=1e-8)
    assert row["p_value"] == pytest.approx(p_value, rel=1e-6)
    assert row["low"] <= size <= row["high"]


def test_a_result_does_not_differ_from_itself_by_any_measure():
    members = [network(seed) for seed in range(5)]
    options = {"posterior": Ensemble(members), "draws": 5, "units": UNITS, "groups": np.arange(ROWS) % 2}
    result = explain_draws(members[0], points(), **options)
    for measure in (None, "mean", "geh", "aeh", "eah"):
        comparison = result.compare(result, measure=measure)
        np.testing.assert_array_equal(comparison.difference, 0)
        assert (comparison.p_value == 1).all()
        assert (comparison.low <= 0).all()


def test_scores_at_the_same_points_are_those_of_both_results():
    one, other = (explain_point(network(seed), points(), units=UNITS, groups=2) for seed in (0, 1))
    comparison = one.compare(other, measure="aeh")
    np.testing.assert_allclose(comparison.mean_a, one.aeh.pair_mean)
    np.testing.assert_allclose(comparison.mean_b, other.aeh.pair_mean)


def test_two_populations_weigh_levels_by_the_mean_of_their_shares():
    """Shares 1/2, 1/3, 1/6 and 1/6, 1/3, 1/2: the means are 1/3 each. One network has no differences."""
    north, south = (
        explain_point(sloped(1, 3, 0), points(codes, seed=seed), units=UNITS)
        for seed, codes in enumerate([(0, 0, 0, 1, 1, 2), (0, 1, 1, 2, 2, 2)])
    )
    comparison = north.compare(south)
    np.testing.assert_allclose(comparison.difference, 0, atol=1e-12)
    place = comparison.pairs.index(0, 2)
    np.testing.assert_allclose([comparison.mean_a[place], comparison.mean_b[place]], (2 + 1 + 3) / 3)
    assert "mean of both shares" in repr(comparison)
    with refused(ValueError, "measure='aeh'", "shares", "measure='groups' or 'mean'"):
        north.compare(south, measure="aeh")


def test_other_levels_are_refused_with_their_names_unless_the_pair_is_not_compared():
    north = explain_point(sloped(1, 3, 0), points(), units=UNITS)
    with pytest.warns(geh.GEHWarning, match="occur at no point"):
        south = explain_point(sloped(1, 3, 0), points((0, 1)), units=UNITS)
    with refused(ValueError, "category 'c'", "only this result has 'x2'", "the other one none", "same levels"):
        north.compare(south)
    with pytest.warns(geh.GEHWarning, match="occur at no point"):
        some = explain_point(sloped(1, 3, 0), points((0, 1)), units=UNITS, pairs=[("x4", "x5"), ("d", "x5")])
    assert len(north.compare(some).difference) == 2


def frame(order, rows=90):
    names = np.array(["Bonn", "Oslo", "Rome"])[np.arange(rows) % 3]
    return pd.DataFrame({"city": pd.Categorical(names, categories=order), "age": np.linspace(0, 1, rows)})


def of_cities(order, scale):
    """Return a network of codes in some order, whose slope of age is 1, 3 and 0 in Bonn, Oslo and Rome."""
    slopes = torch.tensor([{"Bonn": 1.0, "Oslo": 3.0, "Rome": 0.0}[city] * scale for city in order])
    return lambda x: slopes.to(x)[x[:, 0].long()] * x[:, 1]


def test_levels_are_matched_by_name_where_their_codes_are_in_another_order():
    orders = ["Bonn", "Oslo", "Rome"], ["Rome", "Bonn", "Oslo"]

    class Net(nn.Module):
        def __init__(self, order, scale):
            super().__init__()
            self.function = of_cities(order, scale)

        def forward(self, x):
            return self.function(x)

    one, same, twice = (
        explain_point(Net(order, scale), frame(order), units=Categorical({"city": "city"}))
        for order, scale in ((orders[0], 1), (orders[1], 1), (orders[1], 2))
    )
    assert one.level_draws.contrasts.levels[0].names != same.level_draws.contrasts.levels[0].names
    np.testing.assert_allclose(one.compare(same).difference, 0, atol=1e-6)
    np.testing.assert_allclose(one.compare(twice).difference, [(2 + 1 + 3) / 3], atol=1e-5)


def test_saved_results_and_results_with_case_weights_are_compared(tmp_path):
    one, other = (explain_point(network(seed), points(), units=UNITS, groups=2) for seed in (0, 1))
    loaded = geh.Interactions.load(one.save(tmp_path / "one.npz"))
    pd.testing.assert_frame_equal(loaded.compare(other).table(), one.compare(other).table())
    weighted = explain_point(network(1), points(), units=UNITS, groups=2, sample_weight=np.arange(ROWS) + 1)
    table = one.compare(weighted).table()
    assert np.isfinite(table[["low", "high", "p_value"]].to_numpy()).all()
    assert one.compare(other).plot(pairs=4) is not None


def test_equal_populations_differ_as_often_as_the_level_says():
    """200 numbers whose slopes are x, cos(x) and 0 at the three levels, at two samples of one population."""
    units = 200

    def model(x):
        level, numbers = x[:, 0].long(), x[:, 1:]
        at_levels = torch.stack([numbers**2 / 2, torch.sin(numbers), 0 * numbers])
        return at_levels[level, torch.arange(len(x))].sum(1)

    def explained(rows, seed):
        x = torch.cat([(torch.arange(rows) % 3)[:, None], random_points(rows, units, seed=seed)], dim=1)
        return explain_point(model, x, units=Categorical({"c": 0}), unit="c")

    comparison = explained(150, 1).compare(explained(210, 2))
    for level in (0.05, 0.2):
        assert np.mean(comparison.p_value < level) < level + 3 * np.sqrt(level / units)
    assert np.mean(comparison.p_value < 0.2) > 0.1
    assert np.mean(comparison.low > 0) < 0.05
