"""SWAG: a Gaussian with the mean and the covariance of checkpoints."""

import numpy as np
import pytest
import torch
from posterior_cases import trained
from torch import nn

import geh_explain as geh
from geh_explain._hashing import digest
from geh_explain.posterior import SWAG, WeightSamples

pytestmark = pytest.mark.usefixtures("seeded")


def random_path(n_checkpoints=200):
    return [{"weight": torch.randn(1, 2) * torch.tensor([1.0, 3.0]) + 5} for _ in range(n_checkpoints)]


def samples_of(posterior, n=3000):
    return torch.stack([posterior.sample(k)["weight"] for k in range(n)])


def test_draws_have_the_mean_and_the_spread_of_the_checkpoints():
    path = random_path()
    samples = samples_of(SWAG(path, rank=200))
    of_path = torch.stack([state["weight"] for state in path]).double()
    torch.testing.assert_close(samples.mean(0), of_path.mean(0), atol=0.15, rtol=0)
    # The diagonal and the low-rank half give half of the variance each.
    torch.testing.assert_close(samples.std(0), of_path.std(0), atol=0, rtol=0.1)


def test_the_low_rank_half_correlates_weights_that_move_together():
    steps = torch.randn(200, dtype=torch.double)
    samples = samples_of(SWAG([{"weight": torch.stack([step, 2 * step])[None]} for step in steps], rank=200))
    # The covariance is half of that of the path (correlation 1) and half diagonal.
    correlation = np.corrcoef(samples[:, 0].T)[0, 1]
    assert correlation == pytest.approx(0.5, abs=0.05)


def test_scale_is_a_factor_of_the_covariance():
    path = random_path(20)
    mean = torch.stack([state["weight"] for state in path]).double().mean(0)
    for draw in range(3):
        wide, narrow = SWAG(path, scale=1.0).sample(draw), SWAG(path, scale=0.25).sample(draw)
        torch.testing.assert_close(narrow["weight"] - mean, (wide["weight"] - mean) / 2)


def test_a_sample_depends_on_its_number_and_the_seed_only():
    path = random_path(10)
    assert torch.equal(SWAG(path).sample(7)["weight"], SWAG(path, seed=0).sample(7)["weight"])
    assert not torch.equal(SWAG(path).sample(7)["weight"], SWAG(path).sample(8)["weight"])
    assert not torch.equal(SWAG(path).sample(7)["weight"], SWAG(path, seed=1).sample(7)["weight"])


def test_checkpoints_are_copied():
    path = random_path(5)
    posterior = SWAG(path)
    before = posterior.sample(0)["weight"]
    path[0]["weight"].fill_(100.0)
    path.clear()
    assert torch.equal(posterior.sample(0)["weight"], before)


def test_the_digest_depends_on_the_checkpoints():
    path = random_path(5)
    assert digest(SWAG(path)) == digest(SWAG(path))
    assert digest(SWAG(path)) != digest(SWAG(path[:4]))
    assert digest(SWAG(path)) != digest(SWAG(path, scale=0.5))


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
    posterior = SWAG(path)
    result = geh.GEHExplainer(net, posterior=posterior).explain(x, groups=2, draws=10, progress=False)
    assert result.ranking().top(1) == [("x0", "x1")]
    by_samples = WeightSamples(posterior.sample)
    again = geh.GEHExplainer(net, posterior=by_samples).explain(x, groups=2, draws=10, progress=False)
    # Draws of SWAG are computed at once, samples of a callable one by one: single precision rounds differently.
    np.testing.assert_allclose(result.signed, again.signed, rtol=1e-4, atol=1e-5)


def test_another_seed_of_the_run_gives_other_draws():
    path = random_path(10)
    net = nn.Linear(2, 1, bias=False)

    def drawn(posterior, seed):
        weights = []
        for draw in posterior.draws(net, 3, seed):
            with draw:
                weights.append(net.weight.detach().clone())
        return torch.stack(weights)

    assert torch.equal(drawn(SWAG(path), 0), drawn(SWAG(path), 0))
    assert not torch.isclose(drawn(SWAG(path), 0), drawn(SWAG(path), 1)).any()
    expected = torch.stack([SWAG(path).sample(k, seed=1)["weight"] for k in range(3)])
    assert torch.equal(drawn(SWAG(path), 1), expected.to(net.weight))


def test_buffers_stay_as_they_are_in_the_model():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    # Variances far apart: samples of a Gaussian around them would be negative now and then.
    path = [{**model.state_dict(), "1.running_var": torch.full((3,), 10.0**k)} for k in range(-2, 3)]
    path = [{name: v + 0.1 * torch.randn_like(v.double()) for name, v in state.items()} for state in path]
    mean, variance = model[1].running_mean.clone(), model[1].running_var.clone()
    for draw in SWAG(path).draws(model, 5, 0):
        with draw:
            assert torch.equal(model[1].running_var, variance)
            assert torch.equal(model[1].running_mean, mean)
            assert not torch.equal(model[0].weight.double(), path[0]["0.weight"])


FLAT = [{"weight": torch.zeros(1, 2)}, {"weight": torch.zeros(1, 2)}]
WRONG = {
    "one checkpoint": ({"checkpoints": FLAT[:1]}, "at least two checkpoints"),
    "no checkpoint": ({"checkpoints": []}, "at least two checkpoints"),
    "a single state dict": ({"checkpoints": FLAT[0]}, "list of state dicts"),
    "not state dicts": ({"checkpoints": [1, 2]}, "list of state dicts"),
    "not a list": ({"checkpoints": None}, "list of state dicts"),
    "other shapes": ({"checkpoints": [*FLAT, {"weight": torch.zeros(2, 2)}]}, "checkpoint 2"),
    "other entries": ({"checkpoints": [*FLAT, {"bias": torch.zeros(1, 2)}]}, "checkpoint 2"),
    "rank": ({"checkpoints": FLAT, "rank": 0}, "rank=0"),
    "scale": ({"checkpoints": FLAT, "scale": -1}, "scale=-1"),
    "scale in words": ({"checkpoints": FLAT, "scale": "cold"}, "scale='cold'"),
    "seed": ({"checkpoints": FLAT, "seed": -3}, "seed=-3"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_refused(wrong):
    arguments, message = WRONG[wrong]
    with pytest.raises(geh.GEHError, match=message):
        SWAG(**arguments)


def test_checkpoints_of_another_model_are_refused():
    with pytest.raises(geh.GEHError, match=r"SWAG: entry 'weight' of sample 0 has shape \(1, 2\)"):
        geh.GEHExplainer(nn.Linear(3, 1), posterior=SWAG(random_path(3))).explain(torch.randn(9, 3), progress=False)
