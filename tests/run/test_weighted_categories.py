"""Case weights with categories: weights in the shares of levels, in all means, and in their errors."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from expected_errors import refused
from explaining import explain_draws, explain_point, random_points
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout
from geh_explain.units import Categorical

ROWS = 90
UNITS = Categorical({"c": [0, 1, 2], "d": [3]})


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(0.2), nn.Linear(12, 1)).double().eval()


def table(levels=3):
    codes = torch.tensor([0, 0, 0, 1, 1, 2]).repeat(ROWS // 6) % levels
    columns = torch.eye(3, dtype=torch.double)[codes], (torch.arange(ROWS) % 4 // 3)[:, None]
    return torch.cat([*columns, random_points(ROWS, 2)], dim=1)


def whole_weights():
    return np.random.default_rng(0).integers(0, 4, ROWS)


def numbers(result):
    parts = [result.scores(measure).draws for measure in ("aeh", "geh", "eah")]
    return np.concatenate([part.ravel() for part in (*parts, result.main.draws)])


@pytest.mark.parametrize("engine", ["exact", "structured", "difference"])
@pytest.mark.parametrize("groups", ["auto", 4])
def test_integer_weights_are_repeated_rows(engine, groups):
    x, weights = table(), whole_weights()
    options = {
        "units": UNITS,
        "engine": engine,
        "groups": groups,
        "draws": 22,
        "scale": "std",
        "posterior": MCDropout(),
    }
    weighted = explain_draws(network(), x, sample_weight=weights, **options)
    repeated = explain_draws(network(), x.repeat_interleave(torch.as_tensor(weights), dim=0), **options)
    np.testing.assert_allclose(numbers(weighted), numbers(repeated), rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(np.repeat(weighted.labels, weights), repeated.labels)
    for pair in (("c", "d"), ("c", "x4"), ("d", "x5")):
        columns = ["weight", "strength", "mean"]
        pd.testing.assert_frame_equal(weighted.levels(*pair)[columns], repeated.levels(*pair)[columns])
        np.testing.assert_allclose(weighted.regions(*pair)["mean"], repeated.regions(*pair)["mean"])


def brute_force(model, x, weights, labels):
    """Return AEH, GEH and EAH of c and x4, one contrast and one group after the other; weights sum to 1."""
    block, total = x[:, :3], np.zeros(3)
    shares = weights @ block.numpy()
    slopes = []
    for level in range(3):
        moved = torch.cat([torch.eye(3).to(x)[[level] * len(x)], x[:, 3:]], dim=1).requires_grad_()
        slopes.append(torch.autograd.grad(model(moved).sum(), moved)[0][:, 4].numpy())
    pairs = list(itertools.combinations(range(3), 2))
    for a, b in pairs:
        weight = shares[a] * shares[b] / sum(shares[k] * shares[m] for k, m in pairs)
        h = slopes[b] - slopes[a]
        by_group = sum(abs(weights[labels == m] @ h[labels == m]) for m in np.unique(labels))
        total += weight * np.array([abs(weights @ h), by_group, weights @ abs(h)])
    return total


def test_scores_are_those_of_brute_force():
    weights = np.random.default_rng(1).gamma(1.0, size=ROWS)
    labels = np.arange(ROWS) % 3
    result = explain_point(network(), table(), units=UNITS, sample_weight=weights, groups=labels)
    found = [result.scores(measure).mean[0, 2] for measure in ("aeh", "geh", "eah")]
    np.testing.assert_allclose(found, brute_force(network(), table(), weights / weights.sum(), labels), atol=1e-8)


def test_levels_of_rows_without_weight_do_not_count():
    x = table()
    weights = np.where(x[:, 2] == 1, 0.0, 1.0)
    with pytest.warns(geh.GEHWarning, match="the levels 'x2' of category 'c' occur at no point"):
        result = explain_point(network(), x, units=UNITS, sample_weight=weights)
    assert list(result.levels("c", "x4")[["from_i", "to_i"]].values[0]) == ["x0", "x1"]
    with refused(ValueError, "'c'", "one level", "'x0'"):
        explain_point(network(), x, units=UNITS, sample_weight=np.where(x[:, 0] == 1, 1.0, 0.0))


def test_a_category_with_two_levels_is_a_column_of_0_and_1_under_differences():
    x, weights = table()[:, 3:], np.random.default_rng(2).gamma(2.0, size=ROWS)

    def model(x):
        return torch.sin(x[:, 0] + x[:, 1]) * x[:, 2] + x[:, 0] * x[:, 1] ** 2

    options = {"sample_weight": weights, "groups": np.arange(ROWS) % 3, "scale": "std"}
    category = explain_point(model, x, units=Categorical({"x0": 0}), engine="difference", **options)
    column = explain_point(model, x, engine=geh.engines.Difference(discrete=[0]), **options)
    for name in ("signed", "absolute", "point_errors", "weight_moments"):
        np.testing.assert_allclose(getattr(category, name), getattr(column, name), atol=1e-12)
    np.testing.assert_allclose(category.main.mean, column.main.mean, atol=1e-12)
    for measure in ("geh", "aeh"):
        pd.testing.assert_frame_equal(category.table(measure), column.table(measure))
    regions = [result.regions("x0", "x1").drop(columns="description") for result in (category, column)]
    pd.testing.assert_frame_equal(*regions)


@pytest.mark.parametrize("options", [{}, {"clusters": np.arange(ROWS) // 5}, {"unit": "c"}])
def test_a_saved_result_has_the_same_tables(tmp_path, options):
    weights = whole_weights()
    result = explain_draws(
        network(), table(), units=UNITS, groups=3, sample_weight=weights, posterior=MCDropout(), **options
    )
    loaded = geh.Interactions.load(result.save(tmp_path / "result.npz"))
    np.testing.assert_array_equal(loaded.sample_weight, result.sample_weight)
    np.testing.assert_array_equal(loaded.labels == -1, weights == 0)
    pd.testing.assert_frame_equal(loaded.table(), result.table())
    pd.testing.assert_frame_equal(loaded.levels("c", "x4"), result.levels("c", "x4"))
    pd.testing.assert_frame_equal(loaded.regions("c", "d"), result.regions("c", "d"))
