"""The Gauss rule of the weight -ln s."""

import numpy as np
import pytest

from geh_explain.local.quadrature import log_rule


@pytest.mark.parametrize("points", [1, 2, 5, 16, 64, 2048])
def test_polynomials_up_to_degree_2n_minus_1_are_integrated_exactly(points):
    nodes, weights = log_rule(points)
    assert ((nodes > 0) & (nodes < 1)).all()
    assert (weights > 0).all()
    for power in np.unique(np.linspace(0, 2 * points - 1, 12).astype(int)):
        # The integral of -ln(s) s^p is 1 / (p + 1)^2.
        assert (weights * nodes**power).sum() * (power + 1) ** 2 == pytest.approx(1, abs=1e-11)
    if points < 10:
        assert abs((weights * nodes ** (2 * points)).sum() * (2 * points + 1) ** 2 - 1) > 1e-6


def test_the_double_integral_of_the_paper_is_a_single_one():
    """int int a b h(a b) da db = int -s ln(s) h(s) ds, for h = exp."""
    v, w = np.polynomial.legendre.leggauss(40)
    v, w = (v + 1) / 2, w / 2
    product = np.outer(v, v)
    double = (np.outer(w, w) * product * np.exp(product)).sum()
    nodes, weights = log_rule(10)
    assert (weights * nodes * np.exp(nodes)).sum() == pytest.approx(double, abs=1e-13)


def test_a_rule_of_the_weight_1_needs_far_more_nodes():
    exact = 1 / 4  # of -s ln(s)
    v, w = np.polynomial.legendre.leggauss(16)
    legendre = (w / 2 * -np.log((v + 1) / 2)).sum() - 1
    nodes, weights = log_rule(16)
    assert abs(legendre) > 1e-3
    assert abs((weights * nodes).sum() - exact) < 1e-14
