"""Evidence through the explainer: explain(evidence=), test(), true scores, training rows, files."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh

POINT = geh.posterior.PointEstimate()


def model(x):
    """Return outputs with the interaction x0 × x1 at 1.25 times its true size, and a spurious one of x1 × x2."""
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


@pytest.mark.parametrize("part", [lambda x, y: (x, y), lambda x, y: x[:, :2], lambda x, y: y])
def test_training_rows_of_another_shape_are_refused(part, rows):
    explainer = geh.GEHExplainer(model, posterior=POINT)
    plain = explainer.explain(rows[0][:500], groups=2, progress=False)
    with pytest.raises(
        geh.GEHError, match=r"train: (its rows have the shape|a tensor of the tuple has one number per row)"
    ):
        explainer.test(plain, *rows, train=part(*rows), progress=False)


def test_other_explained_points_and_training_rows_are_named_in_errors(rows):
    explainer = geh.GEHExplainer(model, posterior=POINT)
    plain = explainer.explain(rows[0][:500], groups=2, progress=False)
    wide = torch.cat([rows[0][:500], rows[0][:500, :1]], dim=1)
    with pytest.raises(geh.GEHError, match="explained: there are 4 units, and result is about 3"):
        explainer.test(plain, *rows, explained=wide, progress=False)
    for argument in ("train", "explained"):
        with pytest.raises(geh.GEHError, match=f"{argument}: a int is not supported"):
            explainer.test(plain, *rows, progress=False, **{argument: 5})
    forged = replace(plain.record, scale=[1.0, float("nan"), 1.0])
    other = geh.Interactions(plain._draws, plain.labels, plain.names, plain.group_names, forged)
    with pytest.raises(geh.GEHError, match="explained: the result has scale="):
        explainer.test(other, *rows, explained=rows[0][:500], progress=False)


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


def test_loaders_that_pick_rows_at_random_by_a_batch_sampler_are_refused(rows):
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

    data = TensorDataset(rows[0])
    loader = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 32, drop_last=False))
    with pytest.raises(geh.GEHError, match="by a sampler of its own"):
        geh.GEHExplainer(model, posterior=POINT).test_pairs(loader, rows[1], progress=False)


def test_columns_are_compared_wherever_both_are_known(rows):
    import pandas as pd

    frame, y = pd.DataFrame(rows[0].numpy(), columns=["age", "bmi", "bp"]), rows[1].numpy()
    other = frame[["bp", "age", "bmi"]]
    explainer = geh.GEHExplainer(model, posterior=POINT)
    named = explainer.explain(frame[:300], groups=1, names=["a", "b", "c"], progress=False)
    for options in ({"inputs": other}, {"inputs": other.rename(columns={"bmi": "BMI"})}):
        with pytest.raises(geh.GEHError, match="column 0 is 'bp' in the held-out rows and 'age'"):
            explainer.test(named, y=y, progress=False, **options)
    for options in ({"explained": other[:300]}, {"train": other}):
        with pytest.raises(geh.GEHError, match="column 0 is 'age' in the held-out rows and 'bp'"):
            explainer.test(named, frame, y, progress=False, **options)
    with pytest.raises(geh.GEHError, match="index of the held-out rows in another order"):
        explainer.test(named, frame, pd.Series(y).sample(frac=1, random_state=0), progress=False)


def test_units_in_an_order_of_their_own_are_tested(rows):
    """The names of units are not the columns of the rows."""
    import pandas as pd

    frame = pd.DataFrame(rows[0].numpy(), columns=["age", "bmi", "bp"])
    explainer = geh.GEHExplainer(model, posterior=POINT, units=geh.units.Subset([2, 1, 0]))
    found = explainer.explain(frame[:300], groups=1, progress=False)
    table = explainer.test(found, frame, rows[1], progress=False).table()
    assert set(table.iloc[0][["unit_i", "unit_j"]]) == {"bmi", "age"}
    assert table.iloc[0]["significant"]
    plain = geh.GEHExplainer(model, posterior=POINT)
    with pytest.raises(geh.GEHError, match=r"units=Subset\(\[2, 1, 0\]"):
        plain.test(found, rows[0], rows[1], progress=False)


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


def test_a_result_of_another_network_is_warned_of(recwarn):
    def explainer(seed):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        return geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())

    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        y = explainer(0).model(x)[:, 0] + 0.1 * torch.randn(300, generator=torch.Generator().manual_seed(1))
    result = explainer(0).explain(x, groups=1, progress=False)
    recwarn.clear()
    explainer(0).test(result, x, y, progress=False)
    assert not recwarn.list
    with pytest.warns(geh.GEHWarning, match="other parameters"):
        explainer(1).test(result, x, y, progress=False)


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
