"""Evidence through the explainer: explain(evidence=), test(), true scores, training rows, files."""

import copy

import numpy as np
import pytest
import torch
from evidence_cases import POINT, held_out_rows, model
from torch import nn

import geh_explain as geh


@pytest.fixture
def rows():
    return held_out_rows()


@pytest.fixture(scope="module")
def result():
    explainer = geh.GEHExplainer(model, posterior=POINT)
    return explainer.explain(held_out_rows()[0][:500], groups=2, evidence=held_out_rows(), progress=False)


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


def test_files_keep_evidence(result, tmp_path):
    loaded = geh.Interactions.load(result.save(tmp_path / "result.npz"))
    assert loaded.table().equals(result.table())
    assert loaded.evidence.n_rows == 2000


def test_evidence_leaves_the_network_untouched_and_needs_no_dropout(rows):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)).train()
    with torch.no_grad():
        y = rows[1] + 20 * copy.deepcopy(net).eval()(rows[0])[:, 0]
        net[-1].weight *= 20
        net[-1].bias *= 20
    before = copy.deepcopy(net.state_dict())
    state = torch.get_rng_state()
    result = geh.GEHExplainer(net).explain(rows[0][:200], groups=1, draws=5, evidence=(rows[0], y), progress=False)
    assert result.evidence.tested.all()
    assert net.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


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


def test_an_interrupted_test_leaves_the_explanation(rows, monkeypatch):
    from geh_explain.evidence.held_out import HeldOutTest

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(HeldOutTest, "run", interrupted)
    with pytest.warns(geh.GEHWarning, match="the test was interrupted"):
        result = geh.GEHExplainer(model, posterior=POINT).explain(rows[0], groups=1, evidence=rows, progress=False)
    assert result.evidence is None
    assert "stable" in result.table()


def test_forward_arguments_of_the_explained_rows_are_not_those_of_held_out_rows():
    generator = torch.Generator().manual_seed(0)
    x, held = (torch.randn(600, 3, generator=generator) for _ in range(2))
    shift, held_shift = (torch.rand(600, generator=generator) for _ in range(2))

    def shifted(x, shift):
        return x[:, 0] * x[:, 1] + x[:, 2] + 10 * shift

    y = shifted(held, held_shift) + 0.5 * torch.randn(600, generator=generator)
    explainer = geh.GEHExplainer(shifted, posterior=POINT)
    with pytest.raises(geh.GEHError, match="third entry, evidence="):
        explainer.explain(x, None, (shift,), groups=1, evidence=(held, y), progress=False)
    found = explainer.explain(x, None, (shift,), groups=1, evidence=(held, y, (held_shift,)), progress=False)
    plain = explainer.explain(x, None, (shift,), groups=1, progress=False)
    tested = explainer.test(plain, held, y, (held_shift,), progress=False)
    np.testing.assert_array_equal(found.evidence.p_value, tested.evidence.p_value)
    assert 0.9 < found.evidence.slope[0] < 1.1


def test_pairs_that_the_network_does_not_use_have_finite_true_intervals(recwarn):
    x = torch.rand(800, 3, generator=torch.Generator().manual_seed(0)).double()
    y = x[:, 2] + torch.randn(800, generator=torch.Generator().manual_seed(1))
    explainer = geh.GEHExplainer(lambda x: x[:, 2], posterior=POINT)
    table = explainer.explain(x, groups=1, evidence=(x, y), progress=False).table()
    assert (table["true_low"] == 0).all()
    # A standard error of the product of two uniform units is about 1 / (sqrt(800) / 12) = 0.4.
    assert table["true_high"].between(0.2, 4).all()
    assert not [str(warning.message) for warning in recwarn if issubclass(warning.category, RuntimeWarning)]


