"""Plots of one prediction: bars from the reference to the prediction, units and edges with their signs."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from explaining import point_explainer
from matplotlib.colors import to_hex

import geh_explain as geh
from geh_explain.plots import palette


def account(**options):
    """f = x0 x1 - 3 x2 from 0 to (2, 4, 1): main effects 2, 2, -3, and 4 for the pair of x0 and x1."""
    explainer = point_explainer(lambda x: x[:, 0] * x[:, 1] - 3 * x[:, 2])
    return explainer.explain_row(torch.tensor([2.0, 4.0, 1.0]), baseline=0, progress=False, **options)


def test_bars_lead_from_the_reference_to_the_prediction():
    ax = account().plot.waterfall()
    bars = [(bar.get_x(), bar.get_width(), to_hex(bar.get_facecolor()).upper()) for bar in ax.patches]
    red, blue = palette.POSITIVE, palette.NEGATIVE
    expected = [(0, 4, red), (4, -3, blue), (1, 2, red), (3, 2, red)]
    for found, (start, width, colour) in zip(bars, expected, strict=True):
        assert found[:2] == pytest.approx((start, width), abs=1e-5)
        assert found[2] == colour
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x0 × x1", "x2", "x0", "x1"]
    texts = [text.get_text() for text in ax.texts]
    assert {"reference 0", "prediction 5", "+4", "-3"} <= set(texts)


def test_small_contributions_are_one_step():
    ax = account().plot.waterfall(contributions=2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x0 × x1", "x2", "2 others"]
    last = ax.patches[-1]
    assert last.get_x() + last.get_width() == pytest.approx(5)
    assert to_hex(last.get_facecolor()) == palette.NEUTRAL


@pytest.mark.usefixtures("seeded")
def test_a_remainder_is_a_step_and_intervals_are_lines():
    members = [torch.nn.Bilinear(1, 1, 1).double() for _ in range(3)]
    posterior = geh.posterior.Ensemble([Wrapped(member) for member in members])
    explainer = geh.GEHExplainer(Wrapped(members[0]), posterior=posterior, engine="difference")
    with pytest.warns(geh.GEHWarning, match="remainder"):
        local = explainer.explain_row(torch.ones(3).double(), baseline=0, progress=False)
    ax = local.plot.waterfall()
    assert [label.get_text() for label in ax.get_yticklabels()][-1] == "remainder"
    segments = ax.collections[0].get_segments()
    table = local.table()
    known = table[(table["kind"] != "remainder") & (table["mean"] != 0)]
    assert [np.ptp(line[:, 0]) for line in segments] == pytest.approx(list(known["high"] - known["low"]))


class Wrapped(torch.nn.Module):
    """A bilinear form of two inputs, times the third and plus it."""

    def __init__(self, form):
        super().__init__()
        self.form = form

    def forward(self, x):
        return self.form(x[:, :1], x[:, 1:2])[:, 0] * x[:, 2] + x[:, 2] * self.form.bias


def test_edges_and_units_have_the_signs_of_their_effects():
    ax = account().plot.network()
    edges, units = ax.collections
    assert [to_hex(colour).upper() for colour in edges.get_edgecolors()] == [palette.POSITIVE]
    colours = [to_hex(colour).upper() for colour in units.get_facecolors()]
    assert colours == [palette.POSITIVE, palette.POSITIVE, palette.NEGATIVE]
    sizes = units.get_sizes()
    assert sizes[2] / sizes[0] == pytest.approx(3 / 2, rel=1e-4)


def test_plots_draw_into_given_axes_and_refuse_other_things():
    ax = plt.subplots()[1]
    assert account().plot.waterfall(ax=ax) is ax
    assert account().plot.network(max_units=2, pairs=1, ax=plt.subplots()[1]) is not ax
    with pytest.raises(geh.GEHError, match="ax="):
        account().plot.waterfall(ax=3)
    with pytest.raises(geh.GEHError, match="contributions=0"):
        account().plot.waterfall(contributions=0)


def test_a_prediction_that_is_the_reference_can_be_drawn():
    local = point_explainer(lambda x: x[:, 0] * x[:, 1]).explain_row(torch.ones(2), baseline=1.0, progress=False)
    local.plot.waterfall()
    local.plot.network()
