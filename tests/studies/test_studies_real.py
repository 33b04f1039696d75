"""The study of real data on small synthetic tables: injected effects, records, page and verdicts."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from geh_explain.datasets import Regression
from geh_explain.explainer import GEHExplainer
from geh_explain.posterior import PointEstimate
from geh_explain.scores.evidence import Evidence
from studies import real
from studies.__main__ import main
from studies.real import experiment, settings, summary
from studies.real.verdicts import verdicts

TINY = experiment.Size(3, 2, 2, (0.2, 1.0), 2, 6, 5, epochs=0.05)


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
        X = pd.DataFrame(rng.uniform(0.5, 1.5, (1500, 4)), columns=features)
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
    for heading in (
        "# False positives",
        "## Targets with main effects",
        "# Injected interactions",
        "# The strongest pairs",
    ):
        assert f"\n#{heading}\n" in written
    for words in (
        "1-GEH, scaled",
        "evidence, p < 0.05",
        "supported: ",
        "Energy efficiency 450",
        "California housing 150",
    ):
        assert words in written
    for picture in ("injected", "surfaces", "null"):
        assert (tmp_path / "images" / f"real_{picture}.png").stat().st_size > 10_000
    rates = pd.read_csv(tmp_path / "studies" / "real_false_positives.csv")
    assert len(rates) == 3 * (7 + 7 + 8)
    assert rates.groupby(["target", "posterior"])["refits"].unique().to_dict() == {
        ("additive", "mean field"): [2],
        ("permuted", "concrete dropout"): [2],
        ("permuted", "mean field"): [3],
    }
    ranks = pd.read_csv(tmp_path / "studies" / "real_ranks.csv")
    assert len(ranks) == 3 * 3 * 2 * 10
    records = {path: path.read_text() for path in tmp_path.rglob("*.jsonl") if path.name != "minutes.jsonl"}
    assert len(records) == 10
    again = list(real.run(tmp_path, quick=True, workers=1))
    assert all(path.read_text() == text for path, text in records.items())
    assert [line for line in again if line.startswith(("met", "MISSED"))] == [
        line for line in said if line.startswith(("met", "MISSED"))
    ]


def test_without_data_the_command_fails_with_a_message(monkeypatch, tmp_path, capsys):
    settings.load_table.cache_clear()
    assert main(["real", "--quick", "--data", str(tmp_path), "--output", str(tmp_path)]) == 1
    assert "does not hold California housing" in capsys.readouterr().err


@pytest.fixture
def energy(tiny, tmp_path):
    return experiment.analyse_data_set("energy", TINY, tmp_path, 1, None)


# Two epochs of training are too few for a good fit.
@pytest.mark.filterwarnings("ignore:evidence. the outputs explain none:geh_explain.errors.GEHWarning")
@pytest.mark.parametrize(("name", "rows"), [("energy", 450), ("bike", 150)])
def test_evidence_is_that_of_the_rows_that_training_did_not_use(tiny, name, rows):
    table = made_up(name).load()
    fitted = experiment.Analysis(name, TINY, unseen=True)(table.X, table.y, 3)
    assert (fitted.result.evidence.n_rows, fitted.unseen.n_rows) == (rows, 450)
    _, validation, test = table.split(experiment.SEED)
    explainer = GEHExplainer(fitted.net, posterior=PointEstimate())
    for evidence, parts in ((fitted.unseen, (validation, test)), (fitted.result.evidence, (test,))):
        if evidence.n_rows == sum(map(len, parts)):
            held_out = pd.concat([part.X for part in parts]), pd.concat([part.y for part in parts])
            p_values = explainer.test_pairs(*held_out, seed=experiment.SEED, progress=False).p_value
            np.testing.assert_array_equal(evidence.p_value, p_values)


def test_refits_record_the_shares_of_pairs_by_every_rule(energy):
    ones = np.ones(6)
    evidence = Evidence(ones, ones, np.array([0.001, 0.04, 0.06, 0.5, 0.9, 1.0]), 150)
    fitted = experiment.Fitted(None, energy.result.with_evidence(evidence), Evidence(ones, ones, 0.01 * ones, 450), 0.5)
    kept = experiment.RefitRecord((1.0,) * 6)(fitted)
    # 0.001 is below 0.05 / 6; 0.04 is above 0.05 * 2 / 6.
    assert kept["geh evidence"] == pytest.approx(2 / 6)
    assert (kept["geh discovery"], kept["geh any discovery"]) == (pytest.approx(1 / 6), 1.0)
    assert kept["geh unseen"] == 1.0
    assert kept["scaled"] == energy.result.geh.pair_mean.max()


def test_targets_with_main_effects_have_those_of_the_data(energy):
    assert energy.additive.resampled == "residuals permuted"
    assert energy.raw.resampled == "target permuted"
    np.testing.assert_array_equal(energy.additive.observed.scores, energy.raw.observed.scores)


def test_scaled_scores_and_intervals_are_multiplied_alike(energy):
    tests = energy
    raw, scaled = (summary.pair_table(tests.result, test) for test in (tests.raw, tests.scaled))
    together = raw.merge(scaled, on=["unit_i", "unit_j"])
    deviations = made_up("energy").load().X.std()
    factor = [deviations[i] * deviations[j] for i, j in zip(together["unit_i"], together["unit_j"], strict=True)]
    for column in ("score", "low", "high", "supported"):
        np.testing.assert_allclose(together[f"{column}_y"], together[f"{column}_x"] * factor)
    for column in ("p_bayes", "p_value", "significant"):
        assert (together[f"{column}_x"] == together[f"{column}_y"]).all()


def findings(rates, ranks, first, p_value=0.001):
    false_positives = pd.DataFrame(
        [
            {"data": name, "target": target, "posterior": posterior, "measure": measure, "rule": rule, "rate": rate}
            for name in settings.SETTINGS
            for (measure, rule), own in rates.items()
            for target, posterior, rate in (
                ("permuted", "mean field", own),
                ("permuted", "concrete dropout", 0.9),
                ("additive", "mean field", own),
            )
        ]
    ).assign(error=0.01)
    ranked = pd.DataFrame(
        [
            {"data": name, "form": "x y", "share": 0.1, "pairs": 6, "method": method, "rank": rank}
            for name in settings.SETTINGS
            for method, rank in ranks.items()
        ]
    )
    pairs = pd.DataFrame({"unit_i": [first[0], "a", "b"], "unit_j": [first[1], "c", "c"], "score": [3.0, 2.0, 1.0]})
    pairs = pairs.assign(low=0.0, high=5.0, p_bayes=0.1, p_sign=0.1, p_permutation=[0.001, 0.002, 0.005])
    pairs = pairs.assign(supported=pairs["score"], slope=1.0, slope_se=0.1, p_value=p_value, significant=p_value < 0.05)
    orders = dict.fromkeys((summary.AS_THEY_ARE, summary.SCALED, summary.SUPPORTED), pairs)
    rows = {"housing": 2000, "bike": 1700, "energy": 230}, {"housing": 6000, "bike": 5100, "energy": 230}
    return summary.Findings(false_positives, ranked, dict.fromkeys(settings.SETTINGS, orders), {}, *rows)


def judged(*arguments, **options):
    """Return whether each target is met, by the words of the target."""
    return {goal: met for goal, _, met in verdicts(findings(*arguments, **options))}


GOOD = {
    ("aeh", "interval"): 0.01,
    ("geh", "interval"): 0.1,
    ("eah", "interval"): 0.3,
    ("geh", "sign"): 0.04,
    ("geh", "evidence"): 0.05,
    ("geh", "discovery"): 0.001,
    ("geh", "any discovery"): 0.06,
    ("geh", "unseen"): 0.07,
}
RANKS = {"supported": 1.0, "supported 1-GEH": 1.0, "1-GEH": 2.0, "GEH": 1.0, "NID": 3.0, "SHAP": 2.0, "Lasso": 5.0}


def test_verdicts_can_be_met_and_missed():
    met = judged(GOOD, RANKS, ("longitude", "latitude"))
    missed = {goal for goal, reached in met.items() if not reached}
    assert missed == {goal for goal in met if "hour and workingday" in goal}
    bad = GOOD | {("geh", "sign"): 0.0, ("aeh", "interval"): 0.5}
    met = judged(bad, RANKS | {"1-GEH": 4.0}, ("hour", "workingday"))
    assert not any(reached for goal, reached in met.items() if "false positives" in goal or "fewest" in goal)
    assert not any(reached for goal, reached in met.items() if ": 1-GEH has the best" in goal)
    assert not any(reached for goal, reached in met.items() if "longitude" in goal)
    assert all(reached for goal, reached in met.items() if "hour and workingday" in goal or "permutation p" in goal)


def test_verdicts_on_the_held_out_test_can_be_met_and_missed():
    # A level of 2 % is a miss, except where there are few rows; a tenth of the targets has a false discovery.
    low = GOOD | {("geh", "evidence"): 0.02, ("geh", "any discovery"): 0.1, ("geh", "unseen"): 0.02}
    met = judged(low, RANKS | {"supported": 1.5}, ("longitude", "latitude"), p_value=0.2)
    by_name = {goal: reached for goal, reached in met.items() if "evidence at p" in goal}
    assert len(by_name) == 8
    assert [goal.startswith("Energy") for goal in by_name] == list(by_name.values())
    missed = [goal for goal, reached in met.items() if not reached]
    for words, count in (
        ("false discovery rate", 6),
        (": supported has the best", 3),
        ("significant by held-out labels", 2),
    ):
        assert sum(words in goal for goal in missed) == count
    high = judged(GOOD | {("geh", "evidence"): 0.09, ("geh", "unseen"): 0.09}, RANKS, ("longitude", "latitude"))
    assert not any(reached for goal, reached in high.items() if "evidence at p" in goal)
