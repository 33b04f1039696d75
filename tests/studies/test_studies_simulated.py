"""The simulated study: true interactions, resuming after an interruption, page and tables."""

import json

import numpy as np
import pandas as pd
import pytest

from geh_explain.datasets import simulation as data
from geh_explain.inference.jsonl import Store, complete
from studies import simulated
from studies.simulated import experiment
from studies.simulated.summary import CANCELLING, pair_index


def test_true_interactions_are_the_second_derivatives_of_the_effects():
    x = data.inputs(40, np.random.default_rng(0))
    step = 1e-4

    def total(at):
        return np.sum(list(data.effects(at).values()), axis=0)

    for pair, (i, j) in enumerate(zip(data.FIRST, data.SECOND, strict=True)):
        a, b = np.eye(data.FEATURES)[[i, j]] * step
        mixed = (total(x + a + b) - total(x + a - b) - total(x - a + b) + total(x - a - b)) / (4 * step**2)
        np.testing.assert_allclose(data.hessians(x)[:, pair], mixed, atol=2e-5)


def test_two_pairs_cancel_in_the_mean_and_not_in_groups():
    x = data.inputs(20_000, np.random.default_rng(0))
    labels = (x[:, 1] > 0) + 2 * (x[:, 6] > 0).astype(np.int64)
    scores = data.true_scores(x, labels)
    assert (scores["aeh"] <= scores["geh"] + 1e-9).all()
    assert (scores["geh"] <= scores["eah"] + 1e-9).all()
    for pair in map(pair_index, CANCELLING):
        assert scores["aeh"][pair] < 0.1 * scores["geh"][pair]
    assert scores["eah"][~data.TRUTH].max() == 0


@pytest.mark.parametrize("sn", [0.0, 0.5, 4.0])
def test_signal_to_noise_is_the_ratio_of_variances(sn):
    drawn = data.simulate(sn, 50_000, 10, seed=0)
    signal = np.sum(list(data.effects(drawn.x).values()), axis=0)
    noise = drawn.y - (signal if sn else 0)
    assert np.var(noise) == pytest.approx(np.var(signal) / (sn or 1), rel=0.03)
    assert abs(np.corrcoef(noise, signal)[0, 1]) < 0.02


def doubled(task):
    return {"value": 2 * task[0]}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path, workers):
    store = Store(tmp_path / "records.jsonl")
    store.add({"task": [1], "value": "kept"})
    with open(store.path, "a") as lines:
        lines.write('{"task": [3], "val')  # the machine went down here
        lines.write("\n")
    progress = list(complete(store, [(1,), (2,), (3,)], doubled, workers))
    assert progress[0] == (1, 3)
    assert progress[-1] == (3, 3)
    assert {record["task"][0]: record["value"] for record in store} == {1: "kept", 2: 4, 3: 6}


def test_a_small_study_writes_its_page(tmp_path, monkeypatch):
    pytest.importorskip("shap")
    pytest.importorskip("lightgbm")
    tiny = experiment.Size((0.0, 1.0), 1, 300, 80, 2, 2, 6, 3, 5)
    monkeypatch.setattr(experiment, "QUICK", tiny)
    lines = list(simulated.run(tmp_path, quick=True, workers=1))
    page = (tmp_path / "studies" / "simulated.md").read_text()
    assert "GEH, bootstrap ensemble" in page
    table = pd.read_csv(tmp_path / "studies" / "simulated.csv")
    assert set(table["method"]) == {"AEH", "GEH", "EAH", "NID", "SHAP", "Lasso", "Oracle"}
    assert table[table["sn"] == 0]["auc"].isna().all()
    assert all((tmp_path / "images" / f"simulated_{name}.png").exists() for name in ("ranks", "intervals", "roc"))
    assert lines[-1].startswith("page:")
    # A second run finds all records and only writes the page.
    assert next(simulated.run(tmp_path, quick=True, workers=1)) == "simulated: 2 of 2 data sets"
    record = json.loads((tmp_path / "simulated_quick.jsonl").read_text().splitlines()[0])
    assert record["task"][-2:] == [0.0, experiment.FIRST_SEED]
