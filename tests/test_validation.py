"""Validation of numbers and paths: what is accepted, and errors that name the argument."""

import math
from fractions import Fraction

import numpy as np
import pytest
from expected_errors import cases, refused, valid_points
from explaining import explain_point

from geh_explain import cli
from geh_explain._memory import budget_bytes
from geh_explain._validation import (
    check_folder,
    check_fraction,
    check_int,
    check_level,
    check_output_file,
    check_positive,
    check_rate,
)
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


# Paths


@cases(
    {
        "number": (lambda folder: 3, TypeError, "output=3", "give a folder"),
        "empty": (lambda folder: "", ValueError, "output=''", "give a folder"),
        "null byte": (lambda folder: "a\0b", ValueError, "output=", "give a folder"),
        "file": (lambda folder: folder / "file", ValueError, "output=", "is a file", "give a folder"),
        "inside a file": (lambda folder: folder / "file" / "a", ValueError, "output=", "cannot be written to"),
        "long": (lambda folder: folder / ("a" * 300), ValueError, "output=", "too long", "another folder"),
        "not a disk": (lambda folder: "/proc/none", ValueError, "output='/proc/none'", "another folder"),
    }
)
def test_a_folder_that_cannot_be_written_to_is_refused(call, kind, words, tmp_path):
    (tmp_path / "file").touch()
    with refused(kind, *words):
        check_folder("output", call(tmp_path))


def test_a_folder_is_made_with_its_parents(tmp_path):
    assert list(check_folder("output", tmp_path / "a" / "b").iterdir()) == []


@cases(
    {
        "number": (lambda folder: 3, TypeError, "path=3", "give a file"),
        "empty": (lambda folder: "", ValueError, "path=''", "give a file"),
        "null byte": (lambda folder: "a\0b.html", ValueError, "path=", "give a file"),
        "ending": (lambda folder: folder / "page.pdf", ValueError, "path=", "must end in .html"),
        "folder": (lambda folder: folder / "made.html", ValueError, "path=", "is a folder", "give a file"),
        "no folder": (lambda folder: folder / "none" / "a.html", ValueError, "there is no folder", "make it first"),
        "long": (lambda folder: folder / f"{'a' * 300}.html", ValueError, "path=", "too long", "another file"),
        "not a disk": (lambda folder: "/proc/none.html", ValueError, "path='/proc/none.html'", "another file"),
    }
)
def test_a_file_that_cannot_be_written_is_refused(call, kind, words, tmp_path):
    (tmp_path / "made.html").mkdir()
    with refused(kind, *words):
        check_output_file("path", call(tmp_path), ".html")
    assert [path.name for path in tmp_path.iterdir()] == ["made.html"]


def test_results_pages_and_the_demonstration_refuse_what_they_cannot_write(tmp_path, capsys):
    result = explain_point(lambda x: x.prod(1), valid_points())
    (tmp_path / "file").touch()
    with refused(ValueError, "path=", "/proc/none.npz", "cannot be written"):
        result.save("/proc/none")
    with refused(ValueError, "path=", "/proc/none.html", "cannot be written"):
        result.report("/proc/none.html")
    with refused(ValueError, "checkpoint=", "cannot be written to"):
        explain_point(lambda x: x.prod(1), valid_points(), checkpoint=tmp_path / "file" / "folder")
    assert cli.main(["demo", "--output", str(tmp_path / "file")]) == 1
    assert "output=" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
