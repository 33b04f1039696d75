"""The picture of a null distribution: a histogram of all permutations, and a labelled line for each pair."""

import numpy as np
import pytest

from geh_explain.plots.permutation_null import draw_permutation_null


def test_bars_count_permutations_and_lines_mark_pairs():
    null = np.linspace(1, 2, 30)
    ax = draw_permutation_null(null, [("age", "bmi"), ("age", "sex")], [3.0, 1.5], [0.032, 0.5], method="GEH")
    assert sum(bar.get_height() for bar in ax.patches) == 30
    assert [line.get_xdata()[0] for line in ax.lines] == [3.0, 1.5]
    assert [text.get_text().strip() for text in ax.texts] == ["age × bmi, p = 0.032", "age × sex, p = 0.5"]
    assert ax.get_xlabel() == "strongest GEH of 30 permuted targets"
    tallest = max(bar.get_height() for bar in ax.patches)
    assert ax.get_ylim()[1] == pytest.approx(1.4 * tallest)


def test_the_axis_is_logarithmic_where_a_pair_is_far_from_the_null():
    null = np.linspace(1, 2, 30)
    assert draw_permutation_null(null, [("a", "b")], [14.0], [0.1]).get_xscale() == "linear"
    assert draw_permutation_null(null, [("a", "b")], [16.0], [0.1]).get_xscale() == "log"
    assert draw_permutation_null(null - 1, [("a", "b")], [16.0], [0.1]).get_xscale() == "linear"
