"""Steps: the sharpness of smoothed kinks follows from how far their inputs move while units change by one step."""

import itertools

import numpy as np
import pytest
import torch
from explaining import explain_point, explain_point_quietly, point_explainer, random_points
from networks import mlp
from torch import Tensor, nn

import geh_explain as geh
from geh_explain.engines import Step
from geh_explain.model.unit_values import UnitMoments, limited_std


class Residual(nn.Module):
    """A stack of residual blocks with ReLU, as deep vision networks have."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)) for _ in range(blocks)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return torch.as_tensor(self.head(x.relu()))


def deep_network(seed: int, width: int = 8) -> Residual:
    torch.manual_seed(seed)
    net = Residual(width, 12).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1.5)
    return net


@torch.no_grad()
def central_differences(net: nn.Module, x: Tensor, size: float) -> np.ndarray:
    """Return the mean mixed differences of all pairs, between two units moved up and down by ``size`` deviations."""
    steps = size * torch.diag(x.std(dim=0, correction=0))
    pairs = itertools.combinations(range(x.shape[1]), 2)
    return np.array(
        [
            sum(a * b * net(x + a * steps[i] + b * steps[j]).mean() for a in (1, -1) for b in (1, -1))
            / (4 * steps[i, i] * steps[j, j])
            for i, j in pairs
        ]
    )


@pytest.mark.parametrize("size", [0.25, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_scores_of_a_deep_network_are_mixed_differences_of_the_network_itself(seed: int, size: float) -> None:
    net, x = deep_network(seed), random_points(200, 8, seed=seed)
    expected = central_differences(net, x, size)
    result = explain_point_quietly(net, x, groups=1, smooth=Step(size))
    signed = result.signed[0, 0]
    assert np.corrcoef(signed, expected)[0, 1] > 0.95
    assert signed @ expected / (expected @ expected) == pytest.approx(1, abs=0.15)


def test_auto_is_a_step_of_three_quarters_at_layers_of_many_units() -> None:
    net = nn.Sequential(nn.Linear(8, 64), deep_network(0, width=64)).double()
    auto, step = (
        explain_point_quietly(net, random_points(64, 8), layer="0", groups=1, smooth=smooth)
        for smooth in ("auto", Step(0.75))
    )
    assert auto.settings["smoothed"]["step"] == 0.75
    np.testing.assert_allclose(auto.geh.pair_mean, step.geh.pair_mean, rtol=1e-9)


def test_auto_is_at_least_ten_over_the_standard_deviation_of_what_enters() -> None:
    net, x = mlp(2, 16, 1, activation=nn.ReLU, gain=2.0), random_points(80, 2)
    beta = 10 / float(net[0](x).detach().std(correction=0))
    low, high = explain_point(net, x).settings["smoothed"]["beta"]
    assert low >= beta * (1 - 1e-12)
    assert explain_point_quietly(net, x, smooth=Step(0.5)).settings["smoothed"]["beta"][0] < high


def test_one_point_has_no_standard_deviation() -> None:
    net, x = mlp(3, 16, 1, activation=nn.ReLU, gain=2.0), random_points(1, 3)
    with pytest.raises(geh.GEHError, match=r"smooth=Step\(size=0.5\): a step is measured in standard deviations"):
        point_explainer(net, smooth=Step()).explain(x, groups=1, progress=False)
    beta = 10 / float(net[0](x).detach().std(correction=0))
    result = explain_point_quietly(net, x, groups=1)
    np.testing.assert_allclose(result.settings["smoothed"]["beta"], [beta, beta], rtol=1e-12)


def test_units_that_do_not_vary_do_not_move() -> None:
    torch.manual_seed(0)
    net, x = mlp(3, 16, 1, activation=nn.ReLU, gain=2.0), random_points(64, 3)
    constant = torch.cat([x, torch.full((64, 1), 2.0, dtype=torch.double)], dim=1)
    wide = nn.Sequential(nn.Linear(4, 3, bias=False), *net).double()
    with torch.no_grad():
        wide[0].weight.copy_(torch.eye(3, 4))
        first, second = (explain_point_quietly(f, a, smooth=Step(0.4)) for f, a in ((net, x), (wide, constant)))
    np.testing.assert_allclose(second.settings["smoothed"]["beta"], first.settings["smoothed"]["beta"], rtol=0.1)


def test_the_order_of_the_rows_does_not_matter() -> None:
    net, x = mlp(5, 16, 16, 1, activation=nn.ReLU, gain=2.0), random_points(50, 5)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    first, second = (explain_point_quietly(net, rows, groups=1) for rows in (x, x[order]))
    np.testing.assert_allclose(second.geh.mean, first.geh.mean, rtol=1e-9)


@pytest.mark.parametrize("size", [0, -1.0, float("nan"), "half", None])
def test_a_step_that_is_no_positive_number_is_refused(size: object) -> None:
    with pytest.raises(geh.GEHError, match="Step: size="):
        Step(size)  # type: ignore[arg-type]


def test_a_hidden_layer_moves_by_its_own_standard_deviations() -> None:
    net, x = mlp(4, 12, 12, 1, activation=nn.ReLU, gain=2.0), random_points(64, 4)
    result = explain_point_quietly(net, x, layer="1", groups=1, smooth=Step(0.5))
    with torch.no_grad():
        hidden = net[:2](x)
        squares = (net[2].weight * hidden.std(dim=0, correction=0)).square().mean(dim=1) * 2 * 0.5**2
    beta = float((np.pi / np.sqrt(3) / squares.sqrt()).median())
    np.testing.assert_allclose(result.settings["smoothed"]["beta"], [beta, beta], rtol=1e-9)


class PositionsFirst(nn.Module):
    """Eight positions in front of the rows, as recurrent networks and transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.mix, self.head = nn.Linear(4, 48), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x).reshape(-1, 8, 6).transpose(0, 1).relu()
        return torch.as_tensor(self.head(self.mix(h).relu().mean(dim=0)))


