"""Concrete dropout and mean field: masks, weights, divergences, and draws of the explainer."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.bnn import ConcreteDropout, MeanField, to_concrete

pytestmark = pytest.mark.usefixtures("seeded")


def test_masks_and_their_gradients_are_those_of_the_formula():
    layer = ConcreteDropout(nn.Linear(5, 2), p=0.3, temperature=0.2).double()
    layer.drop.logits.data += torch.randn(5).double()
    x = torch.randn(7, 5).double()
    torch.manual_seed(1)
    mask = layer.drop.draw_mask(x)
    (found,) = torch.autograd.grad((mask * x).sum(), layer.drop.logits)
    torch.manual_seed(1)
    uniform = torch.rand(7, 5, dtype=torch.double)
    dropped = torch.sigmoid((layer.drop.logits + torch.logit(uniform)) / 0.2)
    expected = (1 - dropped) / (1 - torch.sigmoid(layer.drop.logits))
    torch.testing.assert_close(mask, expected)
    torch.testing.assert_close(found, torch.autograd.grad((expected * x).sum(), layer.drop.logits)[0])


def test_a_node_is_dropped_as_often_as_its_rate_says_and_hard_masks_are_whole():
    layer = ConcreteDropout(nn.Linear(3, 2), p=0.3, hard=True)
    mask = layer.drop.draw_mask(torch.ones(20_000, 3)).detach()
    assert mask.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert (mask == 0).float().mean(0).numpy() == pytest.approx([0.3] * 3, abs=0.015)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Linear(4, 3), (4,)),
        (lambda: nn.Linear(4, 3), (5, 4)),
        (lambda: nn.Conv1d(4, 2, 3), (4, 9)),
        (lambda: nn.Conv2d(4, 2, 3, groups=2), (4, 5, 5)),
        (lambda: nn.ConvTranspose2d(4, 2, 3), (4, 5, 5)),
    ],
    ids=["linear", "tokens", "conv1d", "grouped", "transposed"],
)
def test_any_linear_map_can_be_wrapped(make, shape):
    layer, x = make(), torch.randn(6, *shape)
    for wrapped in (ConcreteDropout(layer), MeanField(layer)):
        torch.testing.assert_close(wrapped.eval()(x), layer(x))
        wrapped.train()
        assert not torch.equal(wrapped(x), layer(x))
        wrapped.kl().backward()
        assert all(parameter.grad is not None for parameter in wrapped.parameters())


def test_the_prior_of_dropout_weighs_what_leaves_each_node():
    conv = nn.Conv2d(4, 6, 3, groups=2)
    layer = ConcreteDropout(conv, p=0.2, length_scale=2.0)
    weight, bias = conv.weight.detach(), conv.bias.detach()
    norms = [float(weight[(0 if j < 2 else 3) : (3 if j < 2 else 6), j % 2].square().sum()) for j in range(4)]
    entropy = -4 * (0.2 * math.log(0.2) + 0.8 * math.log(0.8))
    expected = 2.0**2 / 2 * (sum(norms) / 0.8 + float(bias.square().sum())) - entropy
    assert layer.kl().item() == pytest.approx(expected, rel=1e-5)
    one = ConcreteDropout(conv, "layer", p=0.2, length_scale=2.0)
    assert one.rates.shape == (1,)
    assert one.kl().item() == pytest.approx(expected, rel=1e-5)


def test_the_divergence_of_mean_field_is_that_of_normal_distributions():
    layer = MeanField(nn.Linear(3, 2), std=0.3, prior=0.7)
    q = torch.distributions.Normal(torch.cat([layer.layer.weight.flatten(), layer.layer.bias]), 0.3)
    expected = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 0.7)).sum()
    torch.testing.assert_close(layer.kl(), expected)


def test_outputs_drawn_in_training_have_the_spread_of_drawn_weights():
    layer, x = MeanField(nn.Conv2d(2, 3, 3, stride=2), std=0.2).train(), torch.randn(1, 2, 5, 5)
    trained = torch.stack([layer(x) for _ in range(3000)]).detach()
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([torch.func.functional_call(layer.layer, layer.sample(generator), (x,)) for _ in range(3000)])
    torch.testing.assert_close(trained.mean(0), drawn.mean(0), atol=0.06, rtol=0)
    torch.testing.assert_close(trained.std(0), drawn.std(0), atol=0, rtol=0.1)


def network(wrap):
    return nn.Sequential(wrap(nn.Linear(4, 12)), nn.Tanh(), wrap(nn.Linear(12, 1)))


@pytest.mark.parametrize("kind", [ConcreteDropout, MeanField], ids=["dropout", "gaussian"])
def test_the_explainer_chooses_their_posterior_and_leaves_the_network_unchanged(kind):
    net, x = network(kind), torch.randn(40, 4)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    first, again = (geh.GEHExplainer(net).explain(x, groups=2, draws=12, seed=3, progress=False) for _ in range(2))
    assert np.array_equal(first.geh.draws, again.geh.draws)
    assert (first.geh.std[np.triu_indices(4, 1)] > 0).all()
    assert first.settings["posterior"] == ("MCDropout()" if kind is ConcreteDropout else "MeanField()")
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert net.training


def test_a_draw_of_concrete_dropout_has_one_mask_for_all_rows():
    net, x = network(ConcreteDropout).eval(), torch.randn(9, 4)
    for draw in geh.posterior.MCDropout().draws(net, 3, seed=0):
        with draw, torch.no_grad():
            net(x[:1])
            torch.testing.assert_close(torch.cat([net(row[None]) for row in x]), net(x))
            assert not torch.allclose(net(x), network_without_draw(net, x))


def network_without_draw(net, x):
    plain = nn.Sequential(net[0].layer, net[1], net[2].layer)
    return plain(x)


def test_several_draws_at_once_are_the_draws_one_by_one():
    net, x = network(ConcreteDropout), torch.randn(30, 4)
    explain = geh.GEHExplainer(net, posterior=geh.posterior.MCDropout()).explain
    together = explain(x, groups=2, draws=10, progress=False)
    alone = explain(x, groups=2, draws=10, batch_size=1000, progress=False)
    parts = [geh.GEHExplainer(net).explain(x, groups=together.labels, draws=d, progress=False) for d in (10, 3)]
    for other in (alone, *parts):
        np.testing.assert_allclose(together.signed[: len(other.signed)], other.signed, rtol=1e-4, atol=1e-6)


def test_some_dropout_may_be_chosen():
    net, x = network(ConcreteDropout), torch.randn(30, 4)
    only = geh.posterior.MCDropout(modules=[net[2]])
    for draw in only.draws(net.eval(), 1, seed=0):
        with draw, torch.no_grad():
            net(x[:1])
            hidden = net[1](net[0](x))
            torch.testing.assert_close(hidden, torch.tanh(net[0].layer(x)))
            assert not torch.allclose(net[2](hidden), net[2].layer(hidden))


class Branched(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.drop2d, self.conv2 = nn.Conv2d(1, 4, 3), nn.Dropout2d(0.25), nn.Conv2d(4, 2, 3)
        self.drop, self.out = nn.Dropout(0.5), nn.Linear(2 * 4 * 4, 3)

    def forward(self, x):
        x = torch.relu(self.conv2(self.drop2d(torch.relu(self.conv(x)))))
        return self.out(self.drop(x).flatten(1))


def test_plain_dropout_becomes_concrete_with_the_same_weights():
    net, x = Branched().eval(), torch.randn(2, 1, 8, 8)
    found = to_concrete(net, x)
    torch.testing.assert_close(found(x), net(x))
    assert found.conv2.rates.numpy() == pytest.approx([0.25] * 4, abs=1e-6)
    assert found.out.rates.numpy() == pytest.approx([0.5] * 32, abs=1e-6)
    assert isinstance(found.drop, nn.Identity)
    assert isinstance(net.drop, nn.Dropout)
    result = geh.GEHExplainer(found, "conv").explain(x.repeat(6, 1, 1, 1), 0, groups=1, draws=4, progress=False)
    assert (result.geh.std[np.triu_indices(4, 1)] > 0).all()


def test_dropout_that_leads_nowhere_is_refused():
    with pytest.raises(geh.GEHError, match="'1' does not lead straight into a linear layer"):
        to_concrete(nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Tanh()), torch.randn(2, 3))
    with pytest.raises(geh.GEHError, match="no dropout module was reached"):
        to_concrete(nn.Linear(3, 3), torch.randn(2, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConcreteDropout(nn.Tanh()), "layer=Tanh\\(\\) is neither"),
        (lambda: ConcreteDropout(nn.Linear(2, 2), "unit"), "per='unit' is unknown"),
        (lambda: ConcreteDropout(nn.Linear(2, 2), p=1.5), "p=1.5"),
        (lambda: ConcreteDropout(nn.Linear(2, 2), temperature=0), "temperature=0"),
        (lambda: MeanField(nn.Linear(2, 2), std=-1), "std=-1"),
        (lambda: list(geh.posterior.MeanField().draws(nn.Linear(2, 1), 1, 0)), "has no geh_explain.bnn.MeanField"),
    ],
)
def test_wrong_layers_and_options_are_refused(make, message):
    with pytest.raises(geh.GEHError, match=message):
        make()


class Sharing(nn.Module):
    """One dropout module, under two names, before two layers, and before two more that read one output of it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.left, self.right = (
            nn.Linear(3, 3),
            nn.Linear(3, 3),
            nn.Linear(3, 2),
            nn.Linear(3, 2),
        )
        self.drop = self.same_drop = nn.Dropout(0.3)

    def forward(self, x):
        hidden = self.drop(self.second(self.same_drop(self.first(self.drop(x)).tanh())).tanh())
        return self.left(hidden) + self.right(hidden)


def test_all_layers_that_share_a_dropout_are_converted():
    net = Sharing().eval()
    x = torch.randn(4, 3)
    found = to_concrete(net, x)
    layers = (found.first, found.second, found.left, found.right)
    assert all(isinstance(layer, ConcreteDropout) for layer in layers)
    assert all(torch.allclose(layer.rates, torch.tensor(0.3)) for layer in layers)
    assert isinstance(found.drop, nn.Identity)
    assert found.same_drop is found.drop
    assert torch.equal(found(x), net(x))
    assert not any(isinstance(module, nn.Dropout) for module in found.modules())


def test_a_shared_dropout_is_refused_if_one_of_its_calls_leads_elsewhere():
    drop = nn.Dropout(0.3)
    net = nn.Sequential(drop, nn.Linear(3, 3), drop, nn.Tanh())
    with pytest.raises(geh.GEHError, match="dropout '0' does not lead straight into a linear layer"):
        to_concrete(net, torch.randn(2, 3))
