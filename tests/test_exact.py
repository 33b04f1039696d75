"""Scores against answers worked out by hand, and against the plain reference."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
import reference
import torch
import torch.nn.functional as F
from reference import channel_directions, hidden_hessians, local_hessians
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import geh_explain as geh

CLOSE = 1e-10


def explain(
    model: Any,
    inputs: Any,
    target: Any = None,
    extra: Any = None,
    *,
    layer: Any = None,
    units: Any = None,
    output: Any = "raw",
    **options: Any,
) -> geh.Interactions:
    point = geh.posterior.PointEstimate()
    explainer = geh.GEHExplainer(model, layer, units=units, output=output, posterior=point)
    return explainer.explain(inputs, target, extra, **({"groups": 3, "progress": False} | options))


def assert_scores(result: geh.Interactions, local: np.ndarray, close: float = CLOSE) -> None:
    """Compare all three measures with the local Hessians' (n, D, D), over the result's own groups."""
    for scores, truth in (
        (result.aeh, reference.aeh(local)),
        (result.geh, reference.geh(local, result.labels)),
        (result.eah, reference.eah(local)),
    ):
        np.testing.assert_allclose(scores.mean, truth, rtol=0, atol=close)
    assert result.eah.mean.max() > 1e3 * close  # or two empty matrices would agree


def points(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def mlp(*widths: int, seed: int = 0, activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    net = nn.Sequential(*layers[:-1]).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2.0)
    return net


def cnn(seed: int = 0) -> nn.Sequential:
    """From (1, 6, 6) by (3, 4, 4) and (4, 2, 2) to two outputs."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Softplus(), nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16, 2)
    ).double()


# Functions whose second derivatives everybody knows.


@pytest.mark.parametrize("coefficient", [3.0, -0.25])
def test_a_product_has_its_coefficient_as_interaction(coefficient: float) -> None:
    result = explain(lambda x: coefficient * x[:, 0] * x[:, 1] + 2 * x[:, 0] - 5 * x[:, 1], points(20, 2))
    for scores in (result.aeh, result.geh, result.eah):
        np.testing.assert_allclose(scores.mean, abs(coefficient) * np.array([[0, 1], [1, 0]]), rtol=0, atol=1e-14)
    np.testing.assert_allclose(result.regions(0, 1)["mean"], coefficient, rtol=0, atol=1e-14)


