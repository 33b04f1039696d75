"""Pairs of a result are chosen by strength or by name."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

import geh_explain as geh
from geh_explain.interpret.pair_selection import choose_pairs
from geh_explain.scores.pair_scores import Scores

#: Scores of the pairs (a, b), (a, c) and (b, c) in two posterior draws.
DRAWS = np.array([[1.0, 5.0, 3.0], [3.0, 5.0, 4.0]])


@dataclass
class Result:
    """The part of a result that the selection reads."""

    draws: np.ndarray = field(default_factory=DRAWS.copy)
    names: tuple[str, ...] = ("a", "b", "c")
    settings: dict[str, str] = field(default_factory=dict)

    def scores(self, measure):
        return Scores(self.draws, 3)

    def pair(self, i, j):
        return [("a", "b"), ("a", "c"), ("b", "c")].index((i, j))

    def regions(self, i, j):
        return pd.DataFrame({"i": [i], "j": [j]})


def test_the_strongest_pairs_come_first():
    selection = choose_pairs(Result(), 2, "geh")
    assert [pair.units for pair in selection.pairs] == [("a", "c"), ("b", "c")]
    assert [pair.numbers for pair in selection.pairs] == [(0, 2), (1, 2)]
    assert [pair.mean for pair in selection.pairs] == [5.0, 3.5]
    assert selection.pairs[1].regions.to_numpy().tolist() == [[1, 2]]
    assert selection.measure == "geh"


def test_named_pairs_keep_their_order():
    selection = choose_pairs(Result(), [("b", "c"), ("a", "b")], "geh")
    assert [pair.units for pair in selection.pairs] == [("b", "c"), ("a", "b")]


def test_intervals_are_mean_plus_minus_two_standard_deviations():
    """The draws 1 and 3 have mean 2 and standard deviation sqrt(2)."""
    (pair,) = choose_pairs(Result(), [("a", "b")], "geh").pairs
    assert (pair.low, pair.high) == pytest.approx((2 - 2 * 2**0.5, 2 + 2 * 2**0.5))


def test_a_single_draw_has_no_interval():
    (pair,) = choose_pairs(Result(DRAWS[:1]), 1, "geh").pairs
    assert pair.mean == 5.0
    assert np.isnan([pair.low, pair.high]).all()


def test_the_unit_set_is_that_of_the_settings():
    assert choose_pairs(Result(settings={"units": "Neurons()"}), 1, "geh").unit_set == "Neurons()"
    assert choose_pairs(Result(), 1, "geh").unit_set is None


@pytest.mark.parametrize("pairs", [0, "ab", [], [("a", "b", "c")], None, 1.5])
def test_anything_but_a_number_or_pairs_is_refused(pairs):
    with pytest.raises(geh.GEHError, match="pairs="):
        choose_pairs(Result(), pairs, "geh")
