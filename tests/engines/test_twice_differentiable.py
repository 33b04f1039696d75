"""Functions rewritten to differentiate twice at low cost equal torch's own, derivatives included."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jacrev, jvp, vmap

import geh_explain as geh
from geh_explain.engines.twice_differentiable import softplus

SHAPES = [(1.0, 20.0), (0.3, 20.0), (10.0, 20.0), (2.0, 5.0)]  # beta, threshold
Form = Callable[[Tensor, float, float], Tensor]


def spread(dtype: torch.dtype, beta: float, threshold: float) -> Tensor:
    """Points on both sides of the kink and of the threshold, none on the threshold itself."""
    z = torch.cat([torch.linspace(-30, 30, 301, dtype=torch.double), torch.tensor([-800.0, 50.0, 800.0])])
    return (z[(z - threshold).abs() > 1e-6] / beta).to(dtype)


def value_and_derivatives(form: Form, x: Tensor, beta: float, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    x = x.clone().requires_grad_()
    value = form(x, beta, threshold)
    (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return value.detach(), first.detach(), second


@pytest.mark.parametrize(("beta", "threshold"), SHAPES)
def test_double_precision_agrees_with_torch_in_value_and_both_derivatives(beta: float, threshold: float) -> None:
    x = spread(torch.double, beta, threshold)
    ours, theirs = (value_and_derivatives(form, x, beta, threshold) for form in (softplus, F.softplus))
    assert torch.equal(ours[0], theirs[0])
    for mine, torchs in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-13, atol=1e-15)
    assert float(ours[2].max()) > 0.2 * beta


@pytest.mark.parametrize(("beta", "threshold"), SHAPES)
def test_beyond_the_threshold_it_is_torchs_straight_line_to_the_last_bit(beta: float, threshold: float) -> None:
    x = spread(torch.double, beta, threshold)
    x = x[beta * x > threshold]
    ours, theirs = (value_and_derivatives(form, x, beta, threshold) for form in (softplus, F.softplus))
    for mine, torchs in zip(ours, theirs, strict=True):
        assert torch.equal(mine, torchs)
    assert torch.equal(ours[0], x)
    assert torch.equal(ours[1], torch.ones_like(x))
    assert torch.equal(ours[2], torch.zeros_like(x))


@pytest.mark.parametrize(("beta", "threshold"), SHAPES)
def test_single_precision_agrees_with_torch_to_a_millionth(beta: float, threshold: float) -> None:
    x = spread(torch.float, beta, threshold)
    value, first, second = value_and_derivatives(softplus, x, beta, threshold)
    expected = value_and_derivatives(F.softplus, x, beta, threshold)
    assert value.dtype == first.dtype == second.dtype == torch.float
    assert torch.equal(value, expected[0])
    torch.testing.assert_close(first, expected[1], rtol=0, atol=1e-6)
    torch.testing.assert_close(second / beta, expected[2] / beta, rtol=0, atol=1e-6)  # the peak is beta / 4


@pytest.mark.parametrize("beta", [0.3, 1.0, 10.0])
def test_its_derivatives_are_the_slopes_of_its_values(beta: float) -> None:
    x = (torch.linspace(-6, 6, 9, dtype=torch.double) / beta).requires_grad_()
    assert gradcheck(lambda x: softplus(x, beta), (x,))
    assert gradgradcheck(lambda x: softplus(x, beta), (x,))


def test_its_defaults_are_those_of_torch() -> None:
    x = torch.linspace(-25, 25, 101, dtype=torch.double)
    assert torch.equal(softplus(x), F.softplus(x))
    assert torch.equal(softplus(x, 3.0), F.softplus(x, 3.0))
    assert torch.equal(softplus(input=x, beta=3.0, threshold=5.0), F.softplus(input=x, beta=3.0, threshold=5.0))


@pytest.mark.parametrize(("beta", "threshold"), SHAPES)
def test_vectorised_over_rows_it_is_the_same(beta: float, threshold: float) -> None:
    x = spread(torch.double, beta, threshold)[:300].reshape(50, 6)

    def chain(form: Form) -> Callable[[Tensor], Tensor]:
        return lambda row: (form(row[1:], beta, threshold) * form(row[:-1], beta, threshold)).sum()

    def plain(row: Tensor) -> Tensor:
        hessian: Tensor = torch.autograd.functional.hessian(chain(F.softplus), row)
        return hessian

    assert torch.equal(vmap(chain(softplus))(x), vmap(chain(F.softplus))(x))
    hessians = vmap(jacrev(jacrev(chain(softplus))))(x)
    torch.testing.assert_close(hessians, torch.stack([plain(row) for row in x]), rtol=1e-12, atol=1e-14)


def test_vectorised_over_directions_it_is_the_same() -> None:
    x = torch.linspace(-3, 3, 7, dtype=torch.double).requires_grad_()
    (first,) = torch.autograd.grad(softplus(x, 2.0).sum(), x, create_graph=True)
    (rows,) = torch.autograd.grad(first, x, torch.eye(7, dtype=torch.double), is_grads_batched=True)
    slope = torch.sigmoid(2 * x.detach())
    torch.testing.assert_close(rows, torch.diag(2 * slope * (1 - slope)), rtol=1e-14, atol=0)


def test_forward_mode_is_the_same() -> None:
    """A model may take directional derivatives in its own forward."""
    x, direction = torch.linspace(-3, 3, 7, dtype=torch.double), torch.linspace(1, 2, 7, dtype=torch.double)
    _, ours = jvp(lambda x: softplus(x, 2.0), (x,), (direction,))
    _, theirs = jvp(lambda x: F.softplus(x, 2.0), (x,), (direction,))
    torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=0)


def test_a_network_with_softplus_is_explained_as_torch_differentiates_it() -> None:
    """Above the cut the package puts its own softplus in torch's place; by hand: sum_h v_h w_hi w_hj softplus''."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Softplus(beta=4.0, threshold=6.0), nn.Linear(5, 1)).double()
    x = 2 * torch.randn(40, 3, dtype=torch.double)
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    result = explainer.explain(x, groups=1, progress=False)
    assert result.settings["smoothed"] is None
    weight, head = net[0].weight.detach(), net[2].weight.detach()[0]
    z = 4.0 * net[0](x).detach()
    bend = 4.0 * torch.sigmoid(z) * torch.sigmoid(-z) * (z < 6.0)
    mean = torch.einsum("nh,h,hi,hj->ij", bend, head, weight, weight).fill_diagonal_(0.0) / len(x)
    torch.testing.assert_close(torch.as_tensor(result.aeh.mean), mean.abs(), rtol=1e-12, atol=1e-14)


