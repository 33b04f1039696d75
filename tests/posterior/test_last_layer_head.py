"""LastLayerLaplace: which layer is the last one, and what is behind it."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from last_layer_cases import fitted_network, given_precision
from torch import nn

import geh_explain as geh
from geh_explain.posterior import LastLayerLaplace

pytestmark = pytest.mark.usefixtures("seeded")


class Branches(nn.Module):
    """Returns what ``last`` makes of the output of ``head``."""

    def __init__(self, last, head=None):
        super().__init__()
        self.body, self.head, self.last = nn.Linear(3, 8), head or nn.Linear(8, 3), last

    def forward(self, x):
        return self.last(self.head(torch.tanh(self.body(x))))


class PooledConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 3, 1)

    def forward(self, x):
        h = torch.tanh(self.conv(x.reshape(-1, 1, 1, 3).expand(-1, -1, 3, -1)))
        return {"logits": self.head(h.mean((2, 3), keepdim=True)).flatten(1), "loss": None}


def classified(model, n_classes=3):
    """Return inputs, and the classes that a model predicts, so that it fits them; some of them are exchanged."""
    x = torch.randn(90, 3)
    with torch.no_grad():
        out = model(x)
        y = (out["logits"] if isinstance(out, dict) else out).argmax(1)
    y[:12] = torch.arange(12) % n_classes
    return x, y


@given_precision
@pytest.mark.parametrize(
    ("make", "name", "link"),
    [
        (lambda: Branches(nn.Identity()), "head", "identity"),
        (lambda: Branches(nn.Softmax(1)), "head", "softmax"),
        (lambda: Branches(nn.LogSoftmax(1)), "head", "log_softmax"),
        (PooledConvolution, "head", "identity"),
        (lambda: nn.Linear(3, 3), "(model)", "identity"),
    ],
)
def test_the_head_is_the_layer_whose_output_is_returned(make, name, link):
    model = make()
    x, y = classified(model)
    fit = LastLayerLaplace(x, y, precision=1.0).fit(model)
    assert (fit.head.name, fit.head.link) == (name, link)
    output = "raw" if link in ("softmax", "log_softmax") else "probability"
    explainer = geh.GEHExplainer(model, posterior=fit, output=output)
    result = explainer.explain(x[:10], 0, groups=1, draws=12, progress=False)
    assert (result.geh.std[np.triu_indices(3, 1)] > 0).all()


@given_precision
def test_a_softmax_has_the_gaussian_of_its_logits():
    logits = Branches(nn.Identity())
    x, y = classified(logits)
    probabilities = Branches(nn.Softmax(1), copy.deepcopy(logits.head))
    probabilities.body = logits.body
    one, other = (LastLayerLaplace(x, y, precision=1.0).fit(model) for model in (logits, probabilities))
    torch.testing.assert_close(one.covariance(), other.covariance(), rtol=1e-4, atol=1e-6)


def test_the_scale_of_outputs_is_accounted_for():
    """y = 5 z + 3 with noise 5 s has the Gaussian of (y - 3) / 5 = z with noise s."""
    net, x, y = fitted_network(1)
    scaled = nn.Sequential(net, _Affine(5.0, 3.0))
    plain = LastLayerLaplace(x, y).fit(net)
    fit = LastLayerLaplace(x, 5 * y + 3).fit(scaled)
    assert fit.head.name == "0.2"
    assert fit.noise.item() == pytest.approx(5 * plain.noise.item(), rel=1e-6)
    torch.testing.assert_close(fit.covariance(), plain.covariance(), rtol=1e-5, atol=1e-9)


class _Affine(nn.Module):
    def __init__(self, slope, shift):
        super().__init__()
        self.slope, self.shift = slope, shift

    def forward(self, x):
        return self.slope * x + self.shift


@given_precision
def test_of_several_heads_one_must_be_named():
    net = geh.bnn.HybridNet(3, hidden=(8,), weights="point")
    x = torch.rand(100, 3)
    y = net(x).detach()[:, 0] + 0.1 * net(x).std().item() * torch.randn(100)
    with pytest.raises(geh.GEHError, match=r"sum of several linear layers, .*'interactions.*pass layer="):
        LastLayerLaplace(x, y).fit(net)
    name = next(name for name, module in net.named_modules() if isinstance(module, nn.Linear) and "inter" in name)
    last = [name for name, module in net.interactions.named_modules() if isinstance(module, nn.Linear)][-1]
    assert LastLayerLaplace(x, y, layer=f"interactions.{last}").fit(net).head.name != name


@given_precision
def test_tied_weights_below_are_not_changed():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 4)
            self.head.weight = self.body.weight

        def forward(self, x):
            return self.head(torch.tanh(self.body(x)))

    net, x = Tied(), torch.randn(60, 4)
    y = net(x).argmax(1).detach()
    y[:8] = torch.arange(8) % 4
    fit = LastLayerLaplace(x, y, precision=1.0).fit(net)
    with torch.no_grad():
        (draw,) = fit.draws(net, 1, seed=0)
        with draw:
            found = net(x)
        sample = fit.sample(0).float()
        expected = torch.tanh(net.body(x)) @ sample[:, :-1].T + sample[:, -1]
    torch.testing.assert_close(found, expected)


@given_precision
def test_large_heads_have_a_kronecker_or_a_diagonal_covariance():
    for n_features, n_outputs, structure in ((300, 10, "kron"), (5001, 3, "diag"), (2100, 1, "full")):
        net = nn.Linear(n_features, n_outputs)
        x = torch.randn(40, n_features)
        y = net(x).argmax(1) if n_outputs > 1 else (net(x)[:, 0] > 0).long()
        fit = LastLayerLaplace(x, y, precision=1.0).fit(net)
        assert fit.curvature.structure == structure
        assert f"covariance='{structure}'" in repr(fit)
        assert fit.sample(0).shape == (n_outputs, n_features + 1)


class _Then(nn.Module):
    """A network followed by a function."""

    def __init__(self, net, function):
        super().__init__()
        self.net, self.function = net, function

    def forward(self, x):
        return self.function(self.net(x))


def test_outputs_without_a_dimension_of_their_own_have_the_same_gaussian():
    net, x, y = fitted_network(1)
    expected = LastLayerLaplace(x, y).fit(net)
    squeezed = LastLayerLaplace(x, y[:, 0]).fit(_Then(net, lambda z: z.squeeze(-1)))
    torch.testing.assert_close(squeezed.covariance(), expected.covariance())
    result = geh.GEHExplainer(_Then(net, lambda z: z.squeeze(-1)), posterior=LastLayerLaplace(x, y)).explain(
        x, groups=1, draws=5, progress=False
    )
    assert (result.geh.std[0, 1:] > 0).all()


@pytest.mark.parametrize(
    "function",
    [F.relu, F.leaky_relu, lambda z: z.clamp(min=0), lambda z: 2 * F.relu(z) + 1],
    ids=["relu", "leaky relu", "clamp", "relu times 2 plus 1"],
)
def test_a_kink_behind_the_head_is_found_where_only_later_rows_meet_it(function):
    # The head is looked for with the first rows, where all of these are linear.
    net, x, _ = fitted_network(1)
    order = net(x)[:, 0].argsort(descending=True)
    model, x = _Then(net, function), x[order]
    assert (net(x)[:4] > 0).all()
    assert (net(x)[-20:] < 0).all()
    y = (model(x) + 0.1 * torch.randn(len(x), 1)).detach()
    for size in (4, 200):
        with pytest.raises(geh.GEHError, match=r"is that of layer 'net.2' \(itself\) in the first rows, but not"):
            LastLayerLaplace(x, y, batch_size=size).fit(model)


def test_several_sigmoids_are_not_taken_for_a_softmax():
    net, x, y = fitted_network(3, classes=True)
    with pytest.raises(geh.GEHError, match="the sigmoid of each of the 3 outputs"):
        LastLayerLaplace(x, y).fit(_Then(net, torch.sigmoid))


class _Adapted(nn.Linear):
    """A linear layer with an adapter of rank 1 beside its weights."""

    def __init__(self, n_features, n_outputs):
        super().__init__(n_features, n_outputs)
        self.down, self.up = nn.Linear(n_features, 1, bias=False), nn.Linear(1, n_outputs, bias=False)

    def forward(self, x):
        return super().forward(x) + self.up(self.down(x))


def test_a_head_that_computes_more_than_its_weights_is_refused():
    # Draws of its weights would leave the adapter out.
    net, x, y = fitted_network(1)
    adapted = _Adapted(8, 1).double()
    adapted.load_state_dict(net[2].state_dict(), strict=False)
    for head in (adapted, net[2]):
        model = nn.Sequential(net[0], net[1], head)
        handle = None if head is adapted else head.register_forward_hook(lambda module, args, out: 2 * out)
        with pytest.raises(TypeError, match="does not return its weights times its inputs"):
            LastLayerLaplace(x, (model(x) + 0.1 * torch.randn(len(x), 1)).detach()).fit(model)
        if handle is not None:
            handle.remove()
    assert LastLayerLaplace(x, y).fit(net).head.name == "2"


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize("origin", [0.0, 1e3, 1e5])
def test_outputs_on_a_scale_far_from_zero_are_affine_or_not(origin, dtype):
    # Rounding is that of the outputs, how far a function bends is measured by how far it moves.
    net, x, _ = fitted_network(1)
    for bends, function in ((False, lambda z: origin + 5 * z), (True, lambda z: origin + 5 * F.softplus(z))):
        model, inputs = _Then(net, function).to(dtype), x.to(dtype)
        y = (model(inputs) + 0.1 * torch.randn(len(x), 1).to(dtype)).detach()
        if bends:
            with pytest.raises(geh.GEHError, match="is not the output of"):
                LastLayerLaplace(inputs, y, noise=0.1, batch_size=50).fit(model)
        else:
            fit = LastLayerLaplace(inputs, y, noise=0.1, batch_size=50).fit(model)
            assert float(fit.head.slope) == pytest.approx(5, rel=0.01)
