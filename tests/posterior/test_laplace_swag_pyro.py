"""Weight samples from other packages, and draws of the linearised network."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, hessian, jvp, vmap
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain.posterior import WeightSamples
from geh_explain.posterior.linear_expansion import linearised
from geh_explain.vision import torchvision

pytestmark = pytest.mark.usefixtures("seeded")


def trained(rows=150):
    x = torch.rand(rows, 3) * 2 - 1
    y = (3 * x[:, 0] * x[:, 1] + x[:, 2])[:, None] + 0.1 * torch.randn(rows, 1)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    optimiser = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(500):
        loss = (net(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net, x, y


def shifted(net, scale=0.3):
    return {name: scale * torch.randn_like(value) for name, value in net.named_parameters()}


def test_a_linearised_network_is_its_expansion_in_the_weights():
    net, x = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 2)), torch.randn(20, 3)
    shifts, own = shifted(net), dict(net.named_parameters())

    def expanded(x):
        value, change = jvp(lambda w: functional_call(net, w, (x,)), (own,), (shifts,))
        return value + change

    expected = expanded(x)
    before = [(name, id(parameter)) for name, parameter in net.named_parameters()]
    with linearised(net, shifts):
        torch.testing.assert_close(net(x), expected)
    assert [(name, id(parameter)) for name, parameter in net.named_parameters()] == before
    assert "forward" not in vars(net)
    assert not torch.allclose(net(x), expected)


def test_its_interactions_are_the_second_derivatives_of_that_expansion():
    net, x = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 1)), torch.randn(20, 3)
    shifts = shifted(net)

    class One:
        def draws(self, model, n, seed):
            yield linearised(model, shifts)

    own = {name: value.detach() for name, value in net.named_parameters()}

    def expanded(x):
        value, change = jvp(lambda w: functional_call(net, w, (x,)), (own,), (shifts,))
        return (value + change)[0]

    expected = vmap(hessian(expanded))(x).mean(0)
    result = geh.GEHExplainer(net, posterior=One()).explain(x, groups=1, progress=False)
    assert result.aeh.draws[0] == pytest.approx(expected[np.triu_indices(3, 1)].abs().numpy(), rel=1e-4)
    assert result.settings["engine"] == "exact"


def laplace(net, x, y, **options):
    torchvision("transforms")  # which a dependency of the package imports
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
    la = laplace(net, x, y, subset_of_weights=subset, hessian_structure=structure)
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    explainer = geh.GEHExplainer(net, posterior=WeightSamples.from_laplace(la))
    result, again = (explainer.explain(x, groups=2, draws=6, seed=1, progress=False) for _ in range(2))
    assert np.array_equal(result.geh.draws, again.geh.draws)
    assert result.geh.mean[0, 1] == pytest.approx(3, abs=0.6)
    assert (result.geh.std[np.triu_indices(3, 1)] > 0).all()
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    found = explainer.diagnose(x, y=y, draws=6, progress=False)
    assert found.errors.max() < 3 * found.point_error


@pytest.mark.filterwarnings("ignore")
def test_weights_of_a_laplace_approximation_leave_the_data_and_the_diagnosis_says_so():
    net, x, y = trained()
    la = laplace(net, x, y, subset_of_weights="all", hessian_structure="full")
    explainer = geh.GEHExplainer(net, posterior=WeightSamples.from_laplace(la, linearised=False))
    with pytest.warns(geh.GEHWarning, match="linearised=True"):
        assert explainer.diagnose(x, y=y, draws=6, progress=False).broken > 0.5


@pytest.mark.filterwarnings("ignore")
def test_a_laplace_approximation_of_another_model_is_refused():
    net, x, y = trained()
    la = laplace(net, x, y, subset_of_weights="all", hessian_structure="diag")
    other = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    with pytest.raises(geh.GEHError, match="fitted to another model"):
        geh.GEHExplainer(other, posterior=WeightSamples.from_laplace(la)).explain(x, progress=False)
    with pytest.raises(geh.GEHError, match="no fitted Laplace"):
        WeightSamples.from_laplace(net)


def test_swag_has_the_mean_and_half_the_spread_of_the_path_on_each_side():
    torch.manual_seed(0)
    path = [{"weight": torch.randn(1, 2) * torch.tensor([1.0, 3.0]) + 5} for _ in range(200)]
    sampler = WeightSamples.from_swag(path, rank=200)
    drawn = torch.stack([sampler.samples(k)["weight"] for k in range(3000)])
    of_path = torch.stack([state["weight"] for state in path]).double()
    torch.testing.assert_close(drawn.mean(0), of_path.mean(0), atol=0.15, rtol=0)
    # Diagonal and low rank give half of the variance each.
    torch.testing.assert_close(drawn.std(0), of_path.std(0), atol=0, rtol=0.1)
    assert torch.equal(sampler.samples(7)["weight"], sampler.samples(7)["weight"])


def test_swag_explains_a_trained_network():
    net, x, y = trained()
    optimiser, path = torch.optim.SGD(net.parameters(), 0.02), []
    for step in range(200):
        batch = torch.randint(len(x), (20,))
        optimiser.zero_grad()
        (net(x[batch]) - y[batch]).square().mean().backward()
        optimiser.step()
        if step % 10 == 0:
            path.append({name: value.clone() for name, value in net.state_dict().items()})
    result = geh.GEHExplainer(net, posterior=WeightSamples.from_swag(path)).explain(
        x, groups=2, draws=10, progress=False
    )
    assert result.ranking().top(1) == [("x0", "x1")]
    with pytest.raises(geh.GEHError, match="at least two checkpoints"):
        WeightSamples.from_swag(path[:1])


@pytest.mark.filterwarnings("ignore")
def test_samples_of_pyro_are_explained():
    pyro = pytest.importorskip("pyro")
    from pyro.infer import MCMC, NUTS
    from pyro.nn import PyroSample
    from pyro.nn.module import to_pyro_module_

    _, x, y = trained(60)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    bayesian = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    to_pyro_module_(bayesian)
    for module in (bayesian[0], bayesian[2]):
        for name, value in list(module.named_parameters()):
            prior = pyro.distributions.Normal(0.0, 1.0).expand(value.shape).to_event(value.ndim)
            setattr(module, name, PyroSample(prior))

    def model(x, y):
        mean = bayesian(x)[:, 0]
        with pyro.plate("rows", len(x)):
            pyro.sample("y", pyro.distributions.Normal(mean, 0.3), obs=y[:, 0])

    pyro.set_rng_seed(0)
    sampler = MCMC(NUTS(model, max_tree_depth=3), num_samples=15, warmup_steps=15, disable_progbar=True)
    sampler.run(x, y)
    posterior = WeightSamples.from_pyro(sampler.get_samples())
    result = geh.GEHExplainer(net, posterior=posterior).explain(x, groups=1, progress=False)
    assert result.geh.draws.shape == (15, 3)
    with torch.no_grad():
        drawn = functional_call(net, posterior.samples[4], (x,))
    direct = torch.func.hessian(lambda row: functional_call(net, posterior.samples[4], (row,))[0])
    expected = vmap(direct)(x).mean(0)[0, 1].abs()
    assert result.aeh.draws[4, 0] == pytest.approx(float(expected), rel=1e-3)
    assert torch.isfinite(drawn).all()


def test_samples_without_the_prefix_are_left_out_and_none_is_an_error():
    drawn = {"net.weight": torch.randn(5, 1, 3), "sigma": torch.rand(5)}
    assert [list(state) for state in WeightSamples.from_pyro(drawn, prefix="net.").samples] == [["weight"]] * 5
    with pytest.raises(geh.GEHError, match="prefix='model"):
        WeightSamples.from_pyro(drawn, prefix="model.")
