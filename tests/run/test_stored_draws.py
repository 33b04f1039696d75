"""Draws of a checkpoint folder: forged ones are never used, and a folder answers for its own network only."""

import re
import shutil
import warnings

import numpy as np
import pytest
import torch
from explaining import point_explainer, random_points
from forged_checkpoints import FORGERIES
from interrupted_runs import assert_identical, network, rows
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh

OPTIONS = {"draws": 5, "groups": 2, "batch_size": 40, "progress": False}


def explain(folder, count=60):
    return geh.GEHExplainer(network()).explain(rows(count), **OPTIONS, checkpoint=folder)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """A folder with five draws of one run, and its result."""
    folder = tmp_path_factory.mktemp("intact")
    return folder, explain(folder)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_checkpoint_is_refused_or_computed_again(forgery, intact, tmp_path):
    folder, expected = tmp_path / "run", intact[1]
    shutil.copytree(intact[0], folder)
    FORGERIES[forgery](folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = explain(folder)
        except geh.GEHError as error:
            refused = str(error)
        else:
            refused = ""
            assert_identical(found, expected)
    known = r"belongs to another run|its run\.json cannot be read|is a folder or a device"
    assert re.search(known, refused) if refused else any("is damaged" in str(warned.message) for warned in caught)


def test_there_are_enough_forgeries_and_the_folder_without_them_is_used(intact, tmp_path, monkeypatch):
    assert len(FORGERIES) >= 30
    shutil.copytree(intact[0], tmp_path / "run")
    monkeypatch.setattr("geh_explain.run.loop._DrawLoop._sums", lambda *_: pytest.fail("computed again"))
    assert_identical(explain(tmp_path / "run"), intact[1])


@pytest.mark.timeout(60)
def test_a_block_without_draws_does_not_loop_for_ever(tmp_path):
    options = {"draws": 6, "groups": 1, "progress": False, "checkpoint": tmp_path}
    expected = geh.GEHExplainer(network()).explain(rows(20), **options)
    path = tmp_path / "draw_000001.npz"
    with np.load(path) as archive:
        arrays = {name: part[:0] if part.ndim > 1 else part for name, part in archive.items()}
        assert len(archive["signed"]) == 5, "a block of draws"
    np.savez(path, **arrays)
    with pytest.warns(geh.GEHWarning, match="draw_000001.npz is damaged"):
        assert_identical(expected, geh.GEHExplainer(network()).explain(rows(20), **options))


# Networks that differ in something else than their parameters.


class Product(nn.Module):
    """x0 x1 times a factor that ``keep`` stores somewhere in the module, and ``factor`` reads there."""

    def __init__(self, keep, factor, value):
        super().__init__()
        self.linear = nn.Linear(2, 2, bias=False)
        nn.init.eye_(self.linear.weight)
        keep(self, value)
        self.factor = factor

    def forward(self, x):
        return self.linear(x).prod(1) * self.factor(self)


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Holder:
    def __init__(self, value):
        self.value = value


def keep(name, make=lambda value: value):
    return lambda module, value: setattr(module, name, make(value))


def keep_buffer(module, value):
    module.register_buffer("b", torch.full((1,), value), persistent=False)


def keep_hook(module, value):
    module.linear.register_forward_hook(lambda module, inputs, output: output * value)


def keep_subclass(module, value):
    module.__class__ = type("Product", (Product,), {"value": value})


NETWORKS = {
    "a private attribute": (keep("_value"), lambda module: module._value),
    "a public attribute": (keep("value"), lambda module: module.value),
    "a buffer that is not persistent": (keep_buffer, lambda module: module.b),
    "a tensor": (keep("t", torch.tensor), lambda module: module.t),
    "an array": (keep("t", lambda value: np.full(3, value)), lambda module: float(module.t[0])),
    "a list": (keep("t", lambda value: [value]), lambda module: module.t[0]),
    "a tuple of tensors": (keep("t", lambda value: (torch.tensor(value),)), lambda module: module.t[0]),
    "a dict": (keep("_t", lambda value: {"a": [value]}), lambda module: module._t["a"][0]),
    "a set": (keep("t", lambda value: {value}), lambda module: max(module.t)),
    "an object": (keep("t", Holder), lambda module: module.t.value),
    "an object with slots": (keep("t", Slots), lambda module: module.t.value),
    "a closure": (keep("t", lambda value: lambda: value), lambda module: module.t()),
    "a class attribute": (keep_subclass, lambda module: type(module).value),
    "a hook": (keep_hook, lambda module: 1.0),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_folder_does_not_answer_for_another_network(kind, tmp_path):
    x, options = random_points(30, 2, dtype=torch.float), {"groups": 1, "progress": False, "checkpoint": tmp_path}
    first = point_explainer(Product(*NETWORKS[kind], 1.0)).explain(x, **options)
    again = point_explainer(Product(*NETWORKS[kind], 1.0)).explain(x, **options)
    assert_identical(first, again)
    with pytest.raises(geh.GEHError, match=r"belongs to another run, with (another model|other outputs)"):
        point_explainer(Product(*NETWORKS[kind], 2.0)).explain(x, **options)


def test_a_folder_does_not_answer_for_another_function(tmp_path):
    def times(factor):
        return lambda x: factor * x[:, 0] * x[:, 1]

    options = {"groups": 1, "progress": False, "checkpoint": tmp_path}
    point_explainer(times(1.0)).explain(random_points(30, 2), **options)
    with pytest.raises(geh.GEHError, match="other outputs or derivatives of the model in draw 0"):
        point_explainer(times(2.0)).explain(random_points(30, 2), **options)


def test_a_folder_does_not_answer_for_a_network_with_other_derivatives(tmp_path):
    class Product(nn.Module):
        def __init__(self, detach):
            super().__init__()
            self.linear, self.take = nn.Linear(2, 3), (lambda x: x.detach()) if detach else (lambda x: x)

        def forward(self, x):
            hidden = torch.tanh(self.linear(x))
            return (hidden * self.take(hidden)).sum(1)

    def explain(detach):
        torch.manual_seed(0)
        options = {"groups": 1, "progress": False, "checkpoint": tmp_path}
        return point_explainer(Product(detach)).explain(random_points(30, 2, dtype=torch.float), **options)

    assert_identical(explain(False), explain(False))
    with pytest.raises(geh.GEHError, match="other outputs or derivatives of the model in draw 0"):
        explain(True)


class Far(nn.Module):
    """A network times a factor where the first input is above 4; ``read`` gets the factor from the attribute ``_t``."""

    def __init__(self, kept, read):
        super().__init__()
        self.net, self._t, self.read = network(drop=0), kept, read

    def forward(self, x):
        return self.net(torch.where(x[:, :1] > 4, self.read(self._t) * x, x))


def nested(value, depth=7):
    return {"a": nested(value, depth - 1)} if depth else value


def linear(value):
    layer = nn.Linear(1, 1)
    nn.init.constant_(layer.weight, value)
    nn.init.zeros_(layer.bias)
    return layer


def innermost(kept):
    return innermost(kept["a"]) if isinstance(kept, dict) else kept


KEPT = {
    "a NumPy float": (np.float32, float),
    "a NumPy integer": (np.int64, int),
    "a NumPy boolean": (lambda value: np.bool_(value > 1), int),
    "a list of NumPy numbers": (lambda value: [np.float32(value)], lambda kept: float(kept[0])),
    "a set": (lambda value: {value, -1.0}, max),
    "a frozenset": (lambda value: frozenset([(value,)]), lambda kept: next(iter(kept))[0]),
    "a slice": (lambda value: slice(int(value)), lambda kept: kept.stop),
    "a nested dict": (nested, innermost),
    "a module in a list": (lambda value: [linear(value)], lambda kept: kept[0].weight.item()),
    "an attribute of a module in a list": (
        lambda value: [Far(torch.tensor(value), None)],
        lambda kept: kept[0]._t.item(),
    ),
}


def far_points(far):
    x = rows(200)
    x[list(far), 0] += 8
    return x


@pytest.mark.parametrize("kind", KEPT)
def test_a_folder_does_not_answer_for_a_network_that_differs_at_few_points(kind, tmp_path):
    make, read = KEPT[kind]
    x, options = far_points([150]), {"groups": 1, "progress": False, "checkpoint": tmp_path}
    first = point_explainer(Far(make(1.0), read)).explain(x, **options)
    assert_identical(first, point_explainer(Far(make(1.0), read)).explain(x, **options))
    with pytest.raises(geh.GEHError, match="belongs to another run, with another model"):
        point_explainer(Far(make(3.0), read)).explain(x, **options)


def test_a_private_attribute_of_a_member_identifies_an_ensemble(tmp_path):
    def explain(value):
        members = geh.posterior.Ensemble([network(drop=0), Far(torch.tensor(value), lambda kept: kept)])
        return geh.GEHExplainer(network(drop=0), posterior=members).explain(far_points([150]), **options)

    options = {"groups": 1, "draws": 2, "progress": False, "checkpoint": tmp_path}
    assert_identical(explain(1.0), explain(1.0))
    with pytest.raises(geh.GEHError, match="belongs to another run, with another posterior"):
        explain(3.0)


@pytest.mark.parametrize("streamed", [False, True])
def test_outputs_are_compared_at_points_spread_over_the_data(streamed, tmp_path, monkeypatch):
    if streamed:
        monkeypatch.setattr("geh_explain.data.reader.KEEP_SHARE", 0)
    x, options = far_points(range(120, 130)), {"groups": 1, "progress": False, "checkpoint": tmp_path}
    data = DataLoader(TensorDataset(x), batch_size=33) if streamed else x
    point_explainer(Far(Holder(1.0), lambda kept: kept.value)).explain(data, **options)
    with pytest.raises(geh.GEHError, match="other outputs or derivatives of the model in draw 0"):
        point_explainer(Far(Holder(3.0), lambda kept: kept.value)).explain(data, **options)


class PrivateDropout(nn.Module):
    """Functional dropout whose rate is kept in an object: in eval mode it has no effect."""

    def __init__(self, rate):
        super().__init__()
        self.net, self.rate = network(drop=0), Holder(rate)

    def forward(self, x):
        return self.net(nn.functional.dropout(x, self.rate.value, self.training))


def test_a_network_is_compared_in_the_state_in_which_it_is_explained(tmp_path):
    options = {"draws": 3, "groups": 2, "progress": False, "checkpoint": tmp_path}
    geh.GEHExplainer(PrivateDropout(0.1)).explain(rows(), **options)
    with pytest.raises(geh.GEHError, match="other outputs or derivatives of the model in draw 0"):
        geh.GEHExplainer(PrivateDropout(0.3)).explain(rows(), **options)


def test_a_changed_member_of_an_ensemble_is_found_in_its_own_draw(tmp_path):
    def members(factor):
        return [Product(*NETWORKS["a closure"], value) for value in (1.0, 2.0, factor)]

    x, options = random_points(30, 2, dtype=torch.float), {"groups": 1, "progress": False, "checkpoint": tmp_path}
    geh.GEHExplainer(members(3.0)[0], posterior=geh.posterior.Ensemble(members(3.0))).explain(x, **options)
    with pytest.raises(geh.GEHError, match="other outputs or derivatives of the model in draw 2"):
        geh.GEHExplainer(members(3.0)[0], posterior=geh.posterior.Ensemble(members(4.0))).explain(x, **options)


class Remembering(nn.Module):
    """Keeps its last activations and counts its calls, which does not change what it computes."""

    def __init__(self):
        super().__init__()
        self.net, self._calls, self.seen = network(), [0], None

    def forward(self, x):
        self._calls[0] += 1
        self.seen = x.detach()
        return self.net(x)


def test_what_a_forward_pass_changes_does_not_identify_a_network(tmp_path):
    options = {"draws": 6, "groups": 2, "progress": False, "checkpoint": tmp_path}
    net = Remembering()
    first = geh.GEHExplainer(net).explain(rows(), **options)
    assert_identical(first, geh.GEHExplainer(net).explain(rows(), **options))
    assert_identical(first, geh.GEHExplainer(Remembering()).explain(rows(), **options))


def test_a_run_resumes_with_another_number_of_threads(tmp_path):
    options = {"draws": 6, "groups": 2, "progress": False, "checkpoint": tmp_path}
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first = geh.GEHExplainer(network()).explain(rows(), **options)
        torch.set_num_threads(2)
        assert_identical(first, geh.GEHExplainer(network()).explain(rows(), **options))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
