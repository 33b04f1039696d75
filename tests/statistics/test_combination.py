"""The Cauchy combination: equal to its formula, exact at the ends, and of the right level for dependent tests."""

import numpy as np
import pytest
from scipy.stats import norm

import geh_explain as geh
from geh_explain.inference import cauchy_combination


def test_the_formula():
    p = np.array([[0.03, 0.9], [0.2, 0.4], [0.6, 0.7]])
    statistic = np.tan((0.5 - p) * np.pi).mean(axis=0)
    np.testing.assert_allclose(cauchy_combination(p), 0.5 - np.arctan(statistic) / np.pi)
    assert cauchy_combination([0.3]) == pytest.approx(0.3)


def test_tiny_p_values_keep_their_size():
    """For small p-values the combination is their harmonic mean."""
    assert cauchy_combination([1e-200, 1e-200]) == pytest.approx(1e-200)
    assert cauchy_combination([1e-30, 0.5]) == pytest.approx(2e-30)
    assert cauchy_combination([0.0, 0.5]) == 0


def test_one_test_without_evidence_does_not_hide_the_others():
    assert cauchy_combination([1e-6, 1e-6, 1e-6, 1e-6, 1.0]) < 2e-6
    assert cauchy_combination([1e-6, 1.0]) == cauchy_combination([1e-6, 0.999])
    assert cauchy_combination([1.0, 1.0]) == 1


def test_tests_that_were_not_made_are_left_out():
    p = np.array([[0.01, np.nan], [np.nan, np.nan], [0.2, np.nan]])
    combined = cauchy_combination(p)
    assert combined[0] == cauchy_combination([0.01, 0.2])
    assert np.isnan(combined[1])


@pytest.mark.parametrize(("correlation", "largest"), [(0.0, 1.03), (0.2, 1.2)])
def test_the_level_holds_for_dependent_tests(correlation, largest):
    rng = np.random.default_rng(0)
    shared, own = rng.normal(size=(1, 200_000)), rng.normal(size=(5, 200_000))
    p = norm.sf(np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own)
    assert 0.97 < (cauchy_combination(p) <= 0.05).mean() / 0.05 < largest
    # The sum of z-scores as if they were independent is far off.
    pooled = norm.sf(norm.isf(p).sum(axis=0) / np.sqrt(5))
    assert correlation == 0 or (pooled <= 0.05).mean() / 0.05 > 2


def test_what_is_no_p_value_is_refused():
    with pytest.raises(geh.GEHError, match=r"p_values: 1\.5 is not between 0 and 1"):
        cauchy_combination([0.5, 1.5])
    with pytest.raises(geh.GEHError, match=r"p_values has shape \(0,\)"):
        cauchy_combination([])