@pytest.mark.parametrize("engine", ["exact", "structured"])
def test_as_many_positions_as_rows_are_not_taken_for_rows(engine: str) -> None:
    # Sharpness is measured with eight rows at a time; with eight positions in front it was that of other rows.
    torch.manual_seed(0)
    net, x = PositionsFirst().double(), random_points(96, 4)
    scores = [
        explain_point_quietly(net, x, groups=1, smooth=Step(1.0), engine=engine, batch_size=size).geh.pair_mean
        for size in (8, 96)
    ]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-10)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_the_scale_of_single_precision_does_not_matter(scale: float) -> None:
    # Squares of movements of 1e-25 are 0 in single precision, those of 1e25 infinite.
    net, x = mlp(4, 16, 1, activation=nn.ReLU, gain=2.0).float(), random_points(60, 4).float()
    expected = explain_point_quietly(net, x, groups=1, smooth=Step(0.5)).geh.pair_mean
    with torch.no_grad():
        net[0].weight.mul_(scale)
        net[0].bias.mul_(scale)
    scores = explain_point_quietly(net, x, groups=1, smooth=Step(0.5)).geh.pair_mean
    np.testing.assert_allclose(scores / scale, expected, rtol=1e-4)


class Maxout(nn.Module):
    """The larger one of two linear maps, by one of torch's functions."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function
        self.pieces, self.head = nn.Linear(4, 24), nn.Linear(12, 1)

    def forward(self, x: Tensor) -> Tensor:
        z = self.pieces(x).reshape(-1, 12, 2)
        largest = {
            "maximum": lambda: torch.maximum(z[..., 0], z[..., 1]),
            "fmax": lambda: torch.fmax(z[..., 0], z[..., 1]),
            "amax": lambda: z.amax(dim=2),
            "amax of an axis": lambda: torch.amax(z, axis=2),
            "max of an axis": lambda: z.max(axis=2, keepdims=False).values,
            "pool": lambda: nn.functional.max_pool1d(z, 2).squeeze(2),
        }[self.function]()
        return torch.as_tensor(self.head(largest))


@pytest.mark.parametrize("function", ["fmax", "amax", "amax of an axis", "max of an axis", "pool"])
def test_a_maximum_of_two_is_smoothed_by_the_step_of_their_difference(function: str) -> None:
    torch.manual_seed(0)
    net, x = Maxout("maximum").double(), random_points(64, 4)
    one = explain_point(net, x, groups=1, smooth=Step(0.5))
    net.function = function
    other = explain_point(net, x, groups=1, smooth=Step(0.5))
    # Entries of torch.maximum have sharpnesses of their own; reductions have one, that of the mean square.
    with torch.no_grad():
        z = net.pieces.weight.reshape(12, 2, 4)
        difference = (z[:, 0] - z[:, 1]) * x.std(dim=0, correction=0)
    bandwidth = 0.5 * (2 * difference.square().mean()).sqrt()
    assert other.settings["smoothed"]["functions"] in ({function.split()[0]: 1}, {"max_pool1d": 1})
    if function == "fmax":
        np.testing.assert_array_equal(other.geh.pair_mean, one.geh.pair_mean)
    else:
        assert other.settings["smoothed"]["beta"][0] == pytest.approx(np.pi / np.sqrt(3) / float(bandwidth), rel=1e-6)


@pytest.mark.parametrize("smooth", ["auto", Step(0.5)])
def test_one_outlier_does_not_set_the_sharpness_of_all_rows(smooth: str | Step) -> None:
    # With one of 300 rows a thousand times larger, kinks were a hundred times softer, and all scores near 0.
    net, x = mlp(5, 32, 32, 1, activation=nn.ReLU, gain=2.0), random_points(300, 5)
    expected = explain_point_quietly(net, x, groups=1, smooth=smooth)
    x[7] *= 1000
    result = explain_point_quietly(net, x, groups=1, smooth=smooth)
    ratio = np.array(result.settings["smoothed"]["beta"]) / expected.settings["smoothed"]["beta"]
    assert (ratio > 0.4).all()
    assert np.abs(result.geh.pair_mean - expected.geh.pair_mean).max() < 0.3 * expected.geh.pair_mean.max()


@pytest.mark.parametrize("sample", ["normal", "uniform", "exponential", "lognormal"])
def test_standard_deviations_of_usual_variables_are_not_limited(sample: str) -> None:
    values = getattr(np.random.default_rng(0), sample)(size=(64, 20))
    std = values.std(axis=0)
    np.testing.assert_array_equal(limited_std(std, values), std)


def test_standard_deviations_are_limited_by_most_of_the_values() -> None:
    values = np.random.default_rng(0).standard_normal((1000, 3))
    values[:5] += [0.0, 1e4, -1e4]
    std = values.std(axis=0)
    limited = limited_std(std, values)
    assert limited[0] == std[0]
    np.testing.assert_allclose(limited[1:], 2, rtol=0.15)
    # Constant or few values say nothing.
    rare = np.append(np.zeros(99), 1.0)
    assert limited_std(rare.std(), rare) == rare.std()
    np.testing.assert_array_equal(limited_std(std, values[:10]), std)


def test_limits_do_not_depend_on_the_batches() -> None:
    values = random_points(3000, 4)
    values[::500] *= 1e5
    limits = []
    for size in (7, 100, 3000):
        moments = UnitMoments(4)
        for part in values.split(size):
            moments.add(part)
            assert moments.limited_std.shape == moments.centre.shape == (4,)
        limits.append(moments.limited_std)
    np.testing.assert_array_equal(limits[0], limits[1])
    np.testing.assert_array_equal(limits[0], limits[2])
    np.testing.assert_allclose(limits[0], 2, rtol=0.2)
    assert (moments.std > 1000).all()
