"""Evidence through the explainer: explain(evidence=), test(), true scores, training rows, files."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh

POINT = geh.posterior.PointEstimate()


def model(x):
    """Return outputs with the interaction x0 x x1 at 1.25 times its true size, and a spurious one of x1 x x2."""
    return 2.5 * x[:, 0] * x[:, 1] + x[:, 2] + 0.5 * x[:, 1] * x[:, 2]


@pytest.fixture(scope="module")
def rows():
    """Held-out inputs (2000, 3) and labels (2000,)."""
    x = torch.rand(2000, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    noise = 0.5 * torch.randn(2000, generator=torch.Generator().manual_seed(1))
    return x, 2 * x[:, 0] * x[:, 1] + x[:, 2] + noise


@pytest.fixture(scope="module")
def result(rows):
    explainer = geh.GEHExplainer(model, posterior=POINT)
    return explainer.explain(rows[0][:500], groups=2, evidence=rows, progress=False)


def test_a_result_with_evidence_decides_by_the_labels(result):
    table = result.table().set_index(["unit_i", "unit_j"])
    assert table["significant"].to_dict() == {("x0", "x1"): True, ("x1", "x2"): False, ("x0", "x2"): False}
    assert abs(table.loc[("x0", "x1"), "slope"] - 0.8) < 3 * table.loc[("x0", "x1"), "slope_se"]
    assert np.isnan(table.loc[("x0", "x2"), "slope"])
    assert table.loc[("x0", "x2"), "p_value"] == 1
    assert "1 of 3 pairs significant on 2000 held-out rows (false discovery rate 5 %)" in repr(result)


def test_the_interval_of_the_true_score_contains_it(result):
    table = result.table().set_index(["unit_i", "unit_j"])
    assert table.loc[("x0", "x1"), "true_low"] < 2 < table.loc[("x0", "x1"), "true_high"] < 2.4
    assert table.loc[("x0", "x1"), "true_low"] > 1.6
    assert table.loc[("x1", "x2"), "true_low"] == 0
    assert result.table("eah").columns.isin(["true_low"]).sum() == 0  # it is an interval of GEH


def test_testing_a_result_gives_the_same_evidence_as_explaining_with_it(rows, result):
    explainer = geh.GEHExplainer(model, posterior=POINT)
    plain = explainer.explain(rows[0][:500], groups=2, progress=False)
    assert "stable" in plain.table()
    assert "p_value" not in plain.table()
    tested = explainer.test(plain, *rows, explained=rows[0][:500], progress=False)
    assert plain.evidence is None
    assert tested.table().equals(result.table())
    without = explainer.test(plain, *rows, progress=False)
    assert without.evidence.true_scores is None
    assert np.array_equal(without.evidence.p_value, result.evidence.p_value)


@pytest.mark.parametrize("scale", ["std", [2.0, 3.0, 1.0]])
def test_true_scores_have_the_scale_of_the_scores(rows, result, scale):
    explainer = geh.GEHExplainer(model, posterior=POINT)
    scaled = explainer.explain(rows[0][:500], groups=2, scale=scale, evidence=rows, progress=False)
    factors = rows[0][:500].std(dim=0, correction=0).numpy() if scale == "std" else np.array(scale)
    ratio = scaled.evidence.true_scores.signed[0] / result.evidence.true_scores.signed[0]
    assert ratio == pytest.approx(factors[0] * factors[1], rel=1e-3)
    again = explainer.test(scaled, *rows, explained=rows[0][:500], progress=False)
    assert again.evidence.true_scores.signed == pytest.approx(scaled.evidence.true_scores.signed)


def test_only_the_strongest_pairs_are_tested(rows):
    explainer = geh.GEHExplainer(model, posterior=POINT)
    plain = explainer.explain(rows[0][:500], groups=2, progress=False)
    tested = explainer.test(plain, *rows, pairs=1, progress=False)
    assert tested.evidence.tested.tolist() == [True, False, False]
    assert "1 of 1 tested pair significant" in repr(tested)
    assert tested.table()["p_value"].isna().sum() == 2


def test_training_rows_are_counted_in_a_warning(rows):
    explainer = geh.GEHExplainer(model, posterior=POINT)
    plain = explainer.explain(rows[0][:500], groups=2, progress=False)
    with pytest.warns(geh.GEHWarning, match=r"1,500 of 2,000 held-out rows are also in train="):
        explainer.test(plain, *rows, train=rows[0][500:], progress=False)


def test_files_keep_evidence(result, tmp_path):
    loaded = geh.Interactions.load(result.save(tmp_path / "result.npz"))
    assert loaded.table().equals(result.table())
    assert loaded.evidence.n_rows == 2000


def test_evidence_leaves_the_network_untouched_and_needs_no_dropout(rows):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)).train()
    before = copy.deepcopy(net.state_dict())
    state = torch.get_rng_state()
    result = geh.GEHExplainer(net).explain(rows[0][:200], groups=1, draws=5, evidence=rows, progress=False)
    assert result.evidence.tested.all()
    assert net.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (3, "evidence is a int, and must be two things"),
        ((torch.zeros(5, 3),), "evidence=\\(X_held, y_held\\)"),
        ((torch.zeros(500, 3), torch.zeros(499)), "one label per row"),
    ],
)
def test_wrong_evidence_is_refused_before_any_draw(evidence, message):
    calls = []

    def counted(x):
        calls.append(len(x))
        return model(x)

    explainer = geh.GEHExplainer(counted, posterior=POINT)
    with pytest.raises((TypeError, ValueError), match=message):
        explainer.explain(torch.rand(300, 3), groups=1, evidence=evidence, progress=False)
    assert sum(calls) < 100


def test_a_result_of_other_units_or_with_a_target_per_row_is_refused(rows):
    explainer = geh.GEHExplainer(nn.Linear(3, 2), posterior=POINT, output="probability")
    per_row = explainer.explain(rows[0][:100], target=torch.arange(100) % 2, groups=1, progress=False)
    with pytest.raises(geh.GEHError, match="one target for all rows"):
        explainer.test(per_row, *rows, progress=False)
    result = geh.GEHExplainer(model, posterior=POINT).explain(rows[0][:100], groups=1, progress=False)
    wide = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=POINT)
    with pytest.raises(geh.GEHError, match="there are 2 units, and result is about 3"):
        wide.test(result, rows[0][:, :2], rows[1], progress=False)


def test_the_target_of_a_result_is_that_of_its_test(rows):
    x, _ = rows
    odds = 3 * x[:, 0] * x[:, 1]
    y = (torch.rand(2000, generator=torch.Generator().manual_seed(2)) < torch.sigmoid(odds)).long()

    def logits(x):
        return torch.stack([x[:, 2], x[:, 2] + 3 * x[:, 0] * x[:, 1]], dim=1)

    explainer = geh.GEHExplainer(logits, posterior=POINT)
    result = explainer.test(explainer.explain(x, target=1, groups=1, progress=False), x, y, progress=False)
    assert result.table()["significant"].tolist() == [True, False, False]
    assert result.evidence.link == "logit"


def test_columns_in_another_order_are_refused(rows):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(rows[0].numpy(), columns=["a", "b", "c"])
    explainer = geh.GEHExplainer(model, posterior=POINT)
    with pytest.raises(geh.GEHError, match="in the same order"):
        explainer.explain(table, groups=1, evidence=(table[["b", "a", "c"]], rows[1]), progress=False)
    result = explainer.explain(table, groups=1, progress=False)
    with pytest.raises(geh.GEHError, match="in the same order"):
        explainer.test(result, table[["c", "b", "a"]], rows[1], progress=False)
    assert explainer.test(result, table, rows[1], progress=False).table()["unit_i"][0] == "a"


def test_an_interrupted_test_leaves_the_explanation(rows, monkeypatch):
    from geh_explain.evidence.held_out import HeldOutTest

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(HeldOutTest, "run", interrupted)
    with pytest.warns(geh.GEHWarning, match="the test was interrupted"):
        result = geh.GEHExplainer(model, posterior=POINT).explain(rows[0], groups=1, evidence=rows, progress=False)
    assert result.evidence is None
    assert "stable" in result.table()
