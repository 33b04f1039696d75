"""What first-time users ran into, and must not run into again."""

from contextlib import nullcontext

import matplotlib
from explaining import explain_draws, explain_point, uniform_points

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import geh_explain as geh

POINT = geh.posterior.PointEstimate()


def network(activation: nn.Module, depth: int = 1) -> nn.Module:
    torch.manual_seed(depth)
    hidden = [part for _ in range(depth - 1) for part in (nn.Linear(16, 16), activation)]
    return nn.Sequential(nn.Linear(3, 16), activation, *hidden, nn.Linear(16, 1)).double()


@pytest.mark.filterwarnings("ignore:smoothing the kinks")
def test_each_member_of_an_ensemble_is_smoothed_by_its_own_kinks():
    members = [network(nn.Tanh()), network(nn.ReLU()), network(nn.ReLU(), 3)]
    x = uniform_points(100, 3)
    together = explain_draws(members[0], x, posterior=geh.posterior.Ensemble(members)).signed
    for draw, member in zip(together, members, strict=True):
        assert draw == pytest.approx(explain_point(member, x).signed[0], abs=1e-12)
        assert draw.any()


def test_a_layer_whose_calls_differ_in_shape_asks_for_one_of_them():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.narrow, self.act = nn.Linear(3, 5), nn.Linear(5, 2), nn.Tanh()

        def forward(self, x):
            return self.act(self.narrow(self.act(self.wide(x)))).prod(1)

    model, x = Shared().double(), uniform_points(20, 3)
    with pytest.raises(geh.GEHError, match=r"\(5,\) and \(2,\).*Layer\('act', call=0\)"):
        explain_point(model, x, layer="act")
    assert len(explain_point(model, x, layer=geh.Layer("act", call=1)).names) == 2


def test_with_scale_std_neither_scores_nor_groups_depend_on_units_of_measure():
    def model(x: Tensor) -> Tensor:
        return torch.sin(6 * x[:, 0] * x[:, 1]) + x[:, 2] * x[:, 3] - torch.exp(x[:, 0] * x[:, 3])

    x, metres = uniform_points(300, 4), torch.tensor([1.0, 1.0, 1.0, 1000.0]).double()
    plain = explain_point(model, x, groups="auto", scale="std")
    other = explain_point(lambda x: model(x / metres), x * metres, groups="auto", scale="std")
    assert len(other.group_names) == len(plain.group_names)
    assert other.signed == pytest.approx(plain.signed, rel=1e-6, abs=1e-9)
    chosen = geh.GEHExplainer(model, posterior=POINT).choose_groups(x, scale="std", progress=False)
    assert chosen.chosen == len(plain.group_names)
    assert repr(chosen) == f"GroupChoice(chosen={chosen.chosen}, of 1 to 60 groups)"


@pytest.mark.filterwarnings("ignore:posterior=None")
def test_dropout_inside_a_recurrent_layer_is_said_to_be_out_of_reach():
    class Model(nn.Module):
        def __init__(self, p):
            super().__init__()
            self.rnn, self.drop = nn.LSTM(2, 4, num_layers=2, dropout=0.5, batch_first=True), nn.Dropout(p)

        def forward(self, x):
            return self.drop(self.rnn(x)[0][:, -1]).prod(1)

    x = uniform_points(12, 6).reshape(12, 3, 2)
    for p in (0.0, 0.3):
        with pytest.warns(geh.GEHWarning, match="'rnn' is inside torch's own kernel"):
            geh.GEHExplainer(Model(p).double()).explain(x, groups=1, draws=3, progress=False)


def test_a_posterior_that_never_ends_is_asked_for_as_many_draws_as_wanted():
    class Endless:
        def draws(self, model, n, seed):
            while True:
                yield nullcontext()

    with pytest.warns(geh.GEHWarning, match="same scores"):
        assert len(explain_draws(lambda x: x.prod(1), uniform_points(10, 3), posterior=Endless(), draws=4).signed) == 4


def test_more_units_than_memory_can_hold_are_refused_before_the_work():
    with pytest.raises(geh.GEHError, match=r"150,528 units have 11,329,264,128 pairs.*Channels\(\)"):
        explain_point(lambda x: x.sum((1, 2, 3)) ** 2, torch.zeros(2, 3, 224, 224))


def test_a_missing_batch_dimension_is_suspected():
    with pytest.raises(geh.GEHError, match="batch dimension missing"):
        explain_point(lambda x: x**2, uniform_points(1, 4)[0])


def test_batch_normalisation_over_the_batch_is_refused_in_words():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1)).double()
    with pytest.raises(geh.GEHError, match=r"mixes rows.*running statistics"):
        explain_point(net, uniform_points(10, 3))


def test_a_callable_that_runs_out_of_samples_is_told_so():
    net = network(nn.Tanh())
    samples = [net.state_dict()] * 5
    with pytest.raises(geh.GEHError, match=r"no sample for k=5.*fewer draws"):
        explain_draws(net, uniform_points(10, 3), posterior=geh.posterior.WeightSamples(lambda k: samples[k]), draws=9)


def test_a_series_of_targets_is_one_per_row():
    def model(x: Tensor) -> Tensor:
        return torch.stack([x.prod(1), 2 * x.prod(1)], dim=1)

    x, target = uniform_points(10, 3), np.arange(10) % 2
    series = explain_point(model, x, target=pd.Series(target))
    assert np.array_equal(series.signed, explain_point(model, x, target=target).signed)


def test_pictures_survive_dollars_and_long_names(tmp_path):
    names = ["a_$", "$_b", "x^$", "features.denseblock4.denselayer16.conv2[1024]"]
    result = explain_point(lambda x: x.prod(1), uniform_points(20, 4), names=names)
    for axes in (result.plot.heatmap(), result.plot.intervals()):
        axes.figure.savefig(tmp_path / "picture.png")
        bounds = axes.get_window_extent()
        assert bounds.width > 0.4 * axes.figure.bbox.width
    plt.close("all")


def test_columns_of_a_table_name_inputs_and_not_hidden_units():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1), nn.Sigmoid())
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=["a", "b", "c"])
    names = [
        geh.GEHExplainer(net, layer, posterior=POINT).explain(frame, groups=1, progress=False).names
        for layer in (None, "1", "3")
    ]
    assert names == [["a", "b", "c"], ["1[0]", "1[1]", "1[2]"], ["3[0]", "3[1]"]]
