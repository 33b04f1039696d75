"""The report page as a file: its sentences, its data, what it escapes, and its size."""

import dataclasses
import json
import re
from importlib.resources import files

import numpy as np
import pytest
import torch
from synthetic_results import evidence_result, random_result, result_of, without_draws
from torch import nn

import geh_explain as geh
from geh_explain.cli import main
from geh_explain.report import text
from geh_explain.scores.decisions import RULES
from geh_explain.scores.evidence import TrueScoreEstimates


def without_library(path):
    """Return the page's text without the charting library."""
    library = files("geh_explain.report").joinpath("vega.js").read_text()
    text = path.read_text()
    assert library in text
    return text.replace(library, "")


def _summarise(result, **options):
    return text.summarise(result, result.decisions(**options))


def _reading_guide(result, **options):
    return text.reading_guide(result, result.decisions(**options))


def data_of(path):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)[1])


def test_the_page_holds_the_numbers_of_the_result(tmp_path):
    result = random_result(6, groups=3)
    data = data_of(result.report(tmp_path / "page.html"))
    first, second = data["pairs"]["first"], data["pairs"]["second"]
    assert sorted(zip(first, second, strict=True)) == [(i, j) for i in range(6) for j in range(i + 1, 6)]
    for name in ("geh", "aeh", "eah"):
        for key in ("mean", "std"):
            expected = getattr(result.scores(name), key)[first, second]
            np.testing.assert_allclose(data["measures"][name][key], expected, rtol=1e-4)
    assert data["measures"]["geh"]["mean"] == sorted(data["measures"]["geh"]["mean"], reverse=True)
    table, half = result.table(), result.table(level=0.5)
    geh_columns = data["measures"]["geh"]
    assert geh_columns["accepted"] == table["stable"].tolist()
    for name, expected in (("low", table["low"]), ("high", table["high"])):
        np.testing.assert_allclose(geh_columns[name], expected, rtol=1e-4)
    for name in ("low", "high"):
        np.testing.assert_allclose(geh_columns[f"{name}50"], half[name], rtol=1e-4)
    for number, (i, j) in enumerate(zip(first, second, strict=True)):
        regions = result.regions(i, j)
        np.testing.assert_allclose(data["group_effects"]["mean"][number], regions["mean"], rtol=1e-4)
        np.testing.assert_allclose(data["group_effects"]["half"][number], regions["high"] - regions["mean"], rtol=1e-4)
    assert data["groups"] == {"names": ["0", "1", "2"], "sizes": [7, 7, 6]}


@pytest.mark.parametrize("rule", ["evidence", "sign", "interval"])
def test_the_page_has_the_decisions_and_the_order_of_the_table(rule, tmp_path):
    result = evidence_result(random_result(6), untested=2)
    path = result.report(tmp_path / "page.html", rule=rule)
    data, table = data_of(path), result.table(rule=rule)
    names = [
        (data["names"][i], data["names"][j])
        for i, j in zip(data["pairs"]["first"], data["pairs"]["second"], strict=True)
    ]
    assert names == list(zip(table["unit_i"], table["unit_j"], strict=True))
    assert data["measures"]["geh"]["accepted"] == table.iloc[:, -1].tolist()
    decisions = result.decisions(rule=rule)
    assert data["decision"] == {
        "column": decisions.column,
        "label": decisions.label,
        "other": decisions.other_label,
    }
    assert data["measure"] == ("supported" if rule == "evidence" else "geh")
    assert (data["evidence"] is None) == (rule != "evidence")
    if rule == "evidence":
        columns = {**data["evidence"], "supported": data["measures"]["geh"]["supported"]}
        for key, column in (("slope", "slope"), ("slope_se", "slope_se"), ("p", "p_value"), ("supported", "supported")):
            shown = [np.nan if value is None else value for value in columns[key]]
            np.testing.assert_allclose(shown, table[column], rtol=1e-4)
        assert columns["p"].count(None) == 2


@pytest.mark.parametrize("rule", RULES)
def test_the_page_has_the_decisions_at_the_given_rate(rule, tmp_path):
    result = evidence_result(random_result(6), untested=2)
    tables = [result.table(rule=rule, fdr=fdr).iloc[:, -1].tolist() for fdr in (1e-9, 0.9)]
    assert tables[0] != tables[1]
    for fdr, accepted in zip((1e-9, 0.9), tables, strict=True):
        data = data_of(result.report(tmp_path / "page.html", rule=rule, fdr=fdr))
        assert data["measures"]["geh"]["accepted"] == accepted


