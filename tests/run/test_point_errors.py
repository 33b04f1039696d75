"""Standard errors over the choice of points: regrouping, scale, batches, moments, and coverage of the population."""

import numpy as np
import pytest
import torch
from explaining import explain_draws, explain_point, random_points
from hand_computed import explain_weighted
from interrupted_runs import network, rows
from networks import mlp

import geh_explain as geh
from geh_explain.posterior import MCDropout

pytestmark = pytest.mark.usefixtures("seeded")


def test_errors_computed_by_hand():
    """Interactions 2 w0 x0 of (x0, x1) are w0 times 1 and -3 in the west, 2 and 4 in the east; w0 is 2, 2.5 and 3."""
    result = explain_weighted()
    assert result.group_names == ["east", "west"]
    mean_square = np.mean(np.square([2, 2.5, 3]))
    east, west = np.sqrt(mean_square * 2 / 2), np.sqrt(mean_square * 8 / 2)
    np.testing.assert_allclose(result.point_errors, [[east, 0, 0], [west, 0, 0]], rtol=1e-12, atol=1e-7)


@pytest.mark.parametrize("draws", [2, 30], ids=["before the choice", "in the course of the run"])
def test_groups_that_were_merged_have_the_errors_of_groups_that_were_given(draws):
    x = random_points(120, 3)
    net = mlp(3, 8, 1, dropout=0.2, gain=2.0)
    merged = explain_draws(net, x, groups="auto", draws=draws, posterior=MCDropout())
    assert 1 < len(merged.group_names) < 20
    given = explain_draws(net, x, groups=merged.labels, draws=draws, posterior=MCDropout())
    np.testing.assert_allclose(merged.point_errors, given.point_errors, rtol=1e-9)


@pytest.mark.parametrize("batch_size", [1, 13, 60])
def test_errors_do_not_depend_on_the_batch_size(batch_size):
    net, x = mlp(4, 8, 1, dropout=0.3), random_points(60, 4)
    one, other = (explain_draws(net, x, groups=3, draws=6, batch_size=size) for size in (None, batch_size))
    np.testing.assert_allclose(other.point_errors, one.point_errors, rtol=1e-8)


@pytest.mark.parametrize("memory", [None, 2e-4], ids=["draws kept", "moments"])
def test_errors_are_scaled_as_the_interactions_are(memory):
    net, x = mlp(30, 8, 1, dropout=0.3), random_points(40, 30)
    factors = np.linspace(-2, 3, 30)
    plain, scaled = (explain_draws(net, x, groups=3, draws=12, memory=memory, scale=scale) for scale in (None, factors))
    assert plain.settings["draws_kept"] == (memory is None)
    i, j = np.triu_indices(30, 1)
    np.testing.assert_allclose(scaled.point_errors, plain.point_errors * np.abs(factors[i] * factors[j]), rtol=1e-9)


@pytest.mark.parametrize("eah_points", [None, 30], ids=["all points", "a sample"])
def test_errors_are_the_same_where_only_moments_are_kept(eah_points):
    net, x = mlp(30, 8, 1, dropout=0.3), random_points(40, 30)
    options = {"draws": 12, "groups": 3, "eah_points": eah_points}
    kept, streamed = (explain_draws(net, x, memory=memory, **options) for memory in (None, 2e-4))
    assert (kept.settings["draws_kept"], streamed.settings["draws_kept"]) == (True, False)
    np.testing.assert_allclose(streamed.point_errors, kept.point_errors, rtol=1e-8)


def test_fewer_draws_measure_errors_where_memory_is_short_and_none_where_it_is_very_short():
    net, x = mlp(30, 8, 1, dropout=0.3), random_points(40, 30)
    tight = explain_draws(net, x, groups="auto", draws=12, memory=3e-4)
    assert not tight.settings["draws_kept"]
    assert len(tight.group_names) < 6  # merged
    first = explain_draws(net, x, groups=tight.labels, draws=1)
    np.testing.assert_allclose(tight.point_errors, first.point_errors, rtol=1e-8)
    assert explain_draws(net, x, groups=3, draws=12, memory=1.2e-4).point_errors is None


def test_groups_of_one_point_have_no_error():
    with pytest.warns(geh.GEHWarning):
        result = explain_point(mlp(3, 8, 1), random_points(5, 3), groups=[0, 0, 1, 1, 2])
    assert np.isnan(result.point_errors).tolist() == [[False] * 3, [False] * 3, [True] * 3]


def test_a_run_with_more_draws_takes_the_squares_of_stored_draws(tmp_path):
    explainer = geh.GEHExplainer(network())
    options = {"groups": 2, "batch_size": 100, "progress": False}
    explainer.explain(rows(), draws=3, checkpoint=tmp_path, **options)
    continued = explainer.explain(rows(), draws=9, checkpoint=tmp_path, **options)
    alone = explainer.explain(rows(), draws=9, **options)
    np.testing.assert_array_equal(continued.point_errors, alone.point_errors)


def test_normal_intervals_cover_the_mean_over_the_population():
    """500 samples of 200 points are as many groups of one run: each has a mean and a standard error of its own."""
    samples, size = 500, 200
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(samples * size, 3, generator=generator, dtype=torch.double)
    x[:, 2] = -torch.log(x[:, 2])  # a skewed one, with mean 1
    result = explain_point(
        lambda x: x[:, 0] ** 2 * x[:, 1] * (1 + x[:, 2]), x, engine="exact", groups=np.arange(samples * size) // size
    )
    # Means of 2 x0 (1 + x2), 2 x0 x1 and x0^2.
    population = np.array([2.0, 0.5, 1 / 3])
    covered = np.abs(result.signed[0] - population) <= 1.96 * result.point_errors
    shares = covered.mean(axis=0)
    assert ((shares > 0.93) & (shares < 0.97)).all(), shares
