"""Models for which values from below the layer must not be used again, or not all of them: scores are the true ones."""

import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from support.explaining import random_points
from torch import nn

import geh_explain as geh
from geh_explain.model import kept_points
from geh_explain.run import plan

D = 4


class Network(nn.Module):
    def __init__(self, rate=0.5, width=D):
        super().__init__()
        self.stem, self.layer = nn.Linear(D, width, bias=False), nn.Linear(width, D)
        self.mix, self.top, self.drop = nn.Linear(D, D), nn.Linear(D, 1), nn.Dropout(rate)

    def head(self, z, below=1.0):
        return self.top(torch.tanh(self.mix(torch.tanh(z)))) + (torch.tanh(z) * below).sum(1, keepdim=True) ** 2


class DropsInputs(Network):
    def forward(self, x):
        return self.head(self.layer(self.drop(x)))


class DropsRectified(Network):
    def forward(self, x):
        return self.head(self.layer(self.drop(torch.relu(self.stem(x)))))


class NoisyStem(Network):
    def forward(self, x):
        return self.head(self.layer(x @ (self.stem.weight * (1 + torch.randn_like(self.stem.weight)))))


class NoisyHead(Network):
    """The weights of the head are sampled before the layer is called."""

    def forward(self, x):
        sampled = self.mix.weight * (1 + torch.randn_like(self.mix.weight))
        return self.top(torch.tanh(torch.tanh(self.layer(x)) @ sampled))


class ScaledWeights:
    """A posterior of the user's own, whose writes autograd does not count."""

    def draws(self, model, n, seed):
        for k in range(n):
            yield self._scaled(model.stem.weight.data, 1 + random.Random(seed + k).random())

    @contextmanager
    def _scaled(self, weight, factor):
        before = weight.clone()
        weight.mul_(factor)
        try:
            yield
        finally:
            weight.copy_(before)


class Plain(Network):
    def forward(self, x):
        return self.head(self.layer(torch.tanh(self.stem(x))))


def points(first=0.0):
    """Return rows, of which the first holds a constant: masks and weights do not change what 0 is mapped to."""
    x = random_points(40, D)
    x[0] = first
    return x


def scores(model, x, posterior, draws=12, engine="auto"):
    explainer = geh.GEHExplainer(model, "layer", posterior=posterior, engine=engine, smooth=None)
    return explainer.explain(x, groups=2, draws=draws, progress=False).eah.draws


@pytest.fixture
def check(monkeypatch):
    """Return a function that compares scores with those of whole forward passes."""

    def check(make, x, posterior, **options):
        torch.manual_seed(0)
        model = make().double().eval()
        found = scores(model, x, posterior, **options)
        with monkeypatch.context() as patched:
            patched.setattr(plan, "keep_below", lambda cut, points, *_: points)
            expected = scores(model, x, posterior, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        assert expected.max() > 1e-3
        return expected

    return check


@pytest.mark.parametrize(
    ("make", "posterior"),
    [
        (DropsInputs, geh.posterior.MCDropout()),
        (NoisyStem, geh.posterior.Stochastic()),
        (NoisyHead, geh.posterior.Stochastic()),
        (Plain, ScaledWeights()),
    ],
)
def test_draws_that_the_first_row_does_not_show_differ(check, make, posterior):
    assert check(make, points(), posterior).std(axis=0).min() > 0


def test_masks_that_drop_what_is_zero_in_the_first_row_count(check):
    check(lambda: DropsRectified(rate=0.05, width=16), random_points(40, D), geh.posterior.MCDropout(), draws=40)


class LargestValue(Network):
    """Passes on the largest value of the batch, which the first row has."""

    def forward(self, x):
        largest = x.abs().max()
        return self.head(self.layer(torch.tanh(self.stem(x))), largest)


def test_a_number_of_the_whole_batch_is_refused():
    with pytest.raises(geh.GEHError, match="mixes rows"):
        scores(LargestValue().double(), points(first=10.0), geh.posterior.PointEstimate())


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, below):
        ctx.save_for_backward(z, below)
        return z * z * below

    @staticmethod
    def backward(ctx, grad):
        z, below = ctx.saved_tensors
        return 2 * z * below * grad, None


