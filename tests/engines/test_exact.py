"""Scores against hand-computed answers and the plain reference."""

from collections.abc import Callable

import numpy as np
import pytest
import reference
import torch
from reference import local_hessians
from scoring import CLOSE, assert_scores, check_deep_network, cnn, explain, mlp, points
from torch import Tensor, nn

import geh_explain as geh

# Functions with known second derivatives.


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


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Softplus, nn.GELU])
def test_deep_networks_agree_with_the_reference(activation: type[nn.Module]) -> None:
    check_deep_network(activation, seed=0)


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
