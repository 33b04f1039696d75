"""Laplace approximations: draws of the linearised network, or of the weights."""

import numpy as np
import pytest
import torch
from posterior_cases import trained
from torch import nn
from torch.func import functional_call, hessian, jvp, vmap
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain.posterior import Laplace
from geh_explain.posterior.linear_expansion import linearise
from geh_explain.vision import torchvision

pytestmark = pytest.mark.usefixtures("seeded")


# The linear expansion


def random_shifts(net, scale=0.3):
    return {name: scale * torch.randn_like(value) for name, value in net.named_parameters()}


def test_a_linearised_network_is_its_expansion_in_the_weights():
    net, x = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 2)), torch.randn(20, 3)
    shifts, weights = random_shifts(net), dict(net.named_parameters())

    def expanded(x):
        value, change = jvp(lambda w: functional_call(net, w, (x,)), (weights,), (shifts,))
        return value + change

    expected = expanded(x)
    before = [(name, id(parameter)) for name, parameter in net.named_parameters()]
    with linearise(net, shifts):
        torch.testing.assert_close(net(x), expected)
    assert [(name, id(parameter)) for name, parameter in net.named_parameters()] == before
    assert "forward" not in vars(net)
    assert not torch.allclose(net(x), expected)


def test_parameters_and_forward_are_restored_after_an_error_in_the_forward_pass():
    net = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 2))
    before = [(name, id(parameter)) for name, parameter in net.named_parameters()]
    with pytest.raises(RuntimeError, match="shapes"), linearise(net, random_shifts(net)):
        net(torch.randn(5, 4))
    assert [(name, id(parameter)) for name, parameter in net.named_parameters()] == before
    assert "forward" not in vars(net)


def test_interactions_of_a_linearised_network_are_the_second_derivatives_of_the_expansion():
    net, x = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 1)), torch.randn(20, 3)
    shifts = random_shifts(net)

    class OneExpansion:
        def draws(self, model, n, seed):
            yield linearise(model, shifts)

    weights = {name: value.detach() for name, value in net.named_parameters()}

    def expanded(x):
        value, change = jvp(lambda w: functional_call(net, w, (x,)), (weights,), (shifts,))
        return (value + change)[0]

    expected = vmap(hessian(expanded))(x).mean(0)
    result = geh.GEHExplainer(net, posterior=OneExpansion()).explain(x, groups=1, progress=False)
    assert result.aeh.draws[0] == pytest.approx(expected[np.triu_indices(3, 1)].abs().numpy(), rel=1e-4)
    assert result.settings["engine"] == "exact"


# Approximations fitted by laplace-torch


def fit_laplace(net, x, y, **options):
    torchvision("transforms")  # imported by a dependency of laplace-torch
    package = pytest.importorskip("laplace")
    la = package.Laplace(net, "regression", sigma_noise=0.1, **options)
    la.fit(DataLoader(TensorDataset(x, y), batch_size=50))
    return la


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("subset", "structure"), [("all", "full"), ("all", "kron"), ("all", "diag"), ("last_layer", "full")]
)
def test_draws_of_a_laplace_approximation(subset, structure):
    net, x, y = trained()
    la = fit_laplace(net, x, y, subset_of_weights=subset, hessian_structure=structure)
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    explainer = geh.GEHExplainer(net, posterior=Laplace(la))
    result, again = (explainer.explain(x, groups=2, draws=6, seed=1, progress=False) for _ in range(2))
    assert np.array_equal(result.geh.draws, again.geh.draws)
    assert result.geh.mean[0, 1] == pytest.approx(3, abs=0.6)
    assert (result.geh.std[np.triu_indices(3, 1)] > 0).all()
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    assert result.settings["posterior"] == f"Laplace({type(la).__name__}, linearised=True)"
    diagnosis = explainer.diagnose(x, y=y, draws=6, progress=False)
    assert diagnosis.errors.max() < 3 * diagnosis.point_error


@pytest.mark.filterwarnings("ignore")
def test_sampled_weights_do_not_fit_the_data_and_the_diagnosis_warns():
    net, x, y = trained()
    la = fit_laplace(net, x, y, subset_of_weights="all", hessian_structure="full")
    explainer = geh.GEHExplainer(net, posterior=Laplace(la, linearised=False))
    with pytest.warns(geh.GEHWarning, match=r"Laplace\(la, linearised=True"):
        assert explainer.diagnose(x, y=y, draws=6, progress=False).broken > 0.5


@pytest.mark.filterwarnings("ignore")
def test_a_laplace_approximation_of_another_model_is_refused():
    net, x, y = trained()
    la = fit_laplace(net, x, y, subset_of_weights="all", hessian_structure="diag")
    other = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    with pytest.raises(geh.GEHError, match="fitted to another model"):
        geh.GEHExplainer(other, posterior=Laplace(la)).explain(x, progress=False)


def test_what_is_not_a_fitted_approximation_is_refused():
    with pytest.raises(geh.GEHError, match=r"la is a Linear and not a fitted Laplace approximation.*fit\(\)"):
        Laplace(nn.Linear(3, 1))
