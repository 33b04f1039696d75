"""Data frames as tensors, and back with the same columns and dtypes."""

import numpy as np
import pandas as pd
import pytest
import torch
from expected_errors import refused

from geh_explain.data.frames import FrameLayout


def mixed_frame():
    return pd.DataFrame(
        {
            "int": np.array([1, 2, 3], np.int8),
            "nullable": pd.array([4, 5, 6], "Int64"),
            "single": np.array([0.5, 1.5, 2.5], np.float32),
            "bool": [True, False, True],
            "text": ["b", None, "a"],
            "category": pd.Categorical(["x", "y", "x"], categories=["z", "y", "x"]),
            "date": pd.to_datetime(["2020-01-02", "2020-01-01", "2020-01-02"]),
            "anything": [1, "a", 2.5],
        }
    )


def test_a_frame_comes_back_as_it_was():
    frame = mixed_frame()
    values, layout = FrameLayout.read(frame, "inputs")
    assert values.dtype == torch.double
    pd.testing.assert_frame_equal(layout.to_frame(values), frame)


@pytest.mark.parametrize(
    "column",
    [["b", None, "a"], [np.nan, "b", None, pd.NA, "a", None], [True, None, False], [None, None], [1, "a", None]],
    ids=str,
)
def test_missing_objects_keep_their_kind(column):
    frame = pd.DataFrame({"text": pd.Series(column, dtype=object)})
    values, layout = FrameLayout.read(frame, "inputs")
    back = layout.to_frame(values)["text"]
    assert back.dtype == object
    assert all(value is kept for value, kept in zip(back, frame["text"], strict=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_frame_of_floats_comes_back_as_it_was(dtype):
    frame = pd.DataFrame(np.arange(6, dtype=dtype).reshape(3, 2) / 7, columns=["a", "b"])
    values, layout = FrameLayout.read(frame, "inputs")
    pd.testing.assert_frame_equal(layout.to_frame(values), frame)


def test_numbers_are_held_as_they_are_and_text_by_the_place_among_its_sorted_values():
    values, layout = FrameLayout.read(pd.DataFrame({"n": [7, 8], "t": ["b", "a"], "c": [True, False]}), "inputs")
    assert values.tolist() == [[7, 1, 1], [8, 0, 0]]
    assert (layout.coded, layout.numeric, layout.whole) == ((1,), [0, 2], [0, 1, 2])


def test_moved_numbers_keep_their_dtype_where_it_holds_them():
    values, layout = FrameLayout.read(mixed_frame(), "inputs")
    moved = values.clone()
    moved[:, 0] += 2
    moved[:, 2] += 0.25
    frame = layout.to_frame(moved)
    assert frame["int"].tolist() == [3, 4, 5]
    assert frame["single"].tolist() == [0.75, 1.75, 2.75]
    assert frame.dtypes.equals(mixed_frame().dtypes)


@pytest.mark.parametrize(("column", "shift"), [(0, 0.5), (0, 200.0), (1, 0.5), (3, 0.25)])
def test_a_dtype_that_cannot_hold_the_moved_numbers_becomes_a_float(column, shift):
    values, layout = FrameLayout.read(mixed_frame(), "inputs")
    moved = values.clone()
    moved[:, column] += shift
    assert layout.to_frame(moved).iloc[:, column].tolist() == moved[:, column].tolist()


@pytest.mark.parametrize("shift", [0.5, 5.0, -1.0])
def test_text_is_never_somewhere_between_its_values(shift):
    values, layout = FrameLayout.read(mixed_frame(), "inputs")
    values[:, 4] += shift
    with refused(ValueError, "'text' is not numeric", "Difference()"):
        layout.to_frame(values)


def test_complex_columns_are_refused():
    with refused(TypeError, "inputs", "'z' is complex"):
        FrameLayout.read(pd.DataFrame({"z": [1j, 2j]}), "inputs")


def test_indicators_stand_for_the_levels_of_text():
    values, layout = FrameLayout.read(pd.DataFrame({"t": ["b", "a", "c"], "n": [7.0, 8.0, 9.0]}), "inputs")
    assert layout.indicators(values).tolist() == [[7, 0, 1, 0], [8, 1, 0, 0], [9, 0, 0, 1]]


def test_layouts_are_told_apart_by_levels_and_dtypes():
    frames = [pd.DataFrame({"t": ["a", "b"]}), pd.DataFrame({"t": ["a", "c"]}), pd.DataFrame({"t": [0.0, 1.0]})]
    assert len({FrameLayout.read(frame, "inputs")[1].digest() for frame in frames}) == 3
