"""What can be compared: units, pairs, quantities, arguments, and what is said about it."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compared_results import NAMES, cubic, known
from explaining import explain_point, random_points
from synthetic_results import random_result

import geh_explain as geh
from geh_explain.units import PairSet

# Units, pairs and settings.


def test_units_are_matched_by_name_in_any_order() -> None:
    x = random_points(30, 3)
    one = explain_point(cubic, x, groups=1, names=NAMES)
    other = explain_point(lambda x: cubic(x.flip(1)), x.flip(1), groups=1, names=NAMES[::-1])
    comparison = one.compare(other)
    np.testing.assert_allclose(comparison.difference, 0, atol=1e-12)


def test_pairs_that_both_results_have_are_compared() -> None:
    x = random_points(30, 3)
    everything, some = explain_point(cubic, x), explain_point(cubic, x, unit="x2")
    comparison = everything.compare(some)
    assert comparison.table()[["unit_i", "unit_j"]].values.tolist() == [["x0", "x2"], ["x1", "x2"]]
    assert "2 pairs were computed in both results; only these are compared." in comparison.notes
    assert isinstance(comparison.pairs, PairSet)
    assert comparison.table(unit="x0").shape[0] == 1
    with pytest.raises(geh.GEHError, match="no computed pair in common"):
        explain_point(cubic, x, pairs=[(0, 1)]).compare(some)


REFUSED: dict[str, tuple[Callable[[], tuple[Any, Any]], str]] = {
    "names": (
        lambda: (random_result(3, names=["a", "b", "c"]), random_result(3, names=["a", "b", "d"])),
        "only this one has 'c', only the other one 'd'",
    ),
    "scale": (lambda: (random_result(3, scale="std"), random_result(3)), "differ in 'scale', 'std' and None"),
    "output": (lambda: (random_result(3, output="probability"), random_result(3)), "'output', 'probability' and 'raw'"),
    "layer": (lambda: (random_result(3, layer="fc1"), random_result(3)), "'layer', 'fc1' and None"),
    "units": (
        lambda: (known(np.ones((2, 3)), units="A()"), known(np.ones((2, 3)), units="B()")),
        "'units', 'A()' and 'B()'",
    ),
    "engine": (lambda: (random_result(3, engine="difference"), random_result(3)), "finite differences"),
    "networks": (
        lambda: (random_result(3, layer="fc1", model="A"), random_result(3, layer="fc1", model="B")),
        "do not correspond",
    ),
    "kind": (lambda: (random_result(3), 3), "other is a int"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_results_of_other_quantities_are_refused(case: str) -> None:
    make, message = REFUSED[case]
    one, other = make()
    with pytest.raises(geh.GEHError, match=re.escape(message)):
        one.compare(other)


def test_wrong_arguments_are_refused() -> None:
    result = random_result(3)
    for options in (
        {"level": 1},
        {"fdr": 0},
        {"measure": "gh"},
        {"source": "both of them"},
        {"labels": "AB"},
        {"labels": 3},
    ):
        with pytest.raises(geh.GEHError, match=next(iter(options))):
            result.compare(result, **options)
    with pytest.raises(geh.GEHError, match="over different groups of points"):
        result.compare(random_result(3, groups=3), measure="geh")


def test_hidden_units_of_two_networks_are_compared_with_a_warning() -> None:
    before, after = (random_result(3, layer="fc1", place="layer 'fc1'", parameters=digits) for digits in ("1", "2"))
    with pytest.warns(geh.GEHWarning, match="layer 'fc1' belong to two networks.*checkpoints of one training"):
        before.compare(after)
    before.compare(before)  # the same network


def test_what_must_be_known_is_said() -> None:
    x = random_points(40, 3)
    network = lambda x: x[:, :2] * x[:, 1:] ** 2 + x[:, [2, 0]]  # noqa: E731
    one, other = (explain_point(network, x, target=target, groups=2) for target in (0, 1))
    comparison = one.compare(other, labels=("first", "second"))
    assert comparison.notes[0] == "The targets differ: 0 and 1."
    assert comparison.notes[1].startswith("Errors over the same points are counted as independent")
    text = repr(comparison)
    assert text.startswith("2 of 3 pairs differ between first and second (false discovery rate 5 %): ")
    assert "mean interactions in 2 groups of points, at the same points; intervals are over points." in text
    crossing = (x[:, 2] > 0).long()
    notes = one.compare(explain_point(network, x, target=0, groups=crossing)).notes
    cross = "The groups of points of both results cross; the same labels as groups= of both would compare groups."
    assert notes[0] == cross
    notes = one.compare(explain_point(network, x + 1, target=0, groups=2)).notes
    assert any("Groups of different points do not correspond" in note for note in notes)
