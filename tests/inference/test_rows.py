"""Rows of data of any kind: selected alike, and of the same kind afterwards."""

import numpy as np
import pandas as pd
import pytest
import torch

import geh_explain as geh
from geh_explain.inference.rows import check_rows, count_rows, reorder_rows, replace_values, take_rows, to_array

ORDER = np.array([2, 0])


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(6.0).reshape(3, 2),
        torch.arange(6).reshape(3, 2),
        pd.DataFrame({"a": [0, 2, 4], "b": [1, 3, 5]}, index=[7, 8, 9]),
        [[0, 1], [2, 3], [4, 5]],
    ],
    ids=["array", "tensor", "frame", "list"],
)
def test_rows_are_taken_in_the_order_given(rows):
    taken = take_rows(rows, ORDER)
    assert type(taken) is type(rows)
    assert to_array(taken).tolist() == [[4, 5], [0, 1]]
    several = take_rows((rows, np.arange(3)), ORDER)
    assert (to_array(several[0]).tolist(), several[1].tolist()) == ([[4, 5], [0, 1]], [2, 0])


def test_taken_rows_keep_their_index_and_a_new_target_that_of_the_inputs():
    y = pd.Series([10, 20, 30], index=[7, 8, 9])
    assert take_rows(y, ORDER).index.tolist() == [9, 7]
    assert reorder_rows(y, np.array([2, 0, 0])).to_dict() == {7: 30, 8: 10, 9: 10}


def test_replaced_values_are_rounded_for_integers_only():
    new = np.array([0.6, 1.4])
    assert replace_values(np.array([5, 6], dtype=np.int8), new).tolist() == [1, 1]
    assert replace_values(torch.tensor([5, 6]), new).tolist() == [1, 1]
    assert replace_values(pd.Series([5, 6]), new).tolist() == [1, 1]
    assert replace_values([5.0, 6.0], new) == [0.6, 1.4]
    assert replace_values(np.array([5.0, 6.0], dtype=np.float32), new).dtype == np.float32


def test_numbers_of_rows_are_compared():
    assert check_rows((np.zeros((4, 2)), np.zeros((4, 3))), [1, 2, 3, 4]) == 4
    with pytest.raises(geh.GEHError, match="X has 3 rows and y 4"):
        check_rows(np.zeros((3, 2)), np.zeros(4))
    with pytest.raises(geh.GEHError, match=r"y has 1 row\(s\); give at least two"):
        check_rows(np.zeros((1, 2)), np.zeros(1))
    with pytest.raises(geh.GEHError, match="y is a float; give a tensor, an array or a DataFrame"):
        count_rows("y", 1.0)
