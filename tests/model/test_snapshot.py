"""A model that writes to itself, in train mode or in any mode, comes back with the values it had."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_draws, random_points
from torch import nn

import geh_explain as geh
from geh_explain.model.snapshot import Snapshot
from geh_explain.posterior import MCDropout

pytestmark = pytest.mark.usefixtures("seeded")

#: More than 1 MB of weights, which are not copied before they are written to.
LARGE = 400


class Momentum(nn.Module):
    """A network with dropout in train mode only, whose teacher follows it there (BYOL, MoCo, mean teachers)."""

    def __init__(self, update, hidden=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.teacher = nn.Linear(hidden, hidden).requires_grad_(False)
        self.drop, self.last = nn.Dropout(0.1), nn.Linear(hidden, 1)
        self.update = update
        self.double()

    def forward(self, x):
        if self.training:
            self.update(self.teacher.weight, self.net[2].weight)
            x = F.dropout(x, 0.3)
        return self.last(self.drop(self.net(x)))


def in_place(teacher, weight):
    with torch.no_grad():
        teacher.mul_(0.9).add_(weight, alpha=0.1)


def past_autograd(teacher, weight):
    teacher.data.mul_(0.9).add_(weight.data, alpha=0.1)


def several_at_once(teacher, weight):
    with torch.no_grad():
        torch._foreach_lerp_([teacher], [weight], 0.1)


def into_an_output(teacher, weight):
    with torch.no_grad():
        torch.lerp(teacher, weight, 0.1, out=teacher)


def by_other_memory(teacher, weight):
    teacher.data = 0.9 * teacher.data + 0.1 * weight.data


UPDATES = [in_place, past_autograd, several_at_once, into_an_output, by_other_memory]


@pytest.mark.parametrize("hidden", [8, LARGE])
@pytest.mark.parametrize("update", UPDATES)
def test_a_momentum_encoder_stays_as_it_is_and_its_train_mode_is_not_used(update, hidden):
    model = Momentum(update, hidden).train()
    state = {name: (value, value.data_ptr(), value.clone()) for name, value in model.state_dict(keep_vars=True).items()}
    with pytest.warns(geh.GEHWarning, match=r"changes 'teacher.weight'.*posterior=PointEstimate\(\)"):
        explain_draws(model, random_points(8, 3, seed=1), draws=3)
    for name, (value, address, copy) in state.items():
        assert model.get_parameter(name) is value
        assert value.data_ptr() == address
        assert torch.equal(value, copy), name
    assert all(module.training for module in model.modules())


class Writing(nn.Module):
    """Changes something that it keeps in each forward pass, in train mode or always."""

    def __init__(self, change, always):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 1)).double()
        self.register_buffer("kept", torch.zeros(3))
        self.register_buffer("passing", torch.zeros(3), persistent=False)
        self.queue, self.queues, self.table = torch.zeros(3), [torch.zeros(3)], {"a": (torch.zeros(3), 0)}
        self.hidden_teacher = [nn.Linear(2, 2)]
        self.torch_rng = torch.Generator().manual_seed(1)
        self.numpy_rng, self.legacy_rng = np.random.default_rng(1), np.random.RandomState(1)
        self.python_rng = random.Random(1)
        self.calls, self.seen = 0, []
        self.change, self.always = change, always

    def forward(self, x):
        if self.training or self.always:
            self.change(self)
        return self.net(F.dropout(x, 0.2) if self.training else x)

    def content(self):
        """All that the changes below may change, as plain values."""
        tensors = [self.net[0].weight, self.kept, self.passing, self.queue, *self.queues, self.table["a"][0]]
        tensors += [*self.hidden_teacher[0].parameters(), self.torch_rng.get_state()]
        rest = [len(self.queues), self.numpy_rng.bit_generator.state, self.python_rng.getstate()]
        return (
            [tensor.tolist() for tensor in tensors],
            repr(rest),
            self.legacy_rng.get_state()[2],
            set(vars(self)) - {"new"},
        )


CHANGES = {
    "a buffer": lambda self: self.kept.add_(1),
    "a buffer of its own choice": lambda self: setattr(self, "kept", self.kept + 1),
    "a buffer that is not saved": lambda self: self.passing.add_(1),
    "a buffer that is not saved, replaced": lambda self: setattr(self, "passing", self.passing + 1),
    "a plain tensor": lambda self: self.queue.add_(1),
    "a plain tensor, replaced": lambda self: setattr(self, "queue", self.queue + 1),
    "a tensor in a list": lambda self: self.queues[0].add_(1),
    "an entry of a list": lambda self: self.queues.__setitem__(0, self.queues[0] + 1),
    "the length of a list": lambda self: self.queues.append(torch.ones(1)),
    "a tensor in a dict": lambda self: self.table["a"][0].add_(1),
    "a network in a list": lambda self: self.hidden_teacher[0].weight.data.add_(1),
    "a counter": lambda self: setattr(self, "calls", self.calls + 1),
    "a list of what it saw": lambda self: self.seen.append(1),
    "a new attribute": lambda self: setattr(self, "new", torch.ones(1)),
    "a generator of torch": lambda self: torch.rand(1, generator=self.torch_rng),
    "a generator of numpy": lambda self: self.numpy_rng.random(),
    "an old generator of numpy": lambda self: self.legacy_rng.rand(),
    "a generator of python": lambda self: self.python_rng.random(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_model_changes_in_train_mode_comes_back_and_keeps_it_in_eval_mode(change):
    model = Writing(CHANGES[change], always=False).train()
    before = model.content()
    with pytest.warns(geh.GEHWarning, match="Writing drop in train mode only and do other things there too .changes '"):
        result = explain_draws(model, random_points(8, 3, seed=1), draws=3)
    alone = explain_draws(nn.Sequential(*model.net), random_points(8, 3, seed=1), draws=3)
    assert np.allclose(result.signed, alone.signed)
    assert model.content() == before


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_model_changes_in_any_mode_comes_back(change):
    model = Writing(CHANGES[change], always=True)
    before = model.content()
    result = explain_draws(model, random_points(8, 3, seed=1), draws=3)
    assert model.content() == before
    # Train mode does nothing more than eval mode, so that its dropout is drawn too.
    alone = explain_draws(nn.Sequential(*model.net), random_points(8, 3, seed=1), draws=3)
    assert not np.allclose(result.signed, alone.signed)


@pytest.mark.parametrize("words", [5, 200_000 // 3])
def test_an_embedding_that_rescales_its_weights_keeps_them(words):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(words, 3, max_norm=0.5, dtype=torch.double)
            self.last = nn.Linear(6, 1).double()

        def forward(self, tokens):
            return self.last(self.embedding(tokens).tanh().flatten(1)).exp()

    model, tokens = Reader(), torch.tensor([[0, 1], [2, 3], [4, 0]])
    before = model.embedding.weight.detach().clone()
    explainer = geh.GEHExplainer(model, "embedding", units=geh.units.Tokens(), posterior=geh.posterior.PointEstimate())
    assert explainer.explain(tokens, groups=1, progress=False).eah.mean.any()
    assert torch.equal(model.embedding.weight, before)
    assert "forward" not in vars(model)


def test_a_graph_that_was_built_before_can_be_differentiated_after():
    model, x = Momentum(in_place), random_points(8, 3, seed=1)
    loss = model.eval()(x).sum()
    explain_draws(model, x, posterior=geh.posterior.PointEstimate())
    loss.backward()
    assert model.last.weight.grad is not None


def test_large_tensors_are_not_copied_unless_they_are_written_to():
    model = Momentum(in_place, LARGE).train()
    snapshot = Snapshot(model)
    with snapshot.guarded():
        model(random_points(8, 3, seed=1))
    copied = {saved.name for saved, _ in snapshot._tensors if saved.values is not None and saved.tensor.nbytes > 2**20}
    assert copied == {"teacher.weight"}
    assert snapshot.changes() == ["teacher.weight"]
    snapshot.restore()
    assert snapshot.changes() == []


def test_counters_count_on():
    model = nn.Linear(2, 1)
    model.calls, model.sizes, model.last = 0, [1], None
    snapshot = Snapshot(model)
    model.calls, model.last, model.first = 3, 2.5, "a"
    model.sizes.append(2)
    assert snapshot.changes() == ["calls", "first", "last", "sizes"]
    snapshot.restore()
    assert (model.calls, model.sizes, model.last, model.first) == (3, [1, 2], 2.5, "a")


CHANGES_BESIDE_NUMBERS = {
    "an attribute": lambda model: setattr(model, "last", torch.ones(2)),
    "a new attribute": lambda model: setattr(model, "new", torch.ones(2)),
    "a flag": lambda model: setattr(model, "ready", True),
    "a list": lambda model: model.kept.append(torch.ones(1)),
    "a parameter that is removed": lambda model: model._parameters.pop("weight"),
    "values of a parameter": lambda model: model.weight.data.add_(1),
    "a gradient": lambda model: setattr(model.weight, "grad", torch.ones(1, 2)),
    "an object": lambda model: setattr(model.helper, "n", 1),
}


@pytest.mark.parametrize("change", CHANGES_BESIDE_NUMBERS)
def test_numbers_come_back_with_other_state_of_their_module(change):
    """A counter may say whether a table is filled, or by how much an average has moved."""
    model = nn.Linear(2, 1)
    model.calls, model.sizes, model.last, model.kept, model.ready = 0, [1], None, [torch.zeros(1)], False
    model.helper = SimpleNamespace(n=0)
    weight, entries = model.weight, list(vars(model))
    snapshot = Snapshot(model)
    model.calls = 3
    model.sizes.append(2)
    CHANGES_BESIDE_NUMBERS[change](model)
    assert len(snapshot.changes()) == 3
    snapshot.restore()
    assert snapshot.changes() == []
    assert (model.calls, model.sizes) == (0, [1])
    assert model.weight is weight
    assert list(model._parameters) == ["weight", "bias"]
    assert list(vars(model)) == entries


def test_a_network_with_a_table_that_is_filled_at_the_first_call_works_on():
    class Filling(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.calls = nn.Linear(3, 3), 0
            self.register_buffer("table", None)

        def forward(self, x):
            if self.calls == 0:
                self.table = torch.ones(3)
            self.calls += 1
            return self.net(x * self.table).prod(1)

    model, x = Filling(), torch.rand(8, 3)
    explain_draws(model, x, posterior=geh.posterior.PointEstimate())
    assert model.calls == 0
    assert model(x).shape == (8,)


def test_a_lazy_module_that_gets_its_parameters_keeps_them():
    model = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 1))
    snapshot = Snapshot(model)
    out = model(torch.ones(2, 3))
    snapshot.restore()
    assert torch.equal(model(torch.ones(2, 3)), out)


def test_names_of_changes_are_those_of_attributes():
    model = Writing(lambda self: None, always=True)
    snapshot = Snapshot(model)
    for change in CHANGES.values():
        change(model)
    expected = {"kept", "passing", "queue", "queues", "queues.0", "table.a.0", "hidden_teacher.0.weight", "calls"}
    expected |= {"seen", "new", "torch_rng", "numpy_rng", "legacy_rng", "python_rng"}
    assert expected == set(snapshot.changes())


def test_hidden_dropout_of_a_model_that_does_not_write_to_itself_is_drawn():
    model = Momentum(lambda teacher, weight: None)
    model.drop.p = 0.0
    result = explain_draws(model, random_points(8, 3, seed=1), posterior=MCDropout(), draws=4)
    assert np.ptp(result.absolute, axis=0).max() > 0


def test_a_model_whose_only_dropout_is_left_out_says_so():
    model = Momentum(in_place)
    model.drop.p = 0.0
    with pytest.warns(geh.GEHWarning) as caught:
        geh.GEHExplainer(model).explain(random_points(8, 3, seed=1), groups=1, progress=False)
    messages = " ".join(str(warning.message) for warning in caught)
    assert "changes 'teacher.weight'" in messages
    assert "are a point estimate" in messages
