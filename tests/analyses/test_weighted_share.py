"""The share of interactions of rows with case weights."""

import numpy as np
import pytest
import torch
from expected_errors import refused
from explaining import point_explainer, random_points

import geh_explain as geh
from geh_explain.statistics.variance_shares import draw_points


def stratified(x):
    return x[:, 0] * x[:, 1] + x[:, 2] + x[:, 1] / 2


def strata(rows, seed=0):
    """Return rows of two strata, x0 = 1 in a fifth of them and -1 in the others, and weights that make them equal."""
    x = random_points(rows, 3, seed=seed)
    x[:, 0] = torch.where(torch.arange(rows) % 5 == 0, 1.0, -1.0)
    return x, np.where(x[:, 0] > 0, 4.0, 1.0)


def share_of(x, weights, **options):
    explainer = point_explainer(stratified, engine="exact")
    result = explainer.explain(x, groups=1, sample_weight=weights, progress=False)
    return result.share(**{"evaluations": 200_000, "progress": False, **options})


@pytest.mark.filterwarnings("ignore:.*hold:geh_explain.GEHWarning")
@pytest.mark.parametrize("background", ["permuted", "conditional"])
def test_the_share_is_that_of_the_weighted_rows(background):
    x, weights = strata(2000)
    # Among strata of equal weight the product has variance 1, the main effects 1 + 1 / 4; without weights .64 and
    # 1 + (.6 - .5)^2.
    share = share_of(x, weights, background=background)
    assert share.low < 1 / 2.25 < share.high
    assert share.high - share.low < 0.2
    plain = share_of(x, None, background=background)
    assert plain.low < 0.64 / 1.65 < plain.high
    assert plain.overall < share.low + 0.02


@pytest.mark.filterwarnings("ignore:.*hold:geh_explain.GEHWarning")
def test_intervals_cover_the_share_of_weighted_rows():
    hits = 0
    for seed in range(40):
        x, weights = strata(500, seed)
        share = share_of(x, weights, evaluations=1)
        hits += share.low < 1 / 2.25 < share.high
    assert hits >= 34


@pytest.mark.filterwarnings("ignore:.*hold:geh_explain.GEHWarning")
def test_rows_of_weight_zero_do_not_count_and_equal_weights_are_none():
    x, weights = strata(300)
    weights[::3] = 0
    kept = weights > 0
    for background in ("permuted", "conditional"):
        some = share_of(x, weights, background=background)
        alone = share_of(x[kept], weights[kept], background=background)
        assert (some.overall, some.low, some.n_rows) == (alone.overall, alone.low, kept.sum())
        assert (
            share_of(x, np.full(300, 7.0), background=background).overall
            == share_of(x, None, background=background).overall
        )


def test_both_rows_of_a_factor_are_drawn_in_proportion_to_the_product_of_their_weights():
    weights = np.array([9.0, 1.0, 2.0, 3.0, 5.0])
    blocks = [np.array([1, 2, 3, 4])]
    points = draw_points(blocks, 2, 200_000, np.random.default_rng(0), weights)
    for first, second in zip(points.first.T, points.second.T, strict=True):
        counts = np.zeros((5, 5))
        np.add.at(counts, (first, second), 1)
        products = np.outer(weights, weights) * (1 - np.eye(5))
        products[0] = products[:, 0] = 0
        np.testing.assert_allclose(counts / counts.sum(), products / products.sum(), atol=0.005)


@pytest.mark.filterwarnings("ignore:.*hold:geh_explain.GEHWarning")
def test_a_first_row_of_weight_zero_is_no_change_of_the_inputs():
    x, weights = strata(200)
    weights[0] = 0
    assert share_of(x, weights, evaluations=1).n_rows == 199  # warnings are errors


@pytest.mark.filterwarnings("ignore:.*hold:geh_explain.GEHWarning")
def test_too_few_rows_that_count_are_refused():
    x, weights = strata(100)
    with refused(ValueError, "sample_weight", "as much as", "20"):
        share_of(x, np.where(np.arange(100) < 3, 1e6, weights))
    with refused(ValueError, "of weight above 0", "20"):
        share_of(x, np.where(np.arange(100) < 15, weights, 0.0))


def test_a_weighted_result_from_a_file_needs_its_rows(tmp_path):
    x = random_points(200, 3)
    explainer = point_explainer(stratified)
    result = explainer.explain(x, groups=1, sample_weight=np.arange(200) + 1.0, progress=False)
    loaded = geh.Interactions.load(result.save(tmp_path / "result.npz"))
    options = {"evaluations": 1, "progress": False}
    assert explainer.share(loaded, x, **options).overall == result.share(**options).overall
    with refused(ValueError, "inputs", "case weights", "150"):
        explainer.share(loaded, x[:150], **options)
