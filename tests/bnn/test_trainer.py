"""The training loop: the weight of the prior, custom Bayesian layers, and histories of interrupted runs."""

import dataclasses

import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.bnn import HybridNet, fit
from geh_explain.bnn.trainer import prior_weight

pytestmark = pytest.mark.usefixtures("seeded")


def test_the_weight_of_the_prior_grows_linearly_to_one():
    weights = [prior_weight(epoch, annealing=10) for epoch in range(12)]
    assert weights[0] == 0.01
    assert weights[10:] == [1.0, 1.0]
    steps = torch.tensor(weights[:11]).diff()
    torch.testing.assert_close(steps, torch.full((10,), 0.099))
    assert prior_weight(0, annealing=0) == 1.0


class Shrinking(nn.Module):
    """A custom Bayesian layer, which is recognised by its method kl."""

    def __init__(self, strength):
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.strength = strength

    def forward(self, x):
        return self.linear(x)

    def kl(self):
        return self.strength * self.linear.weight.square().sum()


def test_the_divergence_of_a_custom_layer_is_part_of_the_objective():
    x = torch.rand(200, 2)
    norms = []
    for strength in (0.0, 1e5):
        torch.manual_seed(0)
        layer = Shrinking(strength)
        fit(layer, x, x.sum(1), epochs=30, lr=0.05, progress=False)
        norms.append(float(layer.linear.weight.detach().norm()))
    assert norms[0] == pytest.approx(2**0.5, rel=0.05)
    assert norms[1] < 0.05


class NamedKl(nn.Linear):
    """Has an attribute called kl that is not a method."""

    kl = "Kleinschmidt"


def test_another_attribute_called_kl_is_ignored():
    x = torch.rand(50, 2)
    assert fit(NamedKl(2, 1), x, x.sum(1), epochs=2, progress=False).best_epoch >= 0


def test_an_epoch_interrupted_while_it_is_validated_is_not_in_the_history():
    x = torch.rand(100, 2)
    net = HybridNet(2, hidden=(3,))
    validations = 0

    def interrupt(module, args, out):
        nonlocal validations
        validations += not module.training
        if validations == 3:
            raise KeyboardInterrupt

    handle = net.main.register_forward_hook(interrupt)
    with pytest.warns(geh.GEHWarning, match="interrupted in epoch 2; the weights of epoch 1 are kept"):
        history = fit(net, x, x.prod(1), epochs=9, progress=False)
    handle.remove()
    assert history.interrupted
    assert history.table().shape == (2, 2)


def test_a_history_cannot_be_changed():
    x = torch.rand(50, 2)
    history = fit(HybridNet(2, hidden=(3,)), x, x.prod(1), epochs=1, progress=False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        history.best_epoch = 7
    assert repr(history) == f"History(regression, 1 epochs, epoch 0 kept, validation error {history.best:.4g})"
