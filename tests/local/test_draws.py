"""Accounts over draws of a posterior, and what users hold."""

import numpy as np
import pytest
import torch
from explaining import point_explainer, random_points
from state_comparison import model_state
from torch import nn

import geh_explain as geh


class Product(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(float(factor)).double())

    def forward(self, x):
        return self.factor * x[:, 0] * x[:, 1]


def test_an_ensemble_gives_the_mean_and_spread_of_its_members():
    members = [Product(factor) for factor in (1, 2, 6)]
    explainer = geh.GEHExplainer(members[0], posterior=geh.posterior.Ensemble(members))
    local = explainer.explain_row(torch.tensor([2.0, 4.0]), baseline=0, progress=False)
    assert (local.prediction, local.n_draws) == (pytest.approx(24), 3)
    pair = local.pairs.iloc[0]
    assert pair["mean"] == pytest.approx(3 * 4)  # half of the mean factor times the product
    assert pair["std"] == pytest.approx(np.std([4, 8, 24], ddof=1))
    # One more member: Student with 2 degrees of freedom, and the error of the mean.
    assert pair["high"] - pair["mean"] == pytest.approx(4.302653 * np.sqrt(4 / 3) * pair["std"])


def test_both_sources_add_up():
    members = [Product(factor) for factor in (1, 2, 6)]
    sample = random_points(4, 2)
    explainer = geh.GEHExplainer(members[0], posterior=geh.posterior.Ensemble(members))
    local = explainer.explain_row(torch.tensor([2.0, 4.0]), baseline=sample, progress=False)
    effects = np.array([[m.factor.item() * (2 - b[0]) * (4 - b[1]) / 2 for b in sample.numpy()] for m in members])
    pair = local.pairs.iloc[0]
    assert pair["mean"] == pytest.approx(effects.mean())
    variance = effects.mean(1).var(ddof=1) + effects.mean(0).var(ddof=1) / 4
    assert pair["std"] == pytest.approx(np.sqrt(variance))


def dropout_net(kind=nn.Tanh):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), kind(), nn.Dropout(0.3), nn.Linear(16, 8), kind(), nn.Linear(8, 1)).double()


@pytest.mark.parametrize("layer", [None, "4"])
def test_dropout_draws_are_complete_reproducible_and_leave_the_model_alone(layer):
    net, x = dropout_net(), random_points(1, 4)
    data = random_points(20, 4, seed=1)
    before = model_state(net)
    explainer = geh.GEHExplainer(net, layer, output="probability")
    local = explainer.explain_row(x, data=data, draws=12, progress=False)
    assert model_state(net) == before
    assert (local.main["std"] > 0).all()
    assert abs(local.remainder) < 1e-9
    again = explainer.explain_row(x, data=data, draws=12, batch_size=5, progress=False)
    np.testing.assert_allclose(again.matrix, local.matrix, rtol=0, atol=1e-12)
    other = explainer.explain_row(x, data=data, draws=12, seed=1, progress=False)
    assert not np.allclose(other.matrix, local.matrix)


@pytest.mark.filterwarnings("ignore:smooth.*changes the difference")  # the network is not trained
def test_draws_of_a_kinked_network_are_complete():
    net, data = dropout_net(nn.ReLU), random_points(50, 4)
    local = geh.GEHExplainer(net).explain_row(random_points(1, 4, seed=1), data=data, draws=10, progress=False)
    assert local.remainder_share < 0.01


def test_members_with_other_kinks_are_smoothed_by_themselves():
    members = [dropout_net(nn.ReLU), nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(), nn.Linear(6, 1)).double()]
    explainer = geh.GEHExplainer(members[0], posterior=geh.posterior.Ensemble(members))
    data = random_points(50, 4)
    local = explainer.explain_row(random_points(1, 4, seed=1), data=data, progress=False)
    assert local.n_draws == 2
    assert local.remainder_share < 0.01


def test_a_point_estimate_has_no_intervals():
    local = point_explainer(Product(2)).explain_row(torch.tensor([2.0, 4.0]), baseline=0, progress=False)
    assert local.main[["std", "low", "high"]].isna().all(axis=None)
    assert not local.has_intervals
    assert "a point estimate without intervals" in repr(local)