def test_a_linear_model_with_an_interaction_term_gives_back_its_coefficient() -> None:
    class Regression(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.b1, self.b2, self.b12 = (nn.Parameter(torch.tensor(value)) for value in (0.7, -1.3, 2.5))

        def forward(self, x: Tensor) -> Tensor:
            return self.b12 * x[:, 0] * x[:, 1] + self.b1 * x[:, 0] + self.b2 * x[:, 1]

    assert explain(Regression(), points(20, 2).float()).geh.mean[0, 1] == 2.5


@pytest.mark.parametrize(
    ("function", "second_derivative"),
    [
        (lambda x: x[:, 0] ** 2 * x[:, 1], lambda a, b: 2 * a),
        (lambda x: torch.sin(x[:, 0] * x[:, 1]), lambda a, b: np.cos(a * b) - a * b * np.sin(a * b)),
        (lambda x: torch.exp(x[:, 0] + x[:, 1]), lambda a, b: np.exp(a + b)),
        (lambda x: x[:, 0] / (x[:, 1] ** 2 + 1), lambda a, b: -2 * b / (b**2 + 1) ** 2),
        (lambda x: torch.exp(-(x[:, 0] ** 2) - x[:, 1] ** 2), lambda a, b: 4 * a * b * np.exp(-(a**2) - b**2)),
    ],
    ids=["square times", "sine of product", "exponential of sum", "ratio", "bell"],
)
def test_a_known_function_has_its_mixed_second_derivative(
    function: Callable[[Tensor], Tensor], second_derivative: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> None:
    x = points(25, 2)
    side = (x[:, 0] > 0).long().numpy()
    result = explain(function, x, groups=side)
    local = second_derivative(x[:, 0].numpy(), x[:, 1].numpy())
    left, right = local[side == 0], local[side == 1]
    np.testing.assert_allclose(result.aeh.mean[0, 1], abs(local.mean()), rtol=0, atol=CLOSE)
    np.testing.assert_allclose(result.eah.mean[0, 1], abs(local).mean(), rtol=0, atol=CLOSE)
    by_hand = (len(left) * abs(left.mean()) + len(right) * abs(right.mean())) / 25
    np.testing.assert_allclose(result.geh.mean[0, 1], by_hand, rtol=0, atol=CLOSE)


def test_signs_cancel_within_a_group_and_not_between_groups() -> None:
    # d2/dx0 dx1 of x0^2 x1 is 2 x0: here -2, 2, 4, 8.
    x = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    result = explain(lambda x: x[:, 0] ** 2 * x[:, 1], x, groups=["left", "left", "right", "right"])
    assert result.aeh.mean[0, 1] == (-2 + 2 + 4 + 8) / 4
    assert result.geh.mean[0, 1] == 2 / 4 * abs(-2 + 2) / 2 + 2 / 4 * (4 + 8) / 2
    assert result.eah.mean[0, 1] == (2 + 2 + 4 + 8) / 4
    crossed = explain(lambda x: x[:, 0] ** 2 * x[:, 1], x, groups=["odd", "even", "odd", "even"])
    assert crossed.geh.mean[0, 1] == 2 / 4 * (-2 + 4) / 2 + 2 / 4 * (2 + 8) / 2


def test_groups_of_one_point_are_measured_and_said_to_be_suspicious() -> None:
    x = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    with pytest.warns(geh.GEHWarning, match="1 of 2 groups"):
        result = explain(lambda x: x[:, 0] ** 2 * x[:, 1], x, groups=[0, 1, 1, 1])
    assert result.geh.mean[0, 1] == 1 / 4 * 2 + 3 / 4 * (2 + 4 + 8) / 3


def test_far_apart_clouds_become_the_groups() -> None:
    cloud = torch.arange(30) % 3
    x = 0.1 * points(30, 2) + 10.0 * torch.stack([cloud, cloud**2], dim=1)
    labels = explain(lambda x: x[:, 0] ** 2 * x[:, 1], x, groups=3).labels
    assert len({(int(a), int(b)) for a, b in zip(cloud, labels, strict=True)}) == 3


def test_an_additive_function_has_no_interactions_and_says_so() -> None:
    with pytest.warns(geh.GEHWarning, match="additive"):
        result = explain(lambda x: x.sin().sum(dim=1), points(20, 3))
    assert not result.eah.mean.any()


# Networks.


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Softplus])
def test_a_network_of_two_layers_has_the_hessian_of_the_textbook(activation: type[nn.Module]) -> None:
    net, x = mlp(5, 7, 1, activation=activation), points(15, 5)
    inner, bias, outer = (parameter.detach().numpy() for parameter in list(net.parameters())[:3])
    z = x.numpy() @ inner.T + bias
    if activation is nn.Tanh:
        bend = -2 * np.tanh(z) * (1 - np.tanh(z) ** 2)
    else:
        bend = 1 / (1 + np.exp(-z)) * (1 - 1 / (1 + np.exp(-z)))
    local = np.stack([inner.T @ np.diag(outer[0] * row) @ inner for row in bend])
    np.testing.assert_allclose(local_hessians(lambda x: net(x)[:, 0], x), local, rtol=0, atol=CLOSE)
    assert_scores(explain(net, x), local)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("activation", [nn.Tanh, nn.Softplus, nn.GELU])
def test_deep_networks_agree_with_the_reference(activation: type[nn.Module], seed: int) -> None:
    net, x = mlp(4, 8, 6, 5, 1, seed=seed, activation=activation), points(12, 4, seed)
    assert_scores(explain(net, x), local_hessians(lambda x: net(x)[:, 0], x))


