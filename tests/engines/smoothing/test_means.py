"""Smooth forms are means of the functions themselves: over a normal distribution, or a logistic one for a beta."""

import math

import pytest
import torch
from kinked_functions import ELEMENTWISE, Kink, for_kinks
from torch import Tensor, nn

from geh_explain.captum import InputHessian
from geh_explain.engines import Radius
from geh_explain.engines.smoothing.gaussian import Bandwidth, gaussian_elu

CELU = [Kink("celu"), Kink("celu", (0.6,)), Kink("elu")]
LOGISTIC = [kink for kink in ELEMENTWISE if kink.name not in ("elu", "selu", "hardswish")]


def count(kink: Kink) -> int:
    """Return a number of nodes: many for functions that jump, whose sums have errors of the distance of the nodes."""
    return 150_001 if kink.name in ("hardshrink", "threshold") else 10_001


def normal(size: float, nodes: int = 20_001) -> tuple[Tensor, Tensor, Tensor]:
    """Return shifts, their weights, and the weights of the second derivative, by Stein's identity."""
    shifts = torch.linspace(-9, 9, nodes, dtype=torch.double)
    weights = torch.softmax(-(shifts**2) / 2, 0)
    return size * shifts, weights, weights * (shifts**2 - 1) / size**2


def logistic(beta: float, nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same for a logistic distribution, whose density k has k'' = k (1 - 6 s (1 - s)) with s its sigmoid."""
    shifts = torch.linspace(-36, 36, nodes, dtype=torch.double)
    s = torch.sigmoid(shifts)
    weights = s * (1 - s) / (s * (1 - s)).sum()
    return shifts / beta, weights, weights * (1 - 6 * s * (1 - s)) * beta**2


def means(kink: Kink, x: Tensor, distribution: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the mean of a function of x + e, and its second derivative."""
    shifts, *weights = distribution
    moved = x[None] + shifts.reshape(-1, *[1] * x.ndim)
    values = kink.hard(moved.flatten(0, 1)).detach().reshape(len(shifts), -1)
    mean, second = (values.T @ weight for weight in weights)
    return mean.reshape(x.shape), second.reshape(x.shape)


def form(kink: Kink, sharpness: float | Bandwidth, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of the smooth form, and its second derivatives."""
    x = x.clone().requires_grad_()
    values = kink.soft(sharpness, x)
    (slopes,) = torch.autograd.grad(values.sum(), x, create_graph=True)
    return values.detach(), torch.autograd.grad(slopes.sum(), x)[0]


def places(kink: Kink) -> Tensor:
    return torch.linspace(-4.1, 4.3, 12 * math.prod(kink.shape), dtype=torch.double).reshape(12, *kink.shape)


@pytest.mark.parametrize("size", [0.3, 1.0, 2.5])
@for_kinks([*ELEMENTWISE, *CELU])
def test_with_a_bandwidth_they_are_the_means_over_a_normal_distribution(kink: Kink, size: float) -> None:
    x = places(kink)
    found = form(kink, Bandwidth(torch.full_like(x, size)), x)
    for one, mean in zip(found, means(kink, x, normal(size, count(kink))), strict=True):
        assert float((one - mean).norm() / mean.norm()) < 2e-3


@pytest.mark.parametrize("size", [0.3, 1.0, 2.5])
@for_kinks(LOGISTIC)
def test_with_a_beta_they_are_the_means_over_a_logistic_distribution(kink: Kink, size: float) -> None:
    x, beta = places(kink), math.pi / math.sqrt(3) / size
    found = form(kink, beta, x)
    for one, mean in zip(found, means(kink, x, logistic(beta, count(kink))), strict=True):
        assert float((one - mean).norm() / mean.norm()) < 4e-3


@pytest.mark.parametrize("size", [0.3, 1.0, 2.5])
@for_kinks([kink for kink in [*ELEMENTWISE, *CELU] if not kink.linear or kink in CELU])
def test_what_bends_beside_its_kinks_has_the_mean_over_a_distribution_of_the_same_width(
    kink: Kink, size: float
) -> None:
    x, beta = places(kink), math.pi / math.sqrt(3) / size
    (_, second), (_, mean) = form(kink, beta, x), means(kink, x, normal(size))
    # The logistic distribution is another one, at most a tenth off for hardswish.
    assert float((second - mean).norm() / mean.norm()) < (0.2 if kink.name == "hardswish" else 1e-3)


@pytest.mark.parametrize("alpha", [1.0, 1.7])
def test_derivatives_of_the_mean_of_elu_are_right_in_both_arguments(alpha: float) -> None:
    x = torch.linspace(-3, 3, 7, dtype=torch.double, requires_grad=True)
    b = torch.linspace(0.2, 2, 7, dtype=torch.double).flip(0).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, b: gaussian_elu(x, Bandwidth(b), alpha), (x, b), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x, b: gaussian_elu(x, Bandwidth(b), alpha), (x, b))


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 30.0, 1000.0])
def test_the_mean_of_elu_is_exact_in_single_precision_for_any_width(size: float) -> None:
    x = torch.tensor([-1e6, -3e3, -40.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 40.0, 3e3, 1e6])
    found = []
    for dtype in (torch.float, torch.double):
        z = x.to(dtype).requires_grad_()
        value = gaussian_elu(z, Bandwidth.of(torch.full_like(z, size).detach()), 1.3)
        (slope,) = torch.autograd.grad(value.sum(), z, create_graph=True)
        (second,) = torch.autograd.grad(slope.sum(), z)
        found.append([part.detach().double() for part in (value, slope, second)])
    for single, double in zip(*found, strict=True):
        assert bool(torch.isfinite(single).all())
        torch.testing.assert_close(single, double, rtol=2e-4, atol=2e-4)


class Window(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool1d(x[:, None], x.shape[1]).flatten(1)


def sampled(f: nn.Module, x: Tensor, sigma: float) -> Tensor:
    """Return the mean Hessian (D, D) around a row without diagonal, from gradients at 100,000 normal shifts."""
    shifts = torch.randn(50_000, len(x), generator=torch.Generator().manual_seed(0), dtype=torch.double)
    above, below = ((x + sign * sigma * shifts).requires_grad_() for sign in (1, -1))
    slopes = [torch.autograd.grad(f(moved).sum(), moved)[0] for moved in (above, below)]
    hessian = shifts.T @ (slopes[0] - slopes[1]) / (2 * sigma * len(shifts))
    return (hessian + hessian.T) / 2 * (1 - torch.eye(len(x), dtype=torch.double))


def error(f: nn.Module, x: Tensor, sigma: float) -> float:
    """Return the error of the Hessians of rows x (n, D), relative to all of these."""
    expected = torch.stack([sampled(f, row, sigma) for row in x])
    found = InputHessian(f, smooth=Radius(sigma=sigma)).attribute(x)
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("module", [nn.ELU(), nn.ELU(0.5), nn.CELU(0.7), nn.SELU(), nn.Hardswish()], ids=str)
def test_networks_of_two_layers_are_close_to_the_mean_over_normal_shifts(module: nn.Module) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 30), module, nn.Linear(30, 20), module, nn.Linear(20, 1)).double()
    assert error(net, torch.randn(3, 4, dtype=torch.double), sigma=0.3) < 0.1


@pytest.mark.parametrize("entries", [2, 4, 9])
def test_maxima_of_windows_are_close_to_their_means(entries: int) -> None:
    # A log-sum-exp is no mean of a maximum, but has about the same curvature near ties.
    torch.manual_seed(0)
    assert error(Window(), 0.5 * torch.randn(5, entries, dtype=torch.double), sigma=0.3) < 0.2