# Functions whose own kernels have no second derivative: unsmoothed, they are explained by other means.


def hardswish_in_place(x: Tensor) -> Tensor:
    F.hardswish(x, inplace=True)
    return x


def hardsigmoid_in_place(x: Tensor) -> Tensor:
    F.hardsigmoid(x, inplace=True)
    return x


@pytest.mark.parametrize(
    "bend",
    [F.hardswish, nn.Hardswish(), nn.Hardswish(inplace=True), hardswish_in_place],
    ids=["function", "module", "module in place", "in place"],
)
def test_hardswish_bends_by_a_third_between_its_kinks(bend: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    lower, x = nn.Linear(3, 5).double(), 4 * torch.randn(40, 3, dtype=torch.double)
    explainer = geh.GEHExplainer(
        lambda x: bend(lower(x)).sum(dim=1), posterior=geh.posterior.PointEstimate(), smooth=None
    )
    result = explainer.explain(x, groups=1, progress=False)
    weight, inside = lower.weight.detach(), (lower(x).abs() < 3).double()
    mean = torch.einsum("nh,hi,hj->ij", inside, weight, weight).fill_diagonal_(0.0) / (3 * len(x))
    torch.testing.assert_close(torch.as_tensor(result.aeh.mean), mean.abs(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "bend",
    [F.hardsigmoid, nn.Hardsigmoid(), nn.Hardsigmoid(inplace=True), hardsigmoid_in_place],
    ids=["function", "module", "module in place", "in place"],
)
def test_hardsigmoid_is_differentiated_twice_where_it_is_squared(bend: Callable[[Tensor], Tensor]) -> None:
    """Its square bends by 2 / 36 between the kinks."""
    torch.manual_seed(0)
    lower, x = nn.Linear(3, 5).double(), 4 * torch.randn(40, 3, dtype=torch.double)
    explainer = geh.GEHExplainer(
        lambda x: (bend(lower(x)) ** 2).sum(dim=1), posterior=geh.posterior.PointEstimate(), smooth=None
    )
    result = explainer.explain(x, groups=1, progress=False)
    weight, inside = lower.weight.detach(), (lower(x).abs() < 3).double()
    mean = torch.einsum("nh,hi,hj->ij", inside, weight, weight).fill_diagonal_(0.0) / (18 * len(x))
    torch.testing.assert_close(torch.as_tensor(result.aeh.mean), mean.abs(), rtol=1e-12, atol=1e-14)
