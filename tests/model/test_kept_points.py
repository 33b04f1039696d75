"""The part below the layer runs once per point, and the scores are those of the whole model."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.explaining import random_points
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import geh_explain as geh
from geh_explain.model import kept_points
from geh_explain.run import plan

ROWS = 23


def head(width):
    return nn.Sequential(nn.Linear(width, 4), nn.Tanh(), nn.Linear(4, 1))


class Skip(nn.Module):
    """The layer lies inside a residual branch, whose other end comes from below."""

    def __init__(self):
        super().__init__()
        self.stem, self.layer, self.head = nn.Linear(4, 5), nn.Linear(5, 5), head(5)

    def forward(self, x):
        hidden = torch.tanh(self.stem(x))
        branch = self.layer(hidden)
        branch *= torch.sigmoid(hidden)
        return self.head(torch.tanh(branch + hidden))


class UsesInputs(Skip):
    def forward(self, x, scale=1.0):
        hidden = torch.tanh(self.layer(torch.tanh(self.stem(x))))
        return self.head(hidden * x.sum(1, keepdim=True) * scale)


class InPlaceBelow(Skip):
    def forward(self, x):
        hidden = self.stem(x)
        F.relu_(hidden)
        hidden[:, 0] = 0.5
        return self.head(torch.tanh(self.layer(hidden)) * hidden)


class Flattened(Skip):
    """Rows and tokens form one dimension below the layer."""

    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(2, 5))

    def forward(self, x):
        tokens = torch.tanh(self.stem(x[:, None].expand(-1, 2, -1).reshape(-1, 4))) + self.positions.repeat(len(x), 1)
        mixed = torch.tanh(self.layer(tokens.view(len(x), 2, 5).mean(1)))
        return self.head(mixed * tokens.view(len(x), 2, 5)[:, 1]) + torch.arange(3.0).mean()


class SequenceFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.mix, self.layer, self.head = nn.Linear(4, 6), nn.GRU(6, 6), nn.Linear(6, 6), head(6)

    def forward(self, x):
        steps = torch.tanh(self.stem(torch.stack([x, 2 * x, -x])))
        out, _ = self.mix(steps)
        hidden = self.layer(out[-1])
        return self.head(torch.tanh(hidden * out[0]))


class ManyOutputs(Skip):
    def forward(self, x):
        first, second = self.stem(x).split([2, 3], dim=1)
        top = torch.max(first, dim=1, keepdim=True)
        hidden = self.layer(torch.cat([first, second], 1).tanh())
        return self.head(torch.tanh(hidden) * (top.values + second.mean(1, keepdim=True)))


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.layer, self.head = nn.Conv2d(4, 5, 3), head(5)

    def forward(self, x):
        below = self.stem(x.reshape(-1, 1, 2, 2).repeat_interleave(3, 2).repeat_interleave(3, 3))
        out = F.silu(self.layer(below) + F.avg_pool2d(below, 3, 1).mean(1, keepdim=True))
        return self.head(F.adaptive_avg_pool2d(out, 1).flatten(1))


MODELS = [Skip, UsesInputs, InPlaceBelow, Flattened, SequenceFirst, ManyOutputs, Convolutional]


class ComputedRows(TorchDispatchMode):
    """Counts the rows for which a weight is used; a pass that is left out reaches no kernel."""

    def __init__(self, weight):
        super().__init__()
        self.memory, self.count = weight.untyped_storage().data_ptr(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        if any(x.untyped_storage().data_ptr() == self.memory for x in tensors) and func is torch.ops.aten.addmm.default:
            self.count += len(args[1])
        return func(*args, **(kwargs or {}))


def network(kind, seed=0):
    torch.manual_seed(seed)
    return kind().double().eval()


def explain(model, posterior=None, layer="layer", args=None, **options):
    explainer = geh.GEHExplainer(model, layer, posterior=posterior or geh.posterior.PointEstimate())
    x = random_points(ROWS, 4)
    return explainer.explain(x, None, args, **({"groups": 2, "draws": 4, "progress": False} | options))


@pytest.fixture
def not_kept(monkeypatch):
    """Return a function that turns kept values off from then on."""
    return lambda: monkeypatch.setattr(plan, "keep_below", lambda cut, points, *_: points)


@pytest.mark.parametrize("engine", ["auto", "exact", "difference"])
@pytest.mark.parametrize("kind", MODELS)
def test_scores_are_those_of_the_whole_model(kind, engine, not_kept):
    model = network(kind)
    explainer = geh.GEHExplainer(model, "layer", engine=engine, posterior=geh.posterior.PointEstimate())
    options = {"groups": 3, "scale": "std", "progress": False, "batch_size": 7}
    kept = explainer.explain(random_points(ROWS, 4), **options)
    not_kept()
    plain = explainer.explain(random_points(ROWS, 4), **options)
    np.testing.assert_allclose(kept.geh.mean, plain.geh.mean, rtol=1e-9, atol=1e-11)
    assert kept.geh.mean.max() > 0


@pytest.mark.parametrize("kind", MODELS)
def test_the_values_are_kept(kind):
    setup = geh.GEHExplainer(network(kind), "layer", posterior=geh.posterior.PointEstimate())._setup
    points, cut = setup.read(random_points(ROWS, 4), None, None)
    kept = kept_points.keep_below(cut, points, None, 10**9)
    assert isinstance(kept, kept_points.KeptPoints)
    for rows in kept.split(5):
        torch.testing.assert_close(cut.activations(rows), cut.activations_with_grad(rows), rtol=1e-12, atol=1e-12)


def test_below_the_layer_each_point_is_computed_once():
    model = network(Skip)
    with ComputedRows(model.stem.weight) as computed:
        explain(model, draws=1)
    few = computed.count - ROWS
    with ComputedRows(model.stem.weight) as computed:
        geh.GEHExplainer(model, "layer", posterior=geh.posterior.PointEstimate()).explain(
            random_points(50 * ROWS, 4), groups=2, scale="std", progress=False
        )
    batches = 50 * ROWS // 256 + 1  # of each three rows are computed again, up to the layer and as a whole
    assert computed.count - 50 * ROWS <= few + 6 * batches


class WithDropout(nn.Module):
    def __init__(self, below, above):
        super().__init__()
        self.stem, self.layer, self.head = nn.Linear(4, 5), nn.Linear(5, 5), head(5)
        self.below, self.above = nn.Dropout(below), nn.Dropout(above)

    def forward(self, x):
        hidden = self.below(torch.tanh(self.stem(x)))
        return self.head(self.above(torch.tanh(self.layer(hidden))) * hidden)


def test_further_draws_of_masks_above_the_layer_compute_nothing_below():
    # batch_size=5: one draw at a time, of which each has a first pass of one row.
    counts = []
    for draws in (2, 12):
        with ComputedRows((model := network(lambda: WithDropout(0.0, 0.4))).stem.weight) as computed:
            explain(model, geh.posterior.MCDropout(), draws=draws, batch_size=5)
        counts.append(computed.count)
    assert counts[0] == counts[1] > ROWS


@contextmanager
def counted(model):
    with ComputedRows(model.stem.weight) as computed:
        yield computed


def changed(model, names, k):
    generator = torch.Generator().manual_seed(k)
    state = model.state_dict()
    return {
        name: state[name] + 0.1 * torch.randn(state[name].shape, generator=generator, dtype=torch.double)
        for name in names
    }


POSTERIORS = {
    "dropout above": (WithDropout, (0.0, 0.2), lambda model: geh.posterior.MCDropout(), True),
    "dropout below": (WithDropout, (0.2, 0.0), lambda model: geh.posterior.MCDropout(), False),
    "dropout on both sides": (WithDropout, (0.1, 0.1), lambda model: geh.posterior.MCDropout(), False),
    "a head": (
        WithDropout,
        (0.0, 0.0),
        lambda model: geh.posterior.WeightSamples([changed(model, ["head.0.weight"], k) for k in range(4)]),
        True,
    ),
    "a stem": (
        WithDropout,
        (0.0, 0.0),
        lambda model: geh.posterior.WeightSamples(
            [changed(model, ["head.0.weight", "stem.bias"], k) for k in range(4)]
        ),
        False,
    ),
}


@pytest.mark.parametrize("case", POSTERIORS)
def test_draws_of_a_posterior_are_the_same(case, not_kept):
    kind, rates, posterior_of, keeps = POSTERIORS[case]
    model = network(lambda: kind(*rates))
    with counted(model) as computed:
        kept = explain(model, posterior_of(model))
    n_kept = computed.count
    not_kept()
    with counted(model) as computed:
        plain = explain(model, posterior_of(model))
    np.testing.assert_allclose(kept.geh.draws, plain.geh.draws, rtol=1e-9, atol=1e-11)
    assert (n_kept < computed.count - 2 * ROWS) == keeps


class OtherPath(Skip):
    """Rows with a large entry take another path below the layer; the test for it is not seen by torch."""

    def forward(self, x):
        hidden = torch.tanh(self.stem(x))
        if hidden.shape[0] > 12:
            hidden = hidden * 1.0
        return self.head(torch.tanh(self.layer(hidden)) * hidden)


class OfValues(Skip):
    def forward(self, x):
        hidden = self.stem(x)
        hidden = hidden * 2 if hidden.abs().max() > 1e6 else hidden
        return self.head(torch.tanh(self.layer(hidden)) * hidden)


class Counter(Skip):
    n_calls = 0

    def forward(self, x):
        self.n_calls += 1
        return super().forward(x)


class Remembers(Skip):
    def forward(self, x):
        self.last = self.stem(x)
        return self.head(torch.tanh(self.layer(self.last)))


class MixesRows(Skip):
    """Divides by the largest value of the batch, if that is large."""

    def forward(self, x):
        hidden = torch.tanh(self.stem(x / x.abs().max().clamp_min(10)))
        return self.head(torch.tanh(self.layer(hidden)) * hidden)


def test_values_that_depend_on_other_rows_are_not_kept():
    setup = geh.GEHExplainer(network(MixesRows), "layer", posterior=geh.posterior.PointEstimate())._setup
    x = random_points(ROWS, 4)
    x[-1] = 100
    points, cut = setup.read(x, None, None)
    assert kept_points.keep_below(cut, points, None) is points
    with pytest.raises(geh.GEHError, match="mixes rows"):
        geh.GEHExplainer(network(MixesRows), "layer", posterior=geh.posterior.PointEstimate()).explain(
            x, progress=False
        )


@pytest.mark.parametrize("kind", [OtherPath, OfValues, Counter, Remembers])
def test_a_model_that_cannot_be_replayed_runs_as_a_whole(kind, not_kept):
    model = network(kind)
    kept = explain(model)
    not_kept()
    np.testing.assert_allclose(kept.geh.mean, explain(model).geh.mean, rtol=1e-9, atol=1e-11)


def test_hooks_of_the_user_get_values():
    model, seen = network(Skip), []
    model.stem.register_forward_hook(lambda module, args, out: seen.append(out.detach().clone()))
    explain(model)
    x = random_points(ROWS, 4)
    expected = F.linear(x, model.stem.weight, model.stem.bias)
    whole = [values for values in seen if len(values) == ROWS]
    assert whole
    for values in whole:
        torch.testing.assert_close(values, expected)


def test_values_that_do_not_fit_into_memory_are_kept_in_a_file(monkeypatch):
    model = network(Skip)
    expected = explain(model).geh.mean
    monkeypatch.setattr(kept_points, "_MEMORY_SHARE", 0)
    files = []
    make = kept_points.tempfile.TemporaryFile
    monkeypatch.setattr(kept_points.tempfile, "TemporaryFile", lambda: files.append(make()) or files[-1])
    np.testing.assert_array_equal(explain(model).geh.mean, expected)
    assert len(files) == 2


def test_without_room_nothing_is_kept(monkeypatch):
    model = network(Skip)
    monkeypatch.setattr(kept_points, "_MEMORY_SHARE", 0)
    monkeypatch.setattr(kept_points, "_DISK_SHARE", 0)
    setup = geh.GEHExplainer(model, "layer", posterior=geh.posterior.PointEstimate())._setup
    points, cut = setup.read(random_points(ROWS, 4), None, None)
    assert kept_points.keep_below(cut, points, None, 10**9) is points
    assert cut.below is None


def test_forward_arguments_reach_the_part_above():
    model = network(UsesInputs)
    scale = random_points(ROWS, 1, seed=3)
    kept = explain(model, args=(scale,))
    ones = explain(model)
    assert np.abs(kept.geh.mean - ones.geh.mean).max() > 1e-3
