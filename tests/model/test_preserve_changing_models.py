"""Models that change themselves in their forward pass are restored, or refused where their output changes."""

import numpy as np
import pytest
import torch
from expected_errors import valid_points
from explaining import explain_draws, explain_point
from networks import dropout_network
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout


class Changing(nn.Module):
    """A network that does something else in each forward, too."""

    def __init__(self, change):
        super().__init__()
        self.net, self.change = dropout_network(), change
        self.register_buffer("count", torch.zeros(()))
        self.seen, self.kept = [], None

    def forward(self, x):
        hidden = self.net[0](x)
        self.change(self, x, hidden)
        return self.net[1:](hidden)


CHANGES = {
    "counts": lambda self, x, hidden: self.count.add_(1),
    "replaces its counter": lambda self, x, hidden: setattr(self, "count", self.count + 1),
    "appends to a list": lambda self, x, hidden: self.seen.append(len(x)),
    "keeps its activations": lambda self, x, hidden: setattr(self, "kept", hidden),
    "keeps what it is called with": lambda self, x, hidden: self.seen.append(x),
    "freezes its weights": lambda self, x, hidden: self.requires_grad_(False),
    "draws random numbers": lambda self, x, hidden: torch.rand(3),
}


@pytest.mark.parametrize("layer", [None, "net.1"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_changes_in_its_forward_comes_back_as_it_was(change, training, layer):
    model = Changing(CHANGES[change]).train(training)
    tensors = {name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    random_state = torch.get_rng_state()
    expected = explain_draws(dropout_network(), valid_points(), layer=layer and "1", posterior=MCDropout(), groups=2)
    result = explain_draws(model, valid_points(), layer=layer, posterior=MCDropout(), groups=2)
    assert result.signed == pytest.approx(expected.signed, rel=1e-5, abs=1e-8)
    after = model.state_dict(keep_vars=True)
    assert list(after) == list(tensors)
    for name, (tensor, value) in tensors.items():
        assert after[name] is tensor
        assert torch.equal(tensor, value)
    assert all(module.training == training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_batch_normalisation_in_train_mode_is_explained_with_its_running_statistics():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    model(valid_points(50))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    trained = explain_point(model.train(), valid_points(), groups=2)
    assert model[1].training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert np.array_equal(trained.signed, explain_point(model.eval(), valid_points(), groups=2).signed)


def test_a_model_whose_answer_depends_on_how_often_it_was_asked_is_refused():
    class Tiring(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            return x.prod(1) * self.count

    model = Tiring()
    with pytest.raises(geh.GEHError, match="not one function"):
        explain_point(model, valid_points(), groups=2)
    assert model.count == 0


def test_a_model_that_fills_a_table_in_its_first_forward_works_on():
    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.table = dropout_network(), None

        def forward(self, x):
            if self.table is None:
                self.table = self.net[0].weight.sum() * torch.arange(1.0, 4.0)
            return self.net(x * self.table)

    model = Remembering()
    with torch.inference_mode():
        first = explain_draws(model, valid_points(), posterior=MCDropout(), groups=2)
    second = explain_draws(model, valid_points(), posterior=MCDropout(), groups=2)
    assert np.array_equal(first.signed, second.signed)
    model(valid_points()).sum().backward()
