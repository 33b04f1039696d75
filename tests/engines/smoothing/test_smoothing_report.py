"""The report of smoothing in ``result.settings["smoothed"]``, which batches and the order of rows do not change."""

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_point, explain_point_quietly, random_points
from kinked_functions import doubles, image_net
from networks import mlp
from reference import local_hessians
from reference_scores import CLOSE
from torch import Tensor, nn

import geh_explain as geh

# The report.


def test_the_report_is_what_a_hand_computation_gives() -> None:
    net, x = mlp(4, 16, 12, 3, activation=nn.ReLU, gain=2.0), random_points(80, 4)
    result = explain_point_quietly(net, x, 1, smooth=3.0)
    with torch.no_grad():
        smooth = net[4](F.softplus(net[2](F.softplus(net[0](x), 3.0)), 3.0))
        plain = net(x)
    change = float((smooth - plain)[:, 1].abs().mean())
    smoothed = result.settings["smoothed"]
    assert smoothed["functions"] == {"relu": 2}
    assert smoothed["beta"] == [3.0, 3.0]
    assert smoothed["step"] is None
    np.testing.assert_allclose(smoothed["mean_change"], change, rtol=1e-10)
    np.testing.assert_allclose(smoothed["relative_change"], change / float(plain[:, 1].std(correction=0)), rtol=1e-10)
    assert smoothed["argmax_agreement"] == float((smooth.argmax(1) == plain.argmax(1)).double().mean())
    assert result.settings["smooth"] == 3.0


def test_of_many_points_every_third_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = mlp(4, 16, 12, 3, activation=nn.ReLU, gain=2.0), random_points(80, 4)
    monkeypatch.setattr("geh_explain.engines.smoothing.change._MAX_COMPARED", 30)
    result = explain_point_quietly(net, x, 1, smooth=3.0, batch_size=7)
    with torch.no_grad():
        smooth = net[4](F.softplus(net[2](F.softplus(net[0](x), 3.0)), 3.0))[::3]
        plain = net(x)[::3]
    smoothed = result.settings["smoothed"]
    np.testing.assert_allclose(smoothed["mean_change"], float((smooth - plain)[:, 1].abs().mean()), rtol=1e-10)
    np.testing.assert_allclose(smoothed["output_std"], float(plain[:, 1].std(correction=0)), rtol=1e-10)
    assert smoothed["argmax_agreement"] == float((smooth.argmax(1) == plain.argmax(1)).double().mean())


def test_the_report_counts_each_row_by_its_own_target() -> None:
    net, x = mlp(4, 16, 3, activation=nn.ReLU, gain=2.0), random_points(30, 4)
    target = torch.arange(30) % 3
    smoothed = explain_point_quietly(net, x, target, smooth=2.0, batch_size=7).settings["smoothed"]
    with torch.no_grad():
        change = net[2](F.softplus(net[0](x), 2.0)) - net(x)
    expected = float(change[torch.arange(30), target].abs().mean())
    np.testing.assert_allclose(smoothed["mean_change"], expected, rtol=1e-12)


def test_the_arg_max_of_some_points_may_change() -> None:
    net, x = mlp(4, 16, 3, activation=nn.ReLU, gain=2.0), random_points(200, 4)
    with torch.no_grad():
        agree = net[2](F.softplus(net[0](x), 0.2)).argmax(1) == net(x).argmax(1)
    share = float(agree.double().mean())
    assert 0 < share < 0.95
    with pytest.warns(geh.GEHWarning, match=f"the arg max agrees on {share:.0%} of the points"):
        result = explain_point(net, x, 0, smooth=0.2)
    assert result.settings["smoothed"]["argmax_agreement"] == share


def test_one_output_has_no_arg_max() -> None:
    smoothed = explain_point(mlp(4, 16, 1, activation=nn.ReLU, gain=2.0), random_points(50, 4)).settings["smoothed"]
    assert smoothed["argmax_agreement"] is None
    assert 0 < smoothed["relative_change"] < 0.1


def test_a_function_called_twice_is_counted_twice_and_judged_by_what_enters_each_time() -> None:
    relu = nn.ReLU()
    net = nn.Sequential(nn.Linear(3, 8), relu, nn.Linear(8, 8), relu, nn.Linear(8, 1)).double()
    with torch.no_grad():
        net[2].weight.mul_(10.0)
    x = random_points(50, 3)
    smoothed = explain_point_quietly(net, x).settings["smoothed"]
    assert smoothed["functions"] == {"relu": 2}
    # The second call takes ten times larger values, which move ten times as far.
    low, high = smoothed["beta"]
    assert high > 2 * low


