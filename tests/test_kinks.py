"""Kinked functions act as smooth ones while explaining: close to the hard ones, twice differentiable, and only then."""

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import reference
import torch
import torch.nn.functional as F
from reference import hidden_hessians, local_hessians
from torch import Tensor, nn
from torch.autograd import gradgradcheck
from torch.overrides import _get_current_function_mode_stack

import geh_explain as geh
from geh_explain.hessian.kinks import FORMS

CLOSE = 1e-10
LOG2 = math.log(2)
Way = Callable[[Tensor], Any]


# Every kinked function, with arguments that matter, and every way torch offers to call it.


@dataclass(frozen=True)
class Kink:
    """One kinked function. On a tie or a kink its smooth form is off by at most ``bound`` / beta."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = (6,)
    bound: float = LOG2
    also: tuple[Way, ...] = ()
    linear: bool = True
    rows: int = 5

    def soft(self, beta: float, x: Tensor) -> Any:
        return FORMS[self.name](beta, x, *self.args, **self.kwargs)

    def ways(self) -> Iterator[tuple[str, Way]]:
        """Yield modules, functional calls and methods, in place or not, as far as there are any."""
        for way in self.also:
            yield (str(way) if isinstance(way, nn.Module) else way.__name__), way
        for (place, owner), tail in product((("F", F), ("torch", torch), ("Tensor", Tensor)), ("", "_")):
            call = getattr(owner, self.name + tail, None)
            if call is None or ("return_indices" in self.kwargs and owner is not F):
                continue
            yield f"{place}.{self.name}{tail}", self._call(call)
            if owner is F and not tail and "inplace" in _parameters(call):
                yield f"F.{self.name}(inplace=True)", self._call(call, inplace=True)

    def _call(self, call: Callable[..., Any], **more: Any) -> Way:
        return lambda x: call(x, *self.args, **self.kwargs, **more)

    def hard(self, x: Tensor) -> Any:
        _, way = next(self.ways())
        return way(x.clone())

    def entering(self, x: Tensor) -> Tensor:
        """What is held against the kink: the difference where two tensors are compared."""
        others = [value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor)]
        return x - others[0] if others and self.name in ("max", "min", "maximum", "minimum") else x

    @property
    def reported(self) -> str:
        return self.name + ("_with_indices" if self.kwargs.get("return_indices") else "")

    def __str__(self) -> str:
        words = [_word(value) for value in self.args]
        words += [f"{key}={_word(value)}" for key, value in self.kwargs.items()]
        return f"{self.name}({', '.join(words)}) on {self.shape}"


def _parameters(call: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(call).parameters)
    except ValueError:  # built in
        return []


def _word(value: Any) -> str:
    return f"tensor{tuple(value.shape)}" if isinstance(value, Tensor) else str(value).replace(" ", "")


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.double)


def prelu(*weights: float) -> nn.PReLU:
    module = nn.PReLU(len(weights)).double()
    with torch.no_grad():
        module.weight.copy_(doubles(*weights))
    return module


WEIGHTS = (0.3, -0.4, 0.0, 1.0, 0.7, 0.25)
OTHER = doubles(0.5, -1.0, 2.0, 0.0, -0.5, 1.5)
LOW, HIGH = doubles(-1.0, -2.0, 0.5, 0.0, -0.5, -3.0), doubles(1.0, 0.0, 2.0, 0.5, 1.5, -1.0)

ELEMENTWISE = [
    Kink("relu", also=(nn.ReLU(), nn.ReLU(inplace=True))),
    Kink("relu6"),
    Kink("hardtanh", (0.0, 6.0), also=(nn.ReLU6(), nn.ReLU6(inplace=True))),
    Kink("hardtanh", also=(nn.Hardtanh(), nn.Hardtanh(inplace=True))),
    Kink("hardtanh", (-0.5, 2.0), also=(nn.Hardtanh(-0.5, 2.0),)),
    Kink("leaky_relu", also=(nn.LeakyReLU(), nn.LeakyReLU(inplace=True))),
    Kink("leaky_relu", (0.2,), also=(nn.LeakyReLU(0.2),)),
    Kink("prelu", (doubles(0.3),), also=(prelu(0.3),)),
    Kink("prelu", (doubles(*WEIGHTS),), also=(prelu(*WEIGHTS),), bound=1.4 * LOG2),
    Kink("prelu", (doubles(0.3),), shape=(2, 2, 3), also=(prelu(0.3),)),
    Kink("prelu", (doubles(0.3, -0.4),), shape=(2, 2, 3), also=(prelu(0.3, -0.4),), bound=1.4 * LOG2),
    Kink("rrelu", also=(nn.RReLU().eval(), nn.RReLU(inplace=True).eval())),
    Kink("rrelu", (0.1, 0.5), also=(nn.RReLU(0.1, 0.5).eval(),)),
    Kink("elu", (1.7,), also=(nn.ELU(1.7), nn.ELU(1.7, inplace=True)), linear=False),
    Kink("elu", kwargs={"alpha": 0.4}, also=(nn.ELU(0.4),), linear=False),
    Kink("selu", also=(nn.SELU(), nn.SELU(inplace=True)), linear=False),
    Kink("hardsigmoid", also=(nn.Hardsigmoid(), nn.Hardsigmoid(inplace=True)), bound=LOG2 / 6),
    Kink("hardswish", also=(nn.Hardswish(), nn.Hardswish(inplace=True)), bound=LOG2 / 2, linear=False),
    Kink("hardshrink", (0.75,), also=(nn.Hardshrink(0.75),), bound=1e-6),
    Kink("softshrink", also=(nn.Softshrink(),)),
    Kink("softshrink", (1.5,), also=(nn.Softshrink(1.5),)),
    Kink("threshold", (0.75, -2.0), also=(nn.Threshold(0.75, -2.0), nn.Threshold(0.75, -2.0, True)), bound=1e-6),
    Kink("threshold", (-0.25, 3.0), also=(nn.Threshold(-0.25, 3.0),), bound=1e-6),
    Kink("abs", also=(abs,), bound=2 * LOG2),
    Kink("absolute", bound=2 * LOG2),
    Kink("clamp", (-1.0,)),
    Kink("clamp", kwargs={"max": 2.0}),
    Kink("clamp", (-1.0, 2.0)),
    Kink("clamp", kwargs={"min": -1.0, "max": 2.0}),
    Kink("clamp", (LOW,)),
    Kink("clamp", kwargs={"max": HIGH}),
    Kink("clamp", kwargs={"min": LOW, "max": HIGH}),
    Kink("clip", (-1.0, 2.0)),
    Kink("clamp_min", (0.5,)),
    Kink("clamp_min", (LOW,)),
    Kink("clamp_max", (0.5,)),
    Kink("clamp_max", kwargs={"max": HIGH}),
    Kink("maximum", (OTHER,)),
    Kink("minimum", (OTHER,)),
]

REDUCTIONS = [
    *(Kink(name, (1,), bound=math.log(6)) for name in ("amax", "amin", "max", "min")),
    *(Kink(name, kwargs={"dim": -1, "keepdim": True}, bound=math.log(6)) for name in ("amax", "amin", "max", "min")),
    *(Kink(name, (1, True), shape=(2, 3), bound=math.log(2)) for name in ("amax", "amin", "max", "min")),
    *(Kink(name, ((1, 2),), shape=(2, 3), bound=math.log(6)) for name in ("amax", "amin")),
    *(Kink(name, ([1, -1], True), shape=(2, 2, 2), bound=math.log(4)) for name in ("amax", "amin")),
    *(Kink(name, bound=math.log(6), rows=1) for name in ("amax", "amin", "max", "min")),
    *(Kink(name, kwargs={"dim": []}, bound=math.log(6), rows=1) for name in ("amax", "amin")),
    *(Kink(name, (OTHER,)) for name in ("max", "min")),
    *(Kink(name, kwargs={"other": OTHER}) for name in ("max", "min")),
]

MAX_POOLS = [
    Kink("max_pool1d", (3,), shape=(2, 7), bound=math.log(3), also=(nn.MaxPool1d(3),)),
    Kink("max_pool1d", (3, 2, 1), shape=(2, 7), bound=math.log(3), also=(nn.MaxPool1d(3, 2, 1),)),
    Kink(
        "max_pool1d", (2, 3, 1, 2, True), shape=(1, 8), bound=math.log(2), also=(nn.MaxPool1d(2, 3, 1, 2, False, True),)
    ),
    Kink("max_pool1d", (3, 2), shape=(8,), bound=math.log(3), also=(nn.MaxPool1d(3, 2),)),
    Kink("max_pool1d", (2,), {"return_indices": True}, (2, 6), math.log(2), (nn.MaxPool1d(2, return_indices=True),)),
    Kink("max_pool2d", (2,), shape=(2, 4, 5), bound=math.log(4), also=(nn.MaxPool2d(2),)),
    Kink("max_pool2d", ([2],), shape=(1, 4, 4), bound=math.log(4)),
    Kink("max_pool2d", (2, ()), shape=(1, 4, 4), bound=math.log(4)),
    Kink("max_pool2d", (3, 2, 1), shape=(1, 5, 6), bound=math.log(9), also=(nn.MaxPool2d(3, 2, 1),)),
    Kink("max_pool2d", ((2, 3), (2, 1), (1, 0), (1, 2)), shape=(1, 4, 6), bound=math.log(6)),
    Kink("max_pool2d", (2, 2, 0, 1, True), shape=(1, 5, 3), bound=math.log(4), also=(nn.MaxPool2d(2, ceil_mode=True),)),
    Kink("max_pool2d", (3, 2, 1, 1, True), shape=(1, 6, 4), bound=math.log(9)),
    Kink("max_pool2d", (2,), shape=(4, 4), bound=math.log(4), also=(nn.MaxPool2d(2),)),
    Kink("max_pool2d", (2,), {"return_indices": True}, (1, 4, 4), math.log(4), (nn.MaxPool2d(2, return_indices=True),)),
    Kink("max_pool3d", (2,), shape=(1, 2, 4, 4), bound=math.log(8), also=(nn.MaxPool3d(2),)),
    Kink("max_pool3d", ((1, 2, 3), 2, (0, 1, 1), 1, True), shape=(1, 2, 3, 4), bound=math.log(6)),
    Kink("max_pool3d", (2, 1), shape=(2, 3, 3), bound=math.log(8), also=(nn.MaxPool3d(2, 1),)),
    Kink("max_pool3d", (2,), {"return_indices": True}, (1, 2, 2, 4), math.log(8)),
    Kink("max_pool1d_with_indices", (3, 2, 1), shape=(2, 7), bound=math.log(3)),
    Kink("max_pool2d_with_indices", (2,), shape=(1, 4, 4), bound=math.log(4)),
    Kink("max_pool3d_with_indices", (2,), shape=(1, 2, 2, 4), bound=math.log(8)),
]

ADAPTIVE_POOLS = [
    Kink("adaptive_max_pool1d", (3,), shape=(2, 7), bound=math.log(3), also=(nn.AdaptiveMaxPool1d(3),)),
    Kink("adaptive_max_pool1d", (2,), shape=(6,), bound=math.log(3), also=(nn.AdaptiveMaxPool1d(2),)),
    Kink("adaptive_max_pool1d", (1,), {"return_indices": True}, (2, 4), math.log(4), (nn.AdaptiveMaxPool1d(1, True),)),
    Kink("adaptive_max_pool2d", (2,), shape=(2, 4, 4), bound=math.log(4), also=(nn.AdaptiveMaxPool2d(2),)),
    Kink("adaptive_max_pool2d", ((3, 2),), shape=(1, 5, 3), bound=math.log(6), also=(nn.AdaptiveMaxPool2d((3, 2)),)),
    Kink("adaptive_max_pool2d", ((None, 2),), shape=(1, 2, 5), bound=math.log(3)),
    Kink("adaptive_max_pool2d", (2,), {"return_indices": True}, (1, 3, 3), math.log(4)),
    Kink("adaptive_max_pool3d", (2,), shape=(1, 2, 3, 4), bound=math.log(4), also=(nn.AdaptiveMaxPool3d(2),)),
    Kink("adaptive_max_pool3d", ((1, 2, None),), shape=(2, 3, 2), bound=math.log(4)),
    Kink("adaptive_max_pool1d_with_indices", (3,), shape=(2, 7), bound=math.log(3)),
    Kink("adaptive_max_pool2d_with_indices", ((3, 2),), shape=(1, 5, 3), bound=math.log(6)),
    Kink("adaptive_max_pool3d_with_indices", (2,), shape=(1, 2, 3, 4), bound=math.log(4)),
]

KINKS = [*ELEMENTWISE, *REDUCTIONS, *MAX_POOLS, *ADAPTIVE_POOLS]
for_every_kink = pytest.mark.parametrize("kink", KINKS, ids=str)
for_every_way = pytest.mark.parametrize(
    ("kink", "way"),
    [pytest.param(kink, way, id=f"{kink} by {name}") for kink in KINKS for name, way in kink.ways()],
)


def test_every_smooth_form_is_tested_and_can_be_called() -> None:
    assert {kink.name for kink in KINKS} == set(FORMS)
    assert all(list(kink.ways()) for kink in KINKS)


# The forms themselves


def values_of(out: Any) -> Tensor:
    values: Tensor = out[0] if isinstance(out, tuple) else out
    return values


@for_every_kink
def test_the_smooth_form_is_off_by_at_most_a_constant_over_beta(kink: Kink) -> None:
    """On multiples of a half: all kinks and many ties are met; no discontinuity is, and none is nearer than 1/4."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-14, 15, (1 if kink.rows == 1 else 40, *kink.shape), generator=generator).double() / 2
    x[0] = 0.5
    hard = values_of(kink.hard(x)).detach()

    def error(beta: float) -> float:
        soft = values_of(kink.soft(beta, x))
        assert soft.shape == hard.shape
        return float((soft - hard).abs().max())

    blunt, sharp = error(100.0), error(1000.0)
    assert blunt <= kink.bound * (1 + 1e-9) / 100
    assert sharp <= blunt / 9 + 1e-13


