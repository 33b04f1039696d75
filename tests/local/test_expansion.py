"""Second-order expansions around rows: value, gradient and Hessian, and how well they fit within a ball."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from networks import mlp
from torch import Tensor, nn

import geh_explain as geh
from geh_explain.captum import InputHessian, LayerHessian
from geh_explain.engines import Radius, Step


def points(n: int, d: int, seed: int = 1) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def test_a_smooth_network_has_its_own_value_gradient_and_hessian() -> None:
    net, x = mlp(4, 12, 2, activation=nn.Tanh).double(), points(5, 4)
    found = InputHessian(net).expand(x, target=1)
    for row, value, gradient, hessian in zip(x, found.value, found.gradient, found.hessian, strict=True):
        f = lambda u: net(u[None])[0, 1]  # noqa: E731
        torch.testing.assert_close(value, f(row).detach(), rtol=0, atol=1e-12)
        torch.testing.assert_close(gradient, torch.autograd.functional.jacobian(f, row), rtol=0, atol=1e-12)
        torch.testing.assert_close(hessian, torch.autograd.functional.hessian(f, row), rtol=0, atol=1e-12)
    assert found.radius.isnan().all()


def test_off_the_diagonal_an_expansion_has_the_hessian_of_attribute() -> None:
    net, x = mlp(4, 16, 8, 1, activation=nn.ReLU).double(), points(5, 4)
    for smooth in (Radius(0.5), 5.0, "auto"):
        method = InputHessian(net, smooth=smooth)
        found = method.expand(x).hessian
        expected = method.attribute(x)
        off = ~torch.eye(4, dtype=torch.bool)
        torch.testing.assert_close(found[:, off], expected[:, off], rtol=0, atol=1e-10)


def test_one_kink_has_the_closest_quadratic_function_through_the_value() -> None:
    # Weighted least squares of f(x + d) - f(x) on d and d^2 / 2, d normal, by a fine rule.
    sigma, nodes = 0.4, torch.linspace(-9, 9, 20001, dtype=torch.double)
    weights = torch.softmax(-(nodes**2) / 2, 0)
    d = sigma * nodes
    design = torch.stack([d, d**2 / 2], dim=1)
    for x in (-0.5, 0.0, 0.2):
        change = (x + d).clamp_min(0) - max(x, 0.0)
        expected = torch.linalg.solve(design.T @ (weights[:, None] * design), design.T @ (weights * change))
        found = InputHessian(torch.relu, smooth=Radius(sigma=sigma)).expand(torch.tensor([[x]], dtype=torch.double))
        torch.testing.assert_close(found.gradient[0, 0], expected[0], rtol=0, atol=1e-6)
        torch.testing.assert_close(found.hessian[0, 0, 0], expected[1], rtol=0, atol=1e-6)
        assert float(found.radius) == pytest.approx(sigma * math.sqrt(3))


def test_many_kinks_of_one_layer_have_the_same_closest_function() -> None:
    # Sampled least squares: 3 linear and 6 quadratic terms.
    net, x, sigma = mlp(3, 12, 1, activation=nn.ReLU).double(), points(1, 3), 0.5
    d = sigma * points(200_000, 3, seed=3)
    d = torch.cat([d, -d])
    i, j = torch.triu_indices(3, 3)
    with torch.no_grad():
        change = (net(x + d) - net(x))[:, 0]
    products = d[:, i] * d[:, j] * torch.where(i == j, 0.5, 1.0)
    fitted = torch.linalg.lstsq(torch.cat([d, products], dim=1), change[:, None]).solution[:, 0]
    found = InputHessian(net, smooth=Radius(sigma=sigma)).expand(x)
    torch.testing.assert_close(found.gradient[0], fitted[:3], rtol=0, atol=0.003)
    torch.testing.assert_close(found.hessian[0, i, j], fitted[3:], rtol=0, atol=0.02)


def test_a_smooth_output_adds_no_change_of_its_own_to_the_diagonal() -> None:
    # tanh is not smoothed: where no kink is near, the expansion is that of the network itself.
    x = torch.tensor([[2.0, 1.0]], dtype=torch.double)
    found = InputHessian(lambda x: torch.tanh(torch.relu(x).sum(1)), smooth=Radius(sigma=0.05)).expand(x)
    expected = torch.autograd.functional.hessian(lambda u: torch.tanh(u.sum()), x[0])
    torch.testing.assert_close(found.hessian[0], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("smooth", [Radius(0.3), Radius(1.0), "auto"])
def test_the_expansion_is_better_than_the_gradient_within_its_ball(smooth: Any) -> None:
    net, x = mlp(10, 64, 64, 1, activation=nn.ReLU, gain=2.0).double(), points(20, 10)
    found, gradient = InputHessian(net, smooth=smooth).expand(x), InputHessian(net, smooth=None).expand(x)
    d = points(20 * 400, 10, seed=4).reshape(20, 400, 10)
    lengths = torch.rand(20, 400, 1, generator=torch.Generator().manual_seed(5)) ** 0.1
    d *= found.radius[:, None, None] * lengths / d.norm(dim=2, keepdim=True)
    with torch.no_grad():
        values = net((x[:, None] + d).flatten(0, 1)).reshape(20, 400)
    errors = [float((expansion.predict(d) - values).square().mean()) for expansion in (found, gradient)]
    assert errors[0] < 0.4 * errors[1]


def test_padding_of_a_pool_changes_no_expansion() -> None:
    # The same windows without padding, by maxima over their own entries.
    x = points(3, 25).reshape(3, 1, 5, 5).abs() + 1
    conv = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Softplus()).double()
    head = nn.Sequential(nn.Flatten(), nn.Linear(8, 1), nn.Tanh()).double()
    padded, cropped = nn.MaxPool2d(3, 3, padding=1), nn.MaxPool2d(3, 3, ceil_mode=True)
    for pool in (padded, cropped):
        found = InputHessian(nn.Sequential(conv, pool, head), smooth=Radius(0.3)).expand(x)
        windows = [slice(0, 2), slice(2, 5)] if pool is padded else [slice(0, 3), slice(3, 5)]

        def parts(x: Tensor, windows: list[slice] = windows) -> Tensor:
            z = conv(x)
            return head(torch.stack([z[:, :, a, b].amax((2, 3)) for a in windows for b in windows], dim=2))

        expected = InputHessian(parts, smooth=Radius(0.3)).expand(x)
        for name in ("value", "gradient", "hessian"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=0, atol=1e-10)


def test_units_of_a_layer_are_expanded_as_inputs_of_what_is_above() -> None:
    net, x = mlp(3, 6, 12, 1, activation=nn.ReLU).double(), points(4, 3)
    found = LayerHessian(net, net[1], smooth=Radius(0.4)).expand(x)
    expected = InputHessian(net[2:], smooth=Radius(0.4)).expand(net[:2](x).detach())
    for name in ("value", "gradient", "hessian", "radius"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=0, atol=1e-10)


def test_shifts_of_another_shape_are_refused() -> None:
    found = InputHessian(lambda x: x.prod(1)).expand(points(3, 2))
    with pytest.raises(geh.GEHError, match=r"shifts has shape \(2, 2\); give \(3, 2\)"):
        found.predict(points(2, 2))


def test_engines_without_derivatives_are_refused() -> None:
    method = InputHessian(lambda x: x.prod(1), engine="difference", data=points(20, 2))
    with pytest.raises(geh.GEHError, match=r"engine='difference' has no derivatives"):
        method.expand(points(3, 2))


def test_a_path_has_no_radius() -> None:
    from geh_explain.captum import IntegratedHessian

    net = mlp(3, 6, 1, activation=nn.ReLU)
    with pytest.raises(geh.GEHError, match=r"smooth=Radius\(0.3\) smooths the network around one row"):
        IntegratedHessian(net, smooth=Radius(0.3)).attribute(points(2, 3).float())


def test_a_step_needs_a_reference() -> None:
    net = mlp(3, 6, 1, activation=nn.ReLU).double()
    with pytest.raises(geh.GEHError, match="pass data="):
        InputHessian(net, smooth=Step(0.5)).expand(points(2, 3))
    assert InputHessian(net, smooth=Step(0.5), data=points(30, 3)).expand(points(2, 3)).hessian.any()
