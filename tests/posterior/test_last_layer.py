"""LastLayerLaplace: a Gaussian over the weights of the last linear layer, in closed form."""

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from posterior_cases import trained
from torch import nn
from torch.func import hessian
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain._hashing import digest
from geh_explain.posterior import FittedLastLayer, LastLayerLaplace
from geh_explain.posterior.marginal_likelihood import best_precision, determined
from geh_explain.vision import torchvision

pytestmark = pytest.mark.usefixtures("seeded")
#: A given precision is not that of the training, and the mode of the Gaussian is elsewhere.
given_precision = pytest.mark.filterwarnings("ignore:.*(from the mode|do not fit these data)")


def fitted_network(n_outputs, classes=False, rows=200):
    """Return a tanh network, fitted by cross-entropy or squared errors, with its inputs and labels."""
    x = torch.rand(rows, 3, dtype=torch.double) * 2 - 1
    signals = torch.stack([3 * x[:, 0] * x[:, 1] + x[:, 2], 2 * x[:, 1], -x[:, 0]], dim=1)[:, : max(1, n_outputs)]
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, n_outputs)).double()
    if classes and n_outputs == 1:
        y = torch.bernoulli(torch.sigmoid(signals[:, 0])).long()
    elif classes:
        y = torch.distributions.Categorical(logits=2 * signals).sample()
    else:
        y = signals + 0.2 * torch.randn(rows, n_outputs, dtype=torch.double)
    optimiser = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(300):
        loss = negative_log_likelihood(net(x), y, 1.0).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net, x, y


def negative_log_likelihood(outputs, y, noise):
    """Return the negative log-likelihood (n,) of each row, up to a constant."""
    if y.is_floating_point():
        return (outputs - y).square().sum(1) / (2 * noise**2)
    if outputs.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(outputs[:, 0], y.to(outputs), reduction="none")
    return F.cross_entropy(outputs, y, reduction="none")


def hessian_by_autograd(net, x, y, noise=1.0):
    """Return the Hessian of the negative log-likelihood in the weights (C, F + 1) of the last layer."""
    h = torch.cat([net[:-1](x), torch.ones(len(x), 1, dtype=x.dtype)], dim=1).detach()
    weights = torch.cat([net[-1].weight, net[-1].bias[:, None]], dim=1).detach()
    matrix = hessian(lambda w: negative_log_likelihood(h @ w.T, y, noise).sum())(weights)
    return matrix.reshape(weights.numel(), weights.numel())


# The Gaussian


@pytest.mark.parametrize(("n_outputs", "classes"), [(1, False), (2, False), (1, True), (3, True)])
@given_precision
def test_the_covariance_is_the_inverse_of_the_hessian_of_the_loss(n_outputs, classes):
    net, x, y = fitted_network(n_outputs, classes)
    fit = LastLayerLaplace(x, y, precision=2.0, noise=None if classes else 0.3).fit(net)
    matrix = hessian_by_autograd(net, x, y, noise=0.3)
    expected = torch.linalg.inv(matrix + 2 * torch.eye(len(matrix), dtype=torch.double))
    torch.testing.assert_close(fit.covariance(), expected, rtol=1e-8, atol=1e-10)
    assert fit.curvature.structure == "full"


@given_precision
def test_the_kronecker_covariance_is_that_of_the_mean_of_the_factors():
    net, x, y = fitted_network(3, classes=True)
    fit = LastLayerLaplace(x, y, precision=2.0, structure="kron").fit(net)
    h = torch.cat([net[:-1](x), torch.ones(len(x), 1, dtype=x.dtype)], dim=1).detach()
    p = net(x).softmax(1).detach()
    matrix = torch.kron((torch.diag(p.sum(0)) - p.T @ p) / len(x), h.T @ h)
    expected = torch.linalg.inv(matrix + 2 * torch.eye(len(matrix), dtype=torch.double))
    torch.testing.assert_close(fit.covariance(), expected, rtol=1e-8, atol=1e-10)
    assert "covariance='kron'" in repr(fit)


