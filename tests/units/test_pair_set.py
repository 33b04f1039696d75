"""Sets of pairs: their order, their places in matrices, and the rows of the Hessian that hold them."""

import itertools

import numpy as np
import pytest

import geh_explain as geh
from geh_explain.units import PairSet


def pairs_of(known):
    return list(zip(known.first.tolist(), known.second.tolist(), strict=True))


def test_all_pairs_are_in_row_major_order():
    known = PairSet.all(5)
    assert pairs_of(known) == list(itertools.combinations(range(5), 2))
    assert known.complete
    assert [known.index(i, j) for i, j in pairs_of(known)] == list(range(10)) == known.positions.tolist()


def test_pairs_of_some_units_are_those_with_an_end_among_them():
    known = PairSet.touching([4, 1], n_units=6)
    assert pairs_of(known) == [(i, j) for i, j in itertools.combinations(range(6), 2) if {i, j} & {1, 4}]
    assert (len(known), known.complete, known.units.tolist(), known.is_rows) == (9, False, [1, 4], True)


def test_single_pairs_are_sorted_and_counted_once():
    known = PairSet.of([(3, 0), (1, 2), (2, 1)], n_units=4)
    assert pairs_of(known) == [(0, 3), (1, 2)]
    assert (known.index(3, 0), known.index(1, 2), known.find(0, 1)) == (0, 1, None)
    assert (known.is_rows, known.units.tolist(), known.has_unit(2).tolist()) == (False, [], [False, True])


def test_a_set_that_holds_all_pairs_is_complete_however_it_was_made():
    everything = PairSet.all(4)
    assert PairSet.touching([0, 1, 2], n_units=4) == everything == PairSet.of(pairs_of(everything), n_units=4)
    assert PairSet.of([(0, 1)], 4) != PairSet.of([(0, 2)], 4)
    assert PairSet.of([(0, 1)], 4) != PairSet.of([(0, 1)], 5)


def test_a_pair_that_was_not_computed_is_named_with_the_way_to_compute_it():
    known = PairSet.touching([0], n_units=4)
    with pytest.raises(geh.GEHError, match=r"\('c', 'b'\) was not computed: .* 3 of the 6 .*pairs=\[\('c', 'b'\)\]"):
        known.index(2, 1, names=["a", "b", "c", "d"])


def test_a_matrix_is_symmetric_and_has_nan_for_unknown_pairs():
    found = PairSet.of([(0, 1), (1, 2)], n_units=3).matrix(np.array([5.0, -7.0]))
    np.testing.assert_array_equal(found, [[0, 5, np.nan], [5, 0, -7], [np.nan, -7, 0]])
    np.testing.assert_array_equal(PairSet.all(3).matrix([1.0, 2.0, 3.0]), [[0, 1, 2], [1, 0, 3], [2, 3, 0]])


@pytest.mark.parametrize("seed", range(5))
def test_rows_hold_every_pair_once(seed):
    rng = np.random.default_rng(seed)
    known = PairSet.of(rng.permutation(list(itertools.combinations(range(9), 2)))[: 4 * seed + 1].tolist(), n_units=9)
    columns = np.arange(9)
    held = [
        (place, tuple(sorted((row.unit, int(other)))))
        for row in known.rows
        for place, other in zip(row.positions, columns[row.others], strict=True)
    ]
    assert [pair for _, pair in sorted(held)] == pairs_of(known)
    assert sorted(place for place, _ in held) == list(range(len(known)))


@pytest.mark.parametrize(
    ("known", "rows"),
    [
        (PairSet.touching([7], n_units=40), [7]),
        (PairSet.touching([3, 9, 5], n_units=40), [3, 5, 9]),
        (PairSet.of([(k, 20) for k in range(12)], n_units=40), [20]),
        (PairSet.all(4), [0, 1, 2]),
    ],
)
def test_few_rows_cover_the_pairs_of_few_units(known, rows):
    assert sorted(row.unit for row in known.rows) == rows
