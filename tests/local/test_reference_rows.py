"""The argument ``baseline``, the data behind it, and rows of all kinds."""

import numpy as np
import pandas as pd
import pytest
import torch
from explaining import point_explainer, random_points
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh


def product(x):
    return x[:, 0] * x[:, 1] + x[:, 2]


def explain(x, model=product, **options):
    return point_explainer(model).explain_row(x, progress=False, **options)


def test_the_mean_is_that_of_the_data_or_of_the_last_explain():
    data, x = random_points(30, 3), random_points(1, 3, seed=1)
    expected = product(data.mean(0)[None]).item()
    explainer = point_explainer(product)
    with pytest.raises(geh.GEHError, match=r"baseline='mean' .* there are no data: pass data=.*explain\(\.\.\.\)"):
        explainer.explain_row(x, progress=False)
    assert explainer.explain_row(x, data=data, progress=False).reference == pytest.approx(expected)
    with pytest.raises(geh.GEHError):  # data of a call are not remembered
        explainer.explain_row(x, progress=False)
    explainer.explain(data, groups=1, progress=False)
    assert explainer.explain_row(x, progress=False).reference == pytest.approx(expected)
    loader = DataLoader(TensorDataset(data, torch.zeros(30)), batch_size=7)
    assert explain(x, data=loader).reference == pytest.approx(expected)


def test_numbers_and_rows():
    x = torch.tensor([2.0, 3.0, 4.0])
    assert explain(x, baseline="zeros").reference == explain(x, baseline=0).reference == 0
    assert explain(x, baseline=2.0).reference == 6
    for row in (torch.tensor([1.0, 2.0, 3.0]), np.array([[1.0, 2.0, 3.0]]), pd.DataFrame([[1.0, 2.0, 3.0]])):
        assert explain(x, baseline=row).reference == 5


def test_a_sample_of_rows_is_averaged_with_the_error_of_its_mean():
    x, sample = random_points(1, 3), random_points(6, 3, seed=1)
    single = [explain(x, baseline=row) for row in sample]
    local = explain(x, baseline=sample)
    np.testing.assert_allclose(local.matrix, np.mean([each.matrix for each in single], axis=0), atol=1e-12)
    assert local.reference == pytest.approx(np.mean([each.reference for each in single]))
    effects = np.array([each.matrix[2, 2] for each in single])
    row = local.main.set_index("unit").loc["x2"]
    error = effects.std(ddof=1) / np.sqrt(6)
    assert row["std"] == pytest.approx(error)
    assert row["high"] - row["mean"] == pytest.approx(2.5706 * error, rel=1e-4)  # Student, 5 degrees of freedom
    assert local.baseline == "a sample of 6 rows"


def test_rows_of_all_kinds_are_the_same_row():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5, 6]})
    kinds = (
        frame.iloc[1],
        frame.iloc[[1]],
        frame.to_numpy()[1],
        torch.tensor([[2.0, 4.0, 6.0]]),
        torch.tensor([2.0, 4.0, 6.0]),
    )
    for row in kinds:
        assert explain(row, baseline=0).prediction == 14
    local = explain(frame.iloc[1], data=frame)
    assert set(local.main["unit"]) == {"a", "b", "c"}
    assert local.reference == pytest.approx(1.5 * 3.5 + 5.5)
    assert explain(torch.tensor([2.0, 4.0, 6.0]), data=frame).names == ["a", "b", "c"]
    shown = local.main.set_index("unit")[["row", "baseline"]]
    assert shown.loc["b"].tolist() == [4, 3.5]


def test_an_image_without_a_batch_dimension_is_recognised_by_the_data():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 1)).double()
    data = random_points(5, 1, 4, 4)
    explainer = point_explainer(net, units=geh.units.Patches(2))
    one, batch = (explainer.explain_row(x, data=data, progress=False) for x in (data[2], data[2:3]))
    np.testing.assert_array_equal(one.matrix, batch.matrix)