@pytest.mark.parametrize(("n_outputs", "classes"), [(2, False), (3, True)])
@given_precision
def test_the_diagonal_covariance_is_that_of_the_diagonal(n_outputs, classes):
    net, x, y = fitted_network(n_outputs, classes)
    fit = LastLayerLaplace(x, y, precision=2.0, noise=None if classes else 0.3, structure="diag").fit(net)
    expected = 1 / (hessian_by_autograd(net, x, y, noise=0.3).diag() + 2)
    torch.testing.assert_close(fit.covariance(), torch.diag(expected), rtol=1e-8, atol=1e-12)


@given_precision
def test_draws_have_the_mean_and_covariance_of_the_gaussian():
    net, x, y = fitted_network(3, classes=True)
    fit = LastLayerLaplace(x, y, precision=2.0).fit(net)
    samples = torch.stack([fit.sample(draw, seed=3) for draw in range(4000)]).flatten(1)
    standardised = (samples - fit.head.weight.flatten()) @ torch.linalg.cholesky(torch.linalg.inv(fit.covariance()))
    assert standardised.mean(0).abs().max() < 5 / 4000**0.5
    torch.testing.assert_close(torch.cov(standardised.T), torch.eye(27, dtype=torch.double), rtol=0, atol=0.12)


# Prior precision and noise


def test_the_prior_precision_maximises_the_marginal_likelihood():
    eigenvalues = torch.logspace(-3, 3, 40, dtype=torch.double)
    best = best_precision(eigenvalues, squared_norm=7.0)
    assert float(determined(eigenvalues, best).sum()) == pytest.approx(7 * best, rel=1e-10)

    def evidence(precision):
        return 20 * np.log(precision) - 3.5 * precision - 0.5 * float((eigenvalues + precision).log().sum())

    assert evidence(best) > max(evidence(0.99 * best), evidence(1.01 * best))


def laplace_torch(net, x, y, structure="full", **options):
    torchvision("transforms")  # imported by a dependency of laplace-torch
    package = pytest.importorskip("laplace")
    task = "regression" if y.is_floating_point() else "classification"
    la = package.Laplace(net, task, subset_of_weights="last_layer", hessian_structure=structure, **options)
    la.fit(DataLoader(TensorDataset(x, y), batch_size=50))
    return la


@pytest.fixture
def double_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.double)
    yield
    torch.set_default_dtype(before)


def in_their_order(n_outputs, n_features):
    """Return our indices of the weights in the order of laplace-torch: all weights first, then all biases."""
    ours = torch.arange(n_outputs * (n_features + 1)).reshape(n_outputs, n_features + 1)
    return torch.cat([ours[:, :-1].flatten(), ours[:, -1]])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(("n_outputs", "classes"), [(1, False), (2, False), (3, True)])
