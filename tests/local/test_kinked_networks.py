"""Accounts of networks with kinks: closed forms, completeness, and the data that set the sharpness."""

import warnings

import numpy as np
import pytest
import torch
from explaining import point_explainer, random_points
from reference_accounts import relu_account
from torch import nn

import geh_explain as geh


def relu_net(inputs=5, width=40, depth=1, seed=0):
    torch.manual_seed(seed)
    layers = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1)).double()


def exact(net, x, b):
    return relu_account(net[0].weight.detach(), net[0].bias.detach(), net[2].weight.detach()[0], x, b)


def test_the_closed_form_is_complete():
    net, (x, b) = relu_net(), random_points(2, 5)
    assert exact(net, x, b).sum() == pytest.approx((net(x[None]) - net(b[None])).item())


def crossing_net(x, b, width=30):
    """Return a network each of whose units crosses its kink on the path from ``b`` to ``x``, none at a flat angle."""
    net = relu_net(width=width)
    d = x - b
    with torch.no_grad():
        net[0].weight += torch.where(torch.arange(width) % 2 == 0, 1.0, -1.0)[:, None] * 3 * d / d.norm() ** 2
        crossing = torch.linspace(0.05, 0.95, width, dtype=torch.double)
        net[0].bias.copy_(-(net[0].weight * (b + crossing[:, None] * d)).sum(1))
    return net


def test_sharp_smoothing_approaches_the_closed_form():
    x, b = random_points(2, 5)
    net = crossing_net(x, b)
    expected = exact(net, x, b)
    errors = []
    for beta in (10.0, 100.0):
        local = point_explainer(net, smooth=beta).explain_row(x, baseline=b, progress=False)
        errors.append(np.abs(local.matrix - expected).max() / np.abs(expected).max())
    assert errors[1] < 0.01
    assert errors[1] < errors[0] / 5


def test_main_effects_and_pairs_of_a_unit_sum_to_integrated_gradients_of_the_network_itself():
    net, data = relu_net(), random_points(100, 5)
    x, b = random_points(2, 5, seed=1)
    local = point_explainer(net).explain_row(x, baseline=b, data=data, progress=False)
    gradients = exact(net, x, b).sum(axis=1)
    np.testing.assert_allclose(local.matrix.sum(axis=1), gradients, rtol=0, atol=0.01 * np.abs(gradients).max())


@pytest.mark.parametrize("depth", [1, 3])
def test_less_than_one_per_cent_is_left_over(depth):
    data = random_points(200, 5)
    explainer = point_explainer(relu_net(depth=depth))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)  # smoothing changes an untrained deep network much
        accounts = explainer.explain_row(random_points(8, 5, seed=1), data=data, progress=False)
    for local in accounts:
        assert local.remainder_share < 0.01
        assert local.smoothed["functions"] == ["relu"]
        total = local.reference + local.main["mean"].sum() + local.pairs["mean"].sum() + local.remainder
        assert total == pytest.approx(local.prediction)


def test_max_pooling_and_probabilities_are_complete_too():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)).double()
    data = random_points(30, 1, 6, 6)
    explainer = point_explainer(net, units=geh.units.Patches(3), output="probability")
    local = explainer.explain_row(random_points(1, 1, 6, 6, seed=1), 1, data=data, progress=False)
    assert local.remainder_share < 0.01


def test_the_sharpness_comes_from_the_data_and_never_from_the_rows():
    net, data = relu_net(depth=2), random_points(100, 5)
    explainer = point_explainer(net)
    row, wide = random_points(1, 5, seed=1), 50 * random_points(5, 5, seed=2)
    alone = explainer.explain_row(row, data=data, progress=False)
    together = explainer.explain_row(torch.cat([wide, row]), data=data, progress=False)[5]
    np.testing.assert_allclose(together.matrix, alone.matrix, rtol=0, atol=1e-12 * np.abs(alone.matrix).max())
    other = explainer.explain_row(row, data=data / 20, baseline=data.mean(0), progress=False)
    assert other.smoothed["beta"][0] > 2 * alone.smoothed["beta"][0]


def test_data_are_required_where_the_sharpness_depends_on_them():
    net, row = relu_net(), random_points(1, 5)
    with pytest.raises(geh.GEHError, match=r"relu.*pass data=.*explain\(\.\.\.\)"):
        point_explainer(net).explain_row(row, baseline=0, progress=False)
    explainer = point_explainer(net)
    data = random_points(50, 5)
    explainer.explain(data, groups=1, progress=False)
    remembered = explainer.explain_row(row, progress=False)
    given = point_explainer(net).explain_row(row, data=data, progress=False)
    np.testing.assert_array_equal(remembered.matrix, given.matrix)
    assert point_explainer(net, smooth=200.0).explain_row(row, baseline=0, progress=False).smoothed["beta"] == [
        200.0,
        200.0,
    ]


def test_smoothing_that_changes_the_output_is_warned_of():
    net, data = relu_net(), random_points(50, 5)
    with pytest.warns(geh.GEHWarning, match=r"smoothing the kinks \(relu\) changes the difference"):
        local = point_explainer(net, smooth=0.5).explain_row(random_points(1, 5, seed=3), data=data, progress=False)
    assert local.smoothed["change"] > 0.25
    assert local.remainder_share < 0.01


def test_kinks_that_are_not_smoothed_leave_a_remainder_that_is_warned_of():
    net, data = relu_net(), random_points(50, 5)
    with pytest.warns(geh.GEHWarning, match=r"remainder: .* is left over, because the output has jumps or kinks"):
        local = point_explainer(net, smooth=None).explain_row(random_points(1, 5, seed=3), data=data, progress=False)
    assert (local.pairs["mean"] == 0).all()
    assert local.remainder_share > 0.01
