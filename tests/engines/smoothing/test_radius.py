"""Smoothing by a radius: bandwidths of each entry of each row, and the Hessians of the network smoothed by them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from explaining import explain_point_quietly, point_explainer
from torch import Tensor, nn

import geh_explain as geh
from geh_explain.captum import InputHessian, LayerHessian
from geh_explain.engines import Radius

SIGMA = 0.3


def ramp(x: Tensor, b: Tensor) -> Tensor:
    """E max(x + e, 0) for e normal with standard deviation b."""
    u = x / b
    return x * torch.special.ndtr(u) + b * torch.exp(-u * u / 2) / math.sqrt(2 * math.pi)


class PlainNetwork:
    """A ReLU network smoothed around one row, written plainly: bandwidths by the Jacobian of the layers before."""

    def __init__(self, layers: list[nn.Linear], row: Tensor, sigma: float) -> None:
        self.layers, self.row = layers, row
        self.bandwidths: list[Tensor] = []
        for number in range(len(layers) - 1):
            jacobian = torch.autograd.functional.jacobian(
                lambda t, n=number: self.entering(t, n), torch.zeros_like(row)
            )
            self.bandwidths.append(sigma * jacobian.norm(dim=1))

    def entering(self, t: Tensor, number: int) -> Tensor:
        z = self.layers[0](self.row + t)
        for layer, b in zip(self.layers[1 : number + 1], self.bandwidths, strict=False):
            z = layer(ramp(z, b))
        return z

    def __call__(self, t: Tensor) -> Tensor:
        return self.entering(t, len(self.layers) - 1)[0]


def mlp(*widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    modules: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        modules += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*modules[:-1]).double()


def points(n: int, d: int, seed: int = 1) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def plain_hessians(net: nn.Sequential, x: Tensor, sigma: float) -> Tensor:
    layers = [module for module in net if isinstance(module, nn.Linear)]
    found = [PlainNetwork(layers, row, sigma) for row in x]
    return torch.stack(
        [torch.autograd.functional.hessian(f, torch.zeros_like(row)) for f, row in zip(found, x, strict=True)]
    )


def off_diagonal(matrices: Tensor) -> Tensor:
    return matrices - torch.diag_embed(matrices.diagonal(dim1=1, dim2=2))


@pytest.mark.parametrize("engine", ["exact", "structured"])
def test_hessians_are_those_of_the_network_smoothed_plainly(engine: str) -> None:
    net, x = mlp(4, 20, 15, 1), points(6, 4)
    found = InputHessian(net, smooth=Radius(sigma=SIGMA), engine=engine).attribute(x)
    expected = off_diagonal(plain_hessians(net, x, SIGMA))
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_scores_are_means_of_these_hessians() -> None:
    net, x = mlp(4, 20, 15, 1), points(30, 4)
    expected = plain_hessians(net, x, SIGMA)
    i, j = torch.triu_indices(4, 4, 1)
    result = explain_point_quietly(net, x, groups=1, smooth=Radius(sigma=SIGMA))
    torch.testing.assert_close(
        torch.as_tensor(result.eah.pair_mean), expected[:, i, j].abs().mean(0), atol=1e-10, rtol=0
    )
    assert result.settings["smooth"] == f"Radius(sigma={SIGMA})"


def test_units_of_a_hidden_layer_move_the_layers_above_only() -> None:
    net, x = mlp(3, 5, 12, 8, 1), points(4, 3)
    found = LayerHessian(net, net[1], smooth=Radius(sigma=SIGMA)).attribute(x)
    expected = off_diagonal(plain_hessians(net[2:], net[:2](x).detach(), SIGMA))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_the_radius_of_a_ball_is_a_standard_deviation() -> None:
    # The mean square of one coordinate of a uniform ball of D dimensions is r^2 / (D + 2).
    net, x = mlp(4, 20, 1), points(3, 4)
    by_radius = InputHessian(net, smooth=Radius(0.5)).attribute(x)
    by_sigma = InputHessian(net, smooth=Radius(sigma=0.5 / math.sqrt(6))).attribute(x)
    torch.testing.assert_close(by_radius, by_sigma, rtol=0, atol=1e-12)


class Pooled(nn.Module):
    """Convolution, ReLU in place, max pooling and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.head = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu_(self.conv(x))
        return self.head(torch.max_pool2d(x, 3, 2, 1).flatten(1))