def test_single_precision_is_right_to_four_digits() -> None:
    net, x = mlp(6, 20, 20, 1), points(30, 6)
    local = local_hessians(lambda x: net(x)[:, 0], x)
    result = explain(net.float(), x.float(), groups=[0] * 10 + [1] * 20)
    truth = reference.geh(local, [0] * 10 + [1] * 20)
    np.testing.assert_allclose(result.geh.mean, truth, rtol=0, atol=1e-4 * truth.max())
    np.testing.assert_allclose(result.eah.mean, reference.eah(local), rtol=1e-4, atol=1e-4 * truth.max())
    assert result.settings["dtype"] == "float32"


def test_many_units_take_more_than_one_block_of_directions() -> None:
    net, x = mlp(40, 6, 1), points(5, 40)
    assert_scores(explain(net, x, groups=[0, 0, 1, 1, 1]), local_hessians(lambda x: net(x)[:, 0], x))


def test_pixels_of_an_image_agree_with_the_reference() -> None:
    net, x = cnn(), points(5, 36).reshape(5, 1, 6, 6)
    result = explain(net, x, target=1, groups=2)
    assert_scores(result, local_hessians(lambda flat: net(flat.reshape(-1, 1, 6, 6))[:, 1], x.flatten(1)))
    assert result.names[7] == "x[0,1,1]"


# Hidden layers and units.


def test_the_channels_of_a_convolution_move_as_whole_maps() -> None:
    net, x = cnn(), points(15, 36).reshape(15, 1, 6, 6)
    with torch.no_grad():
        maps = F.conv2d(x, net[0].weight, net[0].bias)

    def upper(maps: Tensor) -> Tensor:
        bent = torch.tanh(F.conv2d(F.softplus(maps), net[2].weight, net[2].bias))
        return bent.flatten(1) @ net[5].weight[1] + net[5].bias[1]

    local = hidden_hessians(upper, maps, channel_directions((3, 4, 4), axis=0))
    for layer in ("0", net[0]):
        assert_scores(explain(net, x, target=1, layer=layer), local)
    assert_scores(explain(net, x, target=1, layer="0", units=geh.units.Channels()), local)
    assert_scores(explain(net, x, target=1, layer="0", units=geh.units.Channels(dim=1)), local)
    assert explain(net, x, target=1, layer="0").names == ["0[0]", "0[1]", "0[2]"]


def test_neurons_of_a_convolution_are_its_single_values() -> None:
    net, x = cnn(), points(6, 36).reshape(6, 1, 6, 6)
    with torch.no_grad():
        maps = net[:3](x)

    def upper(maps: Tensor) -> Tensor:
        return torch.sigmoid((torch.tanh(maps).flatten(1) @ net[5].weight[0]) + net[5].bias[0])

    local = hidden_hessians(upper, maps, torch.eye(16).reshape(16, 4, 2, 2))
    output = lambda out: out[:, 0].sigmoid()  # noqa: E731
    assert_scores(explain(net, x, layer="2", units=geh.units.Neurons(), output=output), local)


def test_neurons_of_a_hidden_layer_agree_with_the_upper_half() -> None:
    net, x = mlp(3, 6, 5, 1), points(10, 3)
    with torch.no_grad():
        hidden = net[:2](x)

    def upper(hidden: Tensor) -> Tensor:
        return torch.tanh(hidden @ net[2].weight.T + net[2].bias) @ net[4].weight[0] + net[4].bias[0]

    assert_scores(explain(net, x, layer="1"), hidden_hessians(upper, hidden, torch.eye(6)))


def test_channels_of_sequences_are_the_second_dimension_of_convolutions() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 1))
    net, x = net.double(), points(15, 12).reshape(15, 2, 6)
    with torch.no_grad():
        maps = net[0](x)
    local = hidden_hessians(lambda maps: net[1:](maps)[:, 0], maps, channel_directions((3, 4), axis=0))
    assert_scores(explain(net, x, layer="0"), local)
    assert_scores(explain(net, x, layer="0", units=geh.units.Channels(dim=1)), local)


