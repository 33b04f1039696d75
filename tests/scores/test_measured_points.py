"""Intervals and stable pairs count the points at which errors of group means were measured, not all points."""

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.scores.measured_points import error_counts

POINT = geh.posterior.PointEstimate()


def network(dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(30, 5), nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, 1)).double()


def inputs(rows, seed):
    return torch.randn(rows, 30, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize(
    ("draws", "asked", "expected"),
    [
        (1, {}, [60, 40]),
        (1, {"eah_points": 10}, [6, 4]),
        (3, {"eah_points": 10}, [1 + 3 * 5, 1 + 3 * 3]),
        (9, {"eah_points": 10}, [1 + 4 * 5, 1 + 4 * 3]),
        (1, {"eah_points": 90}, [54, 36]),
        (1, {"measures": ("geh",)}, [2.4, 2]),
        (2, {"eah_points": 10, "clusters": np.arange(100)}, [60, 40]),
    ],
)
def test_the_freedom_of_errors_is_that_of_the_points_that_were_measured(draws, asked, expected):
    """S (c - 1) + 1 for S draws, at most 4, that look at c points of a group."""
    labels, posterior = np.arange(100) % 5 // 3, geh.posterior.MCDropout() if draws > 1 else POINT
    explainer = geh.GEHExplainer(network(0.1 * (draws > 1)), posterior=posterior)
    result = explainer.explain(inputs(100, 0), groups=labels, draws=draws, progress=False, **asked)
    np.testing.assert_allclose(error_counts(result), expected, atol=0.1)


@pytest.mark.parametrize("asked", [{"measures": ("geh",)}, {"measures": ("geh", "aeh", "eah")}])
def test_intervals_hold_the_mean_of_the_population_also_without_eah(asked):
    """Four points alone have three degrees of freedom; with those of all 100 points 86 % of the intervals held it."""
    explainer = geh.GEHExplainer(network(), posterior=POINT)
    population = explainer.explain(inputs(20_000, 1), groups=1, measures=("geh",), progress=False).signed_means[0][0]
    held = []
    for seed in range(40):
        result = explainer.explain(inputs(100, 10 + seed), groups=1, seed=seed, progress=False, **asked)
        half = result.group_half_widths(0.95, np.arange(len(population)))[0]
        held.append(np.abs(result.signed_means[0][0] - population) <= half)
    # Pairs share their points, so that the share of intervals varies more than that of independent ones.
    assert 0.92 <= np.mean(held) <= 0.99
