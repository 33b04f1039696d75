"""State of a model that is in objects which are no modules, in NumPy arrays and in gradients."""

import argparse
import warnings
from collections import Counter, OrderedDict, UserDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from explaining import explain_draws, random_points
from torch import nn

import geh_explain as geh
from geh_explain.model.snapshot import Snapshot

pytestmark = pytest.mark.usefixtures("seeded")


class Ema:
    """A moving average of weights, with the number of its updates."""

    def __init__(self, net):
        self.shadow = {name: value.detach().clone() for name, value in net.named_parameters()}
        self.steps = 0

    def update(self, net):
        self.steps += 1
        for name, value in net.named_parameters():
            self.shadow[name].lerp_(value.detach(), 1 / (10 + self.steps))

    def content(self):
        return self.steps, {name: value.tolist() for name, value in self.shadow.items()}


class Slotted:
    """Attributes in slots, one of them private and one that is not set at first."""

    __slots__ = ("__queue", "late", "mean", "steps")

    def __init__(self):
        self.steps, self.mean, self.__queue = 0, torch.zeros(2), [torch.zeros(1)]

    def update(self):
        self.steps += 1
        self.mean = self.mean + 1
        self.__queue.append(torch.ones(1))
        self.late = torch.ones(1)

    def content(self):
        return self.steps, self.mean.tolist(), len(self.__queue), hasattr(self, "late")


class SlottedChild(Slotted):
    """Slots of a base class beside a namespace."""


@dataclass
class Statistics:
    n: int = 0
    mean: torch.Tensor = field(default_factory=lambda: torch.zeros(2))


class Frozen:
    """Refuses assignments, as frozen dataclasses do."""

    def __init__(self):
        self.__dict__["mean"] = torch.zeros(2)

    def __setattr__(self, name, value):
        raise AttributeError(name)


class Memory(dict):
    """A dict that does something else when it is written to."""

    def __setitem__(self, key, value):
        raise TypeError("use put")

    def put(self, key, value):
        super().__setitem__(key, value)


class Ordered(OrderedDict):
    """A dict with attributes."""


def set_mean(holder):
    vars(holder)["mean"] = torch.ones(2)


def accumulate(net):
    with torch.enable_grad():
        net(torch.ones(1, 3, dtype=torch.double)).backward()


def gradients(model):
    return [None if value.grad is None else value.grad.tolist() for value in model.net.parameters()]


#: What the attribute ``held`` is, how a forward pass changes it, and what is compared.
CASES = {
    "moving average": (Ema, lambda m: m.held.update(m.net), lambda m: m.held.content()),
    "decay counter": (
        lambda net: SimpleNamespace(n=0),
        lambda m: setattr(m.held, "n", m.held.n + 1),
        lambda m: m.held.n,
    ),
    "deque": (
        lambda net: deque([torch.ones(1)], maxlen=2),
        lambda m: m.held.append(torch.zeros(1)),
        lambda m: list(m.held),
    ),
    "array": (lambda net: np.zeros(3), lambda m: m.held.__iadd__(1), lambda m: m.held.tolist()),
    "array of objects": (
        lambda net: np.array([None, "a"], dtype=object),
        lambda m: m.held.__setitem__(0, 1),
        lambda m: m.held.tolist(),
    ),
    "array in a dict": (lambda net: {"a": np.zeros(2)}, lambda m: m.held["a"].fill(2), lambda m: m.held["a"].tolist()),
    "dataclass": (lambda net: Statistics(), lambda m: m.held.mean.add_(1), lambda m: m.held.mean.tolist()),
    "number of a dataclass": (lambda net: Statistics(), lambda m: setattr(m.held, "n", 5), lambda m: m.held.n),
    "namespace": (
        lambda net: SimpleNamespace(queue=[1]),
        lambda m: (m.held.queue.append(2), setattr(m.held, "new", 1)),
        lambda m: vars(m.held).copy(),
    ),
    "arguments": (
        lambda net: argparse.Namespace(step=torch.zeros(1)),
        lambda m: m.held.step.add_(1),
        lambda m: m.held.step.item(),
    ),
    "slots": (lambda net: Slotted(), lambda m: m.held.update(), lambda m: m.held.content()),
    "slots of a base class": (lambda net: SlottedChild(), lambda m: m.held.update(), lambda m: m.held.content()),
    "frozen": (lambda net: Frozen(), lambda m: set_mean(m.held), lambda m: m.held.mean.tolist()),
    "counter": (
        lambda net: SimpleNamespace(n=Counter("aab")),
        lambda m: m.held.n.update("b"),
        lambda m: dict(m.held.n),
    ),
    "class of a dict": (
        lambda net: Memory(a=torch.zeros(1)),
        lambda m: m.held.put("b", torch.ones(1)),
        lambda m: list(m.held),
    ),
    "attribute of a dict": (
        lambda net: Ordered(a=1),
        lambda m: setattr(m.held, "mean", torch.ones(1)),
        lambda m: vars(m.held).copy(),
    ),
    "user dict": (lambda net: UserDict(a=1), lambda m: m.held.update(a=2), lambda m: dict(m.held)),
    "network in an object": (
        lambda net: SimpleNamespace(teacher=nn.Linear(2, 1)),
        lambda m: m.held.teacher.weight.data.add_(1),
        lambda m: m.held.teacher.weight.tolist(),
    ),
    "object in an object": (
        lambda net: SimpleNamespace(inner=[SimpleNamespace(mean=torch.zeros(1))]),
        lambda m: m.held.inner[0].mean.add_(1),
        lambda m: m.held.inner[0].mean.item(),
    ),
    "sparse tensor": (
        lambda net: torch.eye(3).to_sparse(),
        lambda m: m.held.mul_(2),
        lambda m: m.held.to_dense().tolist(),
    ),
    "sparse tensor by rows": (
        lambda net: compressed(),
        lambda m: m.held.values().mul_(2),
        lambda m: m.held.to_dense().tolist(),
    ),
    "bit generator": (
        lambda net: np.random.PCG64(0),
        lambda m: m.held.random_raw(),
        lambda m: m.held.state,
    ),
    "gradients": (lambda net: None, lambda m: accumulate(m.net), gradients),
    "gradients that are there": (accumulate, lambda m: accumulate(m.net), gradients),
    "gradients that are removed": (accumulate, lambda m: m.net.zero_grad(), gradients),
    "gradients that are cleared": (accumulate, lambda m: m.net.zero_grad(set_to_none=False), gradients),
    "large gradients": (
        lambda net: large(),
        lambda m: m.held.weight.grad.zero_(),
        lambda m: m.held.weight.grad.sum().item(),
    ),
}


