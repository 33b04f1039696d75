"""``explain(measures=...)``: EAH, the only measure that needs each point's own Hessian, is left out on request."""

from operator import attrgetter, methodcaller

import numpy as np
import pytest
import torch
from explaining import explain_point
from torch import nn

import geh_explain as geh

pytestmark = pytest.mark.usefixtures("seeded")

WITHOUT_EAH = ("aeh", "geh")


def through_narrow_layer(units: int) -> nn.Module:
    return nn.Sequential(nn.Linear(units, 4), nn.Softplus(), nn.Linear(4, 1)).double()


def test_geh_and_aeh_are_the_same_without_eah():
    net, x = through_narrow_layer(20), torch.randn(30, 20, dtype=torch.double)
    whole = explain_point(net, x, engine="structured", groups=2)
    part = explain_point(net, x, engine="structured", groups=2, measures=WITHOUT_EAH)
    assert np.array_equal(part.signed, whole.signed)
    assert np.array_equal(part.geh.mean, whole.geh.mean)
    assert np.array_equal(part.aeh.mean, whole.aeh.mean)


@pytest.mark.parametrize(("groups", "points"), [(1, 4), (3, 6)])
def test_few_points_are_visited_without_eah(groups, points):
    net, x = through_narrow_layer(20), torch.randn(30, 20, dtype=torch.double)
    part = explain_point(net, x, engine="structured", groups=groups, measures=WITHOUT_EAH)
    assert part.settings["eah_points"] == points


def test_the_sampling_error_without_eah_is_that_of_the_points_that_were_visited():
    net, x = through_narrow_layer(20), torch.randn(30, 20, dtype=torch.double)
    part = explain_point(net, x, engine="structured", groups=1, measures=WITHOUT_EAH)
    same = explain_point(net, x, engine="structured", groups=1, eah_points=4)
    assert np.array_equal(part.point_errors, same.point_errors)


def test_eah_that_was_asked_for_is_measured_at_all_points(monkeypatch):
    monkeypatch.setattr("geh_explain.engines.structured.engine._ABSOLUTE_WORK", 1.0)
    net, x = through_narrow_layer(20), torch.randn(30, 20, dtype=torch.double)
    assert explain_point(net, x, engine="structured", groups=1).settings["eah_points"] == 4
    asked = explain_point(net, x, engine="structured", groups=1, measures=["eah", "geh"])
    assert asked.settings["eah_points"] == 30
    assert asked.settings["measures"] == ["geh", "eah"]
    expected = explain_point(net, x, engine="exact", groups=1)
    np.testing.assert_allclose(asked.eah.draws, expected.eah.draws, rtol=1e-10)


@pytest.mark.parametrize("engine", ["structured", "exact"])
def test_eah_that_was_left_out_raises_and_says_how_to_get_it(engine, tmp_path):
    net, x = through_narrow_layer(6), torch.randn(12, 6, dtype=torch.double)
    result = explain_point(net, x, engine=engine, groups=1, measures=WITHOUT_EAH)
    for found in (result, geh.Interactions.load(result.save(tmp_path / "result.npz"))):
        assert found.measures == ("geh", "aeh")
        for read in (attrgetter("eah"), attrgetter("absolute"), methodcaller("table", "eah")):
            with pytest.raises(geh.GEHError, match=r"explain\(measures=\('aeh', 'geh', 'eah'\)\)"):
                read(found)


def test_plots_page_and_tables_show_the_other_measures(tmp_path):
    net, x = through_narrow_layer(6), torch.randn(12, 6, dtype=torch.double)
    result = explain_point(net, x, engine="exact", groups=1, measures=WITHOUT_EAH)
    assert len(result.table()) == 15
    legend = result.plot.intervals(measure="all").get_legend()
    assert {"GEH", "AEH"} <= {text.get_text() for text in legend.get_texts()}
    assert "EAH" not in {text.get_text() for text in legend.get_texts()}
    page = result.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert '"aeh":{"mean"' in page.replace(" ", "")
    assert '"eah":{"mean"' not in page.replace(" ", "")


@pytest.mark.parametrize("wrong", ["geh", (), ("geh", "hess"), 3])
def test_unknown_measures_are_refused(wrong):
    with pytest.raises(geh.GEHError, match="measures="):
        explain_point(through_narrow_layer(4), torch.randn(5, 4, dtype=torch.double), engine="auto", measures=wrong)


def test_a_number_of_points_for_eah_needs_eah():
    options = {"measures": WITHOUT_EAH, "eah_points": 3}
    with pytest.raises(geh.GEHError, match="eah_points=3"):
        explain_point(through_narrow_layer(4), torch.randn(5, 4, dtype=torch.double), engine="auto", **options)