def test_channels_of_channels_last_layers_are_the_last_dimension() -> None:
    torch.manual_seed(0)
    mixed = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 1))
    mixed = mixed.double()
    sequences, images = points(15, 8).reshape(15, 4, 2), points(15, 8).reshape(15, 2, 2, 2)
    for x in (sequences, images):
        with torch.no_grad():
            hidden = mixed[0](x)
        shape = tuple(hidden.shape[1:])
        upper = lambda hidden: mixed[1:](hidden)[:, 0]  # noqa: E731
        last = hidden_hessians(upper, hidden, channel_directions(shape, axis=len(shape) - 1))
        assert_scores(explain(mixed, x, layer="0", units=geh.units.Channels(dim=-1)), last)
        assert_scores(explain(mixed, x, layer="0"), last)  # a Linear layer says so by its type
        first = hidden_hessians(upper, hidden, channel_directions(shape, axis=0))
        assert_scores(explain(mixed, x, layer="0", units=geh.units.Channels(dim=1)), first)


SYMMETRIC = np.array(
    [[0, 1, 2, 4, 8], [1, 0, 16, 32, 64], [2, 16, 0, 128, 256], [4, 32, 128, 0, 512], [8, 64, 256, 512, 0]], dtype=float
)


def quadratic(x: Tensor) -> Tensor:
    """A function whose Hessian is ``SYMMETRIC``, everywhere."""
    return ((x @ torch.from_numpy(SYMMETRIC).to(x)) * x).sum(dim=1) / 2


def test_columns_that_move_together_add_up_their_interactions() -> None:
    units = geh.units.FeatureGroups({"odd": [1, 3], "even": [0, 2, 4]})
    result = explain(quadratic, points(10, 5), units=units)
    assert result.names == ["odd", "even"]
    across = 1 + 16 + 64 + 4 + 128 + 512  # pairs (1,0) (1,2) (1,4) (3,0) (3,2) (3,4)
    np.testing.assert_allclose(result.geh.mean, across * np.array([[0, 1], [1, 0]]), rtol=1e-12)


def test_the_rest_of_the_columns_are_units_of_their_own() -> None:
    units = geh.units.FeatureGroups({"pair": ["c", "a"]}, rest=True)
    frame = pd.DataFrame(points(10, 5).numpy(), columns=list("abcde"))
    result = explain(quadratic, frame, units=units)
    assert result.names == ["pair", "b", "d", "e"]
    by_hand = [[0, 1 + 16, 4 + 128, 8 + 256], [17, 0, 32, 64], [132, 32, 0, 512], [264, 64, 512, 0]]
    np.testing.assert_allclose(result.geh.mean, by_hand, rtol=1e-12)


def test_feature_groups_of_a_network_are_the_hessian_between_two_matrices() -> None:
    net, x = mlp(5, 8, 6, 1), points(12, 5)
    directions = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]], dtype=float)
    local = local_hessians(lambda x: net(x)[:, 0], x)
    groups = {"first": [0, 3], "second": [2, 1], "third": [-1]}
    assert_scores(explain(net, x, units=geh.units.FeatureGroups(groups)), directions.T @ local @ directions)


def test_a_group_and_a_column_of_the_same_name_can_be_told_apart() -> None:
    units = geh.units.FeatureGroups({"x3": [0, 1]}, rest=True)
    try:
        names = explain(quadratic, points(10, 5), units=units).names
    except geh.GEHError:
        return
    assert len(set(names)) == len(names)


def test_a_subset_is_a_part_of_the_matrix() -> None:
    net, x = mlp(6, 8, 6, 1), points(12, 6)
    chosen = [4, 0, 3]
    whole = explain(net, x)
    part = explain(net, x, units=geh.units.Subset(chosen))
    assert part.names == ["x4", "x0", "x3"]
    for name in ("aeh", "geh", "eah"):
        expected = getattr(whole, name).mean[np.ix_(chosen, chosen)]
        np.testing.assert_allclose(getattr(part, name).mean, expected, rtol=0, atol=CLOSE)