def test_tables_and_text_hold_the_whole_account():
    model = lambda x: x[:, 0] * x[:, 1] - 3 * x[:, 2]  # noqa: E731
    local = point_explainer(model).explain_row(
        torch.tensor([1.0, 2.0, 5.0]), baseline=0, names=["age", "bmi", "dose"], progress=False
    )
    table = local.table()
    assert table["mean"].sum() == pytest.approx(local.prediction - local.reference)
    assert table["contribution"].tolist()[:2] == ["dose", "age × bmi"]
    assert table["kind"].value_counts().to_dict() == {"main": 3, "pair": 3, "remainder": 1}
    assert repr(local).startswith("prediction -13 = reference 0 - 14 (main effects) + 1 (pairs) + 0 (remainder)\n")
    np.testing.assert_allclose(local.matrix, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, -15]], atol=1e-6)
    assert "<p>prediction -13" in local._repr_html_()


def test_several_rows_are_a_sequence_of_accounts():
    explainer = point_explainer(lambda x: x[:, 0] * x[:, 1])
    accounts = explainer.explain_row(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), baseline=0, progress=False)
    assert isinstance(accounts, geh.LocalExplanations)
    assert [local.prediction for local in accounts] == [2, 12, 30]
    assert [local.prediction for local in accounts[1:]] == [12, 30]
    assert accounts.table()["row"].unique().tolist() == [0, 1, 2]
    assert repr(accounts).splitlines()[2].startswith("row 1: prediction 12")


def test_one_unit_has_a_main_effect_and_no_pairs():
    local = point_explainer(lambda x: x[:, 0] ** 2).explain_row(torch.tensor([3.0]), baseline=0, progress=False)
    assert local.main["mean"].tolist() == pytest.approx([9.0])
    assert len(local.pairs) == 0
    assert len(local.table()) == 2


def test_targets_and_arguments_of_each_row():
    def model(x, factor):
        return torch.stack([factor * x[:, 0], x[:, 1] ** 2], dim=1)

    accounts = point_explainer(model).explain_row(
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]), [0, 1], torch.tensor([5.0, 7.0]), baseline=0, progress=False
    )
    assert [local.prediction for local in accounts] == [5, 16]


@pytest.mark.parametrize("kind", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("baseline", ["mean", "sample"])
@pytest.mark.filterwarnings("ignore:smooth.*changes the difference")  # the network is not trained
def test_rows_that_are_computed_together_are_those_of_single_calls(kind, baseline):
    net, data = dropout_net(kind), random_points(40, 4, seed=1)
    rows = random_points(6, 4) * torch.tensor([[1.0], [8.0], [0.01], [1.0], [3.0], [1.0]])
    start = "mean" if baseline == "mean" else data[:3]
    explainer = geh.GEHExplainer(net)
    options = {"data": data, "baseline": start, "draws": 4, "progress": False}
    together = explainer.explain_row(rows, **options)
    assert len({local.steps for local in together}) > 1  # rules are chosen row by row
    for row, local in zip(rows, together, strict=True):
        alone = explainer.explain_row(row, **options)
        assert (local.steps, local.n_baselines) == (alone.steps, alone.n_baselines)
        scale = alone.scale
        np.testing.assert_allclose(local.matrix, alone.matrix, rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(local.table()["std"], alone.table()["std"], rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(local.row_values, row.numpy())
        assert (local.prediction, local.reference) == pytest.approx((alone.prediction, alone.reference))
        assert local.error == pytest.approx(alone.error, abs=1e-12 * scale)


def test_rows_of_one_call_take_few_forward_passes():
    passes = []

    class Counted(nn.Sequential):
        def forward(self, x):
            passes.append(len(x))
            return super().forward(x)

    torch.manual_seed(0)
    net = Counted(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    counts = []
    for rows in (1, 50):
        passes.clear()
        point_explainer(net).explain_row(random_points(rows, 4), baseline=0, progress=False)
        counts.append(len(passes))
    assert counts[1] <= counts[0] + 10
