"""LastLayerLaplace: what is refused, and what is warned about."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from last_layer_cases import fitted_network, given_precision
from posterior_cases import trained
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain.posterior import LastLayerLaplace

pytestmark = pytest.mark.usefixtures("seeded")


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
