"""The numbers are the same under no_grad and inference_mode, and for tensors made there."""

import numpy as np
import pytest
import torch
from explaining import random_points
from state_comparison import Fuse, Lived, each_case, explain_case, marks, samples_of, untouched
from torch import nn

import geh_explain as geh
from geh_explain import posterior as posteriors

pytestmark = marks


@each_case
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_numbers_are_the_same_where_the_caller_has_turned_gradients_off(case, layer, mode):
    model, posterior, members = case(Fuse())
    expected = explain_case(model, posterior, layer)
    with mode(), untouched(model, *members):
        result = explain_case(model, posterior, layer)
    assert np.array_equal(result.signed, expected.signed)
    assert np.array_equal(result.absolute, expected.absolute)


@pytest.mark.parametrize("layer", [None, "first"])
def test_inputs_may_be_made_in_inference_mode(layer):
    model = Lived()
    expected = explain_case(model, None, layer)
    with torch.inference_mode():
        inputs = random_points(12, 3, seed=1)
        inside = explain_case(model, None, layer, inputs=inputs)
    outside = explain_case(model, None, layer, inputs=inputs)
    assert np.array_equal(inside.signed, expected.signed)
    assert np.array_equal(outside.signed, expected.signed)


def test_targets_may_be_made_in_inference_mode():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(), nn.Linear(4, 2)).double()
    expected = explain_case(model, None, target=torch.arange(12) % 2)
    with torch.inference_mode():
        result = explain_case(model, None, target=torch.arange(12) % 2)
    assert np.array_equal(result.signed, expected.signed)


def test_additional_arguments_may_be_made_in_inference_mode():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(), nn.Linear(4, 1)).double()

        def forward(self, x, weight):
            return self.net(x * weight)

    model = Weighted()
    expected = explain_case(model, None, args=random_points(12, 3, seed=1)[:, :1])
    with torch.inference_mode():
        result = explain_case(model, None, args=random_points(12, 3, seed=1)[:, :1].clone())
    assert np.array_equal(result.signed, expected.signed)


def test_samples_of_the_weights_may_be_made_in_inference_mode():
    model = Lived()
    expected = explain_case(model, posteriors.WeightSamples(samples_of(model)))
    with torch.inference_mode():
        samples = samples_of(model)
    with untouched(model):
        result = explain_case(model, posteriors.WeightSamples(samples))
    assert np.array_equal(result.signed, expected.signed)


def in_inference_mode():
    with torch.inference_mode():
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1)).double()


@pytest.mark.parametrize("where", ["all of it", "its last layer", "a buffer", "a member"])
def test_a_model_made_in_inference_mode_is_refused(where):
    made = in_inference_mode()
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1)).double()
    posterior = None
    if where == "all of it":
        model = made
    elif where == "its last layer":
        model[-1] = made[-1]
    elif where == "a buffer":
        with torch.inference_mode():
            model[1].running_mean = torch.zeros(4, dtype=torch.double)
    else:
        posterior = posteriors.Ensemble([model, made])
    with pytest.raises(geh.GEHError, match="inference_mode"):
        explain_case(model, posterior)
