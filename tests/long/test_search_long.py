"""The pairs of a search among very many units against the scores of all pairs."""

from benchmarks.all_pairs import compare
from benchmarks.wide_runs import Run


def test_the_pairs_of_a_search_are_the_strongest_of_450_million():
    found = compare(Run("search", 30_000, points=500))
    assert found.missed == 0
    assert found.error < 1e-5


def test_bounds_leave_out_no_strong_pair():
    """Inputs of log-normal strengths, of which most pairs are never compared."""
    assert compare(Run("search", 20_000, points=500, unequal=True)).missed == 0
