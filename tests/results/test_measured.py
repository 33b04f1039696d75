"""Results know their network, and forget it in files, copies and pickles; what was measured is in their text."""

import copy
import pickle
import time
from typing import Any

import numpy as np
import pytest
import torch
from explaining import point_explainer, random_points
from torch import nn

import geh_explain as geh
from geh_explain.report.names import keep_together
from geh_explain.results.measured import PAGE_EVALUATIONS

FAST: dict[str, Any] = {"evaluations": 1, "progress": False}


def product(x):
    return x[:, 0] * x[:, 1] + x[:, 2]


def explained(x: Any = None) -> tuple[geh.GEHExplainer, geh.Interactions]:
    explainer = point_explainer(product)
    return explainer, explainer.explain(random_points(200, 3) if x is None else x, groups=1, progress=False)


def forgotten(result: geh.Interactions, way: str, folder: Any) -> geh.Interactions:
    if way == "file":
        return geh.Interactions.load(result.save(folder / "result.npz"))
    return pickle.loads(pickle.dumps(result)) if way == "pickle" else copy.deepcopy(result)


@pytest.mark.parametrize("way", ["file", "pickle", "copy"])
def test_a_result_without_its_network_says_what_to_use(way, tmp_path):
    explainer, result = explained()
    other = forgotten(result, way, tmp_path)
    for question in ("share", "triples"):
        with pytest.raises(geh.GEHError, match=rf"use explainer\.{question}\(result, inputs\)"):
            getattr(other, question)(progress=False)
    x = random_points(200, 3)
    assert explainer.share(other, x, **FAST).overall == result.share(**FAST).overall
    assert explainer.triples(other, x, progress=False).equals(result.triples(progress=False))


def on_page(finding):
    """Return a finding as the page writes it, with spaces at which no line ends."""
    return keep_together(f"I{finding[1:]}.").replace(" × ", "\u00a0×\u00a0")


def test_the_finding_is_printed_and_on_the_page_once_it_is_known(tmp_path):
    explainer, result = explained()
    assert "interactions carry" not in repr(result)
    sentence = result.share(**FAST).describe()
    assert sentence in repr(result)
    assert sentence in result._repr_html_().replace("Interactions carry", "interactions carry")
    page = result.report(tmp_path / "page.html").read_text(encoding="utf8")
    assert on_page(sentence) in page
    tested = explainer.test(result, random_points(300, 3), product(random_points(300, 3)), progress=False)
    assert sentence in repr(tested)
    assert tested.share(**FAST).describe() == sentence


def test_the_sentence_names_share_interval_and_strongest_pair():
    _, result = explained(random_points(3000, 3))
    share = result.share(evaluations=300_000, progress=False)
    low, high = (round(100 * end) for end in share.interval())
    text = f"interactions carry {100 * share.overall:.0f} % ({low}–{high} %) of the variance of the output; x0 × x1 "
    assert share.describe().startswith(f"{text}carries")
    assert low <= 50 <= high


def test_a_changed_network_is_noticed():
    net = nn.Linear(3, 1).double()
    result = geh.GEHExplainer(net, output=torch.sigmoid, posterior=geh.posterior.PointEstimate()).explain(
        random_points(60, 3), groups=1, progress=False
    )
    net.weight.data.mul_(2)
    with pytest.warns(geh.GEHWarning, match="other parameters now than when it was explained"):
        result.share(**FAST)
    with pytest.warns(geh.GEHWarning, match="other parameters now than when it was explained"):
        result.triples(progress=False)


def test_changed_inputs_are_noticed():
    x = random_points(60, 3)
    _, result = explained(x)
    x.mul_(2)
    for question in (lambda: result.share(**FAST), lambda: result.triples(progress=False)):
        with pytest.warns(geh.GEHWarning, match="first rows have changed"):
            question()


def test_inputs_are_referred_to_and_not_copied():
    x = random_points(60, 3)
    _, result = explained(x)
    assert result._source is not None
    assert result._source.inputs is x