@pytest.mark.parametrize("smooth", [Radius(0.3), Radius()])
@pytest.mark.parametrize("make", [lambda: (mlp(4, 20, 15, 1), points(7, 4)), lambda: (Pooled().double(), images())])
def test_a_row_is_the_same_alone_and_beside_others(make: Any, smooth: Radius) -> None:
    net, x = make()
    method = InputHessian(net, smooth=smooth)
    together = method.attribute(x, target=0)
    alone = torch.cat([method.attribute(row[None], target=0) for row in x])
    beside = method.attribute(torch.cat([100 * x[1:], x[:1]]), target=0)[-1]
    assert together.abs().max() > 1e-3
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)
    torch.testing.assert_close(beside, together[0], rtol=0, atol=1e-12)


def test_entries_at_their_kinks_do_not_set_the_sigma_of_a_row() -> None:
    # Windows of zeros have equal entries: only the last one, of 1 and 3, is away from its kink, with the norm sqrt(2).
    x = torch.tensor([[[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0]]], dtype=torch.double)
    weights = torch.arange(1.0, 5.0, dtype=torch.double)
    found = InputHessian(lambda x: (torch.max_pool1d(x, 2) @ weights).tanh().flatten(), smooth=Radius()).expand(x)
    assert float(found.radius) == pytest.approx(0.6 / math.sqrt(4) * math.sqrt(2) * math.sqrt(8 + 2))
    assert found.hessian.abs().max() < 10


def test_a_row_at_all_kinks_of_the_first_call_takes_its_sigma_from_the_next() -> None:
    net = nn.Sequential(nn.ReLU(), *mlp(4, 12, 1)).double()
    x = torch.cat([torch.zeros(1, 4, dtype=torch.double), points(2, 4)])
    found = InputHessian(net).expand(x)
    for row, radius, hessian in zip(x, found.radius, found.hessian, strict=True):
        expected = InputHessian(net, smooth=Radius(float(radius))).expand(row[None]).hessian[0]
        torch.testing.assert_close(hessian, expected, rtol=0, atol=1e-10)
        assert 0 < expected.abs().max() < 100


def test_a_row_at_all_of_its_kinks_needs_a_radius() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8, bias=False), nn.ReLU(), nn.Linear(8, 1)).double()
    x = torch.cat([points(2, 3), torch.zeros(1, 3, dtype=torch.double)])
    for method in (InputHessian(net).attribute, InputHessian(net).expand):
        with pytest.raises(geh.GEHError, match=r"row 2 is at all of its kinks.*Radius\(radius\)"):
            method(x)
    assert InputHessian(net, smooth=Radius(0.5)).expand(x).hessian[2].abs().max() < 10


def images() -> Tensor:
    return points(5, 16).reshape(5, 1, 4, 4)


def test_windows_of_a_maximum_have_the_bandwidth_of_differences_of_their_entries() -> None:
    # The only window holds 3 x_0 and 4 x_1: their difference moves by 5 sigma.
    x = torch.tensor([[[0.4, 0.3]]], dtype=torch.double)
    weights = torch.tensor([3.0, 4.0], dtype=torch.double)
    found = InputHessian(lambda x: torch.max_pool1d(x * weights, 2).flatten(1), smooth=Radius(sigma=SIGMA)).attribute(x)
    beta = math.pi / math.sqrt(3) / (5 * SIGMA)
    expected = torch.autograd.functional.hessian(
        lambda t: torch.logsumexp(beta * (x[0, 0] + t) * weights, 0) / beta, torch.zeros(2, dtype=torch.double)
    )
    torch.testing.assert_close(found[0], off_diagonal(expected[None])[0], rtol=0, atol=1e-10)


