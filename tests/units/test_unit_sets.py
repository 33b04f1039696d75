"""Scores of hidden layers and of every unit set, scaled or not, compared with the plain reference."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_point, random_points
from networks import cnn, mlp
from reference import channel_directions, hidden_hessians, local_hessians
from reference_scores import CLOSE, assert_scores
from torch import Tensor, nn

import geh_explain as geh

# Hidden layers.


def test_the_channels_of_a_convolution_move_as_whole_maps() -> None:
    net, x = cnn(), random_points(15, 36).reshape(15, 1, 6, 6)
    with torch.no_grad():
        maps = F.conv2d(x, net[0].weight, net[0].bias)

    def upper(maps: Tensor) -> Tensor:
        bent = torch.tanh(F.conv2d(F.softplus(maps), net[2].weight, net[2].bias))
        return bent.flatten(1) @ net[5].weight[1] + net[5].bias[1]

    local = hidden_hessians(upper, maps, channel_directions((3, 4, 4), axis=0))
    for layer in ("0", net[0]):
        assert_scores(explain_point(net, x, target=1, layer=layer, groups=3), local)
    assert_scores(explain_point(net, x, target=1, layer="0", units=geh.units.Channels(), groups=3), local)
    assert_scores(explain_point(net, x, target=1, layer="0", units=geh.units.Channels(dim=1), groups=3), local)
    assert explain_point(net, x, target=1, layer="0", groups=3).names == ["0[0]", "0[1]", "0[2]"]


def test_neurons_of_a_convolution_are_its_single_values() -> None:
    net, x = cnn(), random_points(6, 36).reshape(6, 1, 6, 6)
    with torch.no_grad():
        maps = net[:3](x)

    def upper(maps: Tensor) -> Tensor:
        return torch.sigmoid((torch.tanh(maps).flatten(1) @ net[5].weight[0]) + net[5].bias[0])

    local = hidden_hessians(upper, maps, torch.eye(16).reshape(16, 4, 2, 2))
    output = lambda out: out[:, 0].sigmoid()  # noqa: E731
    assert_scores(explain_point(net, x, layer="2", units=geh.units.Neurons(), output=output, groups=3), local)


def test_neurons_of_a_hidden_layer_agree_with_the_upper_half() -> None:
    net, x = mlp(3, 6, 5, 1, gain=2.0), random_points(10, 3)
    with torch.no_grad():
        hidden = net[:2](x)

    def upper(hidden: Tensor) -> Tensor:
        return torch.tanh(hidden @ net[2].weight.T + net[2].bias) @ net[4].weight[0] + net[4].bias[0]

    assert_scores(explain_point(net, x, layer="1", groups=3), hidden_hessians(upper, hidden, torch.eye(6)))


def test_channels_of_sequences_are_the_second_dimension_of_convolutions() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 1))
    net, x = net.double(), random_points(15, 12).reshape(15, 2, 6)
    with torch.no_grad():
        maps = net[0](x)
    local = hidden_hessians(lambda maps: net[1:](maps)[:, 0], maps, channel_directions((3, 4), axis=0))
    assert_scores(explain_point(net, x, layer="0", groups=3), local)
    assert_scores(explain_point(net, x, layer="0", units=geh.units.Channels(dim=1), groups=3), local)


def test_channels_of_channels_last_layers_are_the_last_dimension() -> None:
    torch.manual_seed(0)
    mixed = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 1))
    mixed = mixed.double()
    sequences, images = random_points(15, 8).reshape(15, 4, 2), random_points(15, 8).reshape(15, 2, 2, 2)
    for x in (sequences, images):
        with torch.no_grad():
            hidden = mixed[0](x)
        shape = tuple(hidden.shape[1:])
        upper = lambda hidden: mixed[1:](hidden)[:, 0]  # noqa: E731
        last = hidden_hessians(upper, hidden, channel_directions(shape, axis=len(shape) - 1))
        assert_scores(explain_point(mixed, x, layer="0", units=geh.units.Channels(dim=-1), groups=3), last)
        assert_scores(explain_point(mixed, x, layer="0", groups=3), last)  # the type of a Linear layer shows its layout
        first = hidden_hessians(upper, hidden, channel_directions(shape, axis=0))
        assert_scores(explain_point(mixed, x, layer="0", units=geh.units.Channels(dim=1), groups=3), first)


# Feature groups and subsets.


SYMMETRIC = np.array(
    [[0, 1, 2, 4, 8], [1, 0, 16, 32, 64], [2, 16, 0, 128, 256], [4, 32, 128, 0, 512], [8, 64, 256, 512, 0]], dtype=float
)


def quadratic(x: Tensor) -> Tensor:
    """A function whose Hessian is ``SYMMETRIC``, everywhere."""
    return ((x @ torch.from_numpy(SYMMETRIC).to(x)) * x).sum(dim=1) / 2


def test_the_interaction_of_feature_groups_is_the_sum_over_their_columns() -> None:
    units = geh.units.FeatureGroups({"odd": [1, 3], "even": [0, 2, 4]})
    result = explain_point(quadratic, random_points(10, 5), units=units, groups=3)
    assert result.names == ["odd", "even"]
    across = 1 + 16 + 64 + 4 + 128 + 512  # pairs (1,0) (1,2) (1,4) (3,0) (3,2) (3,4)
    np.testing.assert_allclose(result.geh.mean, across * np.array([[0, 1], [1, 0]]), rtol=1e-12)


def test_the_rest_of_the_columns_are_units_of_their_own() -> None:
    units = geh.units.FeatureGroups({"pair": ["c", "a"]}, rest=True)
    frame = pd.DataFrame(random_points(10, 5).numpy(), columns=list("abcde"))
    result = explain_point(quadratic, frame, units=units, groups=3)
    assert result.names == ["pair", "b", "d", "e"]
    by_hand = [[0, 1 + 16, 4 + 128, 8 + 256], [17, 0, 32, 64], [132, 32, 0, 512], [264, 64, 512, 0]]
    np.testing.assert_allclose(result.geh.mean, by_hand, rtol=1e-12)


def test_the_hessian_of_feature_groups_is_b_transposed_h_b() -> None:
    net, x = mlp(5, 8, 6, 1, gain=2.0), random_points(12, 5)
    directions = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]], dtype=float)
    local = local_hessians(lambda x: net(x)[:, 0], x)
    groups = {"first": [0, 3], "second": [2, 1], "third": [-1]}
    assert_scores(
        explain_point(net, x, units=geh.units.FeatureGroups(groups), groups=3), directions.T @ local @ directions
    )


def test_a_group_with_the_name_of_another_column_is_refused() -> None:
    units = geh.units.FeatureGroups({"x3": [0, 1]}, rest=True)
    with pytest.raises(geh.GEHError, match=r"names: \['x3'\] occur twice"):
        explain_point(quadratic, random_points(10, 5), units=units)


def test_a_subset_is_a_part_of_the_matrix() -> None:
    net, x = mlp(6, 8, 6, 1, gain=2.0), random_points(12, 6)
    chosen = [4, 0, 3]
    full = explain_point(net, x, groups=3)
    part = explain_point(net, x, units=geh.units.Subset(chosen), groups=3)
    assert part.names == ["x4", "x0", "x3"]
    for name in ("aeh", "geh", "eah"):
        expected = getattr(full, name).mean[np.ix_(chosen, chosen)]
        np.testing.assert_allclose(getattr(part, name).mean, expected, rtol=0, atol=CLOSE)


def test_a_subset_of_channels_is_a_part_of_the_channels() -> None:
    net, x = cnn(), random_points(15, 36).reshape(15, 1, 6, 6)
    full = explain_point(net, x, target=0, layer="0", groups=3)
    part = explain_point(net, x, target=0, layer="0", units=geh.units.Subset(torch.tensor([2, 0])), groups=3)
    np.testing.assert_allclose(part.geh.mean[0, 1], full.geh.mean[2, 0], rtol=0, atol=CLOSE)
    assert part.names == ["0[2]", "0[0]"]


def test_a_subset_of_feature_groups_leaves_the_other_groups_out() -> None:
    groups = geh.units.FeatureGroups({"a": [0, 1], "b": [2], "c": [3, 4]})
    result = explain_point(quadratic, random_points(10, 5), units=geh.units.Subset([2, 0], of=groups), groups=3)
    assert result.names == ["c", "a"]
    np.testing.assert_allclose(result.geh.mean[0, 1], 4 + 8 + 32 + 64, rtol=1e-12)


# Scales.


def scaled(local: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return local * factors[:, None] * factors[None, :]


def test_scaling_by_std_multiplies_each_unit_by_its_standard_deviation() -> None:
    net, x = mlp(4, 8, 1, gain=2.0), random_points(12, 4) * torch.tensor([1.0, 10.0, 0.1, 3.0]) + 5
    local = local_hessians(lambda x: net(x)[:, 0], x)
    spread = np.sqrt(((x.numpy() - x.numpy().mean(axis=0)) ** 2).mean(axis=0))
    for batch_size in (None, 5):
        assert_scores(explain_point(net, x, scale="std", batch_size=batch_size, groups=3), scaled(local, spread))


def test_scaling_channels_by_std_uses_the_means_of_their_maps() -> None:
    net, x = cnn(), random_points(15, 36).reshape(15, 1, 6, 6)
    with torch.no_grad():
        maps = net[0](x)
    local = hidden_hessians(lambda maps: net[1:](maps)[:, 1], maps, channel_directions((3, 4, 4), axis=0))
    spread = maps.numpy().mean(axis=(2, 3)).std(axis=0)
    assert_scores(explain_point(net, x, 1, layer="0", scale="std", groups=3), scaled(local, spread))


def test_scaling_feature_groups_by_std_uses_the_means_of_their_columns() -> None:
    x = random_points(12, 5) + torch.arange(5)
    units = geh.units.FeatureGroups({"a": [0, 1], "b": [2, 3, 4]})
    across = SYMMETRIC[:2, 2:].sum()
    spread = x[:, :2].mean(dim=1).numpy().std() * x[:, 2:].mean(dim=1).numpy().std()
    result = explain_point(quadratic, x, units=units, scale="std", groups=3)
    np.testing.assert_allclose(result.geh.mean[0, 1], across * spread, rtol=1e-12)


def test_an_array_as_scale_multiplies_with_its_signs() -> None:
    factors = np.array([2.0, -3.0, 1.0, 0.5, 0.0])
    for given in (factors, factors.tolist(), torch.from_numpy(factors)):
        result = explain_point(quadratic, random_points(10, 5), scale=given, groups=3)
        np.testing.assert_allclose(result.geh.mean, np.abs(scaled(SYMMETRIC, factors)), rtol=1e-12)
        np.testing.assert_allclose(result.eah.mean, np.abs(scaled(SYMMETRIC, factors)), rtol=1e-12)
        np.testing.assert_allclose(result.regions(0, 1)["mean"], -6.0, rtol=1e-12)
