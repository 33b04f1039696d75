"""Scores against hand-computed answers and the plain reference."""

from collections.abc import Callable

import numpy as np
import pytest
import reference
import torch
from explaining import explain_point, random_points
from networks import cnn, mlp
from reference import local_hessians
from reference_scores import CLOSE, assert_scores, check_deep_network
from torch import Tensor, nn

import geh_explain as geh

# Functions with known second derivatives.


@pytest.mark.parametrize("coefficient", [3.0, -0.25])
def test_a_product_has_its_coefficient_as_interaction(coefficient: float) -> None:
    result = explain_point(
        lambda x: coefficient * x[:, 0] * x[:, 1] + 2 * x[:, 0] - 5 * x[:, 1], random_points(20, 2), groups=3
    )
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

    assert explain_point(Regression(), random_points(20, 2).float(), groups=3).geh.mean[0, 1] == 2.5


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
    x = random_points(25, 2)
    side = (x[:, 0] > 0).long().numpy()
    result = explain_point(function, x, groups=side)
    local = second_derivative(x[:, 0].numpy(), x[:, 1].numpy())
    left, right = local[side == 0], local[side == 1]
    np.testing.assert_allclose(result.aeh.mean[0, 1], abs(local.mean()), rtol=0, atol=CLOSE)
    np.testing.assert_allclose(result.eah.mean[0, 1], abs(local).mean(), rtol=0, atol=CLOSE)
    by_hand = (len(left) * abs(left.mean()) + len(right) * abs(right.mean())) / 25
    np.testing.assert_allclose(result.geh.mean[0, 1], by_hand, rtol=0, atol=CLOSE)


def test_signs_cancel_within_a_group_and_not_between_groups() -> None:
    # d2/dx0 dx1 of x0^2 x1 is 2 x0: here -2, 2, 4, 8.
    x = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    result = explain_point(lambda x: x[:, 0] ** 2 * x[:, 1], x, groups=["left", "left", "right", "right"])
    assert result.aeh.mean[0, 1] == (-2 + 2 + 4 + 8) / 4
    assert result.geh.mean[0, 1] == 2 / 4 * abs(-2 + 2) / 2 + 2 / 4 * (4 + 8) / 2
    assert result.eah.mean[0, 1] == (2 + 2 + 4 + 8) / 4
    crossed = explain_point(lambda x: x[:, 0] ** 2 * x[:, 1], x, groups=["odd", "even", "odd", "even"])
    assert crossed.geh.mean[0, 1] == 2 / 4 * (-2 + 4) / 2 + 2 / 4 * (2 + 8) / 2


def test_an_additive_function_has_no_interactions_and_says_so() -> None:
    with pytest.warns(geh.GEHWarning, match="additive"):
        result = explain_point(lambda x: x.sin().sum(dim=1), random_points(20, 3), groups=3)
    assert not result.eah.mean.any()


# Networks.


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Softplus])
def test_a_network_of_two_layers_has_the_hessian_of_the_textbook(activation: type[nn.Module]) -> None:
    net, x = mlp(5, 7, 1, activation=activation, gain=2.0), random_points(15, 5)
    inner, bias, outer = (parameter.detach().numpy() for parameter in list(net.parameters())[:3])
    z = x.numpy() @ inner.T + bias
    if activation is nn.Tanh:
        bend = -2 * np.tanh(z) * (1 - np.tanh(z) ** 2)
    else:
        bend = 1 / (1 + np.exp(-z)) * (1 - 1 / (1 + np.exp(-z)))
    local = np.stack([inner.T @ np.diag(outer[0] * row) @ inner for row in bend])
    np.testing.assert_allclose(local_hessians(lambda x: net(x)[:, 0], x), local, rtol=0, atol=CLOSE)
    assert_scores(explain_point(net, x, groups=3), local)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Softplus, nn.GELU])
def test_deep_networks_agree_with_the_reference(activation: type[nn.Module]) -> None:
    check_deep_network(activation, seed=0)


def test_single_precision_is_right_to_four_digits() -> None:
    net, x = mlp(6, 20, 20, 1, gain=2.0), random_points(30, 6)
    local = local_hessians(lambda x: net(x)[:, 0], x)
    result = explain_point(net.float(), x.float(), groups=[0] * 10 + [1] * 20)
    truth = reference.geh(local, [0] * 10 + [1] * 20)
    np.testing.assert_allclose(result.geh.mean, truth, rtol=0, atol=1e-4 * truth.max())
    np.testing.assert_allclose(result.eah.mean, reference.eah(local), rtol=1e-4, atol=1e-4 * truth.max())
    assert result.settings["dtype"] == "float32"


def test_many_units_take_more_than_one_block_of_directions() -> None:
    net, x = mlp(40, 6, 1, gain=2.0), random_points(5, 40)
    assert_scores(explain_point(net, x, groups=[0, 0, 1, 1, 1]), local_hessians(lambda x: net(x)[:, 0], x))


def test_pixels_of_an_image_agree_with_the_reference() -> None:
    net, x = cnn(), random_points(5, 36).reshape(5, 1, 6, 6)
    result = explain_point(net, x, target=1, groups=2)
    assert_scores(result, local_hessians(lambda flat: net(flat.reshape(-1, 1, 6, 6))[:, 1], x.flatten(1)))
    assert result.names[7] == "x[0,1,1]"