def test_engines_agree_on_convolutions_and_pooling() -> None:
    net, x = Pooled().double(), images()
    found = [InputHessian(net, smooth=Radius(0.4), engine=e).attribute(x, target=1) for e in ("exact", "structured")]
    assert found[0].abs().max() > 1e-3
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-10)


FUNCTIONS = {
    "leaky_relu": lambda z: nn.functional.leaky_relu(z, 0.1),
    "relu6": lambda z: nn.functional.relu6(z + 5.5),
    "hardtanh": nn.functional.hardtanh,
    "abs": torch.abs,
    "clamp": lambda z: z.clamp(-0.5, 0.7),
    "clamp_min": lambda z: z.clamp_min(0.1),
    "hardsigmoid": lambda z: nn.functional.hardsigmoid(4 * z),
    "hardswish": lambda z: nn.functional.hardswish(4 * z),
    "hardshrink": lambda z: nn.functional.hardshrink(z, 0.3),
    "softshrink": nn.functional.softshrink,
    "threshold": lambda z: nn.functional.threshold(z, 0.1, -0.2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_elementwise_forms_are_means_over_normal_inputs(name: str) -> None:
    # z = w x is normal for normal x, so that the smooth form is the mean of the function itself.
    function, w, x = FUNCTIONS[name], torch.tensor([0.6, -0.8], dtype=torch.double), points(4, 2)
    found = InputHessian(lambda x: function((x * w).sum(1)), smooth=Radius(sigma=SIGMA)).expand(x)
    nodes = torch.linspace(-9, 9, 90001, dtype=torch.double)
    weights = torch.softmax(-(nodes**2) / 2, 0)
    moved = function((x @ w)[:, None] + SIGMA * nodes)
    # Stein's identity: the means of both derivatives from values alone.
    slope = (moved * nodes) @ weights / SIGMA
    curvature = (moved * (nodes**2 - 1)) @ weights / SIGMA**2
    torch.testing.assert_close(found.gradient, slope[:, None] * w, rtol=0, atol=1e-3)
    torch.testing.assert_close(found.hessian[:, 0, 1], curvature * w[0] * w[1], rtol=0, atol=5e-3)


def test_a_maximum_of_two_tensors_has_the_bandwidth_of_their_difference() -> None:
    x = points(4, 2)
    found = InputHessian(lambda x: torch.maximum(3 * x[:, 0], -4 * x[:, 1]), smooth=Radius(sigma=SIGMA)).attribute(x)
    b = 5 * SIGMA
    u = (3 * x[:, 0] + 4 * x[:, 1]) / b
    expected = 12 * torch.exp(-u * u / 2) / math.sqrt(2 * math.pi) / b
    torch.testing.assert_close(found[:, 0, 1], expected, rtol=0, atol=1e-10)


def test_a_function_without_forward_derivative_is_measured_by_differences() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Tensor:
            return 2 * gradients[0]

    net, x = mlp(4, 20, 15, 1), points(5, 4)
    other = nn.Sequential(net[0], net[1], net[2], net[3], net[4])
    found = InputHessian(lambda x: other(Double.apply(x) / 2), smooth=Radius(sigma=SIGMA)).attribute(x)
    torch.testing.assert_close(found, off_diagonal(plain_hessians(net, x, SIGMA)), rtol=0, atol=1e-5)


def test_many_units_take_random_directions_close_to_all() -> None:
    net, x = mlp(200, 30, 1), points(3, 200)
    found = InputHessian(net, smooth=Radius(sigma=0.05)).attribute(x)
    expected = off_diagonal(plain_hessians(net, x, 0.05))
    assert float((found - expected).norm() / expected.norm()) < 0.2


def test_draws_of_dropout_are_smoothed_each() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    x = points(20, 3).float()
    explainer = geh.GEHExplainer(net, smooth=Radius(0.4), posterior=geh.posterior.MCDropout())
    found = [explainer.explain(x, groups=1, draws=4, progress=False, batch_size=size).geh.draws for size in (None, 3)]
    assert found[0].std(axis=0).max() > 0
    torch.testing.assert_close(*map(torch.as_tensor, found), rtol=1e-4, atol=1e-6)


def test_stability_halves_and_doubles_the_radius() -> None:
    net, x = mlp(3, 16, 1), points(40, 3)
    explainer = point_explainer(net, smooth=Radius(0.4))
    result = explainer.explain(x, groups=1, progress=False)
    table = explainer.stability(result, x, pairs=2, progress=False)
    for suffix, radius in (("", 0.4), ("_softer", 0.8), ("_sharper", 0.2)):
        other = explain_point_quietly(net, x, groups=1, smooth=Radius(radius))
        for row in table.itertuples():
            score = other.geh.pair_mean[other.pair(row.unit_i, row.unit_j)]
            assert getattr(row, f"score{suffix}") == pytest.approx(score, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radius": 1.0, "sigma": 1.0}, "give one of them"),
        ({"radius": 0}, "Radius: radius=0"),
        ({"sigma": -1.0}, r"Radius: sigma=-1\.0"),
        ({"radius": "wide"}, "Radius: radius='wide'"),
    ],
)
def test_wrong_radii_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(geh.GEHError, match=message):
        Radius(**arguments)


def test_models_that_hide_their_rows_are_refused() -> None:
    net = mlp(3, 16, 1)
    with pytest.raises(geh.GEHError, match="no dimension of rows"):
        InputHessian(lambda x: torch.vmap(net)(x), smooth=Radius(0.3)).attribute(points(4, 3))


def test_the_record_has_sigma_and_a_warning_names_a_smaller_one() -> None:
    net, x = mlp(3, 16, 1), points(30, 3)
    explainer = point_explainer(net, smooth=Radius(sigma=5.0))
    with pytest.warns(geh.GEHWarning, match=r"pass smooth=geh_explain.engines.Radius\(sigma=2.5\)"):
        result = explainer.explain(x, groups=1, progress=False)
    assert result.settings["smoothed"]["sigma"] == 5.0
    own = explain_point_quietly(net, x, groups=1, smooth=Radius()).settings["smoothed"]
    layer = net[0]
    distances = (layer(x) / layer.weight.norm(dim=1)).abs().detach()
    # 0.6 / sqrt(16) of the median distance to the kinks; torch takes the lower median.
    assert own["sigma"] == pytest.approx(float((0.15 * distances.median(dim=1).values).mean()))


def test_wide_layers_leave_out_units_away_from_their_kinks(monkeypatch: pytest.MonkeyPatch) -> None:
    from geh_explain.engines.structured import program
    from geh_explain.engines.structured.rules import linear

    taken = []
    for module, name in ((program, "_without_zeros"), (linear, "_product_without_zeros")):
        function = getattr(module, name)

        def recorded(*args: Any, function: Any = function, name: str = name) -> Any:
            found = function(*args)
            shortened = found is not None and (not isinstance(found, tuple) or found[1].shape != args[1].shape)
            taken.extend([name] * shortened)
            return found

        monkeypatch.setattr(module, name, recorded)
    net, x = mlp(300, 256, 64, 1), points(2, 300)
    net[2].bias.data -= 0.5
    found = {e: InputHessian(net, smooth=Radius(0.3), engine=e).attribute(x) for e in ("exact", "structured")}
    assert set(taken) == {"_without_zeros", "_product_without_zeros"}
    assert found["exact"].abs().max() > 1e-5
    torch.testing.assert_close(found["structured"], found["exact"], rtol=0, atol=1e-12)
