"""LastLayerLaplace: a Gaussian over the weights of the last linear layer, in closed form."""

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from last_layer_cases import fitted_network, given_precision, negative_log_likelihood
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
        "LastLayerLaplace('2': 1 × 17 weights, regression, covariance='full', precision="
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


def test_the_class_of_a_fit_is_public():
    net, x, y = trained()
    assert isinstance(LastLayerLaplace(x, y).fit(net), FittedLastLayer)