@for_every_kink
def test_the_smooth_form_gives_back_what_the_function_does(kink: Kink) -> None:
    x = torch.randn(kink.rows, *kink.shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    hard, soft = kink.hard(x), kink.soft(5.0, x)
    assert isinstance(soft, tuple) == isinstance(hard, tuple)
    if isinstance(hard, tuple):
        assert torch.equal(soft[1], hard[1])  # the indices are those of the largest values, not smoothed
        assert hasattr(soft, "values") == hasattr(hard, "values")


@for_every_kink
def test_the_smooth_form_is_differentiated_twice_correctly(kink: Kink) -> None:
    rows = 1 if math.prod(kink.shape) > 8 else 2
    generator = torch.Generator().manual_seed(2)
    x = (2 * torch.randn(rows, *kink.shape, generator=generator, dtype=torch.double)).requires_grad_()
    assert gradgradcheck(lambda x: values_of(kink.soft(3.0, x)), (x,))


def test_a_padded_window_counts_only_what_is_there() -> None:
    """Three windows over (1, 2), padded by one on both sides: log(e^b) / b, log(e^b + e^2b) / b, log(e^2b) / b."""
    pooled = FORMS["max_pool1d"](2.0, doubles(1.0, 2.0).reshape(1, 1, 2), 2, 1, 1)
    expected = doubles(1.0, math.log(math.exp(2.0) + math.exp(4.0)) / 2, 2.0)
    torch.testing.assert_close(pooled.flatten(), expected, rtol=1e-14, atol=0)


def test_forms_stay_finite_far_from_the_kink() -> None:
    x = doubles(-1e6, -50.0, 0.0, 50.0, 1e6).requires_grad_()
    for kink in ELEMENTWISE:
        if all(not isinstance(value, Tensor) or value.numel() == 1 for value in (*kink.args, *kink.kwargs.values())):
            value = kink.soft(100.0, x)
            (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), x)
            assert all(bool(torch.isfinite(part).all()) for part in (value, first, second)), str(kink)


