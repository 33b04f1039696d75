"""Networks behind callables, in closures, methods, partials and globals: state comes back, and modes stay."""

import functools
from types import SimpleNamespace

import pytest
import torch
from explaining import explain_point, random_points
from torch import nn

import geh_explain as geh
from geh_explain.model.function_variables import variables
from geh_explain.model.preserve import as_module
from geh_explain.model.snapshot import Snapshot

pytestmark = pytest.mark.usefixtures("seeded")


class Teacher(nn.Module):
    """A network that changes a buffer, and an average beside it, in train mode."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        self.register_buffer("average", torch.zeros(3, dtype=torch.double))
        self.scores = SimpleNamespace(mean=torch.zeros(1))

    def forward(self, x):
        if self.training:
            self.average.lerp_(x.detach().mean(0), 0.1)
            self.scores.mean.add_(1)
        return self.net(x)

    def score(self, x):
        return self(x)

    def content(self):
        return self.average.tolist(), self.scores.mean.tolist(), self.training


class Wrapper:
    """A plain object around a network, with state of its own."""

    def __init__(self, net):
        self.net, self.n_rows = net, torch.zeros(())

    def predict(self, x):
        self.n_rows += len(x)
        return self.net(x)

    __call__ = predict


NETWORK = None


def with_global(x):
    return through_global(x)


def through_global(x):
    return next(NETWORK(row) for row in [x])


def call(net, x):
    return net(x)


def decorated(net):
    @functools.wraps(call)
    def wrapped(x):
        return call(net, x)

    return torch.enable_grad()(wrapped)


CALLABLES = {
    "closure": lambda net: lambda x: net(x),
    "closure in a closure": lambda net: lambda x: (lambda y: net(y))(x),
    "list in a closure": lambda net: (lambda nets: lambda x: nets["a"][0](x))({"a": [net]}),
    "object in a closure": lambda net: (lambda wrapper: lambda x: wrapper.predict(x))(Wrapper(net)),
    "default": lambda net: lambda x, net=net: net(x),
    "default by name": lambda net: lambda x, *, net=net: net(x),
    "method": lambda net: Wrapper(net).predict,
    "method of the network": lambda net: net.score,
    "object": Wrapper,
    "partial": lambda net: functools.partial(call, net),
    "partial by name": lambda net: functools.partial(lambda x, net: net(x), net=net),
    "partial of a method": lambda net: functools.partial(Wrapper(net).predict),
    "decorated": decorated,
    "global": lambda net: with_global,
}


@pytest.fixture
def network():
    """A network in train mode that is a global variable too."""
    global NETWORK
    NETWORK = Teacher().train()
    yield NETWORK
    NETWORK = None


@pytest.mark.parametrize("kind", CALLABLES)
def test_the_state_of_a_network_behind_a_callable_comes_back_and_its_mode_stays(kind, network):
    function = CALLABLES[kind](network)
    before = network.content()
    result = explain_point(function, random_points(12, 3), groups=1)
    assert network.content() == before
    expected = explain_point(network, random_points(12, 3), groups=1)
    assert result.geh.mean == pytest.approx(expected.geh.mean)
    function(random_points(12, 3))
    assert network.content() != before


@pytest.mark.parametrize("kind", ["method", "object", "object in a closure"])
def test_an_object_that_holds_a_network_comes_back(kind, network):
    wrapper = Wrapper(network)
    function = {"method": wrapper.predict, "object": wrapper}.get(kind, lambda x: wrapper.predict(x))
    explain_point(function, random_points(12, 3), groups=1)
    assert wrapper.n_rows == 0


def test_batch_statistics_behind_a_callable_are_refused_and_come_back():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double().train()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(geh.GEHError, match="Put the networks inside a callable into eval mode"):
        explain_point(lambda x: net(x), random_points(12, 3), groups=1)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


def test_a_random_network_behind_a_callable_is_refused():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.RReLU(), nn.Linear(4, 1)).double().train()
    with pytest.raises(geh.GEHError, match="not one function; put the networks inside a callable into eval mode"):
        explain_point(lambda x: net(x), random_points(12, 3), groups=1)


def test_variables_of_a_function_are_the_users():
    """Lists, numbers and objects without tensors are logs of what was called, not state of a model."""
    rows, log, count, total = [], SimpleNamespace(rows=[]), 0, torch.zeros(())

    def model(x):
        nonlocal count
        count += 1
        rows.append(len(x))
        log.rows.append(len(x))
        total.add_(len(x))
        return x.prod(1)

    explain_point(model, random_points(12, 3), groups=1)
    assert count == len(rows) == len(log.rows) > 2
    assert total == sum(rows)


def test_a_teacher_in_the_function_of_a_module_comes_back():
    teacher = nn.Linear(3, 3).double()

    class Student(nn.Module):
        def __init__(self, update):
            super().__init__()
            self.net, self.update = nn.Linear(3, 3).double(), update

        def forward(self, x):
            self.update(self.net)
            return self.net(x).prod(1)

    def update(net):
        teacher.weight.data.lerp_(net.weight.data, 0.1)

    before = teacher.weight.tolist()
    explain_point(Student(update), random_points(12, 3), groups=1)
    assert teacher.weight.tolist() == before


def test_only_globals_that_the_code_reads_are_searched(network):
    networks = as_module(with_global).networks
    assert list(networks.values()) == [network]
    assert as_module(call).networks == {}
    assert as_module(torch.sin).networks == as_module(lambda x: torch.relu(x)).networks == {}
    # An attribute of the name of a global variable is no global variable.
    assert as_module(lambda x: x.NETWORK).networks == {}


def test_networks_have_the_names_of_their_variables(network):
    assert list(as_module(lambda x: network(x)).networks) == ["network"]
    assert list(as_module(Wrapper(network).predict).networks) == ["self.net"]


def test_a_variable_that_is_not_assigned_yet_is_left_out():
    def outer():
        def inner(x):
            return later(x)

        before = dict(variables(inner, lambda function: True))
        later = torch.sin
        return before, dict(variables(inner, lambda function: True)), later

    before, after, later = outer()
    assert (before, after) == ({}, {"later": later})


def test_a_function_that_refers_to_itself_is_searched_once():
    def first(x, depth=2):
        return second(x, depth - 1) if depth else x.prod(1)

    def second(x, depth):
        return first(x, depth)

    model = as_module(first)
    assert model.networks == {}
    assert Snapshot(model).changes() == []


def test_a_network_behind_a_callable_that_is_trained_meanwhile_is_named():
    net, calls = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), []

    def output(out):
        calls.append(len(out))
        if len(calls) == 20:
            with torch.no_grad():
                net[0].weight.add_(1e-3)
        return out

    explainer = geh.GEHExplainer(
        lambda x: net(x), output=output, engine="difference", posterior=geh.posterior.PointEstimate()
    )
    with pytest.raises(geh.GEHError, match=r"parameter 'net.0.weight' was written to while it was explained"):
        explainer.explain(random_points(400, 3).float(), groups=2, batch_size=20, progress=False)
