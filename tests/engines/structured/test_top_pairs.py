"""The strongest pairs through a linear map are those of the whole matrix, in the same order."""

import numpy as np
import pytest

from geh_explain.engines.structured import top_pairs
from geh_explain.engines.structured.top_pairs import find_top_pairs


def all_pairs(linear_map, hessians, factors, top):
    """Return the strongest pairs of the matrix sum_m |W^T S_m W|, computed as a whole in double precision."""
    columns = linear_map.astype(np.float64) * factors
    scores = sum(np.abs(columns.T @ hessian @ columns) for hessian in hessians)
    first, second = np.triu_indices(len(factors), 1)
    order = np.lexsort((second, first, -scores[first, second]))[:top]
    return first[order], second[order], scores[first, second][order]


def random_case(rng, width, units, groups, spread=0.0):
    linear_map = rng.normal(size=(width, units)) * np.exp(spread * rng.normal(size=units))
    hessians = rng.normal(size=(groups, width, width))
    return linear_map.astype(np.float32), hessians + hessians.transpose(0, 2, 1)


def assert_same(found, expected):
    np.testing.assert_array_equal(found.first, expected[0])
    np.testing.assert_array_equal(found.second, expected[1])
    np.testing.assert_allclose(found.scores, expected[2], rtol=1e-12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_the_pairs_are_those_of_the_whole_matrix(monkeypatch, seed, spread):
    monkeypatch.setattr(top_pairs, "_BLOCK_ROWS", 32)
    monkeypatch.setattr(top_pairs, "_BLOCK_COLUMNS", 80)
    rng = np.random.default_rng(seed)
    linear_map, hessians = random_case(rng, 7, 300, groups=1 + seed % 3, spread=spread)
    factors = rng.normal(size=300)
    found = find_top_pairs(linear_map, hessians, factors, top=50)
    assert_same(found, all_pairs(linear_map, hessians, factors, 50))
    if spread:
        assert found.skipped > 0.5


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_the_scale_of_the_numbers_does_not_matter(scale):
    linear_map, hessians = random_case(np.random.default_rng(0), 5, 100, groups=2)
    found = find_top_pairs(linear_map * np.float32(1e-12), hessians * scale, np.ones(100), top=20)
    assert_same(found, all_pairs(linear_map * np.float32(1e-12), hessians * scale, np.ones(100), 20))


def test_scores_that_single_precision_cannot_tell_apart_are_ordered():
    """The scores of the pairs with unit 0 differ by 1e-9 of their size."""
    weights = 1 + 1e-9 * np.random.default_rng(0).permutation(200)
    linear_map = np.vstack([np.r_[1.0, np.zeros(200)], np.r_[0.0, weights]])
    hessians = np.array([[[0.0, 1.0], [1.0, 0.0]]])
    found = find_top_pairs(linear_map, hessians, np.ones(201), top=10)
    assert found.second.tolist() == (1 + np.argsort(-weights)[:10]).tolist()


def test_groups_do_not_cancel():
    """The pair (0, 1) has 3 and -3 in two groups, the pair (2, 3) has 2 and 2."""
    linear_map = np.eye(4)
    hessians = np.zeros((2, 4, 4))
    hessians[:, 0, 1] = hessians[:, 1, 0] = [3, -3]
    hessians[:, 2, 3] = hessians[:, 3, 2] = [2, 2]
    found = find_top_pairs(linear_map, hessians, np.ones(4), top=2)
    assert (found.first.tolist(), found.second.tolist(), found.scores.tolist()) == ([0, 2], [1, 3], [6.0, 4.0])


def test_equal_scores_and_zeros_are_in_row_major_order():
    """All pairs of the units 1 to 3 have the score 1, those with a unit without weights 0."""
    linear_map = np.array([[0.0, 1.0, 1.0, -1.0, 0.0]])
    found = find_top_pairs(linear_map, np.ones((1, 1, 1)), np.ones(5), top=5)
    assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == [
        (1, 2),
        (1, 3),
        (2, 3),
        (0, 1),
        (0, 2),
    ]
    assert found.scores.tolist() == [1, 1, 1, 0, 0]
    nothing = find_top_pairs(linear_map, np.zeros((1, 1, 1)), np.ones(5), top=2)
    assert (nothing.second.tolist(), nothing.scores.tolist(), nothing.skipped) == ([1, 2], [0, 0], 1)


def test_a_few_strong_units_leave_most_blocks_out(monkeypatch):
    """Pairs of the 10 strong units fill the top, so that other blocks than theirs are not computed."""
    monkeypatch.setattr(top_pairs, "_BLOCK_ROWS", 64)
    monkeypatch.setattr(top_pairs, "_BLOCK_COLUMNS", 64)
    rng = np.random.default_rng(0)
    linear_map, hessians = random_case(rng, 5, 1000, groups=2)
    strong = rng.permutation(1000)[:10]
    linear_map[:, strong] *= 100
    reports = []
    found = find_top_pairs(linear_map, hessians, np.ones(1000), 20, reports.append)
    assert set(found.first) | set(found.second) <= set(strong)
    assert found.skipped > 0.98
    assert 0 < sum(reports) <= 1


def test_all_pairs_may_be_asked_for():
    linear_map, hessians = random_case(np.random.default_rng(1), 3, 12, groups=2)
    found = find_top_pairs(linear_map, hessians, np.ones(12), top=66)
    assert_same(found, all_pairs(linear_map, hessians, np.ones(12), 66))
    assert found.skipped == 0