def test_tokens_are_explained_at_their_embedding():
    torch.manual_seed(0)

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 4).double()
            self.top = nn.Linear(4, 1).double()

        def forward(self, tokens):
            return self.top(self.embedding(tokens).cumsum(1).tanh().mean(1))

    tokens = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    explainer = point_explainer(Reader(), "embedding", units=geh.units.Tokens())
    for baseline in ("mean", "zeros", tokens[1:2]):
        local = explainer.explain_row(tokens[:1], baseline=baseline, data=tokens, progress=False)
        assert len(local.main) == 3
        assert abs(local.remainder) < 1e-10


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        ("median", "baseline='median' is unknown; use 'mean', 'zeros', a number, a row"),
        (None, "baseline=None: use 'mean'"),
        (True, "baseline=True: use"),
        (float("nan"), "baseline=nan must be finite"),
        (torch.zeros(4), r"baseline: one row of it has shape \(4,\), and x_row has \(3,\)"),
        (torch.full((1, 3), torch.nan), "baseline"),
        ([0.0, 0.0, 0.0], "baseline: a list is not supported"),
        (torch.zeros(2000, 3), "2000 rows are too many"),
    ],
)
def test_wrong_baselines_are_errors_that_help(baseline, message):
    with pytest.raises(geh.GEHError, match=message):
        explain(torch.ones(3), baseline=baseline)


def test_columns_in_another_order_are_refused():
    row = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", "b", "c"])
    other = row[["b", "a", "c"]]
    with pytest.raises(geh.GEHError, match=r"baseline: the columns are .* those of x_row"):
        explain(row, baseline=other)
    with pytest.raises(geh.GEHError, match="data: the columns"):
        explain(row, data=other)


def test_the_row_that_is_the_baseline_has_nothing_to_explain():
    local = explain(torch.ones(3), baseline=torch.ones(3))
    assert not local.matrix.any()
    assert local.remainder == local.remainder_share == 0


def test_other_wrong_arguments():
    with pytest.raises(geh.GEHError, match=r"data: one row has shape \(4,\), and one of x_row \(3,\)"):
        explain(torch.ones(3), data=torch.ones(9, 4))
    with pytest.raises(geh.GEHError, match="steps=0"):
        explain(torch.ones(3), baseline=0, steps=0)
    with pytest.raises(geh.GEHError, match="steps=5000 must be at most 2048"):
        explain(torch.ones(3), baseline=0, steps=5000)
    with pytest.raises(geh.GEHError, match="x_row"):
        explain(torch.tensor([1.0, float("nan"), 0.0]), baseline=0)
    with pytest.raises(geh.GEHError, match="names"):
        explain(torch.ones(3), baseline=0, names=["a"])
    with pytest.raises(geh.GEHError, match="target"):
        explain(torch.ones(3), model=lambda x: x, baseline=0)


@pytest.mark.parametrize("dtype", ["object", "category"])
def test_columns_of_text_have_the_same_codes_in_row_and_baseline(dtype):
    def model(frame):
        return np.where(frame["kind"] == "u", frame["size"], 10 * frame["size"])

    frame = pd.DataFrame({"size": [1.0, 2.0, 3.0], "kind": ["v", "u", "v"]}).astype({"kind": dtype})
    units = geh.units.FeatureGroups({"size": ["size"], "kind": ["kind"]})
    explainer = point_explainer(model, units=units)
    for baseline in (frame.iloc[[1]], frame.iloc[1]):
        local = explainer.explain_row(frame.iloc[[2]], baseline=baseline, progress=False)
        assert (local.prediction, local.reference) == (30, 2)
        assert local.main.set_index("unit")["mean"].to_dict() == {"size": 1, "kind": 18}
    sample = explainer.explain_row(frame.iloc[[2]], baseline=frame, progress=False)
    assert sample.reference == pytest.approx((10 + 2 + 30) / 3)


def test_dicts_of_inputs_go_by_their_keys():
    explainer = point_explainer(lambda a, b: 2 * a[:, 0] * b[:, 1] + a[:, 1])
    a, b = random_points(2, 6, 2)
    row = {"a": a[:1], "b": b[:1]}
    local = explainer.explain_row(row, baseline={"b": b[1:2], "a": a[1:2]}, progress=False)
    assert local.reference == pytest.approx(float(2 * a[1, 0] * b[1, 1] + a[1, 1]))
    local = explainer.explain_row(row, data={"b": b, "a": a}, progress=False)
    mean_a, mean_b = a.mean(0), b.mean(0)
    assert local.reference == pytest.approx(float(2 * mean_a[0] * mean_b[1] + mean_a[1]))
    with pytest.raises(geh.GEHError, match=r"baseline: its inputs are \['a', 'c'\], and those of x_row \['a', 'b'\]"):
        explainer.explain_row(row, baseline={"a": a[:1], "c": b[:1]}, progress=False)