def test_a_subset_of_channels_is_a_part_of_the_channels() -> None:
    net, x = cnn(), points(15, 36).reshape(15, 1, 6, 6)
    whole = explain(net, x, target=0, layer="0")
    part = explain(net, x, target=0, layer="0", units=geh.units.Subset(torch.tensor([2, 0])))
    np.testing.assert_allclose(part.geh.mean[0, 1], whole.geh.mean[2, 0], rtol=0, atol=CLOSE)
    assert part.names == ["0[2]", "0[0]"]


def test_a_subset_of_feature_groups_leaves_the_other_groups_out() -> None:
    groups = geh.units.FeatureGroups({"a": [0, 1], "b": [2], "c": [3, 4]})
    result = explain(quadratic, points(10, 5), units=geh.units.Subset([2, 0], of=groups))
    assert result.names == ["c", "a"]
    np.testing.assert_allclose(result.geh.mean[0, 1], 4 + 8 + 32 + 64, rtol=1e-12)


# What the model is called with, and what is asked of it.


def test_a_tuple_of_inputs_is_one_row_of_columns_side_by_side() -> None:
    net, x = mlp(5, 8, 1), points(12, 5)

    def two_inputs(left: Tensor, right: Tensor) -> Tensor:
        return net(torch.cat([left, right.flatten(1)], dim=1))

    local = local_hessians(lambda x: net(x)[:, 0], x)
    assert_scores(explain(two_inputs, (x[:, :1], x[:, 1:])), local)
    assert_scores(explain(two_inputs, (x[:, :1], x[:, 1:].reshape(12, 2, 2)), groups=[0, 1] * 6), local)


@pytest.mark.parametrize("batch_size", [None, 5])
def test_additional_arguments_reach_the_model_row_by_row(batch_size: int | None) -> None:
    weights, shift = points(12, 3, seed=1), 0.5

    def model(x: Tensor, weights: Tensor, shift: float, word: str) -> Tensor:
        assert word == "hello"
        return ((weights * x).sum(dim=1) + shift) ** 3

    x = points(12, 3)
    local = local_hessians(lambda x: model(x, weights, shift, "hello"), x)
    assert_scores(explain(model, x, None, (weights, shift, "hello"), batch_size=batch_size), local)


@pytest.mark.parametrize("size", [3, 8])
def test_additional_arguments_that_do_not_belong_to_rows_stay_whole(size: int) -> None:
    # Eight is a trap: the package looks at the model with the first eight rows.
    weights = torch.arange(1.0, size + 1, dtype=torch.double)
    result = explain(lambda x, weights: (x @ weights) ** 2 / 2, points(20, size), None, weights)
    expected = np.outer(weights, weights) - np.diag(weights**2)
    np.testing.assert_allclose(result.geh.mean, expected, rtol=1e-12)


def test_a_streamed_loader_leaves_arguments_of_the_length_of_a_batch_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.points.KEEP_SHARE", 0)
    weights = torch.arange(1.0, 6.0, dtype=torch.double)
    loader = DataLoader(TensorDataset(points(20, 5)), batch_size=5)
    result = explain(lambda x, weights: (x @ weights) ** 2 / 2, loader, None, weights, batch_size=2)
    np.testing.assert_allclose(result.geh.mean, np.outer(weights, weights) - np.diag(weights**2), rtol=1e-12)


@pytest.mark.parametrize("batch_size", [None, 5])
def test_each_row_may_have_its_own_target(batch_size: int | None) -> None:
    net, x = mlp(4, 8, 3), points(12, 4)
    target = torch.arange(12) % 3
    local = local_hessians(lambda x: net(x)[torch.arange(12), target], x)
    for given in (target, target.tolist(), target.numpy()):
        assert_scores(explain(net, x, given, batch_size=batch_size), local)


