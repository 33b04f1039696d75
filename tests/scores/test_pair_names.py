"""Labels of pairs: different pairs have different labels, whatever their names hold."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from synthetic_results import random_result

from geh_explain.plots.axes import unit_labels
from geh_explain.plots.pairs import pair_labels
from geh_explain.scores.pair_names import join_names, number_repeats
from geh_explain.units.pair_set import PairSet

#: Names of which plain joining makes equal labels, or whose ends are equal after shortening.
NAMES = ["a", "b × c", "a × b", "c", '"a', 'a"', '"a × b"', 'b" × "c', "×", " × ", "x  y", "x y", "x\ny"]
NAMES += ["first " + "n" * 60, "second " + "n" * 60, "n" * 29, "…" + "n" * 29, "…" + "n" * 29 + " (1)"]


def test_different_pairs_have_different_labels():
    pairs = list(itertools.permutations(NAMES, 2))
    assert len({join_names(*pair) for pair in pairs}) == len(pairs)
    assert join_names("a", "b × c") == 'a × "b × c"'
    assert join_names("age", "a-b") == "age × a-b"


def test_labels_that_shortening_made_equal_are_numbered():
    assert number_repeats(["a", "b", "a", "a (1)"]) == ["a (1) (1)", "b", "a (2)", "a (1) (2)"]
    assert number_repeats(["a", "b"]) == ["a", "b"]
    for labels in (unit_labels(NAMES), unit_labels(NAMES * 2)):
        assert len(set(labels)) == len(labels)


def test_labels_of_plots_and_exports_differ():
    xarray = pytest.importorskip("xarray")
    count = len(NAMES) * (len(NAMES) - 1) // 2
    assert len(set(pair_labels(NAMES, PairSet.all(len(NAMES)), np.arange(count)))) == count
    result = random_result(len(NAMES), groups=2, names=NAMES)
    data = result.to_xarray()
    assert isinstance(data, xarray.Dataset)
    assert len(set(data["pair"].values.tolist())) == count
    drawn = [label.get_text() for label in result.plot.intervals(pairs=40).get_yticklabels()]
    assert len(set(drawn)) == len(drawn)
    plt.close("all")


def test_units_and_pairs_of_a_graph_are_kept_apart():
    pytest.importorskip("networkx")
    graph = random_result(len(NAMES), groups=2, names=NAMES).to_networkx()
    assert graph.number_of_nodes() == len(NAMES)
    assert graph.number_of_edges() == len(NAMES) * (len(NAMES) - 1) // 2