def test_laplace_torch_has_the_same_covariance(n_outputs, classes):
    net, x, y = fitted_network(n_outputs, classes)
    options = {} if classes else {"sigma_noise": 0.3}
    la = laplace_torch(net, x, y, prior_precision=2.0, **options)
    order = in_their_order(n_outputs, 8)
    ours = LastLayerLaplace(x, y, precision=2.0, noise=None if classes else 0.3).fit(net).covariance()
    torch.testing.assert_close(ours[order][:, order], la.posterior_covariance, rtol=1e-6, atol=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(("n_outputs", "classes"), [(1, False), (3, True)])
def test_the_marginal_likelihood_of_laplace_torch_is_stationary_at_our_optimum(n_outputs, classes):
    net, x, y = fitted_network(n_outputs, classes)
    fit = LastLayerLaplace(x, y).fit(net)
    la = laplace_torch(net, x, y)
    # The prior of a bias is centred at its trained value; theirs come last.
    la.prior_mean = torch.where(torch.arange(len(la.mean)) < 8 * n_outputs, 0.0, la.mean)
    logs = [torch.tensor([np.log(fit.precision)], requires_grad=True)]
    if fit.noise is not None:
        logs.append(fit.noise.log().requires_grad_())
    gradients = torch.autograd.grad(la.log_marginal_likelihood(*(value.exp() for value in logs)), logs)
    # In units of the log-likelihood per factor e, where the rows have about 200.
    assert max(float(gradient.abs().max()) for gradient in gradients) < 1e-4


@pytest.mark.parametrize("origin", [100.0, 1e6])
def test_the_origin_of_the_labels_does_not_matter(origin):
    # The bias holds the origin; a prior around 0 made the precision small, and draws of all other weights wide.
    net, x, y = fitted_network(1)
    expected = LastLayerLaplace(x, y).fit(net)
    net[2].bias.data += origin
    fit = LastLayerLaplace(x, y + origin).fit(net)
    assert fit.precision == pytest.approx(expected.precision, rel=1e-6)
    assert float(fit.noise) == pytest.approx(float(expected.noise), rel=1e-6)
    torch.testing.assert_close(fit.covariance(), expected.covariance(), rtol=1e-6, atol=1e-9)


# Calibration


def test_intervals_of_a_bayesian_linear_regression_cover_the_truth():
    """The weights are drawn from the prior, and the head is the mode: the Gaussian is the posterior itself."""
    x = torch.randn(30, 4, dtype=torch.double)
    features = nn.Sequential(nn.Linear(4, 6), nn.Tanh()).double()
    h = features(x).detach()
    covered = {True: [], False: []}
    for _ in range(150):
        truth = torch.randn(6, dtype=torch.double)
        y = h @ truth + 0.5 * torch.randn(30, dtype=torch.double)
        net = nn.Sequential(features, nn.Linear(6, 1, bias=False).double())
        net[1].weight.data = torch.linalg.solve(h.T @ h / 0.25 + torch.eye(6), h.T @ y / 0.25)[None]
        for known in covered:
            fit = LastLayerLaplace(x, y, precision=1.0 if known else None, noise=0.5 if known else None).fit(net)
            spread = (h @ fit.covariance() * h).sum(1).sqrt()
            inside = (h @ truth - net(x)[:, 0].detach()).abs() < 1.96 * spread
            covered[known].append(inside.double().mean())
    known, estimated = (float(torch.stack(shares).mean()) for shares in covered.values())
    # The standard error over data sets is about 0.011.
    assert known == pytest.approx(0.95, abs=0.03)
    assert estimated == pytest.approx(0.94, abs=0.04)


# Draws


def test_a_draw_is_the_network_with_the_drawn_weights():
    net, x, y = fitted_network(3, classes=True)
    fit = LastLayerLaplace(x, y).fit(net)
    expected = []
    for draw in range(3):
        other = copy.deepcopy(net)
        sample = fit.sample(draw, seed=5)
        other[2].weight.data, other[2].bias.data = sample[:, :-1], sample[:, -1]
        expected.append(other(x))
    with torch.no_grad():
        for draw, outputs in zip(fit.draws(net, 3, seed=5), expected, strict=True):
            with draw:
                torch.testing.assert_close(net(x), outputs, rtol=1e-12, atol=1e-12)
        with fit.batched(net, range(3), seed=5):
            net(x[:1])
            torch.testing.assert_close(net(torch.cat([x] * 3)), torch.cat(expected), rtol=1e-12, atol=1e-12)


def test_the_model_is_the_same_after_fit_and_explain_and_after_an_error():
    net, x, y = trained()
    net[2].weight.requires_grad_(False)
    before = [(name, id(value), value.data_ptr(), value.tolist()) for name, value in net.state_dict().items()]
    posterior = LastLayerLaplace(x, y)
    geh.GEHExplainer(net, posterior=posterior).explain(x[:20], groups=1, draws=4, progress=False)
    with pytest.raises(RuntimeError, match="broken"), posterior.fit(net).batched(net, range(2), 0):
        raise RuntimeError("broken")
    after = [(name, id(value), value.data_ptr(), value.tolist()) for name, value in net.state_dict().items()]
    assert [entry[0] for entry in before] == [entry[0] for entry in after]
    assert [entry[2:] for entry in before] == [entry[2:] for entry in after]
    assert "forward" not in vars(net[2])
    assert net[2]._forward_hooks == net._forward_hooks == {}
    assert net.training


def test_one_line_gives_intervals_that_depend_on_the_seed_only():
    net, x, y = trained()
    explainer = geh.GEHExplainer(net, posterior=LastLayerLaplace(DataLoader(TensorDataset(x, y), batch_size=32)))
    first, again, other = (
        explainer.explain(x[:40], groups=2, draws=12, seed=seed, progress=False) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.geh.draws, again.geh.draws)
    assert not np.array_equal(first.geh.draws, other.geh.draws)
    assert (first.geh.std[np.triu_indices(3, 1)] > 0).all()
    assert first.settings["posterior"].startswith(
        "LastLayerLaplace('2': 1 x 17 weights, regression, covariance='full', precision="
    )


def test_loaders_datasets_and_arrays_give_the_same_gaussian():
    net, x, y = fitted_network(1)
    dataset = TensorDataset(x, y)
    fits = [
        LastLayerLaplace(DataLoader(dataset, batch_size=33)).fit(net),
        LastLayerLaplace(dataset).fit(net),
        LastLayerLaplace(x.numpy(), y[:, 0].numpy(), batch_size=7).fit(net),
    ]
    for fit in fits[1:]:
        torch.testing.assert_close(fit.covariance(), fits[0].covariance(), rtol=1e-7, atol=1e-12)
        assert fit.precision == pytest.approx(fits[0].precision, rel=1e-8)


@given_precision
def test_a_fitted_gaussian_can_be_pickled_and_hashed():
    net, x, y = fitted_network(3, classes=True)
    fit = LastLayerLaplace(x, y).fit(net)
    restored = pickle.loads(pickle.dumps(fit))
    assert torch.equal(restored.sample(4), fit.sample(4))
    assert digest(restored) == digest(fit) != digest(LastLayerLaplace(x, y, precision=3.0).fit(net))


def test_a_checkpoint_continues_a_run(tmp_path):
    net, x, y = trained()
    options = {"groups": 2, "progress": False, "checkpoint": tmp_path / "run"}
    explainer = geh.GEHExplainer(net, posterior=LastLayerLaplace(x, y))
    explainer.explain(x[:20], draws=6, **options)
    continued = explainer.explain(x[:20], draws=15, **options)
    alone = explainer.explain(x[:20], draws=15, groups=2, progress=False)
    np.testing.assert_allclose(continued.signed, alone.signed, rtol=1e-4, atol=1e-7)


def test_a_gaussian_of_other_weights_is_refused():
    net, x, y = trained()
    fit = LastLayerLaplace(x, y).fit(net)
    net[2].weight.data += 0.1
    with pytest.raises(geh.GEHError, match="layer '2' of this model has other weights"):
        geh.GEHExplainer(net, posterior=fit).explain(x, progress=False)


@given_precision
def test_what_is_below_the_layer_runs_once_per_point():
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
    x = torch.randn(40, 3)
    y = (x[:, 0] > 0).long()
    net[4].weight.data = torch.randn(2, 6)
    optimiser = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(100):
        optimiser.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimiser.step()
    fit = LastLayerLaplace(x, y, precision=1.0).fit(net)
    counted = _CountRows()
    with counted:
        geh.GEHExplainer(net, layer="1", output="probability", posterior=fit).explain(
            x, 1, groups=1, draws=30, progress=False
        )
    # 40 points once; further passes are of single rows (one per draw or block) and of the first 8 rows.
    assert counted.rows < 40 * 6


class _CountRows(torch.overrides.TorchFunctionMode):
    """Counts the rows of calls of the first layer, which has 3 features; kept values have no memory of their own."""

    rows = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is F.linear and args[0].shape[-1] == 3:
            self.rows += args[0].shape[0]
        return func(*args, **(kwargs or {}))


# Where the head is


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


# What is refused, and what is warned about


def test_a_head_that_is_not_at_its_mode_is_reported():
    net, x, y = trained()
    assert LastLayerLaplace(x, y).fit(net).distance < 1
    net[2].weight.data *= 1.2
    with pytest.warns(geh.GEHWarning, match=r"layer '2' are .* posterior standard deviations from the mode"):
        fit = LastLayerLaplace(x, y).fit(net)
    assert fit.distance > 2
    with pytest.warns(geh.GEHWarning, match="from the mode"):
        result = geh.GEHExplainer(net, posterior=LastLayerLaplace(x, y)).explain(x, groups=1, draws=3, progress=False)
    assert any("from the mode" in message for message in result.settings["warnings"])


def test_draws_that_do_not_fit_the_data_are_reported():
    """A head that is sure of all labels has no curvature: its weights are left to a wide prior."""
    x = torch.randn(150, 2, dtype=torch.double)
    y = (x[:, 0] > 0).long()
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)).double()
    optimiser = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(1500):
        optimiser.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimiser.step()
    with pytest.warns(geh.GEHWarning, match=r"do not fit these data: \d+% of their predictions are right"):
        fit = LastLayerLaplace(x, y).fit(net)
    # The losses of the draws themselves, by the network with their weights.
    losses = []
    for draw in fit.draws(net, 16, seed=0):
        with draw, torch.no_grad():
            losses.append(float(F.cross_entropy(net(x), y)))
    assert fit.draw_fit.draws == pytest.approx(np.mean(losses), rel=1e-9)
    assert fit.draw_fit.draws > fit.draw_fit.constant
    assert fit.draw_fit.network == pytest.approx(float(F.cross_entropy(net(x), y).detach()), rel=1e-9)
    with pytest.warns(geh.GEHWarning, match="do not fit these data"):
        geh.GEHExplainer(net, posterior=LastLayerLaplace(x, y)).explain(x, 1, groups=1, draws=3, progress=False)
    assert not LastLayerLaplace(x, y, precision=20.0).prepared(net).draw_fit.is_poor