def test_the_page_has_the_interval_of_the_true_score(tmp_path):
    result = evidence_result(random_result())
    tested = result.evidence
    estimates = TrueScoreEstimates(*(np.linspace(1, 2, len(tested.slope)) for _ in range(4)))
    result = result.with_evidence(dataclasses.replace(tested, true_scores=estimates))
    data, table = data_of(result.report(tmp_path / "page.html")), result.table()
    for column in ("true_low", "true_high"):
        np.testing.assert_allclose(data["evidence"][column], table[column], rtol=1e-4)


def test_one_draw_with_evidence_has_decisions_without_intervals(tmp_path):
    data = data_of(evidence_result(random_result(draws=1)).report(tmp_path / "page.html"))
    assert "low" not in data["measures"]["geh"]
    assert data["decision"]["column"] == "significant"
    assert len(set(data["measures"]["geh"]["accepted"])) == 2


def test_the_majority_of_the_data_decides_on_a_sign():
    signed = np.array([[[1.0, -1.0, 1.0], [-9.0, -1.0, 0.0], [1.0, 2.0, -1.0]]])  # draws, groups, pairs
    labels = np.array([0, 0, 1, 2, 2])
    result = result_of(signed, "abc", labels)
    assert result.majority_signs().tolist() == [1, -1, 0]


def test_moments_are_enough_for_a_page(tmp_path):
    result = random_result(5)
    draws, moments = (
        data_of(each.report(tmp_path / f"{name}.html"))["measures"]
        for name, each in (("draws", result), ("moments", without_draws(result)))
    )
    np.testing.assert_allclose(moments["geh"]["std"], draws["geh"]["std"], rtol=1e-3)


def test_one_draw_gives_a_page_without_intervals(tmp_path):
    result = random_result(draws=1)
    data = data_of(result.report(tmp_path / "page.html"))
    assert "low" not in data["measures"]["geh"]
    assert data["measures"]["geh"]["std"] == 10 * [None]
    assert data["measures"]["geh"]["accepted"] is data["decision"] is data["group_effects"]["half"] is None
    assert "<dt>Intervals over</dt> <dd>nothing: one draw</dd>" in (tmp_path / "page.html").read_text()


def test_names_titles_settings_and_warnings_are_escaped(tmp_path):
    evil = "</script><script>alert(1)</script>"
    names = [evil, "<img src=x onerror=alert(2)>", "@@DATA@@", "a & b"]
    result = random_result(4, names=names, posterior=evil, warnings=[evil], model=evil)
    path = result.report(tmp_path / "page.html", title=evil + "@@SUMMARY@@")
    text = without_library(path)
    assert text.lower().count("</script") == 3
    assert "<img src" not in text
    assert set(data_of(tmp_path / "page.html")["names"]) == set(names)


def test_a_page_names_no_place_on_the_net_that_is_fetched(tmp_path):
    text = without_library(random_result().report(tmp_path / "page.html"))
    assert not re.search(r"<(script|link|img|iframe)[^>]*\s(src|href)=", text)
    assert "default-src 'none'" in text


def test_pages_are_small(tmp_path):
    assert random_result(50, draws=100, groups=10).report(tmp_path / "a.html").stat().st_size < 1_600_000
    assert random_result(50, draws=10, groups=60).report(tmp_path / "b.html").stat().st_size < 3_000_000


def test_of_very_many_units_the_strongest_are_shown_and_the_page_says_so(tmp_path):
    result = random_result(120, draws=3, groups=60)
    path = result.report(tmp_path / "page.html")
    data, text = data_of(path), path.read_text()
    assert path.stat().st_size < 3_000_000
    assert "the 60 units with the strongest pairs, of 120" in text
    pairs = set(zip(data["pairs"]["first"], data["pairs"]["second"], strict=True))
    assert f"{len(pairs):,} of 7,140 pairs" in text
    strongest = np.argsort(-result.geh.pair_mean)[:2000]
    i, j = np.triu_indices(120, 1)
    assert set(zip(i[strongest].tolist(), j[strongest].tolist(), strict=True)) <= pairs
    heat = set(data["heatmap"])
    assert {(a, b) for a in heat for b in heat if a < b} <= pairs
    assert len(data["group_effects"]["mean"]) == 1250
    assert "Effects by group are shown for the 1,250 strongest pairs" in text


