"""The study of real data on small synthetic tables: injected effects, records, page and verdicts."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from geh_explain.datasets import Regression
from studies import real
from studies.__main__ import main
from studies.real import experiment, page, settings, summary

TINY = experiment.Size(3, 2, (0.2, 1.0), 6, 5, epochs=0.05)


def made_up(name):
    """Return a loader of a small table with the features that the study asks for."""
    setting = settings.SETTINGS[name]
    features = {
        "housing": ["longitude", "latitude", "total rooms", "households"],
        "bike": ["hour", "workingday", "temperature", "windspeed"],
        "energy": ["wall area", "roof area", "orientation", "glazing area"],
    }[name]

    def load(folder=None):
        rng = np.random.default_rng(len(name))
        X = pd.DataFrame(rng.uniform(0.5, 1.5, (200, 4)), columns=features)
        y = X[features[0]] * X[features[1]]
        return Regression(X, (y - y.min()) / (y.max() - y.min()))

    return dataclasses.replace(setting, load=load, hidden=(8,), groups=2)


@pytest.fixture
def tiny(monkeypatch):
    pytest.importorskip("shap")
    pytest.importorskip("lightgbm")
    for name in settings.SETTINGS:
        monkeypatch.setitem(settings.SETTINGS, name, made_up(name))
    monkeypatch.setattr(experiment, "QUICK", TINY)
    settings.load_table.cache_clear()
    yield
    settings.load_table.cache_clear()


def test_an_injected_interaction_has_the_share_it_should_have():
    table = made_up("energy").load()
    for form in settings.FORMS:
        small, large = (
            settings.injected_effect(table, ("wall area", "roof area"), form, share) for share in (0.1, 0.5)
        )
        np.testing.assert_allclose(large, 5 * small)
    added = settings.injected_effect(table, ("wall area", "roof area"), "x y", 0.5)
    x, y = (table.X[name] - table.X[name].mean() for name in ("wall area", "roof area"))
    weight = np.polyfit(table.X["wall area"] * table.X["roof area"], added, 1)[0]
    assert np.std(weight * x * y) == pytest.approx(0.5 * table.y.std(), rel=0.1)


def test_a_study_writes_its_page_and_does_nothing_twice(tiny, tmp_path, capsys):
    assert main(["real", "--quick", "--workers", "1", "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    written = (tmp_path / "studies" / "real.md").read_text()
    for words in ("## False positives", "## Injected interactions", "## The strongest pairs", "1-GEH, scaled"):
        assert words in written
    for picture in ("injected", "surfaces", "null"):
        assert (tmp_path / "images" / f"real_{picture}.png").stat().st_size > 10_000
    rates = pd.read_csv(tmp_path / "studies" / "real_false_positives.csv")
    assert len(rates) == 3 * 2 * 4
    assert rates.groupby("posterior")["permutations"].unique().to_dict() == {"concrete dropout": [2], "mean field": [3]}
    ranks = pd.read_csv(tmp_path / "studies" / "real_ranks.csv")
    assert len(ranks) == 3 * 3 * 2 * 7
    records = {path: path.read_text() for path in tmp_path.rglob("*.jsonl") if path.name != "minutes.jsonl"}
    assert len(records) == 7
    again = list(real.run(tmp_path, quick=True, workers=1))
    assert all(path.read_text() == text for path, text in records.items())
    assert [line for line in again if line.startswith(("met", "MISSED"))] == [
        line for line in said if line.startswith(("met", "MISSED"))
    ]


def test_without_data_the_command_fails_with_a_message(monkeypatch, tmp_path, capsys):
    settings.load_table.cache_clear()
    assert main(["real", "--quick", "--data", str(tmp_path), "--output", str(tmp_path)]) == 1
    assert "does not hold California housing" in capsys.readouterr().err


def test_scaled_scores_and_intervals_are_multiplied_alike(tiny, tmp_path):
    tests = experiment.analyse_data_set("energy", TINY, tmp_path, 1, None)
    raw, scaled = (summary.pair_table(tests.result, test) for test in (tests.raw, tests.scaled))
    together = raw.merge(scaled, on=["unit_i", "unit_j"])
    deviations = made_up("energy").load().X.std()
    factor = [deviations[i] * deviations[j] for i, j in zip(together["unit_i"], together["unit_j"], strict=True)]
    for column in ("score", "low", "high"):
        np.testing.assert_allclose(together[f"{column}_y"], together[f"{column}_x"] * factor)
    assert (together["p_bayes_x"] == together["p_bayes_y"]).all()


def findings(rates, ranks, first):
    false_positives = pd.DataFrame(
        [
            {"data": name, "posterior": posterior, "measure": measure, "rule": rule, "rate": rate}
            for name in settings.SETTINGS
            for (measure, rule), own in rates.items()
            for posterior, rate in (("mean field", own), ("concrete dropout", 0.9))
        ]
    )
    ranked = pd.DataFrame(
        [
            {"data": name, "form": "x y", "share": 0.1, "pairs": 6, "method": method, "rank": rank}
            for name in settings.SETTINGS
            for method, rank in ranks.items()
        ]
    )
    pairs = pd.DataFrame({"unit_i": [first[0], "a", "b"], "unit_j": [first[1], "c", "c"], "score": [3.0, 2.0, 1.0]})
    pairs = pairs.assign(low=0.0, high=5.0, p_bayes=0.1, p_sign=0.1, p_permutation=[0.001, 0.002, 0.005])
    return summary.Findings(false_positives, ranked, dict.fromkeys(settings.SETTINGS, (pairs, pairs)), {})


GOOD = {("aeh", "interval"): 0.01, ("geh", "interval"): 0.1, ("eah", "interval"): 0.3, ("geh", "sign"): 0.04}


def test_verdicts_can_be_met_and_missed():
    ranks = {"1-GEH": 2.0, "GEH": 1.0, "NID": 3.0, "SHAP": 2.0, "Lasso": 5.0}
    verdicts = {goal: met for goal, _, met in page.verdicts(findings(GOOD, ranks, ("longitude", "latitude")))}
    missed = {goal for goal, met in verdicts.items() if not met}
    assert missed == {goal for goal in verdicts if "hour and workingday" in goal}
    bad = GOOD | {("geh", "sign"): 0.0, ("aeh", "interval"): 0.5}
    bad_ranks = ranks | {"1-GEH": 4.0}
    verdicts = {goal: met for goal, _, met in page.verdicts(findings(bad, bad_ranks, ("hour", "workingday")))}
    assert not any(met for goal, met in verdicts.items() if "false positives" in goal or "fewest" in goal)
    assert not any(met for goal, met in verdicts.items() if "best mean rank" in goal)
    assert not any(met for goal, met in verdicts.items() if "longitude" in goal)
    assert all(met for goal, met in verdicts.items() if "hour and workingday" in goal or "permutation p" in goal)
