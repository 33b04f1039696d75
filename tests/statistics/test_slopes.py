"""Expected shares of interactions, against quadrature of the truncated normal density by another method."""

import numpy as np
import pytest
from scipy.integrate import quad

from geh_explain.statistics.slopes import expected_share


@pytest.mark.parametrize("slope", [-3.0, -0.2, 0.0, 0.3, 0.5, 0.9, 1.0, 2.5])
@pytest.mark.parametrize("se", [0.05, 0.4, 3.0, 100.0])
def test_the_expected_share_is_the_mean_of_a_truncated_normal(slope, se):
    nearest = min(max(slope, 0), 1)  # the mode

    def density(share):
        return np.exp((-((share - slope) ** 2) + (nearest - slope) ** 2) / (2 * se**2))

    points = [nearest] if 0 < nearest < 1 else None
    mean = quad(lambda share: share * density(share), 0, 1, points=points)[0] / quad(density, 0, 1, points=points)[0]
    assert expected_share(np.array([slope]), np.array([se]))[0] == pytest.approx(mean, rel=1e-6, abs=1e-9)


def test_numbers_of_any_size_have_an_expected_share():
    sizes = np.array([0.0, 1e-308, 1e-30, 1e-9, 1.0, 1e30, 1e308])
    slope, se = (grid.ravel() for grid in np.meshgrid(np.concatenate([-sizes, sizes]), sizes))
    with np.errstate(all="raise", under="ignore"):
        expected = expected_share(slope, se)
    assert ((expected >= 0) & (expected <= 1)).all()
    without_error = se == 0
    np.testing.assert_array_equal(expected[without_error], np.clip(slope[without_error], 0, 1))
    np.testing.assert_allclose(expected[(se == 1e308) & (np.abs(slope) <= 1e30)], 0.5)
    assert np.isnan(expected_share(np.array([np.nan]), np.array([np.nan]))).all()
