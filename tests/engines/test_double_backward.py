"""Double backward that contradicts the gradients is reported; a right one never is."""

import warnings

import numpy as np
import pytest
import torch
from network_modules import Cube
from torch import nn

import geh_explain as geh


class DetachedCube(Cube):
    """x^3 with a right first derivative and a second one of 0."""

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3 * ctx.saved_tensors[0].detach() ** 2


class DataSwish(torch.autograd.Function):
    """x sigmoid(x), whose backward reads ``.data``."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.data
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        s = torch.sigmoid(ctx.x)
        return gradient * s * (1 + ctx.x * (1 - s))


class HardStep(torch.autograd.Function):
    """max(x, 0), whose gradient jumps: neither double backward nor differences are wrong."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.saved_tensors[0] > 0)


class RoundedStraightThrough(torch.autograd.Function):
    """Rounds to quarters, with the derivative of the identity."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(4 * x) / 4

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Reversed(RoundedStraightThrough):
    """The identity, with a negative derivative."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return -0.5 * gradient


class Network(nn.Module):
    """tanh layers, with a part ``share`` of the second one through ``function``."""

    def __init__(self, function, share=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.mix, self.last = nn.Linear(6, 20), nn.Linear(20, 20), nn.Linear(20, 1)
        self.function, self.share = function, share

    def forward(self, x):
        hidden = torch.tanh(self.mix(torch.tanh(self.first(x))))
        return self.last((1 - self.share) * hidden + self.share * self.function(hidden))


def points(n=200, dtype=torch.float32):
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(1), dtype=torch.double).to(dtype)


def is_reported(network, x, layer=None, **options):
    """Explain, and return whether the result warns about double backward; it must be of the exact engine."""
    options = {"posterior": geh.posterior.PointEstimate(), "engine": "exact", **options}
    explainer = geh.GEHExplainer(network, layer, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = explainer.explain(x, 0, groups=1, draws=2, batch_size=100, progress=False).settings
    assert "exact" in (settings["engine"], options["engine"])
    return any("contradict differences of gradients" in message for message in settings["warnings"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", [None, "first"])
@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("function", [DetachedCube, DataSwish])
def test_a_function_that_hides_its_second_derivative_is_reported(function, share, layer, dtype):
    network, x = Network(function.apply, share).to(dtype), points(dtype=dtype)
    assert is_reported(network, x, layer)
    assert is_reported(network, x, layer, engine="auto")


def test_the_warning_names_the_way_out():
    explainer = geh.GEHExplainer(Network(DetachedCube.apply), posterior=geh.posterior.PointEstimate())
    with pytest.warns(geh.GEHWarning, match="autograd.Function whose backward uses .* engine='difference'"):
        explainer.explain(points(), groups=1, progress=False)


def test_a_function_that_only_some_rows_reach_is_reported_where_chunks_go_to_the_exact_engine():
    def branch(hidden):
        above = hidden[:, :1] > 0.2
        return torch.where(above, DetachedCube.apply(hidden), hidden) if bool(above.any()) else hidden

    x = points()
    values = Network(torch.tanh).mix(torch.tanh(Network(torch.tanh).first(x)))[:, 0].tanh()
    x = x[values.argsort()]  # the first chunk stays below the threshold
    assert not (values.sort().values[:100] > 0.2).any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer = geh.GEHExplainer(Network(branch), posterior=geh.posterior.PointEstimate())
        result = explainer.explain(x, groups=1, batch_size=100, progress=False)
    assert result.settings["engine"] == "structured"
    assert any("contradict differences" in message for message in result.settings["warnings"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("share", [1.0, 1e-4])
@pytest.mark.parametrize(
    "function",
    [Cube.apply, HardStep.apply, torch.sigmoid, lambda x: 1000 + x, lambda x: x.bfloat16().sin().to(x.dtype)],
    ids=["cube", "step", "sigmoid", "large", "half precision"],
)
def test_a_right_double_backward_is_not_reported(function, share, scale, dtype):
    assert not is_reported(Network(function, share).to(dtype), scale * points(dtype=dtype))


def squared_by_a_constant(x):
    return x * x.detach()


def squared_without_gradients(x):
    with torch.no_grad():
        constant = x * 1.0
    return x * constant


@pytest.mark.parametrize("engine", ["auto", "exact"])
@pytest.mark.parametrize("function", [squared_by_a_constant, squared_without_gradients])
def test_a_detached_factor_in_the_forward_pass_is_reported_by_both_engines(function, engine):
    network = Network(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer = geh.GEHExplainer(network, engine=engine, posterior=geh.posterior.PointEstimate())
        settings = explainer.explain(points(), groups=1, progress=False).settings
    assert settings["engine"] == ("structured" if engine == "auto" else "exact")
    assert any("contradict differences of gradients" in message for message in settings["warnings"])


def test_a_constant_that_cancels_is_not_reported():
    assert not is_reported(Network(lambda x: (x - x.amax(1, keepdim=True).detach()).softmax(1)), points())


def in_few_rows(function):
    """Return a network in which ``function`` is applied to a few rows, where the first input is large."""

    class Few(Network):
        def forward(self, x):
            hidden = torch.tanh(self.mix(torch.tanh(self.first(x))))
            return self.last(torch.where(x[:, :1] > 2.6, self.function(hidden), hidden))

    return Few(function)


def selected_rows(function):
    """Return a network in which ``function`` takes those rows alone."""

    class Selected(Network):
        def forward(self, x):
            hidden, few = torch.tanh(self.mix(torch.tanh(self.first(x)))).clone(), x[:, 0] > 2.6
            hidden[few] = self.function(hidden[few])
            return self.last(hidden)

    return Selected(function)


def beside_a_larger_term(function):
    """Return a network in which ``function`` gives a thousandth of the output."""

    class Beside(Network):
        def forward(self, x):
            hidden = torch.tanh(self.mix(torch.tanh(self.first(x))))
            return 1000 * self.last(hidden) + self.function(hidden).mean(1, keepdim=True)

    return Beside(function)


def of_other_inputs(function):
    """Return a function of some inputs, beside a term of other inputs that is a thousand times larger."""

    class Other(Network):
        def forward(self, x):
            return 1000 * x[:, :1] * x[:, 1:2] * x[:, :1].cos() + self.function(x[:, 2:].sum(1, keepdim=True) / 3)

    return Other(function)


def with_rows_last(function):
    """Return a network whose ``function`` takes tensors with the rows in the last dimension."""

    class RowsLast(Network):
        def forward(self, x):
            hidden = torch.tanh(self.mix(torch.tanh(self.first(x))))
            return self.last(self.function(hidden.T.contiguous()).T)

    return RowsLast(function)


PLACES = [in_few_rows, selected_rows, beside_a_larger_term, of_other_inputs, with_rows_last]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("function", [DetachedCube, DataSwish])
def test_a_function_that_hides_its_derivative_in_few_rows_or_beside_a_larger_term_is_reported(function, place, dtype):
    assert is_reported(place(function.apply).to(dtype), points(1000, dtype), engine="auto")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("function", [Cube, HardStep, RoundedStraightThrough, Reversed])
@pytest.mark.parametrize("n", [20, 200])
def test_a_right_function_of_the_model_s_own_is_not_reported_there(n, function, place, dtype):
    assert not is_reported(place(function.apply).to(dtype), points(n, dtype), engine="auto")


def test_a_gradient_of_weights_that_is_detached_hides_nothing():
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight.T

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            return gradient @ weight, gradient.T @ x.detach()

    weight = nn.Parameter(torch.randn(20, 20, generator=torch.Generator().manual_seed(0)))
    assert not is_reported(Network(lambda x: torch.tanh(Linear.apply(x, weight))), points())


def test_networks_without_functions_of_their_own_are_not_examined(monkeypatch):
    monkeypatch.setattr("geh_explain.engines.exact.hides_derivative", lambda *args: pytest.fail("examined"))
    assert not is_reported(Network(nn.functional.softplus), points())
    torch.manual_seed(0)
    assert not is_reported(nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 1)), points())


@pytest.mark.parametrize("smooth", [None, "auto", 1000.0])
def test_kinks_are_not_reported(smooth):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 1000), nn.ReLU(), nn.Linear(1000, 300), nn.ReLU(), nn.Linear(300, 1))
    assert not is_reported(net, points(), smooth=smooth)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_jump_of_the_second_derivative_at_a_point_is_not_reported(dtype):
    class Jumping(nn.Module):
        def forward(self, x):
            return nn.functional.elu(x[:, :1] + x[:, 1:2]) * (2 + x[:, 2:].sum(1, keepdim=True))

    x = points(dtype=dtype)
    x[:, 1] = 1e-7 - x[:, 0]
    assert not is_reported(Jumping(), x)


@pytest.mark.parametrize("last", [nn.Sigmoid(), nn.Softmax(1), nn.LogSoftmax(1)])
def test_saturated_outputs_are_not_reported(last):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 50), nn.GELU(), nn.Linear(50, 3), last)
    for scale in (10.0, 100.0):
        assert not is_reported(net, scale * points())