def test_draws_of_a_calibrated_network_fit_the_data():
    net, x, y = fitted_network(3, classes=True)
    fit = LastLayerLaplace(x, y, batch_size=7).fit(net)
    assert fit.draw_fit.network < fit.draw_fit.draws < fit.draw_fit.constant
    assert fit.concern is None
    regression, x, y = fitted_network(1)
    assert LastLayerLaplace(x, y).fit(regression).draw_fit is None


@given_precision
def test_the_distance_is_the_length_of_the_step_to_the_mode():
    """For a linear regression the mode is known: the ridge solution."""
    net, x, y = fitted_network(1)
    fit = LastLayerLaplace(x, y, precision=2.0, noise=0.3).fit(net)
    h = torch.cat([net[:-1](x), torch.ones(len(x), 1, dtype=x.dtype)], dim=1).detach()
    precision = h.T @ h / 0.09 + 2 * torch.eye(9, dtype=torch.double)
    prior_mean = torch.cat([torch.zeros(8, dtype=torch.double), net[2].bias.detach()])
    step = torch.linalg.solve(precision, (h.T @ y / 0.09)[:, 0] + 2 * prior_mean) - fit.head.weight[0]
    assert fit.distance == pytest.approx(float((step @ precision @ step / fit.determined).sqrt()), rel=1e-8)