def test_one_target_picks_one_output() -> None:
    net, x = mlp(4, 8, 3), points(12, 4)
    local = local_hessians(lambda x: net(x)[:, 2], x)
    for given in (2, -1, (2,), torch.tensor(2), np.int64(2)):
        assert_scores(explain(net, x, given), local)


def test_a_tuple_picks_one_of_many_outputs_per_row() -> None:
    net, x = mlp(4, 8, 6), points(12, 4)
    model = lambda x: net(x).reshape(-1, 2, 3)  # noqa: E731
    assert_scores(explain(model, x, (1, 2)), local_hessians(lambda x: net(x)[:, 5], x))
    per_row = [(row % 2, row % 3) for row in range(12)]
    picked = torch.tensor([3 * first + second for first, second in per_row])
    local = local_hessians(lambda x: net(x)[torch.arange(12), picked], x)
    assert_scores(explain(model, x, per_row, batch_size=5), local)
    assert_scores(explain(model, x, torch.tensor(per_row)), local)


def test_the_probability_of_one_column_is_its_sigmoid() -> None:
    net, x = mlp(4, 8, 1), points(12, 4)
    local = local_hessians(lambda x: torch.sigmoid(net(x)[:, 0]), x)
    assert_scores(explain(net, x, output="probability"), local)
    assert_scores(explain(lambda x: net(x)[:, 0], x, output="probability"), local)


def test_the_probability_of_several_columns_is_their_softmax() -> None:
    net, x = mlp(4, 8, 3), points(12, 4)

    def second_class(x: Tensor) -> Tensor:
        odds = net(x).exp()
        return odds[:, 1] / odds.sum(dim=1)

    assert_scores(explain(net, x, 1, output="probability"), local_hessians(second_class, x))


def test_the_probability_of_a_map_of_classes_is_over_the_classes() -> None:
    net, x = mlp(4, 8, 6), points(12, 4)

    def class_1_at_place_2(x: Tensor) -> Tensor:
        odds = net(x).reshape(-1, 2, 3).exp()
        return odds[:, 1, 2] / (odds[:, 0, 2] + odds[:, 1, 2])

    result = explain(lambda x: net(x).reshape(-1, 2, 3), x, (1, 2), output="probability")
    assert_scores(result, local_hessians(class_1_at_place_2, x))


def test_a_callable_output_turns_what_the_model_returns_into_the_explained_number() -> None:
    net, x = mlp(4, 8, 3), points(12, 4)
    margin = lambda out: out["logits"][:, 0] - out["logits"][:, 1] ** 2  # noqa: E731
    result = explain(lambda x: {"logits": net(x), "other": None}, x, output=margin)
    assert_scores(result, local_hessians(lambda x: net(x)[:, 0] - net(x)[:, 1] ** 2, x))


# Scales.