def test_labels_that_are_the_outputs_have_the_scores_of_the_network(recwarn):
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)).double()
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2], posterior=POINT)
    table = explainer.explain(x, groups=1, evidence=(x, x[:, 0] * x[:, 1] + x[:, 2]), progress=False).table()
    assert table["true_low"].tolist() == table["true_high"].tolist() == table["mean"].tolist()
    assert table["significant"].tolist() == [True, False, False]
    assert not recwarn.list


def test_pairs_that_other_units_determine_are_not_tested():
    """The body mass index is a function of weight and height: what these two do together, it does alone."""
    generator = np.random.default_rng(0)
    weight, height = generator.normal(size=(2, 1500))
    x = np.column_stack([weight, height, weight - 2 * height, generator.normal(size=1500)])
    y = np.tanh(x[:, 2]) + 0.3 * generator.normal(size=1500)
    explainer = geh.GEHExplainer(lambda x: torch.tanh(x[:, 0] - 2 * x[:, 1]), posterior=POINT)
    with pytest.warns(geh.GEHWarning, match=r"1 pair\(s\) cannot be tested.*x0 × x1"):
        evidence = explainer.test_pairs(x, y, progress=False)
    assert np.isnan(evidence.p_value[0])
    assert np.isnan(evidence.slope[0])
    assert evidence.shrinkage[0] == 0.5


def test_interactions_that_are_effects_of_other_units_are_not_supported():
    """Two switches, and a third one that is on if both are: it does alone what these two do together."""
    generator = np.random.default_rng(0)
    switches = generator.integers(0, 2, (1500, 2))
    x = np.column_stack([switches, switches.prod(axis=1), generator.normal(size=1500)]).astype(float)
    y = x[:, 2] + 0.3 * generator.normal(size=1500)
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=POINT)
    with pytest.warns(geh.GEHWarning, match=r"1 pair\(s\) cannot be tested.*x0 × x1; their p-value is 1.*score 0"):
        evidence = explainer.test_pairs(x, y, progress=False)
    assert evidence.p_value[0] == 1
    assert evidence.shrinkage[0] == 0


def test_columns_of_a_category_are_tested_as_one_code():
    """What the warning on lost pairs advises: a function of the code, which computes the columns inside."""
    generator = np.random.default_rng(0)
    code = torch.as_tensor(generator.integers(0, 3, 1500))
    x = torch.column_stack([torch.as_tensor(generator.normal(size=1500)), nn.functional.one_hot(code)])
    slopes = torch.tensor([-1.0, 0.0, 1.0]).double()
    y = x[:, 0] * slopes[code] + 0.5 * torch.as_tensor(generator.normal(size=1500))

    def of_columns(x):
        return x[:, 0] * (x[:, 1:] @ slopes)

    def of_code(x):
        return of_columns(torch.column_stack([x[:, 0], nn.functional.one_hot(x[:, 1].long(), 3)]))

    explainer = geh.GEHExplainer(of_columns, posterior=POINT)
    with pytest.warns(geh.GEHWarning, match="explain a function of fewer features that computes the others inside"):
        assert not (explainer.test_pairs(x, y, progress=False).p_value < 1).any()
    evidence = geh.GEHExplainer(of_code, posterior=POINT).test_pairs(
        torch.column_stack([x[:, 0], code]), y, progress=False
    )
    assert abs(evidence.slope[0] - 1) < 3 * evidence.slope_se[0] < 0.2


