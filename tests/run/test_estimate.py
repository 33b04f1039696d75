"""``explainer.estimate``: what a run would cost."""

import time

import pytest
import torch
from explaining import point_explainer, random_points
from networks import mlp
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import geh_explain as geh
from geh_explain.engines.base import EngineRun


class Slow(nn.Module):
    """A network whose forward pass takes a time that grows with the rows, by repeated work."""

    def __init__(self, repeats: int) -> None:
        super().__init__()
        self.repeats = repeats
        self.linear = nn.Linear(6, 200).double()

    def forward(self, x: Tensor) -> Tensor:
        out = torch.tanh(self.linear(x)).sum(dim=1)
        for _ in range(self.repeats):
            out = out + 0 * torch.tanh(self.linear(x)).sum(dim=1)
        return out


def test_numbers_of_the_run() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1)).double()
    estimate = geh.GEHExplainer(net).estimate(random_points(50, 7), draws=30, groups=3)
    assert (estimate.draws, estimate.points, estimate.pairs, estimate.engine) == (30, 50, 21, "structured")
    assert estimate.result_bytes == 8 * 30 * 21 * 4
    assert "30 draws of 50 points and 21 pairs (structured engine)" in str(estimate)


def test_an_ensemble_has_as_many_draws_as_members() -> None:
    members = [mlp(3, 8, 1, activation=nn.ReLU) for _ in range(4)]
    explainer = geh.GEHExplainer(members[0], posterior=geh.posterior.Ensemble(members))
    assert explainer.estimate(random_points(20, 3), draws=100, groups=1).draws == 4


def test_time_grows_with_draws_and_points() -> None:
    explainer = geh.GEHExplainer(nn.Sequential(nn.Dropout(0.1), Slow(5)), engine="exact")
    few, more = (explainer.estimate(random_points(256, 6), draws=draws, groups=1) for draws in (10, 1000))
    assert more.seconds > 10 * few.seconds


def test_the_network_and_the_random_numbers_are_unchanged() -> None:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)).double().train()
    before, state = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    geh.GEHExplainer(net).estimate(random_points(40, 3), groups=1)
    assert net.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_wrong_arguments_are_refused_as_by_explain() -> None:
    with pytest.raises(geh.GEHError, match="draws=0"):
        point_explainer(lambda x: x[:, 0] * x[:, 1]).estimate(random_points(10, 2), draws=0)


def test_what_engines_do_at_the_end_of_a_draw_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # The structured engine maps sums over narrow layers back to the inputs once per draw: most of the time for many
    # inputs and few points.
    monkeypatch.setattr(EngineRun, "end_draw", lambda self, sums: time.sleep(0.01))
    explainer = geh.GEHExplainer(nn.Sequential(nn.Dropout(0.1), mlp(3, 8, 1)), engine="exact")
    assert explainer.estimate(random_points(20, 3), draws=300, groups=1).seconds > 3


class Images(Dataset[tuple[Tensor]]):
    """Rows that take a millisecond to read."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[Tensor]:
        time.sleep(0.001)
        return (torch.full((3,), float(index)) / 100,)


def test_reading_counts_for_each_draw_where_data_do_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = geh.GEHExplainer(nn.Sequential(nn.Dropout(0.1), mlp(3, 8, 1).float()), engine="exact")
    loader = DataLoader(Images(), batch_size=10)
    kept = explainer.estimate(loader, draws=50, groups=1).seconds
    monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0.0)
    assert explainer.estimate(loader, draws=50, groups=1).seconds > kept + 50 * 0.1