def scaled(local: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return local * factors[:, None] * factors[None, :]


def test_scaling_by_std_multiplies_each_unit_by_its_standard_deviation() -> None:
    net, x = mlp(4, 8, 1), points(12, 4) * torch.tensor([1.0, 10.0, 0.1, 3.0]) + 5
    local = local_hessians(lambda x: net(x)[:, 0], x)
    spread = np.sqrt(((x.numpy() - x.numpy().mean(axis=0)) ** 2).mean(axis=0))
    for batch_size in (None, 5):
        assert_scores(explain(net, x, scale="std", batch_size=batch_size), scaled(local, spread))


def test_scaling_channels_by_std_uses_the_means_of_their_maps() -> None:
    net, x = cnn(), points(15, 36).reshape(15, 1, 6, 6)
    with torch.no_grad():
        maps = net[0](x)
    local = hidden_hessians(lambda maps: net[1:](maps)[:, 1], maps, channel_directions((3, 4, 4), axis=0))
    spread = maps.numpy().mean(axis=(2, 3)).std(axis=0)
    assert_scores(explain(net, x, 1, layer="0", scale="std"), scaled(local, spread))


def test_scaling_feature_groups_by_std_uses_the_means_of_their_columns() -> None:
    x = points(12, 5) + torch.arange(5)
    units = geh.units.FeatureGroups({"a": [0, 1], "b": [2, 3, 4]})
    across = SYMMETRIC[:2, 2:].sum()
    spread = x[:, :2].mean(dim=1).numpy().std() * x[:, 2:].mean(dim=1).numpy().std()
    result = explain(quadratic, x, units=units, scale="std")
    np.testing.assert_allclose(result.geh.mean[0, 1], across * spread, rtol=1e-12)


def test_a_scale_of_ones_own_multiplies_signs_too() -> None:
    factors = np.array([2.0, -3.0, 1.0, 0.5, 0.0])
    for given in (factors, factors.tolist(), torch.from_numpy(factors)):
        result = explain(quadratic, points(10, 5), scale=given)
        np.testing.assert_allclose(result.geh.mean, np.abs(scaled(SYMMETRIC, factors)), rtol=1e-12)
        np.testing.assert_allclose(result.eah.mean, np.abs(scaled(SYMMETRIC, factors)), rtol=1e-12)
        np.testing.assert_allclose(result.regions(0, 1)["mean"], -6.0, rtol=1e-12)


# Kinds of inputs.


class Rows(Dataset):
    """A map-style data set of rows with labels."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.x[row], row


KINDS: dict[str, Callable[[Tensor], Any]] = {
    "DataFrame": lambda x: pd.DataFrame(x.numpy(), columns=[f"x{i}" for i in range(x.shape[1])]),
    "ndarray": lambda x: x.numpy(),
    "tuple of one tensor": lambda x: (x,),
    "TensorDataset": lambda x: TensorDataset(x, torch.arange(len(x))),
    "Dataset": Rows,
    "DataLoader": lambda x: DataLoader(TensorDataset(x, torch.arange(len(x))), batch_size=7),
    "DataLoader of bare tensors": lambda x: DataLoader(list(x), batch_size=7),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_answer_of_a_tensor(
    kind: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, x = mlp(4, 8, 1), points(20, 4)
    expected = explain(net, x)
    if streamed:
        monkeypatch.setattr("geh_explain.points.KEEP_SHARE", 0)
    result = explain(net, KINDS[kind](x))
    assert result.names == expected.names
    np.testing.assert_array_equal(result.labels, expected.labels)
    np.testing.assert_allclose(result.signed, expected.signed, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(result.absolute, expected.absolute, rtol=0, atol=CLOSE)


def test_a_data_frame_of_whole_numbers_names_its_columns() -> None:
    frame = pd.DataFrame({"rooms": [1, 2, 3, 4], "people": [2.0, 1.0, 5.0, 3.0], "rich": [True, False, True, False]})
    result = explain(lambda x: x[:, 0] ** 2 * x[:, 1] * x[:, 2], frame, groups=1)
    assert result.names == ["rooms", "people", "rich"]
    # Means over the four rows of 2 rooms rich, 2 rooms people, and rooms^2.
    by_hand = [(2 + 0 + 6 + 0) / 4, (4 + 4 + 30 + 24) / 4, (1 + 4 + 9 + 16) / 4]
    np.testing.assert_allclose(result.geh.draws[0], by_hand, rtol=1e-12)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("own_generator", [False, True])
def test_a_shuffling_loader_gives_the_answer_of_a_tensor(
    own_generator: bool, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, x = mlp(4, 8, 1), points(20, 4)
    expected = explain(net, x)
    if streamed:
        monkeypatch.setattr("geh_explain.points.KEEP_SHARE", 0)
    generator = torch.Generator().manual_seed(3) if own_generator else None
    before = None if generator is None else generator.get_state()
    result = explain(net, DataLoader(TensorDataset(x), batch_size=6, shuffle=True, generator=generator))
    for name in ("aeh", "geh", "eah"):
        np.testing.assert_allclose(getattr(result, name).mean, getattr(expected, name).mean, rtol=0, atol=CLOSE)
    assert generator is None or torch.equal(generator.get_state(), before)


def test_a_streamed_loader_cuts_targets_and_arguments_with_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, weights = mlp(4, 8, 3), points(20, 4), points(20, 4, seed=1)
    target = torch.arange(20) % 3
    local = local_hessians(lambda x: net(x * weights)[torch.arange(20), target], x)
    monkeypatch.setattr("geh_explain.points.KEEP_SHARE", 0)
    loader = DataLoader(TensorDataset(x), batch_size=6)
    for batch_size in (None, 4):
        result = explain(lambda x, weights: net(x * weights), loader, target, weights, batch_size=batch_size)
        assert_scores(result, local)


@pytest.mark.parametrize("what", ["groups", "target", "additional_forward_args"])
def test_what_belongs_to_rows_is_never_given_to_other_rows_by_a_shuffling_loader(what: str) -> None:
    net, x = mlp(4, 8, 2), points(20, 4)
    model = lambda x, sign=1.0: net(x) * sign  # noqa: E731
    side = (x[:, 0] > 0).long()
    options: dict[str, Any] = {"target": 0, "groups": 1} | {
        "groups": {"groups": side.numpy()},
        "target": {"target": side},
        "additional_forward_args": {"extra": (2.0 * side[:, None] - 1)},
    }[what]
    expected = explain(model, x, **options)
    try:
        result = explain(model, DataLoader(TensorDataset(x), batch_size=6, shuffle=True), **options)
    except geh.GEHError:
        return
    for name in ("aeh", "geh", "eah"):
        np.testing.assert_allclose(getattr(result, name).mean, getattr(expected, name).mean, rtol=0, atol=CLOSE)


# The number of groups.


def test_the_distances_between_numbers_of_groups_are_weighted_by_ranks() -> None:
    net, x = mlp(5, 10, 10, 1), points(60, 5)
    choice = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate()).choose_groups(
        x, max_groups=9, progress=False
    )
    assert isinstance(choice, geh.GroupChoice)
    np.testing.assert_array_equal(choice.counts, np.arange(2, 10))
    by_hand = reference.rank_weighted_distances(choice.scores)
    assert max(by_hand) > 0
    np.testing.assert_allclose(choice.delta, by_hand, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("draws", [4, 30])
def test_the_scores_of_every_number_of_groups_are_those_of_explaining_with_it(draws: int) -> None:
    net = nn.Sequential(*mlp(4, 10, 10, 1)[:-1], nn.Dropout(0.2), nn.Linear(10, 1).double())
    explainer, x = geh.GEHExplainer(net), points(30, 4)
    choice = explainer.choose_groups(x, max_groups=6, draws=draws, progress=False)
    for groups, scores in enumerate(choice.scores, start=1):
        result = explainer.explain(x, groups=groups, draws=draws, progress=False)
        np.testing.assert_allclose(scores, result.geh.draws.mean(axis=0), rtol=0, atol=CLOSE)


def test_after_the_chosen_number_the_distances_stay_small() -> None:
    net, x = mlp(5, 10, 10, 1), points(60, 5)
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    choice = explainer.choose_groups(x, progress=False)
    later = choice.delta[choice.counts > choice.chosen]
    assert choice.delta[choice.counts == choice.chosen] > max(later, default=0)
    assert max(later, default=0) <= max(0.05 * choice.delta.max(), 1e-4)
    automatic = explainer.explain(x, groups="auto", progress=False)
    assert automatic.settings["group_count"] == choice.chosen
    np.testing.assert_array_equal(automatic.labels, explain(net, x, groups=choice.chosen).labels)
    np.testing.assert_allclose(automatic.geh.draws[0], choice.scores[choice.chosen - 1], rtol=0, atol=CLOSE)
