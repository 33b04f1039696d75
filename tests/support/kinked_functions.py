"""Every kinked function, with arguments that matter and every way to call it, networks with kinks, and their checks.

``ESSENTIAL`` has one set of arguments per function, for the tests of each change; ``VARIANTS`` the other ones, for the
long tests.
"""

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_point, explain_point_quietly, point_explainer, random_points
from reference import local_hessians
from reference_scores import assert_scores
from torch import Tensor, nn
from torch.autograd import gradgradcheck

import geh_explain as geh
from geh_explain.engines.smoothing.smooth_functions import FORMS
from geh_explain.engines.smoothing.survey import smoothing_for

LOG2 = math.log(2)
Way = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Kink:
    """A call of a kinked function. On a tie or a kink its smooth form is off by at most ``bound`` / beta.

    ``also`` are further ways to call it, ``linear`` is whether it is piecewise linear, ``rows`` how many rows it takes.
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = (6,)
    bound: float = LOG2
    also: tuple[Way, ...] = ()
    linear: bool = True
    rows: int = 5

    def soft(self, beta: float | Tensor, x: Tensor) -> Any:
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
        """Return what meets the kink: the difference where two tensors are compared."""
        others = [value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor)]
        return x - others[0] if others and self.name in ("max", "min", "maximum", "minimum", "fmax", "fmin") else x

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
    Kink("fmax", (OTHER,)),
    Kink("fmin", (OTHER,)),
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
#: Index of the first entry of each function.
_FIRST = {kink.name: number for number, kink in reversed(list(enumerate(KINKS)))}
ESSENTIAL = [kink for number, kink in enumerate(KINKS) if _FIRST[kink.name] == number]
VARIANTS = [kink for number, kink in enumerate(KINKS) if _FIRST[kink.name] != number]


def for_kinks(kinks: list[Kink]) -> pytest.MarkDecorator:
    """Parametrise a test by ``kink``."""
    return pytest.mark.parametrize("kink", kinks, ids=str)


def for_calls(kinks: list[Kink]) -> pytest.MarkDecorator:
    """Parametrise a test by ``kink`` and each ``way`` to call it."""
    ways = [pytest.param(kink, way, id=f"{kink} by {name}") for kink in kinks for name, way in kink.ways()]
    return pytest.mark.parametrize(("kink", "way"), ways)


# Networks with kinks.


def values_of(out: Any) -> Tensor:
    values: Tensor = out[0] if isinstance(out, tuple) else out
    return values


class Net(nn.Module):
    """A linear map, the kinked function, and a weighted sum of its output."""

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

    def smooth_hessians(self, kink: Kink, beta: float | Tensor, x: Tensor) -> np.ndarray:
        return local_hessians(lambda x: self.above(values_of(kink.soft(beta, self.below(x))), len(x)), x)


def image_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.PReLU(3), nn.Flatten(),
        nn.Linear(12, 4), nn.Hardswish(), nn.Linear(4, 2),
    ).double()  # fmt: skip


# Checks of one kinked call.


def check_call(kink: Kink, way: Way) -> None:
    """Check that a call is explained by the Hessian of its smooth form and reported, and the network left unchanged."""
    net, x = Net(kink, way).eval(), random_points(kink.rows, 3)
    before = net(x)
    result = explain_point_quietly(net, x, smooth=1.5)
    assert_scores(result, net.smooth_hessians(kink, 1.5, x), every_pair=True)
    smoothed = result.settings["smoothed"]
    assert smoothed["functions"] == {kink.reported: 1}
    assert smoothed["beta"] == [1.5, 1.5]
    assert torch.equal(net(x), before)


def check_step_sharpness(kink: Kink) -> None:
    """Check that a step sets the sharpness by how far the input moves, and that the explanation uses it."""
    net, x = Net(kink, next(kink.ways())[1]).eval(), random_points(64, 3)
    step = geh.engines.Step(0.3)
    explainer = point_explainer(net, smooth=step)
    points, cut = explainer._setup.read(x, None, None)
    smoothing = smoothing_for(cut, points, step, None)
    assert smoothing is not None
    (beta,) = smoothing.betas
    assert beta is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        result = explainer.explain(x, groups=1, progress=False)
    assert_scores(result, net.smooth_hessians(kink, beta, x), every_pair=True)
    if isinstance(beta, Tensor):
        # An entry of a linear map moves by 2 size^2 mean_i (s_i W_i)^2, whatever the row is.
        squares = (net.lower.weight.detach() * x.std(dim=0, correction=0)).square().mean(dim=1) * 2 * 0.3**2
        expected = (math.pi / math.sqrt(3) / squares.sqrt()).reshape(1, *kink.shape)
        torch.testing.assert_close(beta, expected.expand_as(beta), rtol=1e-9, atol=0)


def check_zero_unsmoothed(kink: Kink) -> None:
    """Check that without smoothing all interactions are 0, and that the warning names the function."""
    net = Net(kink, next(kink.ways())[1]).eval()
    with pytest.warns(geh.GEHWarning, match=rf"piecewise linear \({kink.reported}\)"):
        result = explain_point(net, random_points(kink.rows, 3), smooth=None)
    assert not result.eah.mean.any()
    assert result.settings["smoothed"] is None


def check_second_derivative(kink: Kink) -> None:
    """Check the second derivative of the smooth form by finite differences of the first."""
    rows = 1 if math.prod(kink.shape) > 8 else 2
    generator = torch.Generator().manual_seed(2)
    x = (2 * torch.randn(rows, *kink.shape, generator=generator, dtype=torch.double)).requires_grad_()
    assert gradgradcheck(lambda x: values_of(kink.soft(3.0, x)), (x,))