@torch.jit.script
def scripted_product(z, below):
    return z * z * below


def gated(extra):
    """Return a network that adds ``extra(z, below)`` to rows whose first input is large, if there are any."""

    class Gated(Network):
        def forward(self, x):
            hidden = torch.tanh(self.stem(x))
            below = torch.sin(hidden).sum(1, keepdim=True)
            z = self.layer(hidden)
            out = self.head(z)
            if (x[:, 0] > 2).any():
                out = out + torch.where(x[:, :1] > 2, extra(torch.tanh(z).sum(1, keepdim=True), below), 0.0)
            return out

    return Gated


def guarded_product(z, below):
    try:
        return (z * below).square()
    except Exception:  # as models do that have a second way
        return 0 * z


class ClipsInputs(Network):
    def forward(self, x):
        x[x > 2] = 2
        return self.head(self.layer(torch.tanh(self.stem(x))), x)


class ClipsData(Network):
    def forward(self, x):
        x.data.clamp_(max=2)
        return self.head(self.layer(torch.tanh(self.stem(x))), x)


class ChangedThroughView(Network):
    def forward(self, x):
        hidden = torch.tanh(self.stem(x))
        pairs = hidden.view(-1, 2, 2)
        z = self.layer(hidden)
        hidden[x[:, 0] > 2] = 0.5
        return self.head(z, pairs.flatten(1)) + self.head(z, hidden)


class SelectsRows(Network):
    def forward(self, x):
        chosen = x[:, 0] < 2
        below = torch.tanh(self.stem(x[chosen]))
        z = self.layer(x)
        out = self.head(z).clone()
        out[chosen] = out[chosen] + (torch.tanh(z[chosen]) * below).sum(1, keepdim=True) ** 2
        return out


RARE = {
    "a function": gated(lambda z, below: (z * below).square()),
    "a function of TorchScript": gated(scripted_product),
    "a function with its own backward pass": gated(Product.apply),
    "a function in try": gated(guarded_product),
    "clipped inputs": ClipsInputs,
    "clipped data": ClipsData,
    "a view": ChangedThroughView,
    "selected rows": SelectsRows,
}


@pytest.mark.parametrize("engine", ["auto", "exact"])
@pytest.mark.parametrize("kind", RARE)
def test_what_only_later_rows_do_is_computed(check, kind, engine):
    x = random_points(40, D)
    x[:, 0].clamp_(max=1.5)
    x[25:, 0] = 3
    check(RARE[kind], x, geh.posterior.PointEstimate(), engine=engine)


class UsesDevice(Network):
    def forward(self, x):
        hidden = torch.tanh(self.stem(x)).type(torch.float32).double()
        device, dtype = hidden.device, hidden.dtype
        return self.head(self.layer(hidden), torch.full((D,), 0.5, device=device, dtype=dtype))


def test_types_and_devices_of_values_that_are_not_kept_are_known(check):
    check(UsesDevice, random_points(40, D), geh.posterior.PointEstimate())
    setup = geh.GEHExplainer(UsesDevice().double(), "layer", posterior=geh.posterior.PointEstimate())._setup
    data, cut = setup.read(random_points(40, D), None, None)
    assert isinstance(kept_points.keep_below(cut, data, None), kept_points.KeptPoints)


def test_a_disk_without_room_stops_nothing(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_points, "_MEMORY_SHARE", 0)
    monkeypatch.setattr(kept_points.tempfile, "TemporaryFile", full)
    assert scores(Plain().double(), random_points(40, D), geh.posterior.PointEstimate()).max() > 0