# Through the explainer


class Net(nn.Module):
    """A linear map, the kinked function, and a weighted sum of what it puts out."""

    def __init__(self, kink: Kink, way: Way) -> None:
        super().__init__()
        self.shape, self.way = kink.shape, way
        self.several = isinstance(way(torch.ones(kink.rows, *kink.shape, dtype=torch.double)), tuple)
        torch.manual_seed(0)
        self.lower = nn.Linear(3, math.prod(kink.shape)).double()
        with torch.no_grad():
            self.lower.weight.mul_(6.0)

    def below(self, x: Tensor) -> Tensor:
        return self.lower(x).unflatten(1, self.shape)

    def above(self, values: Tensor, rows: int) -> Tensor:
        values = values.reshape(rows, -1)
        return values @ torch.linspace(1.0, 2.0, values.shape[1], dtype=torch.double)

    def forward(self, x: Tensor) -> Tensor:
        out = self.way(self.below(x))
        return self.above(out[0] if self.several else out, len(x))

    def smooth_hessians(self, kink: Kink, beta: float, x: Tensor) -> np.ndarray:
        return local_hessians(lambda x: self.above(values_of(kink.soft(beta, self.below(x))), len(x)), x)


def points(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def explain(
    model: Any, x: Any, *args: Any, layer: Any = None, smooth: Any = "auto", **options: Any
) -> geh.Interactions:
    explainer = geh.GEHExplainer(model, layer, posterior=geh.posterior.PointEstimate(), smooth=smooth)
    return explainer.explain(x, *args, **({"groups": 1, "progress": False} | options))


def explain_in_silence(*args: Any, **options: Any) -> geh.Interactions:
    """As above, for networks that smoothing may well change beyond recognition."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        return explain(*args, **options)


def assert_scores(result: geh.Interactions, local: np.ndarray, close: float = CLOSE) -> None:
    np.testing.assert_allclose(result.aeh.mean, reference.aeh(local), rtol=0, atol=close)
    np.testing.assert_allclose(result.eah.mean, reference.eah(local), rtol=0, atol=close)
    assert (result.eah.mean[np.triu_indices(len(result.names), 1)] > 1e3 * close).all()


@for_every_way
def test_however_it_is_called_its_smooth_form_is_explained(kink: Kink, way: Way) -> None:
    net, x = Net(kink, way).eval(), points(kink.rows, 3)
    before = net(x)
    result = explain_in_silence(net, x, smooth=1.5)
    assert_scores(result, net.smooth_hessians(kink, 1.5, x))
    smoothed = result.settings["smoothed"]
    assert smoothed["functions"] == {kink.reported: 1}
    assert smoothed["beta"] == [1.5, 1.5]
    assert torch.equal(net(x), before)


@for_every_kink
def test_auto_is_ten_over_the_standard_deviation_of_what_enters(kink: Kink) -> None:
    net, x = Net(kink, next(kink.ways())[1]).eval(), points(kink.rows, 3)
    result = explain_in_silence(net, x)
    beta = 10 / float(kink.entering(net.below(x).detach()).std(correction=0))
    np.testing.assert_allclose(result.settings["smoothed"]["beta"], [beta, beta], rtol=1e-13)
    assert_scores(result, net.smooth_hessians(kink, beta, x))


@pytest.mark.parametrize("kink", [kink for kink in KINKS if kink.linear], ids=str)
def test_unsmoothed_it_has_no_curvature_and_the_warning_names_it(kink: Kink) -> None:
    net = Net(kink, next(kink.ways())[1]).eval()
    with pytest.warns(geh.GEHWarning, match=rf"piecewise linear \({kink.reported}\)"):
        result = explain(net, points(kink.rows, 3), smooth=None)
    assert not result.eah.mean.any()
    assert result.settings["smoothed"] is None


@pytest.mark.parametrize("kink", [Kink("elu", (1.7,)), Kink("selu"), Kink("hardswish")], ids=str)
def test_unsmoothed_what_bends_between_its_kinks_keeps_that_curvature(kink: Kink) -> None:
    net, x = Net(kink, kink.hard).eval(), points(12, 3)
    assert_scores(explain(net, x, smooth=None), local_hessians(net, x))


def mlp(activation: Callable[[], nn.Module], *widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    net = nn.Sequential(*layers[:-1]).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2.0)
    return net


@pytest.mark.parametrize("inplace", [False, True])
def test_a_relu_network_is_explained_as_the_softplus_network_of_that_beta(inplace: bool) -> None:
    x = points(60, 4)
    kinked, smooth = mlp(lambda: nn.ReLU(inplace), 4, 16, 16, 1), mlp(lambda: nn.Softplus(beta=7), 4, 16, 16, 1)
    groups = (x[:, 0] > 0).long()
    result, expected = explain(kinked, x, smooth=7.0, groups=groups), explain(smooth, x, groups=groups)
    for scores, truth in ((result.aeh, expected.aeh), (result.geh, expected.geh), (result.eah, expected.eah)):
        np.testing.assert_allclose(scores.mean, truth.mean, rtol=0, atol=CLOSE)
    assert_scores(result, local_hessians(lambda x: smooth(x)[:, 0], x))
    assert expected.settings["smoothed"] is None
    whole = explain(kinked, x, smooth=7, groups=groups)  # an int will do
    np.testing.assert_array_equal(whole.geh.mean, result.geh.mean)


def test_a_hidden_layer_of_a_relu_network_is_explained_as_that_of_the_softplus_network() -> None:
    x = points(40, 4)
    kinked, smooth = mlp(nn.ReLU, 4, 6, 8, 1), mlp(lambda: nn.Softplus(beta=7), 4, 6, 8, 1)
    result = explain(kinked, x, layer="1", smooth=7.0)
    with torch.no_grad():
        hidden = kinked[:2](x)  # below the cut the network is the original one
    upper = hidden_hessians(lambda h: smooth[2:](h)[:, 0], hidden, torch.eye(6))
    assert_scores(result, upper)
    assert result.settings["smoothed"]["functions"] == {"relu": 1}


def test_on_raw_output_the_true_pair_of_a_relu_network_comes_first() -> None:
    """|x0 + x1| - |x0 - x1| + x2 from four ReLUs: x0 and x1 act together, x2 with none."""
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1)).double()
    rows = [[1, 1, 0], [-1, -1, 0], [1, -1, 0], [-1, 1, 0], [0, 0, 1], [0, 0, -1]]
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor(rows))
        net[0].bias.zero_()
        net[2].weight.copy_(doubles(1, 1, -1, -1, 1, -1))
        net[2].bias.zero_()
    x = points(4000, 3)
    result = explain(net, x)
    # d2/dx0dx1 is 2 delta(x0 + x1) + 2 delta(x0 - x1), and both have density 1 / sqrt(4 pi) at 0.
    np.testing.assert_allclose(result.aeh.mean[0, 1], 4 / math.sqrt(4 * math.pi), rtol=0.05)
    assert result.aeh.mean[0, 2] < 1e-12
    assert result.aeh.mean[1, 2] < 1e-12
    with pytest.warns(geh.GEHWarning, match=r"piecewise linear \(relu\)"):
        assert not explain(net, x, smooth=None).eah.mean.any()


def test_two_functions_are_both_named() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Unflatten(1, (2, 4)), nn.MaxPool1d(2), nn.Flatten())
    net = nn.Sequential(net, nn.Linear(4, 1)).double()
    with pytest.warns(geh.GEHWarning, match=r"piecewise linear \(relu, max_pool1d\)"):
        explain(net, points(20, 3), smooth=None)
    assert explain_in_silence(net, points(20, 3)).settings["smoothed"]["functions"] == {"relu": 1, "max_pool1d": 1}


def test_a_probability_has_curvature_of_its_own_without_smoothing() -> None:
    net, x = mlp(nn.ReLU, 3, 8, 1), points(20, 3)
    explainer = geh.GEHExplainer(net, output="probability", posterior=geh.posterior.PointEstimate(), smooth=None)
    assert_scores(
        explainer.explain(x, groups=1, progress=False), local_hessians(lambda x: net(x)[:, 0].sigmoid(), x), 1e-12
    )


# Values that must not confuse it


@pytest.mark.parametrize(
    "longest",
    [
        lambda h: h.amax(dim=1),
        lambda h: h.max(dim=1).values,
        lambda h: -(-h).amin(dim=1),
        lambda h: F.max_pool1d(h[:, None], 6).flatten(),
        lambda h: F.adaptive_max_pool1d(h[:, None], 1).flatten(),
    ],
    ids=["amax", "max", "amin", "max_pool1d", "adaptive_max_pool1d"],
)
@pytest.mark.parametrize("smooth", ["auto", 3.0])
def test_a_place_masked_by_infinity_is_absent(longest: Way, smooth: Any) -> None:
    """As in pooling over sequences of unequal length: padding is -inf before the maximum."""
    torch.manual_seed(0)
    lower, x = nn.Linear(3, 6).double(), points(12, 3)
    masked = torch.tensor([False, False, False, False, True, True])
    result = explain_in_silence(lambda x: longest(lower(x).masked_fill(masked, -math.inf)), x, smooth=smooth)
    beta = result.settings["smoothed"]["beta"][0]
    assert_scores(result, local_hessians(lambda x: torch.logsumexp(beta * lower(x)[:, :4], dim=1) / beta, x))


def test_a_given_beta_holds_for_a_single_point_too() -> None:
    x = doubles(0.1, -0.2).reshape(1, 2)
    result = explain_in_silence(lambda x: F.relu(x.sum(dim=1)), x, smooth=7.0)
    slope = 1 / (1 + math.exp(0.7))
    np.testing.assert_allclose(result.aeh.mean[0, 1], 7 * slope * (1 - slope), rtol=1e-12)


def test_a_kink_inside_vmap_is_smoothed() -> None:
    torch.manual_seed(0)
    lower, x = nn.Linear(3, 5).double(), points(12, 3)
    result = explain_in_silence(lambda x: torch.func.vmap(lambda row: F.relu(lower(row)).sum())(x), x, smooth=7.0)
    assert_scores(result, local_hessians(lambda x: F.softplus(lower(x), 7.0).sum(dim=1), x))


def test_part_of_a_tensor_changed_in_place_is_smoothed() -> None:
    torch.manual_seed(0)
    lower, x = nn.Linear(3, 6).double(), points(12, 3)

    def model(x: Tensor) -> Tensor:
        h = lower(x)
        h[:, :2].relu_()
        F.relu(h[:, 2:4], inplace=True)
        return (h**2).sum(dim=1)

    def smooth(x: Tensor) -> Tensor:
        h = lower(x)
        return (F.softplus(h[:, :4], 3.0) ** 2).sum(dim=1) + (h[:, 4:] ** 2).sum(dim=1)

    assert_scores(explain_in_silence(model, x, smooth=3.0), local_hessians(smooth, x))


# What is left alone


NAMES = [name + tail for name in FORMS for tail in ("", "_")]


def functions() -> dict[tuple[str, str], Any]:
    places = {"F": F, "torch": torch, "Tensor": Tensor, "torch._C._nn": torch._C._nn}
    return {
        (place, name): getattr(owner, name) for place, owner in places.items() for name in NAMES if hasattr(owner, name)
    }


def image_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.PReLU(3), nn.Flatten(),
        nn.Linear(12, 4), nn.Hardswish(), nn.Linear(4, 2),
    ).double()  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
def test_functions_modules_and_outputs_are_the_same_afterwards(fails: bool) -> None:
    net, calls = image_net(), []
    x = torch.randn(10, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    net.eval()
    output = net(x).detach()
    known, modules = functions(), [(name, module, dict(vars(module))) for name, module in net.named_modules()]

    def read(raw: Tensor) -> Tensor:
        calls.append(raw.requires_grad)
        if fails and raw.requires_grad:
            raise KeyError("in the middle of a smoothed forward")
        return raw

    explainer = geh.GEHExplainer(net, output=read, posterior=geh.posterior.PointEstimate())
    if fails:
        with pytest.raises(KeyError, match="in the middle"):
            explainer.explain(x, 1, groups=1, progress=False)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", geh.GEHWarning)
            assert explainer.explain(x, 1, groups=1, progress=False).eah.mean.any()
    assert any(calls)
    assert all(found is known[key] for key, found in functions().items())
    assert _get_current_function_mode_stack() == []
    assert float(F.relu(torch.tensor(-1.0))) == 0.0
    for (name, module, state), (name_after, module_after) in zip(modules, net.named_modules(), strict=True):
        assert (name, id(module)) == (name_after, id(module_after))
        assert vars(module).keys() == state.keys()
        assert all(vars(module)[key] is value for key, value in state.items())
    assert torch.equal(net(x), output)


def test_kinks_below_the_cut_are_not_smoothed() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    x = points(30, 3)
    for layer, units in (("1", 6), (net[1], 6), ("2", 4)):
        result = explain_in_silence(net, x, layer=layer)
        assert result.settings["smoothed"] is None
        if units == 6:
            with torch.no_grad():
                hidden = net[:2](x)
            assert_scores(result, hidden_hessians(lambda h: net[2:](h)[:, 0], hidden, torch.eye(6)))
    # One layer lower the ReLU is above the cut.
    assert explain_in_silence(net, x, layer="0").settings["smoothed"]["functions"] == {"relu": 1}
    assert explain_in_silence(net, x).settings["smoothed"]["functions"] == {"relu": 1}


def test_a_smooth_network_is_not_smoothed() -> None:
    net, x = mlp(nn.Tanh, 3, 8, 1), points(20, 3)
    for smooth in ("auto", 7.0, None):
        result = explain(net, x, smooth=smooth)
        assert result.settings["smoothed"] is None
        assert_scores(result, local_hessians(lambda x: net(x)[:, 0], x))


@pytest.mark.parametrize("elu", [nn.ELU(), F.elu, lambda x: F.elu(x, 1.0), lambda x: F.elu_(x, alpha=1.0)])
def test_an_elu_whose_slope_does_not_jump_is_left_alone(elu: Way) -> None:
    kink, x = Kink("elu"), points(12, 3)
    net = Net(kink, elu)
    result = explain(net, x)
    assert result.settings["smoothed"] is None
    assert_scores(result, local_hessians(net, x))


@pytest.mark.parametrize("smooth", ["auto", 7.0])
@pytest.mark.parametrize(
    "safe",
    [
        lambda z: z.clamp(min=1e-8),
        lambda z: z.clip(1e-8, 1e8),
        lambda z: torch.clamp_min(z, 1e-8),
        lambda z: (+z).clamp_(min=1e-8),
        lambda z: z.clamp_max(1e8),
    ],
    ids=["clamp", "clip", "clamp_min", "clamp_", "clamp_max"],
)
def test_a_clamp_that_never_clamps_is_left_alone(safe: Way, smooth: Any) -> None:
    def size(x: Tensor) -> Tensor:
        return (x**2).sum(dim=1) + x[:, 0] * x[:, 1] + 0.01

    x = points(30, 3)
    result = explain(lambda x: safe(size(x)).log(), x, smooth=smooth)
    plain = explain(lambda x: size(x).log(), x, smooth=smooth)
    assert result.settings["smoothed"] is None
    np.testing.assert_array_equal(result.eah.mean, plain.eah.mean)
    assert_scores(result, local_hessians(lambda x: size(x).log(), x))


def test_a_clamp_that_clamps_one_point_of_many_is_smoothed_whatever_the_batches() -> None:
    x = points(30, 3).abs() + 0.1
    x[17] = -1.0
    for batch_size in (None, 1, 10):
        result = explain_in_silence(lambda x: x.sum(dim=1).clamp(min=0.0), x, batch_size=batch_size)
        assert result.settings["smoothed"]["functions"] == {"clamp": 1}


# What is reported


def test_the_report_is_what_a_hand_computation_gives() -> None:
    net, x = mlp(nn.ReLU, 4, 16, 12, 3), points(80, 4)
    result = explain_in_silence(net, x, 1)
    with torch.no_grad():
        first = net[0](x)
        second = net[2](first.relu())
        betas = [10 / float(z.std(correction=0)) for z in (first, second)]
        smooth = net[4](F.softplus(net[2](F.softplus(first, betas[0])), betas[1]))
        plain = net(x)
    change = float((smooth - plain)[:, 1].abs().mean())
    smoothed = result.settings["smoothed"]
    assert smoothed["functions"] == {"relu": 2}
    np.testing.assert_allclose(smoothed["beta"], sorted(betas), rtol=1e-12)
    np.testing.assert_allclose(smoothed["mean_change"], change, rtol=1e-10)
    np.testing.assert_allclose(smoothed["relative_change"], change / float(plain[:, 1].std(correction=0)), rtol=1e-10)
    assert smoothed["argmax_agreement"] == float((smooth.argmax(1) == plain.argmax(1)).double().mean())
    assert result.settings["smooth"] == "auto"


def test_the_report_counts_each_row_by_its_own_target() -> None:
    net, x = mlp(nn.ReLU, 4, 16, 3), points(30, 4)
    target = torch.arange(30) % 3
    smoothed = explain_in_silence(net, x, target, smooth=2.0, batch_size=7).settings["smoothed"]
    with torch.no_grad():
        change = net[2](F.softplus(net[0](x), 2.0)) - net(x)
    expected = float(change[torch.arange(30), target].abs().mean())
    np.testing.assert_allclose(smoothed["mean_change"], expected, rtol=1e-12)


def test_the_arg_max_of_some_points_may_change() -> None:
    net, x = mlp(nn.ReLU, 4, 16, 3), points(200, 4)
    with torch.no_grad():
        agree = net[2](F.softplus(net[0](x), 0.2)).argmax(1) == net(x).argmax(1)
    share = float(agree.double().mean())
    assert 0 < share < 0.95
    with pytest.warns(geh.GEHWarning, match=f"the arg max agrees on {share:.0%} of the points"):
        result = explain(net, x, 0, smooth=0.2)
    assert result.settings["smoothed"]["argmax_agreement"] == share


def test_one_output_has_no_arg_max() -> None:
    smoothed = explain(mlp(nn.ReLU, 4, 16, 1), points(50, 4)).settings["smoothed"]
    assert smoothed["argmax_agreement"] is None
    assert 0 < smoothed["relative_change"] < 0.1


def test_a_function_called_twice_is_counted_twice_and_judged_by_what_enters_each_time() -> None:
    relu = nn.ReLU()
    net = nn.Sequential(nn.Linear(3, 8), relu, nn.Linear(8, 8), relu, nn.Linear(8, 1)).double()
    with torch.no_grad():
        net[2].weight.mul_(10.0)
    x = points(50, 3)
    smoothed = explain_in_silence(net, x).settings["smoothed"]
    with torch.no_grad():
        entering = net[0](x), net[:3](x)
    assert smoothed["functions"] == {"relu": 2}
    betas = sorted(10 / float(z.std(correction=0)) for z in entering)
    assert betas[1] > 2 * betas[0]
    np.testing.assert_allclose(smoothed["beta"], betas, rtol=1e-12)


def test_a_beta_too_small_to_keep_the_function_warns_and_a_large_one_does_not() -> None:
    net, x = mlp(nn.ReLU, 4, 16, 1), points(100, 4)
    with pytest.warns(geh.GEHWarning, match=r"smoothing the kinks \(relu\) changed the output by \d+% of its spread"):
        blunt = explain(net, x, smooth=0.1)
    assert blunt.settings["smoothed"]["relative_change"] > 0.1
    assert any("smoothing the kinks" in note for note in blunt.settings["warnings"])
    for smooth in ("auto", 50.0):
        fine = explain(net, x, smooth=smooth)  # a warning would be an error here
        assert fine.settings["smoothed"]["relative_change"] < 0.1
        assert fine.settings["warnings"] == []


# The same result however the rows come


@pytest.mark.parametrize("batch_size", [1, 7, 40])
def test_the_size_of_batches_changes_nothing(batch_size: int) -> None:
    net = image_net()
    x = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    whole = explain_in_silence(net, x, 1, layer="0")
    parts = explain_in_silence(net, x, 1, layer="0", batch_size=batch_size)
    assert whole.eah.mean.max() > 1e-4
    np.testing.assert_allclose(parts.geh.mean, whole.geh.mean, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(parts.eah.mean, whole.eah.mean, rtol=1e-10, atol=1e-14)
    for key in ("beta", "mean_change", "relative_change"):
        np.testing.assert_allclose(parts.settings["smoothed"][key], whole.settings["smoothed"][key], rtol=1e-12)
    assert parts.settings["smoothed"]["functions"] == whole.settings["smoothed"]["functions"]


def test_a_loader_gives_the_same_as_its_tensor() -> None:
    net, x = mlp(nn.ReLU, 4, 16, 1), points(50, 4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=8)
    np.testing.assert_allclose(explain(net, loader).geh.mean, explain(net, x).geh.mean, rtol=1e-10)


def test_the_order_of_rows_changes_nothing() -> None:
    net, x = mlp(nn.ReLU, 4, 16, 8, 1), points(60, 4)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 3
    result = explain(net, x, groups=labels)
    shuffled = explain(net, x[order], groups=labels[order])
    np.testing.assert_allclose(shuffled.geh.mean, result.geh.mean, rtol=1e-10)
    np.testing.assert_allclose(shuffled.signed, result.signed, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(shuffled.settings["smoothed"]["beta"], result.settings["smoothed"]["beta"], rtol=1e-12)


@pytest.mark.parametrize("smooth", ["auto", 5.0])
@pytest.mark.parametrize("first", ["dropout", "relu"])
def test_with_dropout_each_draw_is_one_mask_of_the_smoothed_network(first: str, smooth: Any) -> None:
    """Every row has its own group, so that a draw shows each row's Hessian: one mask in eight explains them all."""
    torch.manual_seed(0)
    parts = [nn.Dropout(0.4), nn.ReLU()] if first == "dropout" else [nn.ReLU(), nn.Dropout(0.4)]
    net = nn.Sequential(nn.Linear(3, 3), *parts, nn.Linear(3, 1)).double().eval()
    x = points(10, 3)
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.MCDropout(), smooth=smooth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        result = explainer.explain(x, groups=torch.arange(10), draws=12, progress=False, batch_size=4)
    beta = result.settings["smoothed"]["beta"][0]
    if smooth == "auto":
        np.testing.assert_allclose(beta, 10 / float(net[0](x).detach().std(correction=0)), rtol=1e-12)

    def masked(mask: Tensor) -> np.ndarray:
        def model(x: Tensor) -> Tensor:
            h = net[0](x)
            h = F.softplus(h * mask, beta) if first == "dropout" else F.softplus(h, beta) * mask
            return net[-1](h)[:, 0]

        first_unit, second_unit = np.triu_indices(3, 1)
        return local_hessians(model, x)[:, first_unit, second_unit]

    masks = [doubles(*keep) / 0.6 for keep in product((0.0, 1.0), repeat=3)]
    expected = np.stack([masked(mask) for mask in masks])  # (8, rows, pairs)
    matches = np.abs(result.signed[:, None] - expected).max(axis=(2, 3)) < CLOSE  # (draws, 8)
    assert (matches.sum(axis=1) == 1).all()
    assert matches.any(axis=0).sum() >= 3  # different draws, different masks


# Wrong values


@pytest.mark.parametrize(
    "smooth",
    [
        *("Auto", "softplus", "7", "", True, False, 0, 0.0, -1.0, math.nan, math.inf, -math.inf),
        *(1j, [7.0], (), {}, torch.tensor([1.0, 2.0]), np.array([1.0, 2.0]), nn.Softplus(), F.softplus),
    ],
    ids=repr,
)
def test_a_wrong_smooth_is_refused_in_words(smooth: Any) -> None:
    with pytest.raises(geh.GEHError, match="smooth="):
        geh.GEHExplainer(nn.ReLU(), smooth=smooth)