@pytest.mark.parametrize("activation", [nn.LeakyReLU, nn.Hardshrink])
def test_nor_are_they_in_double_precision_at_any_row(activation, monkeypatch):
    # All rows instead of 16: next to p = 1 double backward of a softmax has lost its digits.
    monkeypatch.setattr("geh_explain.engines.exact.choose_points", lambda rows, *args, **kw: np.arange(len(rows))[None])
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 40), activation(), nn.Linear(40, 40), activation(), nn.Linear(40, 2)).double()
    x = 5 * points(dtype=torch.double) * torch.tensor([1, 10, 0.1, 1, 1, 1])
    with torch.no_grad():
        for layer in (net[0], net[2], net[4]):
            layer.weight *= 5
    assert not is_reported(net, x / 5, output="probability")
    assert not is_reported(net, x, output="probability", smooth=None)


def test_inputs_of_very_different_scales_are_not_reported_and_hide_nothing():
    scales = torch.tensor([1e-4, 1.0, 1e4, 1.0, 1.0, 1.0])

    class Scaled(Network):
        def forward(self, x):
            return super().forward((x - 3 * scales) / scales)

    x = (points() + 3) * scales
    assert not is_reported(Scaled(Cube.apply), x)
    assert is_reported(Scaled(DetachedCube.apply), x)


def test_a_model_that_is_not_defined_beside_its_inputs_is_not_reported():
    class Root(nn.Module):
        def forward(self, x):
            return torch.sqrt(x).prod(1, keepdim=True)

    x = points().abs() * 1e-3 + torch.tensor([1e-6, 1, 1, 1, 1, 1])
    assert not is_reported(Root(), x)
