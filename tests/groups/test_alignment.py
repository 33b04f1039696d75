"""Groups that two results have in common."""

import numpy as np

from geh_explain.groups.alignment import align_all, align_labels, align_names


def test_groups_that_cross_have_all_points_in_common() -> None:
    common = align_labels(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), (["a", "b"], ["c", "d"]))
    assert common.names == ["all"]
    assert (common.first.tolist(), common.second.tolist(), common.weights.tolist()) == ([0, 0], [0, 0], [1.0])


def test_partly_crossing_groups_have_unions_in_common() -> None:
    first, second = np.array([0, 0, 1, 1, 2, 2, 3]), np.array([0, 0, 0, 1, 1, 2, 2])
    # 0 and 1 meet in group 0 of the second, 1 and 2 in its group 1, 2 and 3 in its group 2.
    assert align_labels(first, second, (list("abcd"), list("xyz"))).names == ["all"]
    second = np.array([0, 0, 0, 0, 1, 2, 2])
    common = align_labels(first, second, (list("abcd"), list("xyz")))
    assert common.first.tolist() == [0, 0, 1, 1]
    assert common.second.tolist() == [0, 1, 1]
    np.testing.assert_allclose(common.weights, [4 / 7, 3 / 7])


def test_equal_groups_with_other_numbers_correspond() -> None:
    common = align_labels(np.array([0, 1, 2, 2]), np.array([2, 0, 1, 1]), (list("abc"), list("xyz")))
    assert common.names == ["a", "b", "c"]
    assert common.second.tolist() == [1, 2, 0]


def test_groups_without_points_have_no_counterpart() -> None:
    common = align_labels(np.array([0, 2]), np.array([0, 1]), (["a", "empty", "c"], ["x", "y"]))
    assert (common.names, common.first.tolist(), common.second.tolist()) == (["a", "c"], [0, -1, 1], [0, 1])


def test_named_groups_are_found_in_any_order_and_weigh_the_mean_of_both_shares() -> None:
    common = align_names(["young", "old"], ["old", "young"], (np.array([0.5, 0.5]), np.array([0.9, 0.1])))
    assert common is not None
    assert (common.names, common.second.tolist()) == (["young", "old"], [1, 0])
    np.testing.assert_allclose(common.weights, [0.3, 0.7])
    assert align_names(["a"], ["b"], (np.ones(1), np.ones(1))) is None
    assert align_all(2, 3).first.tolist() == [0, 0]