def test_surfaces_and_images_are_shown_with_their_pairs(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    explainer = geh.GEHExplainer(net, "1", posterior=geh.posterior.PointEstimate())
    x = torch.randn(60, 16)
    result = explainer.explain(x, groups=2, progress=False)
    surface = explainer.surface(x, pair=(1, 3), result=result, grid=6, progress=False)
    gallery = explainer.interpret(result, x, pairs=1, k=4, ascent=False, progress=False)
    data = data_of(result.report(tmp_path / "page.html", surfaces=[surface], gallery=gallery))
    shown = data["surfaces"][0]
    assert (data["pairs"]["first"][shown["pair"]], data["pairs"]["second"][shown["pair"]]) == (1, 3)
    np.testing.assert_allclose(shown["values"], surface.values, rtol=1e-4)
    middles = (np.array(shown["x"][0]) + np.array(shown["x"][1])) / 2
    np.testing.assert_allclose(middles, surface.first, rtol=1e-3, atol=1e-3)
    (pair,) = gallery.pairs
    assert set(data["images"]) == set(pair.units)
    assert data["painted"] == {}
    ((position, (both, painted)),) = data["joint"].items()
    units = data["pairs"]["first"][int(position)], data["pairs"]["second"][int(position)]
    assert (units, painted) == (pair.numbers, None)
    assert all(image.startswith("data:image/png;base64,iVBOR") for image in [*data["images"].values(), both])


def test_inputs_by_gradient_ascent_and_short_names_of_units_are_on_the_page(tmp_path):
    torch.manual_seed(0)
    features = nn.ModuleDict({"blocks": nn.ModuleList([nn.Flatten(), nn.Sequential(nn.Linear(36, 4), nn.Tanh())])})

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = features
            self.head = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

        def forward(self, x):
            for block in self.features["blocks"]:
                x = block(x)
            return self.head(x)

    explainer = geh.GEHExplainer(Net().eval(), "features.blocks.1", posterior=geh.posterior.PointEstimate())
    x = torch.rand(60, 1, 6, 6)
    result = explainer.explain(x, groups=1, progress=False)
    gallery = explainer.interpret(result, x, pairs=[(0, 2), (1, 2)], k=4, ascent={"steps": 2}, progress=False)
    data = data_of(result.report(tmp_path / "page.html", gallery=gallery))
    assert data["names"] == [f"features.blocks.1[{unit}]" for unit in range(4)]
    assert data["short_names"] == [f"block1:{unit}" for unit in range(4)]
    assert set(data["painted"]) == {f"features.blocks.1[{unit}]" for unit in (0, 1, 2)}
    assert len(data["joint"]) == 2
    images = [*data["painted"].values(), *(image for pair in data["joint"].values() for image in pair)]
    assert all(image.startswith("data:image/png;base64,iVBOR") for image in images)
    assert len(set(images)) == len(images)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "page.pdf"}, "must end in .html"),
        ({"path": "nowhere/page.html"}, "there is no folder"),
        ({"level": 2}, "level=2 must lie between 0 and 1"),
        ({"rule": "evidence"}, "rule='evidence': this result has no evidence"),
        ({"title": 3}, "title=3 must be text"),
        ({"main": [1, 2]}, r"main has shape \(2,\); give one finite main effect for each of the 5 units"),
        ({"surfaces": [1]}, "surfaces holds a int"),
        ({"gallery": 1}, "gallery is a int"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, options, words):
    path = tmp_path / options.pop("path", "page.html")
    with pytest.raises(geh.GEHError, match=words):
        random_result().report(path, **options)
    assert not path.exists()


def test_the_summary_says_what_was_explained_its_uncertainty_and_the_strongest_pairs():
    result = random_result(3, place="the inputs", posterior="MCDropout()")
    summary = " ".join(_summarise(result))
    table = result.table()
    assert "Pairwise interactions of 3 units of the inputs, at 20 points in 2 groups." in summary
    assert "Uncertainty: 30 MC dropout draws." in summary
    assert "Uncertainty: 30 draws of Ensemble(30)." in " ".join(_summarise(random_result(3, posterior="Ensemble(30)")))
    count = int(table["stable"].sum())
    assert (
        f"{count} of 3 pairs {'is' if count == 1 else 'are'} stable in this network; evidence=(X, y) tests" in summary
    )
    best = table.iloc[0]
    interval = f"95 % interval {best.low:.3g} to {best.high:.3g}"
    assert f"{best.unit_i} × {best.unit_j} (GEH {best['mean']:.3g}, {interval}, positive in all groups)" in summary