def test_the_zero_of_the_labels_does_not_matter():
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).double()
    y = x[:, 0] * x[:, 1] + torch.randn(500, generator=torch.Generator().manual_seed(1))

    def p_values(shift):
        explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + 0.3 * x[:, 1] * x[:, 2] + shift, posterior=POINT)
        return explainer.test_pairs(x, y + shift, progress=False).p_value

    np.testing.assert_allclose(p_values(273.15), p_values(0.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("slope", "slope_se", "p_value"),
    [
        ([1.0], [0.1], [1.5]),
        ([np.inf], [0.1], [0.5]),
        ([1.0], [-0.1], [0.5]),
        ([np.nan], [np.nan], [0.99]),
        ([1.0], [0.1], []),
    ],
)
def test_impossible_evidence_is_refused(slope, slope_se, p_value):
    with pytest.raises(ValueError, match="evidence has"):
        geh.Evidence(slope, slope_se, p_value, 100)


def test_evidence_of_lists_and_single_precision_is_kept_in_files(tmp_path, result):
    values = np.array([0.5, 0.1, 0.2], dtype=np.float32)
    evidence = geh.Evidence(values.tolist(), values, values, np.int64(100))
    loaded = geh.Interactions.load(result.with_evidence(evidence).save(tmp_path / "result.npz"))
    np.testing.assert_array_equal(loaded.evidence.p_value, values.astype(float))
    assert loaded.evidence.n_rows == 100


def test_results_do_not_share_settings(result):
    other = result.with_evidence(None)
    other.settings["note"] = "mine"
    assert "note" not in result.settings


def test_parts_beside_their_sum_are_not_tested():
    """A function of a sum is one of its parts too: what the columns miss of it would decide."""
    generator = np.random.default_rng(0)
    parts = generator.normal(size=(1500, 2))
    total = parts.sum(axis=1) / 2**0.5 + 0.15 * generator.normal(size=1500)
    x = np.column_stack([parts, total, generator.normal(size=1500)])
    y = np.tanh(total) + 0.3 * generator.normal(size=1500)
    explainer = geh.GEHExplainer(lambda x: torch.tanh(0.7 * x[:, 0] + 0.7 * x[:, 1]), posterior=POINT)
    with pytest.warns(geh.GEHWarning, match=r"cannot be tested.*x0 × x1"):
        evidence = explainer.test_pairs(torch.as_tensor(x), y, progress=False)
    assert np.isnan(evidence.p_value[0])


def test_intervals_of_true_scores_hold_what_the_network_has_missed():
    """The truth has a product of three units; the network's interactions are tiny."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1500, 4))
    y = x[:, :3].prod(axis=1) + x[:, 3] + 0.5 * generator.normal(size=1500)
    points = torch.as_tensor(x)

    def missed(x):
        return x[:, 3] + 0.01 * (x[:, 0] * x[:, 1] + x[:, 0] * x[:, 2] + x[:, 1] * x[:, 2])

    labels = (x[:, 0] > 0).astype(int) + 2 * (x[:, 1] > 0) + 4 * (x[:, 2] > 0)
    table = (
        geh.GEHExplainer(missed, posterior=POINT)
        .explain(points, groups=labels, evidence=(points, y), progress=False)
        .table()
    )
    # The mixed derivative of two units is the third one, whose mean size in an octant is sqrt(2 / pi) = 0.8.
    true = table[table["unit_j"] != "x3"]
    assert len(true) == 3
    assert (true["true_low"] < 0.8).all()
    assert (true["true_high"] > 0.78).all()


def test_warnings_of_the_test_are_kept_with_the_result(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 3, generator=generator).double()
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2], posterior=geh.posterior.PointEstimate())
    plain = explainer.explain(x, groups=1, progress=False)
    with pytest.warns(geh.GEHWarning, match="explain none of the variance"):
        tested = explainer.test(plain, x, -(x[:, 0] * x[:, 1] + x[:, 2]), progress=False)
    (message,) = [message for message in tested.settings["warnings"] if "explain none of the variance" in message]
    tested.save(tmp_path / "tested.npz")
    assert message in geh.Interactions.load(tmp_path / "tested.npz").settings["warnings"]
    assert message in tested.report(tmp_path / "page.html").read_text(encoding="utf-8").replace("&#x27;", "'")
    # Another test has other warnings, and the result itself has none.
    again = explainer.test(tested, x, x[:, 0] * x[:, 1] + x[:, 2], progress=False)
    assert message not in again.settings["warnings"]
    assert plain.settings["warnings"] == tested.with_evidence(None).settings["warnings"]
