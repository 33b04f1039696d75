"""Nuisance columns of the held-out test: their number, and the functions that they span."""

import numpy as np
import pytest

from geh_explain.errors import GEHValueError
from geh_explain.evidence.nuisance import Nuisance, choose_degrees
from geh_explain.statistics.slopes import project_off


def _left_over(columns, function):
    """Return the share of a function's variance that columns leave."""
    function = function - function.mean()
    return float(np.sum(project_off(function[:, None], columns) ** 2) / np.sum(function**2))


def _nuisance(rows, units=4, seed=0):
    values = np.random.default_rng(seed).uniform(size=(rows, units))
    return values, Nuisance(values, choose_degrees(rows, units), np.ones(rows))


@pytest.mark.parametrize("rows", [1000, 3000, 3001, 6000, 20_000])
@pytest.mark.parametrize("units", [2, 8, 30])
def test_columns_are_at_most_their_share_of_the_rows(rows, units):
    degrees = choose_degrees(rows, units)
    assert degrees.n_columns(units) <= 0.3 * rows
    assert degrees.fine_bins == 0 or degrees.fine_bins >= 8
    assert degrees.fine_bins == 0 or degrees.n_columns(units) <= 0.2 * rows


def test_too_few_rows_are_refused():
    with pytest.raises(GEHValueError, match=r"evidence: 100 held-out rows are too few .* at least \d+ are needed"):
        choose_degrees(100, 30)


def test_number_of_columns_is_an_upper_bound():
    values, nuisance = _nuisance(4000)
    own = nuisance.pair(0, 1, functions=values[:, [2]] * values[:, [3]])
    count = nuisance.common.shape[1] + own.shape[1]
    assert 0.5 * choose_degrees(4000, 4).n_columns(4) < count <= choose_degrees(4000, 4).n_columns(4)


def test_with_many_rows_main_effects_with_many_turns_are_spanned():
    # Six periods: a polynomial of degree 5 follows a fifth of their variance. Of 40 bins each period has 6.7, which
    # leave (pi / 6.7)^2 / 3 = 7 %.
    left_over = {}
    for rows in (1000, 6000):
        values, nuisance = _nuisance(rows)
        left_over[rows] = _left_over(nuisance.common, np.sin(2 * np.pi * 6 * values[:, 2]))
    assert left_over[1000] > 0.7
    assert 0.05 < left_over[6000] < 0.09


def test_other_pairs_are_spanned_and_the_pair_itself_is_not():
    values, nuisance = _nuisance(6000)
    centred = values - 0.5  # polynomials are those of ranks, which differ a little
    assert _left_over(nuisance.common, centred[:, 0] * centred[:, 1]) > 0.9
    own = nuisance.pair(0, 1, functions=np.zeros((6000, 1)))
    everything = np.concatenate([nuisance.common, own], axis=1)
    assert _left_over(everything, centred[:, 0] * centred[:, 1]) > 0.9
    assert _left_over(everything, centred[:, 0] * centred[:, 2]) < 1e-3
    assert _left_over(everything, centred[:, 1] * centred[:, 2] * centred[:, 3]) < 1e-3
