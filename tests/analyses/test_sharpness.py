"""``explainer.stability``: the strongest pairs at half and twice the sharpness."""

import numpy as np
import pytest
import torch
from explaining import explain_point_quietly, point_explainer, random_points
from networks import mlp
from torch import nn

import geh_explain as geh
from geh_explain.engines import Step
from geh_explain.engines.smoothing.sharpness import Sharpened


def test_scores_at_three_sharpnesses_are_those_of_three_explanations() -> None:
    net, x = mlp(5, 32, 32, 1, activation=nn.ReLU, gain=2.0), random_points(120, 5)
    groups = (x[:, 0] > 0).long().numpy()
    result = explain_point_quietly(net, x, groups=groups, scale="std", smooth=Step(0.4))
    table = point_explainer(net, smooth=Step(0.4)).stability(result, x, pairs=4, progress=False)
    assert table["score"].is_monotonic_decreasing
    assert table["rank"].tolist() == [1, 2, 3, 4]
    for suffix, size in (("", 0.4), ("_sharper", 0.2), ("_softer", 0.8)):
        other = explain_point_quietly(net, x, groups=groups, scale="std", smooth=Step(size))
        for row in table.itertuples():
            pair = other.pair(row.unit_i, row.unit_j)
            assert getattr(row, f"score{suffix}") == pytest.approx(other.geh.pair_mean[pair], rel=1e-12)
            assert getattr(row, f"rank{suffix}") == 1 + (other.geh.pair_mean > other.geh.pair_mean[pair]).sum()
    places = table[["rank", "rank_sharper", "rank_softer"]].to_numpy()
    np.testing.assert_array_equal(table["keeps_place"], (places <= 4).all(axis=1))


def test_differences_are_those_of_the_network_itself_in_the_same_groups() -> None:
    net, x = mlp(5, 32, 32, 1, activation=nn.ReLU, gain=2.0), random_points(120, 5)
    groups = (x[:, 0] > 0).long().numpy()
    for smooth, step in ((Step(0.3), 0.3), ("auto", 0.5), (7.0, 0.5)):
        result = explain_point_quietly(net, x, groups=groups, scale="std", smooth=smooth)
        table = point_explainer(net, smooth=smooth).stability(result, x, pairs=4, progress=False)
        other = explain_point_quietly(net, x, groups=groups, scale="std", engine=geh.engines.Difference(step=step))
        for row in table.itertuples():
            pair = other.pair(row.unit_i, row.unit_j)
            assert row.difference == pytest.approx(other.geh.pair_mean[pair], rel=1e-12)


def test_the_beta_of_a_number_is_doubled_and_halved() -> None:
    net, x = mlp(4, 16, 1, activation=nn.ReLU, gain=2.0), random_points(60, 4)
    result = explain_point_quietly(net, x, groups=1, smooth=6.0)
    table = point_explainer(net, smooth=6.0).stability(result, x, pairs=6, progress=False)
    sharper = explain_point_quietly(net, x, groups=1, smooth=12.0)
    np.testing.assert_allclose(np.sort(table["score_sharper"]), np.sort(sharper.geh.pair_mean), rtol=1e-12)
    assert table["keeps_place"].all()


def test_a_smooth_network_has_no_sharpness() -> None:
    net, x = mlp(4, 8, 1, activation=nn.Tanh), random_points(30, 4)
    result = explain_point_quietly(net, x, groups=1)
    with pytest.raises(geh.GEHError, match="nothing was smoothed"):
        point_explainer(net).stability(result, x, progress=False)


def test_the_network_is_explained_without_draws() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 1)).double()
    explainer, x = geh.GEHExplainer(net), random_points(80, 4)
    result = explainer.explain(x, groups=1, draws=5, progress=False)
    table = explainer.stability(result, x, pairs=6, progress=False)
    point = explain_point_quietly(net.eval(), x, groups=1)
    np.testing.assert_allclose(table["score"], np.sort(point.geh.pair_mean)[::-1], rtol=1e-12)


def test_sharper_is_twice_the_sharpness_of_auto_also_where_its_lower_bound_acts() -> None:
    # "auto" is sharper than a step of 0.5 here, so that a step of 0.25 was softer than "auto" itself.
    net, x = mlp(2, 16, 16, 1, activation=nn.ReLU, gain=2.0), random_points(60, 2)
    result = explain_point_quietly(net, x, groups=1)
    softer = explain_point_quietly(net, x, groups=1, smooth=Step(0.5))
    assert result.settings["smoothed"]["beta"][0] > 1.5 * softer.settings["smoothed"]["beta"][0]
    table = point_explainer(net).stability(result, x, progress=False)
    assert table["score"][0] == pytest.approx(result.geh.pair_mean[0], rel=1e-12)
    for suffix, factor in (("_sharper", 2.0), ("_softer", 0.5)):
        other = explain_point_quietly(net, x, groups=1, smooth=Sharpened("auto", factor))
        np.testing.assert_allclose(
            other.settings["smoothed"]["beta"], factor * np.array(result.settings["smoothed"]["beta"]), rtol=1e-12
        )
        assert table[f"score{suffix}"][0] == pytest.approx(other.geh.pair_mean[0], rel=1e-12)


def test_a_result_of_another_sharpness_is_refused() -> None:
    net, x = mlp(4, 16, 1, activation=nn.ReLU, gain=2.0), random_points(60, 4)
    result = explain_point_quietly(net, x, groups=1, smooth=Step(2.0))
    with pytest.raises(geh.GEHError, match=r"smoothed by smooth='Step\(size=2.0\)', and this explainer has"):
        point_explainer(net).stability(result, x, progress=False)


def test_a_number_of_numpy_is_a_sharpness() -> None:
    net, x = mlp(4, 16, 1, activation=nn.ReLU, gain=2.0), random_points(60, 4)
    expected = explain_point_quietly(net, x, groups=1, smooth=6.0)
    for number in (np.float32(6), np.int64(6)):
        explainer = point_explainer(net, smooth=number)
        result = explainer.explain(x, groups=1, progress=False)
        np.testing.assert_array_equal(result.geh.pair_mean, expected.geh.pair_mean)
        assert len(explainer.stability(result, x, progress=False)) == 6
