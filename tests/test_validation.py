"""Validation of numbers: accepted types, and errors that name the argument."""

import math
from fractions import Fraction

import numpy as np
import pytest

from geh_explain._memory import budget_bytes
from geh_explain._validation import check_fraction, check_int, check_level, check_positive, check_rate
from geh_explain.errors import GEHTypeError, GEHValueError


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_of_any_type_become_ints(value) -> None:
    checked = check_int("draws", value, 3)
    assert (checked, type(checked)) == (3, int)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), Fraction(1, 2)])
def test_real_numbers_of_any_type_become_floats(value) -> None:
    for checked in (check_positive("step", value), check_fraction("level", value, 0.95)):
        assert (checked, type(checked)) == (0.5, float)
    assert check_level(value) == check_rate(value) == 0.5


@pytest.mark.parametrize("value", [True, "3", None, 3.0, [3], 3j])
def test_what_is_not_a_whole_number_is_a_type_error(value) -> None:
    with pytest.raises(GEHTypeError, match=r"^draws=.* must be a whole number of at least 1\.$"):
        check_int("draws", value, 1)


@pytest.mark.parametrize("value", [True, "3", None, [0.5], 3j])
def test_what_is_not_a_number_is_a_type_error(value) -> None:
    with pytest.raises(GEHTypeError, match=r"^step=.* must be a positive number\.$"):
        check_positive("step", value)
    with pytest.raises(GEHTypeError, match=r"^level=.* must be a number between 0 and 1, for instance 0.95\.$"):
        check_level(value)


@pytest.mark.parametrize("value", [0, -0.0, -1, math.nan, math.inf, -math.inf])
def test_numbers_out_of_range_are_value_errors(value) -> None:
    with pytest.raises(GEHValueError, match=r"^step=.* must be a positive number of metres\.$"):
        check_positive("step", value, "a positive number of metres")
    with pytest.raises(GEHValueError, match=r"^fdr=.* must lie between 0 and 1, for instance 0.05\.$"):
        check_rate(value)


@pytest.mark.parametrize("value", [1, 1.0, 95])
def test_the_ends_of_the_unit_interval_are_no_levels(value) -> None:
    with pytest.raises(GEHValueError, match=rf"^level={value} must lie between 0 and 1"):
        check_level(value)


def test_a_budget_in_gigabytes_is_in_units_of_ten_to_the_ninth_bytes() -> None:
    assert budget_bytes(0.25) == 250_000_000
