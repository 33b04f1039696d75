"""Kinks and jumps without a smooth form are named in a warning, where second derivatives miss them."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from explaining import explain_point_quietly, random_points
from networks import mlp
from torch import Tensor, nn

import geh_explain as geh

Function = Callable[[Tensor], Tensor]


class HardReLU(torch.autograd.Function):
    """ReLU with a backward pass of its own, which no smooth form reaches."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        product: Tensor = gradients[0] * (x > 0).to(x)
        return product


def set_entries(x: Tensor) -> Tensor:
    z = x[:, 2:] @ x.new_tensor([[1.0, 1.0], [1.0, -1.0]])
    z[z > 0.5] = 0.5
    return z.sum(dim=1)


def take_a_branch(x: Tensor) -> Tensor:
    return torch.stack([row[2] if row[2] > row[3] else row[3] for row in x])


#: Functions of x2 and x3 that interact, with second derivatives of 0, and the name that the warning must have.
MISSED: dict[str, tuple[Function, str]] = {
    "sort": (lambda x: x[:, 2:].sort(dim=1).values[:, 0], "sort"),
    "argsort": (lambda x: x.gather(1, x[:, 2:].argsort(dim=1) + 2)[:, 0], "argsort"),
    "topk": (lambda x: x[:, 2:].topk(1, dim=1).values[:, 0], "topk"),
    "kthvalue": (lambda x: x[:, 2:].kthvalue(1, dim=1).values, "kthvalue"),
    "median": (lambda x: x[:, 1:].median(dim=1).values, "median"),
    "quantile": (lambda x: x[:, 1:].quantile(0.7, dim=1), "quantile"),
    "cummax": (lambda x: x[:, 2:].cummax(dim=1).values[:, 1], "cummax"),
    "aminmax": (lambda x: torch.aminmax(x[:, 2:], dim=1).min, "aminmax"),
    "where": (lambda x: torch.where(x[:, 2] > x[:, 3], x[:, 2], x[:, 3]), "comparisons"),
    "mask": (lambda x: (x[:, 2] + x[:, 3]) * (x[:, 2] + x[:, 3] > 0), "comparisons"),
    "entries set": (set_entries, "comparisons"),
    "control flow": (take_a_branch, "comparisons"),
    "largest norm": (lambda x: x[:, 2:].norm(p=float("inf"), dim=1), "norm"),
    "distance": (lambda x: F.l1_loss(x[:, 2], -x[:, 3], reduction="none"), "l1_loss"),
    "round": (lambda x: x[:, 2].round() * x[:, 3], "round"),
    "own backward": (lambda x: HardReLU.apply(x[:, 2] + x[:, 3]), "HardReLU"),  # type: ignore[no-untyped-call]
}
#: What else the network does with x0 and x1: kinks that are smoothed, or none.
BESIDE: dict[str, Function] = {"smooth": lambda x: x[:, 0] * x[:, 1], "kinked": lambda x: F.relu(x[:, 0] + x[:, 1])}


def messages(model: Any, x: Tensor, **settings: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", geh.GEHWarning)
        posterior = geh.posterior.PointEstimate()
        geh.GEHExplainer(model, posterior=posterior, **settings).explain(x, groups=2, progress=False)
    return [str(warning.message) for warning in caught if "have no smooth form" in str(warning.message)]


class Sum(nn.Module):
    """The sum of two functions, as a model."""

    def __init__(self, *terms: Function) -> None:
        super().__init__()
        self.terms = terms

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([term(x) for term in self.terms]).sum(dim=0)


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("missed", MISSED)
def test_a_pair_that_second_derivatives_miss_is_named(missed: str, beside: str) -> None:
    function, name = MISSED[missed]
    x = random_points(60, 4)
    net = Sum(BESIDE[beside], function)
    (message,) = messages(net, x)
    assert f"kinks or jumps of {name} above the inputs" in message
    units = message.partition("slopes of ")[2].partition(". Use")[0].split(", ")
    assert {"x2", "x3"} & set(units), message
    assert not {"x0", "x1"} & set(units) or missed in ("median", "quantile"), message
    assert "engine='difference'" in message
    # The derivative engine has no score for the pair, and differences have one.
    assert explain_point_quietly(net, x).eah.mean[2, 3] < 1e-12
    assert explain_point_quietly(net, x, engine="difference").eah.mean[2, 3] > 0.05


@pytest.mark.parametrize("width", [4, 300])
def test_a_hidden_layer_of_comparisons_is_named(width: int) -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(6, width), nn.Linear(width, 1)

    class Where(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = first, last

        def forward(self, x: Tensor) -> Tensor:
            z = self.first(x)
            return self.last(torch.where(z > 0, z, 0.1 * z)) + x[:, :1].tanh() * x[:, 1:2]

    assert len(messages(Where(), torch.randn(200, 6))) == 1
    # At the layer each kink belongs to one unit: there are no interactions to miss.
    assert messages(Where(), torch.randn(200, 6), layer="first", units=geh.units.Subset(range(4))) == []


#: Decisions that leave slopes as they are: of one unit alone, between equal branches, unused, or the same everywhere.
HARMLESS: dict[str, Function] = {
    "one unit": lambda x: torch.where(x[:, 2] > 0, x[:, 2], 0.1 * x[:, 2]) + x[:, 3].round(),
    "equal branches": lambda x: torch.where(
        x.sum(1) > 0, 1 / (1 + (-x.sum(1)).exp()), x.sum(1).exp() / (1 + x.sum(1).exp())
    ),
    "unused": lambda x: (x.argmax(dim=1), x[:, 2].tanh() * x[:, 3])[1],
    "never taken": lambda x: torch.where(x.isnan(), 0.0, x).prod(dim=1),
    "fixed mask": lambda x: x.masked_fill(torch.arange(4.0) > 2, 1.0).prod(dim=1),
    "Euclidean": lambda x: x.norm(dim=1) * x[:, 0],
    "bent once more": lambda x: F.huber_loss(x.sum(1), x.new_zeros(len(x)), reduction="none") + 0 * (x > 0).sum(1),
}


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("harmless", HARMLESS)
def test_decisions_that_miss_no_interaction_are_not_mentioned(harmless: str, beside: str) -> None:
    assert messages(Sum(BESIDE[beside], HARMLESS[harmless]), random_points(60, 4)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.ReLU6, nn.ELU])
def test_a_sharp_network_with_an_idle_comparison_has_no_jumps(activation: type[nn.Module], dtype: torch.dtype) -> None:
    net = mlp(8, 32, 32, 1, activation=activation, gain=3.0).to(dtype)
    x = random_points(100, 8).to(dtype) * 3
    assert messages(Sum(lambda x: net(x)[:, 0], lambda x: 0 * (x > 0).sum(dim=1)), x) == []
    assert messages(Sum(lambda x: net(x)[:, 0], lambda x: 0 * (x > 0).sum(dim=1)), x, smooth=50.0) == []


def test_without_second_derivatives_nothing_is_missed() -> None:
    net, x = Sum(BESIDE["kinked"], MISSED["sort"][0]), random_points(60, 4)
    assert messages(net, x, engine="difference") == []
    assert messages(net, x, engine="stein") == []