def untrained(n_outputs):
    """Return a network, 20 rows, and labels of three classes."""
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, n_outputs))
    return net, torch.randn(20, 3), torch.arange(20) % 3


@pytest.mark.parametrize(
    ("n_outputs", "make_labels", "message"),
    [
        (3, lambda y: y + 1, r"labels are 1 to 3, but the head '2' has 3 classes, 0 to 2"),
        (1, lambda y: y, r"labels are 0 to 2, but the head '2' has 2 classes.*floating-point"),
        (3, lambda y: torch.rand(20), r"labels have shape \(20,\) for 20 rows and 3 outputs of a regression"),
        (3, lambda y: F.one_hot(y).float(), r"one-hot rows; pass the index"),
        (3, F.one_hot, r"labels have shape \(20, 3\) for 20 rows of a classification"),
        (1, lambda y: (y > 0).float(), r"all labels are 0.0 or 1.0; pass task='classification'"),
        (1, lambda y: torch.full((20,), torch.nan), "labels are NaN or infinite"),
        (1, lambda y: 1e3 + torch.randn(20), r"the outputs do not predict the labels \(R\^2 ="),
        (3, torch.zeros_like, "all labels are of one class"),
        (1, lambda y: torch.rand(19), r"19 labels for 20 rows"),
        (1, lambda y: ["a"] * 20, r"labels have dtype <U1; give numbers"),
        (1, lambda y: None, r"a Tensor without labels; pass the labels as second argument"),
    ],
)
def test_refused_labels(n_outputs, make_labels, message):
    net, x, y = untrained(n_outputs)
    with pytest.raises(geh.GEHError, match=message):
        LastLayerLaplace(x, make_labels(y)).fit(net)


