"""The training curve shows the validation errors, and marks the epoch that was kept."""

import matplotlib.pyplot as plt

from geh_explain.bnn import History
from geh_explain.plots.training_curve import draw_training_curve


def test_errors_by_epoch_and_the_epoch_that_was_kept():
    ax = draw_training_curve([3.0, 1.0, 2.0], 1)
    errors, best = ax.lines
    assert errors.get_xydata().tolist() == [[0, 3.0], [1, 1.0], [2, 2.0]]
    assert set(best.get_xdata()) == {1}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["kept: 1"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "validation error")


def test_the_axis_is_logarithmic_where_all_errors_are_positive():
    assert draw_training_curve([3.0, 0.1], 1).get_yscale() == "log"
    assert draw_training_curve([3.0, -0.1], 1).get_yscale() == "linear"


def test_a_history_draws_itself_on_given_axes():
    history = History("regression", [5.0, 4.0], [3.0, 2.0], best_epoch=1)
    _, ax = plt.subplots()
    assert history.plot(ax=ax) is ax
    assert ax.lines[0].get_ydata().tolist() == [3.0, 2.0]
