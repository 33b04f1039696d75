"""PointSpread: the variance over points from sums, pooled over draws, and the standard errors that follow."""

import numpy as np
import pytest

from geh_explain.scores.point_spread import PointSpread

#: Interactions of one pair: 5 points of group 0 and 3 of group 1, in two draws.
DRAWS = [
    (np.array([1.0, 4.0, -2.0, 0.5, 3.0]), np.array([7.0, 7.5, 9.0])),
    (np.array([0.0, 2.0, -5.0, 1.5, 4.0]), np.array([6.0, 8.0, 9.5])),
]


def add(spread, *groups):
    """Add one draw, given as the interactions of each group."""
    total, squares = (np.array([[(h**power).sum()] for h in groups]) for power in (1, 2))
    spread.add(total, squares, np.array([len(h) for h in groups]))


def test_one_draw_gives_the_textbook_standard_error():
    spread = PointSpread()
    add(spread, *DRAWS[0])
    expected = [[h.std(ddof=1) / np.sqrt(len(h))] for h in DRAWS[0]]
    np.testing.assert_allclose(spread.errors(np.array([5, 3])), expected, rtol=1e-12)


def test_variances_of_draws_are_averaged_and_bound_that_of_the_mean():
    spread = PointSpread()
    for draw in DRAWS:
        add(spread, *draw)
    by_draw = np.array([[h.var(ddof=1) for h in draw] for draw in DRAWS])
    errors = spread.errors(np.array([5, 3]))[:, 0]
    np.testing.assert_allclose(errors, np.sqrt(by_draw.mean(axis=0) / [5, 3]), rtol=1e-12)
    of_mean = [np.mean([draw[group] for draw in DRAWS], axis=0).var(ddof=1) for group in (0, 1)]
    assert (errors >= np.sqrt(np.array(of_mean) / [5, 3])).all()


def test_a_sample_of_the_points_gives_the_variance_and_all_of_them_the_error():
    spread = PointSpread()
    add(spread, *DRAWS[0])
    expected = [[DRAWS[0][0].std(ddof=1) / np.sqrt(500)], [DRAWS[0][1].std(ddof=1) / np.sqrt(27)]]
    np.testing.assert_allclose(spread.errors(np.array([500, 27])), expected, rtol=1e-12)


def test_draws_count_by_their_degrees_of_freedom():
    spread = PointSpread()
    add(spread, DRAWS[0][0], DRAWS[0][1][:1])
    add(spread, DRAWS[1][0][:2], DRAWS[1][1])
    pooled = (4 * DRAWS[0][0].var(ddof=1) + DRAWS[1][0][:2].var(ddof=1)) / 5
    expected = np.sqrt([[pooled / 5], [DRAWS[1][1].var(ddof=1) / 3]])
    np.testing.assert_allclose(spread.errors(np.array([5, 3])), expected, rtol=1e-12)


@pytest.mark.parametrize("points", [0, 1])
def test_a_group_with_fewer_than_two_points_has_no_error(points):
    spread = PointSpread()
    add(spread, DRAWS[0][0], DRAWS[0][1][:points])
    errors = spread.errors(np.array([5, points]))
    assert np.isfinite(errors[0]).all()
    assert np.isnan(errors[1]).all()


def test_equal_points_have_an_error_of_rounding_size_and_never_a_negative_variance():
    spread = PointSpread()
    for value in np.linspace(0.1, 1.7, 50):
        add(spread, np.full(1000, value))
    assert (spread.errors(np.array([1000])) < 1e-8).all()


def test_squares_that_overflowed_give_no_error():
    spread = PointSpread()
    spread.add(np.array([[3.0, 1.0]]), np.array([[np.inf, 1.0]]), np.array([3]))
    errors = spread.errors(np.array([3]))
    assert np.isnan(errors[0, 0])
    assert errors[0, 1] > 0


def test_no_draws_give_no_errors():
    assert PointSpread().errors(np.array([5])) is None