def test_batches_without_labels_are_refused():
    net, x, _ = untrained(3)
    with pytest.raises(geh.GEHError, match="the loader's batches have no labels"):
        LastLayerLaplace(DataLoader(TensorDataset(x))).fit(net)


def test_networks_without_a_linear_head_are_refused():
    net, x, y = untrained(3)
    with pytest.raises(geh.GEHError, match=r"is not the output of a linear layer.*'2', '0'.*SWAG"):
        LastLayerLaplace(x, y).fit(nn.Sequential(*net, nn.Tanh()))
    with pytest.raises(geh.GEHError, match=r"several positions|is not the output of a linear layer"):
        LastLayerLaplace(x[:, :, None].expand(-1, -1, 3), y).fit(net)
    with pytest.raises(geh.GEHError, match="model is a plain callable"):
        LastLayerLaplace(x, y).fit(lambda x: x)


def test_labels_of_other_rows_are_refused():
    net, x, _ = fitted_network(3, classes=True)
    worst = net(x).argmin(1)
    with pytest.raises(geh.GEHError, match="the outputs do not predict the labels: 0% are right"):
        LastLayerLaplace(x, worst).fit(net)


@given_precision
def test_a_network_that_fits_exactly_needs_a_given_noise():
    net, x, _ = untrained(1)
    y = net(x).detach()
    with pytest.raises(geh.GEHError, match=r"fits these labels exactly.*pass noise="):
        LastLayerLaplace(x, y).fit(net)
    assert LastLayerLaplace(x, y, noise=0.1).fit(net).noise.item() == pytest.approx(0.1)


@pytest.mark.filterwarnings("ignore")
def test_quantised_and_scripted_networks_are_refused():
    net, x, y = untrained(3)
    scripted = torch.jit.script(copy.deepcopy(net).eval())
    with pytest.raises(geh.GEHError, match="scripted or frozen"):
        LastLayerLaplace(x, y).fit(scripted)
    with pytest.raises(geh.GEHError, match="frozen"):
        LastLayerLaplace(x, y).fit(torch.jit.freeze(scripted))
    if torch.backends.quantized.engine == "none":
        pytest.skip("no quantised kernels")
    quantised = torch.ao.quantization.quantize_dynamic(net, {nn.Linear})
    with pytest.raises(geh.GEHError, match="is quantised"):
        LastLayerLaplace(x, y).fit(quantised)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "ranking"}, "task='ranking' is unknown"),
        ({"structure": "dense"}, "structure='dense' is unknown"),
        ({"precision": 0}, "precision=0 must be"),
        ({"noise": -1.0}, "noise=-1.0 must be"),
        ({"layer": "1"}, r"layer='1' is a Tanh; the head must be an nn.Linear.*'2', '0'"),
        ({"layer": "0"}, r"is not the output of layer='0'"),
    ],
)
def test_refused_arguments(options, message):
    net, x, y = untrained(3)
    with pytest.raises(geh.GEHError, match=message):
        LastLayerLaplace(x, y, **options).fit(net)


def test_the_class_of_a_fit_is_public():
    net, x, y = trained()
    assert isinstance(LastLayerLaplace(x, y).fit(net), FittedLastLayer)


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
