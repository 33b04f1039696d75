"""Held-out rows, labels and results that do not fit, or do in another form."""

from dataclasses import replace

import pytest
import torch
from evidence_cases import POINT, held_out_rows, model
from torch import nn

import geh_explain as geh


@pytest.fixture
def rows():
    return held_out_rows()


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