def test_the_summary_says_by_which_rule_and_rate_pairs_were_decided():
    result = evidence_result(random_result(3), n_rows=700)
    best = result.table().iloc[0]
    summary = " ".join(_summarise(result))
    assert "1 of 3 pairs is significant on 700 held-out rows (false discovery rate 5 %)." in summary
    score = f"GEH {best['mean']:.3g}, supported {best.supported:.3g}, p < 0.001"
    assert f"Strongest pairs: {best.unit_i} × {best.unit_j} ({score}, " in summary
    count = int(result.table(rule="interval")["significant"].sum())
    words = " ".join(_summarise(result, level=0.9, rule="interval"))
    assert f"{count} of 3 pairs have a 90 % interval that excludes 0 (paper's rule)." in words


def test_the_summary_names_the_points_as_a_source_of_uncertainty():
    signed, errors = np.full((1, 2, 1), 3.0), np.full((2, 1), 0.5)
    both = result_of(np.repeat(signed, 3, axis=0), "ab", np.arange(8) % 2, errors, posterior="Ensemble(3)")
    assert "Uncertainty: 3 draws of Ensemble(3) and the finite choice of points." in _summarise(both)
    one_draw = _summarise(result_of(signed, "ab", np.arange(8) % 2, errors))
    assert "Uncertainty: the finite choice of points; none of the network, which has no draws." in one_draw
    guide = " ".join(_reading_guide(both))
    assert "Intervals: 95 % interval of the network's score over draws and points" in guide
    assert "over draws and points" not in " ".join(_reading_guide(both, rule="interval"))


def test_the_summary_counts_groups_of_either_sign():
    signed = np.zeros((1, 3, 3)) + np.array([[1.0, 0.0, -2.0], [-1.0, 0.0, -2.0], [1.0, 0.0, -2.0]])
    summary = " ".join(_summarise(result_of(signed, "abc", [0, 1, 2])))
    assert "Strongest pairs: b × c (GEH 2, negative in all groups); " in summary
    assert "a × b (GEH 1, positive in 2 of 3 groups, negative in 1); " in summary
    assert "a × c (GEH 0, no effect)." in summary


def test_the_reading_guide_depends_on_the_scale_and_the_draws():
    assert "comparable" in _reading_guide(random_result(scale="std"))[-1]
    assert any("interval" in paragraph for paragraph in _reading_guide(random_result()))
    assert not any("interval" in paragraph for paragraph in _reading_guide(random_result(draws=1)))


@pytest.mark.parametrize(
    ("rule", "words"),
    [("evidence", "labels that training never used"), ("sign", "is stable if"), ("interval", "the rule of the paper")],
)
def test_the_reading_guide_explains_the_rule_of_the_page(rule, words):
    guides = {each: " ".join(_reading_guide(evidence_result(random_result()), rule=each)) for each in RULES}
    assert words in guides[rule]
    assert "does not say that the data support a pair" in guides["interval"]
    assert not any("significant" in guides[each] for each in ("sign", "interval"))


def test_the_command_line_writes_the_page_and_prints_the_table(tmp_path, capsys):
    result = random_result()
    path = result.save(tmp_path / "saved.npz")
    assert main(["report", str(path), "--title", "Mine"]) == 0
    assert "<title>Mine</title>" in (tmp_path / "saved.html").read_text()
    assert main(["report", str(path), "-o", str(tmp_path / "other.html")]) == 0
    assert (tmp_path / "other.html").is_file()
    capsys.readouterr()
    assert main(["show", str(path), "--pairs", "3", "--measure", "aeh"]) == 0
    shown = capsys.readouterr().out
    for _, row in result.top(3, "aeh").iterrows():
        assert re.search(rf"{row.unit_i}\s+{row.unit_j}\s+{row['mean']:.3f}", shown)
    assert "low, high: 95 % interval of the network's score over draws" in shown
    assert main(["show", str(path), "--level", "0.8"]) == 0
    assert "low, high: 80 % interval of the network's score over draws" in capsys.readouterr().out
    tested = evidence_result(result).save(tmp_path / "tested.npz")
    assert main(["show", str(tested)]) == 0
    assert re.search(r"unit_i +unit_j +mean +supported +slope +slope_se +p_value +significant", capsys.readouterr().out)
    assert main(["show", str(tested), "--rule", "interval"]) == 0
    assert "(paper's rule)" in capsys.readouterr().out
    assert main(["report", str(tested), "--rule", "sign"]) == 0
    assert data_of(tmp_path / "tested.html")["decision"]["column"] == "stable"
    assert main(["show", str(path), "--rule", "evidence"]) == 1
    assert "has no evidence" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "none.npz")]) == 1
    assert "is not a file" in capsys.readouterr().err