def test_a_beta_too_small_to_keep_the_function_warns_and_a_large_one_does_not() -> None:
    net, x = mlp(4, 16, 1, activation=nn.ReLU, gain=2.0), random_points(100, 4)
    with pytest.warns(geh.GEHWarning, match=r"smoothing the kinks \(relu\) changed the output by \d+% of its spread"):
        blunt = explain_point(net, x, smooth=0.1)
    assert blunt.settings["smoothed"]["relative_change"] > 0.1
    assert any("smoothing the kinks" in note for note in blunt.settings["warnings"])
    for smooth in ("auto", 50.0):
        fine = explain_point(net, x, smooth=smooth)  # a warning would be an error here
        assert fine.settings["smoothed"]["relative_change"] < 0.1
        assert fine.settings["warnings"] == []


# Batches and order of rows.


@pytest.mark.parametrize("batch_size", [1, 7, 40])
def test_the_size_of_batches_changes_nothing(batch_size: int) -> None:
    net = image_net()
    x = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    expected = explain_point_quietly(net, x, 1, layer="0")
    parts = explain_point_quietly(net, x, 1, layer="0", batch_size=batch_size)
    assert expected.eah.mean.max() > 1e-4
    np.testing.assert_allclose(parts.geh.mean, expected.geh.mean, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(parts.eah.mean, expected.eah.mean, rtol=1e-10, atol=1e-14)
    for key in ("beta", "mean_change", "relative_change"):
        np.testing.assert_allclose(parts.settings["smoothed"][key], expected.settings["smoothed"][key], rtol=1e-12)
    assert parts.settings["smoothed"]["functions"] == expected.settings["smoothed"]["functions"]


def test_a_loader_gives_the_same_as_its_tensor() -> None:
    net, x = mlp(4, 16, 1, activation=nn.ReLU, gain=2.0), random_points(50, 4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=8)
    np.testing.assert_allclose(explain_point(net, loader).geh.mean, explain_point(net, x).geh.mean, rtol=1e-10)


def test_the_order_of_rows_changes_nothing() -> None:
    net, x = mlp(4, 16, 8, 1, activation=nn.ReLU, gain=2.0), random_points(60, 4)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 3
    result = explain_point(net, x, groups=labels)
    shuffled = explain_point(net, x[order], groups=labels[order])
    np.testing.assert_allclose(shuffled.geh.mean, result.geh.mean, rtol=1e-10)
    np.testing.assert_allclose(shuffled.signed, result.signed, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(shuffled.settings["smoothed"]["beta"], result.settings["smoothed"]["beta"], rtol=1e-12)


@pytest.mark.parametrize("smooth", ["auto", 5.0])
@pytest.mark.parametrize("first", ["dropout", "relu"])
def test_with_dropout_each_draw_is_one_mask_of_the_smoothed_network(first: str, smooth: Any) -> None:
    """Every row has its own group, so that a draw shows each row's Hessian: one mask in eight explains them all."""
    torch.manual_seed(0)
    parts = [nn.Dropout(0.4), nn.ReLU()] if first == "dropout" else [nn.ReLU(), nn.Dropout(0.4)]
    net = nn.Sequential(nn.Linear(3, 3), *parts, nn.Linear(3, 1)).double().eval()
    x = random_points(10, 3)
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.MCDropout(), smooth=smooth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        result = explainer.explain(x, groups=torch.arange(10), draws=12, progress=False, batch_size=4)
    beta = result.settings["smoothed"]["beta"][0]
    if smooth == "auto":
        np.testing.assert_allclose(beta, 10 / float(net[0](x).detach().std(correction=0)), rtol=1e-12)

    def masked(mask: Tensor) -> np.ndarray:
        def model(x: Tensor) -> Tensor:
            h = net[0](x)
            h = F.softplus(h * mask, beta) if first == "dropout" else F.softplus(h, beta) * mask
            return net[-1](h)[:, 0]

        first_unit, second_unit = np.triu_indices(3, 1)
        return local_hessians(model, x)[:, first_unit, second_unit]

    masks = [doubles(*keep) / 0.6 for keep in product((0.0, 1.0), repeat=3)]
    expected = np.stack([masked(mask) for mask in masks])  # (8, rows, pairs)
    matches = np.abs(result.signed[:, None] - expected).max(axis=(2, 3)) < CLOSE  # (draws, 8)
    assert (matches.sum(axis=1) == 1).all()
    assert matches.any(axis=0).sum() >= 3  # different draws, different masks
