"""Results in the forms of other packages, and models of theirs."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from synthetic_results import evidence_result, random_result, without_draws
from torch import nn

import geh_explain as geh


@pytest.fixture(scope="module")
def result():
    return random_result(4, groups=3)


def test_a_graph_has_the_numbers_of_the_table(result):
    networkx = pytest.importorskip("networkx")
    graph = result.to_networkx("aeh", level=0.9)
    assert list(graph) == result.names
    assert graph.number_of_edges() == 6
    for row in result.table("aeh", level=0.9).itertuples():
        edge = graph.edges[row.unit_i, row.unit_j]
        assert edge["weight"] == edge["mean"] == row.mean
        assert (edge["low"], edge["high"], edge["stable"]) == (row.low, row.high, row.stable)
        assert edge["sign"] == result.majority_signs()[result.pair(row.unit_i, row.unit_j)]
    strength = dict(graph.degree(weight="weight"))
    np.testing.assert_allclose([strength[name] for name in result.names], result.aeh.mean.sum(axis=0))
    assert networkx.is_connected(graph)


def test_a_graph_of_tested_pairs_weighs_what_the_labels_support(result):
    pytest.importorskip("networkx")
    tested = evidence_result(result, untested=1)
    graph = tested.to_networkx()
    assert graph.graph == {"measure": "supported", "level": 0.95, "rule": "evidence", "fdr": 0.05}
    for row in tested.table().itertuples():
        edge = graph.edges[row.unit_i, row.unit_j]
        assert (edge["mean"], edge["significant"]) == (row.mean, row.significant)
        assert edge["weight"] == (0 if np.isnan(row.supported) else row.supported)
    by_interval = tested.to_networkx(rule="interval")
    assert by_interval.graph["measure"] == "geh"
    assert "supported" not in by_interval.edges["unit 0", "unit 1"]


@pytest.mark.parametrize("rule", ["evidence", "sign", "interval"])
def test_a_data_set_has_the_decisions_of_the_table(result, rule):
    pytest.importorskip("xarray")
    tested = evidence_result(result)
    data, table = tested.to_xarray(rule=rule), tested.table(rule=rule).set_index(["unit_i", "unit_j"])
    shown = {"evidence": ["supported", "slope", "slope_se", "p_value", "significant"], "sign": ["stable"]}
    columns = shown.get(rule, ["p_value", "significant"])
    assert set(data.coords) == {"chain", "draw", "pair", "unit_i", "unit_j", *columns}
    for column in columns:
        pairs = zip(data["unit_i"].values, data["unit_j"].values, data[column].values, strict=True)
        assert all(table.loc[(i, j), column] == value for i, j, value in pairs)


def test_a_data_set_has_all_draws_by_name(result):
    pytest.importorskip("xarray")
    data = result.to_xarray()
    assert dict(data.sizes) == {"chain": 1, "draw": 30, "pair": 6}
    for name in ("geh", "aeh", "eah"):
        np.testing.assert_array_equal(data[name][0], result.scores(name).draws)
    chosen = data["geh"].sel(pair="unit 1 × unit 3")
    np.testing.assert_array_equal(chosen[0], result.geh.draws[:, result.pair(1, 3)])
    assert data["unit_i"].values.tolist()[-1] == "unit 2"


@pytest.mark.filterwarnings("ignore")
def test_arviz_draws_its_forest_of_it(result):
    arviz = pytest.importorskip("arviz")

    data = arviz.convert_to_inference_data(result.to_xarray())
    summary = arviz.summary(data, var_names=["geh"], kind="stats", round_to=6)
    np.testing.assert_allclose(summary["mean"], result.geh.pair_mean, atol=1e-5)
    (axes,) = arviz.plot_forest(data, var_names=["geh"], combined=True)
    assert [label.get_text() for label in axes.get_yticklabels()][::-1] == [
        f"geh[{i} × {j}]" if n == 0 else f"[{i} × {j}]"
        for n, (i, j) in enumerate((a, b) for x, a in enumerate(result.names) for b in result.names[x + 1 :])
    ]


def test_moments_have_no_draws_to_hand_over(result):
    pytest.importorskip("xarray")
    with pytest.raises(geh.GEHError, match="did not fit into memory"):
        without_draws(result).to_xarray()


def test_a_missing_package_is_named(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(geh.GEHError, match="networkx is not installed; `pip install networkx` adds it"):
        result.to_networkx()


def table(rows=300):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(rows, 3)) * [1, 10, 100], columns=["a", "b", "c"]).astype(np.float32)
    return frame, (frame["a"] * frame["b"] / 10 + frame["c"] / 100).to_numpy(np.float32)


@pytest.mark.filterwarnings("ignore")
def test_a_skorch_net_is_explained_as_its_module():
    skorch = pytest.importorskip("skorch")
    frame, y = table()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 30), nn.Tanh(), nn.Dropout(0.05), nn.Linear(30, 1))
    net = skorch.NeuralNetRegressor(
        model, max_epochs=60, lr=0.02, optimizer=torch.optim.Adam, train_split=None, verbose=0
    )
    scaled = StandardScaler().fit_transform(frame).astype(np.float32)
    net.fit(scaled, y[:, None])
    result = geh.GEHExplainer(net.module_).explain(
        pd.DataFrame(scaled, columns=frame.columns), groups=2, draws=20, progress=False
    )
    assert result.ranking().top(1) == [("a", "b")]
    # The net itself, as a black box.
    explainer = geh.GEHExplainer(lambda x: net.predict(x.numpy()), posterior=geh.posterior.PointEstimate())
    black = explainer.explain(scaled[:100], groups=2, progress=False)
    assert black.ranking().top(1) == [("x0", "x1")]


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_is_explained_through_a_callable_in_the_units_of_the_table():
    from sklearn.neural_network import MLPRegressor

    frame, y = table()
    pipeline = make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(30,), activation="tanh", max_iter=2000, random_state=0)
    )
    pipeline.fit(frame.to_numpy(), y)
    explainer = geh.GEHExplainer(lambda x: pipeline.predict(x.numpy()))
    result = explainer.explain(frame, groups=2, scale="std", progress=False)
    assert result.ranking().top(1) == [("a", "b")]
    assert result.geh.mean[0, 1] == pytest.approx(1, rel=0.35)


# CSV files


FORMULAS = ['=HYPERLINK("http://e")', "+1", " -2", "@SUM(A1)", "\uff1d1", "\t=1", "\rx", "age", 'a;"b",c', "é\n"]


def test_a_csv_file_has_the_table_without_formulas(tmp_path):
    result = random_result(len(FORMULAS), groups=2, names=FORMULAS)
    path = result.to_csv(tmp_path / "pairs.csv", "aeh", level=0.9, unit="age")
    table, found = result.table("aeh", 0.9, unit="age"), pd.read_csv(path)
    for column in ("unit_i", "unit_j"):
        expected = [name if name in FORMULAS[-3:] else f"'{name}" for name in table[column]]
        assert found[column].tolist() == expected
    np.testing.assert_allclose(found["mean"], table["mean"], rtol=1e-12)
    assert list(found) == list(table)


def test_a_csv_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    result = random_result(3, groups=2)
    path = result.to_csv(tmp_path / "pairs.csv")
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(geh.GEHError, match="free some space"):
        result.to_csv(path, "aeh")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_csv_file_must_be_called_one(tmp_path):
    result = random_result(3, groups=2)
    with pytest.raises(geh.GEHError, match=r"must end in \.csv"):
        result.to_csv(tmp_path / "pairs.npz")
    with pytest.raises(geh.GEHError, match="rule"):
        result.to_csv(tmp_path / "pairs.csv", rule="none")
    assert not list(tmp_path.iterdir())