def compressed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that these tensors are new
        return torch.eye(3).to_sparse_csr()


def large():
    net = nn.Linear(600, 600)
    net.weight.grad = torch.ones(600, 600)
    return net


class Holding(nn.Module):
    """Changes what it holds in each forward pass, or in those of train mode."""

    def __init__(self, make, change, always):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        self.held = make(self.net)
        self.change, self.always = change, always

    def forward(self, x):
        if self.training or self.always:
            self.change(self)
        return self.net(nn.functional.dropout(x, 0.2) if self.training else x)


@pytest.mark.parametrize("case", CASES)
def test_state_in_objects_comes_back(case):
    make, change, content = CASES[case]
    model = Holding(make, change, always=True)
    before, held = repr(content(model)), model.held
    explain_draws(model, random_points(8, 3, seed=1), draws=2)
    assert repr(content(model)) == before
    assert model.held is held
    snapshot = Snapshot(model)
    with snapshot.guarded():
        change(model)
    assert repr(content(model)) != before
    assert any(name.startswith(("held", "net")) for name in snapshot.changes())


@pytest.mark.parametrize("case", ["moving average", "decay counter", "deque", "array", "slots", "gradients"])
def test_a_module_that_changes_objects_in_train_mode_stays_in_eval_mode(case):
    make, change, content = CASES[case]
    model = Holding(make, change, always=False)
    before = repr(content(model))
    with pytest.warns(geh.GEHWarning) as caught:
        geh.GEHExplainer(model).explain(random_points(8, 3, seed=1), groups=1, progress=False)
    messages = " ".join(str(warning.message) for warning in caught)
    assert "Holding drop in train mode only and do other things there too (changes '" in messages
    assert repr(content(model)) == before


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.LBFGS])
def test_a_network_that_trains_itself_comes_back_with_its_optimiser(kind):
    class Adapting(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
            self.optimiser = kind(self.net.parameters(), lr=0.1)
            self.schedule = torch.optim.lr_scheduler.StepLR(self.optimiser, 1)

        def loss(self, x):
            with torch.enable_grad():
                self.optimiser.zero_grad()
                loss = self.net(x.detach()).square().mean()
                loss.backward()
            return loss

        def forward(self, x):
            self.optimiser.step(lambda: self.loss(x))
            self.schedule.step()
            return self.net(x)

    def content(model):
        return repr((model.state_dict(), model.optimiser.state_dict(), model.schedule.state_dict(), gradients(model)))

    model = Adapting()
    before = content(model)
    # Most are refused, one way or the other: their parameters change between forward passes.
    with suppress(geh.GEHError):
        explain_draws(model, random_points(20, 3, seed=1), posterior=geh.posterior.PointEstimate())
    assert content(model) == before
    model(random_points(20, 3, seed=1))
    assert content(model) != before


class Shares(nn.Module):
    """Holds state in attributes of its class, for all of its instances."""

    total = torch.zeros(2)
    seen: ClassVar[list[int]] = []

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 1).double()

    def forward(self, x):
        self.total += 1
        self.seen.append(len(x))
        return torch.tanh(self.net(x))


def explain_itself(model):
    explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    explainer.explain(random_points(8, 3, seed=1), groups=1, progress=False)


def test_state_of_a_class_comes_back():
    explain_itself(Shares())
    assert Shares.total.tolist() == [0, 0]
    assert Shares.seen == []


class MomentumEncoder(nn.Module):
    """Counts its updates, on which the momentum of the teacher depends."""

    def __init__(self):
        super().__init__()
        self.net, self.teacher, self.n_updates = nn.Linear(3, 1).double(), [nn.Linear(3, 1).double()], 0

    def forward(self, x):
        self.n_updates += 1
        self.teacher[0].weight.data.lerp_(self.net.weight.data, 1 / self.n_updates)
        return torch.tanh(self.net(x))


def test_the_number_of_updates_comes_back_with_the_weights_of_a_teacher():
    model = MomentumEncoder()
    before = model.teacher[0].weight.tolist()
    explain_itself(model)
    assert model.n_updates == 0
    assert model.teacher[0].weight.tolist() == before