def test_the_explainer_takes_the_target_of_the_result(tmp_path):
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    explainer, x = point_explainer(net), random_points(80, 3)
    result = explainer.explain(x, target=1, groups=1, progress=False)
    loaded = geh.Interactions.load(result.save(tmp_path / "a.npz"))
    assert explainer.share(loaded, x, **FAST).overall == result.share(**FAST).overall
    per_row = torch.arange(80) % 2
    result = explainer.explain(x, target=per_row, groups=1, progress=False)
    loaded = geh.Interactions.load(result.save(tmp_path / "b.npz"))
    with pytest.raises(geh.GEHError, match="one target per row, and these are not stored"):
        explainer.share(loaded, x, **FAST)
    assert explainer.share(loaded, x, per_row, **FAST).overall == result.share(**FAST).overall


def test_other_inputs_than_those_of_the_result_are_refused():
    explainer, result = explained()
    with pytest.raises(geh.GEHError, match="inputs: there are 4 units, and result is about 3"):
        explainer.share(result, random_points(50, 4), **FAST)
    with pytest.raises(geh.GEHError, match="inputs: there are 50 rows, and result is about 200 points"):
        explainer.triples(result, random_points(50, 3), progress=False)


def test_strong_pairs_are_the_first_of_the_table():
    _, result = explained()
    chosen = result.share(pairs=2, **FAST).pairs()
    expected = {frozenset(pair) for pair in result.top(2)[["unit_i", "unit_j"]].to_numpy()}
    assert {frozenset(pair) for pair in chosen[["unit_i", "unit_j"]].to_numpy()} == expected
    assert result.share(pairs=0, **FAST).pairs().empty
    assert not np.isnan(result.share(pairs=0, **FAST).overall)


def test_the_page_measures_the_share_by_itself_where_that_is_fast(tmp_path, monkeypatch):
    monkeypatch.setattr("geh_explain.results.measured._PAGE_SECONDS", 1000)  # whatever else the machine does
    explainer, result = explained()
    assert str(result).endswith("\nresult.share() measures how much of the output is interaction")
    page = result.report(tmp_path / "page.html").read_text(encoding="utf8")
    assert "Interactions carry" in page
    sentence = result.findings()[0]
    assert on_page(sentence) in page
    assert str(result) == repr(result)
    # The same seed as in share(), with fewer points.
    assert (
        explainer.explain(random_points(200, 3), groups=1, progress=False)
        .share(evaluations=PAGE_EVALUATIONS, progress=False)
        .describe()
        == sentence
    )


def test_the_page_does_not_measure_where_it_is_slow_fails_or_is_about_another_network(tmp_path):
    def slow(x):
        time.sleep(0.3 if len(x) == 1 else 0.01)
        return product(x)

    def fragile(x):  # rows in which x0 and x1 are far from each other do not occur
        return torch.where((x[:, 0] - x[:, 1]).abs() < 1, product(x), torch.nan)

    x = random_points(100, 3)
    together = x[:, [0, 0, 2]]
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    for model, rows in ((slow, x), (fragile, together), (product, x[:15]), (net, x)):
        result = point_explainer(model).explain(rows, groups=1, progress=False)
        if model is net:
            nn.init.zeros_(net[0].weight)
        page = result.report(tmp_path / "page.html").read_text(encoding="utf8")
        assert "nteractions carry" not in page
        assert "result.share() measures" in str(result)


def test_the_page_takes_a_wish_about_the_share(tmp_path):
    _, result = explained()
    assert "nteractions carry" not in result.report(tmp_path / "page.html", share=False).read_text(encoding="utf8")
    loaded = geh.Interactions.load(result.save(tmp_path / "result.npz"))
    assert "nteractions carry" not in loaded.report(tmp_path / "page.html").read_text(encoding="utf8")
    assert "result.share()" not in str(loaded)
    with pytest.raises(geh.GEHError, match=r"use explainer\.share\(result, inputs\)"):
        loaded.report(tmp_path / "page.html", share=True)
    with pytest.raises(geh.GEHError, match="share='yes' must be True, False, or None"):
        result.report(tmp_path / "page.html", share="yes")
    few = explained(random_points(15, 3))[1]
    with pytest.raises(geh.GEHError, match="15 rows"):
        few.report(tmp_path / "page.html", share=True)
