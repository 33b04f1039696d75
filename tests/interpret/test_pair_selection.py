"""Pairs of a result are chosen by strength or by name, with the order and intervals of its table."""

import numpy as np
import pytest
from synthetic_results import evidence_result, random_result, result_of

import geh_explain as geh
from geh_explain.interpret.pair_selection import choose_pairs

#: Scores of the pairs (a, b), (a, c) and (b, c) in two posterior draws.
DRAWS = np.array([[1.0, 5.0, 3.0], [3.0, 5.0, 4.0]])


def result(draws=DRAWS, point_errors=None, **record):
    """Return a result of one group of four points."""
    return result_of(draws[:, None], ["a", "b", "c"], [0] * 4, point_errors, **record)


def test_the_strongest_pairs_come_first():
    selection = choose_pairs(result(), 2, None)
    assert [pair.units for pair in selection.pairs] == [("a", "c"), ("b", "c")]
    assert [pair.numbers for pair in selection.pairs] == [(0, 2), (1, 2)]
    assert [pair.mean for pair in selection.pairs] == [5.0, 3.5]
    assert selection.pairs[1].regions["mean"].tolist() == [3.5]
    assert selection.measure == "geh"


def test_named_pairs_keep_their_order():
    selection = choose_pairs(result(), [("b", "c"), ("a", "b")], "geh")
    assert [pair.units for pair in selection.pairs] == [("b", "c"), ("a", "b")]


def test_intervals_are_those_of_the_table():
    """The draws 3 and 4 have mean 3.5 and standard deviation sqrt(1/2); Student's quantile of one degree is 12.7."""
    (pair,) = choose_pairs(result(), [("b", "c")], "geh").pairs
    assert (pair.low, pair.high) == pytest.approx((0.0, 3.5 + 12.7062047 * (0.5 * 1.5) ** 0.5))
    with_points = result(point_errors=np.array([[0.0, 0.0, 0.5**0.5]]))
    (wider,) = choose_pairs(with_points, [("b", "c")], "geh").pairs
    assert wider.high > pair.high
    row = with_points.table(unit="b").query("unit_j == 'c'").iloc[0]
    assert (wider.low, wider.high) == pytest.approx((row["low"], row["high"]))


def test_a_single_draw_has_no_interval_without_errors_of_the_points():
    (pair,) = choose_pairs(result(DRAWS[:1]), 1, "geh").pairs
    assert pair.mean == 5.0
    assert np.isnan([pair.low, pair.high]).all()
    with_points = result(DRAWS[:1], point_errors=np.full((1, 3), 0.5))
    (pair,) = choose_pairs(with_points, 1, "geh").pairs
    assert 3 < pair.low < 4
    assert 6 < pair.high < 7
    row = with_points.table().iloc[0]
    assert (pair.low, pair.high) == pytest.approx((row["low"], row["high"]))


@pytest.mark.parametrize("measure", [None, "supported", "geh", "eah"])
def test_the_order_is_that_of_the_table(measure):
    tested = evidence_result(random_result(), untested=2)
    selection = choose_pairs(tested, 4, measure)
    table = tested.top(4, measure)
    assert [pair.units for pair in selection.pairs] == list(zip(table["unit_i"], table["unit_j"], strict=True))
    assert [pair.low for pair in selection.pairs] == pytest.approx(table["low"].tolist())
    assert selection.measure == (measure or "supported")


def test_the_unit_set_is_that_of_the_settings():
    assert choose_pairs(result(units="Neurons()"), 1, "geh").unit_set == "Neurons()"


@pytest.mark.parametrize("pairs", [0, "ab", [], [("a", "b", "c")], None, 1.5])
def test_anything_but_a_number_or_pairs_is_refused(pairs):
    with pytest.raises(geh.GEHError, match="pairs="):
        choose_pairs(result(), pairs, "geh")
