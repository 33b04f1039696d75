"""Models that write to their buffers or inputs while they run: all of it is undone."""

import numpy as np
import pytest
import torch
from explaining import random_points
from state_comparison import Fuse, explain_case, marks, untouched
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from geh_explain import posterior as posteriors

pytestmark = marks


class Remembering(nn.Module):
    """Changes a buffer in its forward, in one of several ways, without its output depending on it."""

    def __init__(self, way):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1)).double()
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("late", None)
        self.way = way

    def forward(self, x):
        if self.way == "adds":
            self.seen += 1
        elif self.way == "replaces":
            self.seen = self.seen + 1
        elif self.way == "writes past autograd":
            self.seen.data += 1
        elif self.way == "fills an empty one":
            self.late = torch.ones(len(x))
        elif self.way == "registers a new one":
            self.register_buffer("new", torch.ones(2))
        return self.net(x)


ways = pytest.mark.parametrize(
    "way", ["adds", "replaces", "writes past autograd", "fills an empty one", "registers a new one"]
)


@ways
@pytest.mark.parametrize("layer", [None, "net.0"])
def test_a_buffer_that_the_forward_changes_comes_back(way, layer):
    model = Remembering(way)
    with untouched(model):
        explain_case(model, None, layer)


@ways
def test_a_buffer_that_the_forward_changes_comes_back_after_an_error(way):
    model, output = Remembering(way), Fuse()
    output.blows, output.error = 4, ZeroDivisionError()
    with untouched(model), pytest.raises(ZeroDivisionError):
        explain_case(model, None, output=output)


def test_samples_of_the_weights_are_not_written_to_by_the_model():
    model = Remembering("adds")
    samples = [{"seen": torch.zeros(2), "net.0.bias": torch.full((4,), 0.1 * k, dtype=torch.double)} for k in range(3)]
    with untouched(model):
        explain_case(model, posteriors.WeightSamples(samples))
    assert [sample["seen"].tolist() for sample in samples] == [[0, 0]] * 3


class Overwriting(nn.Module):
    """Writes into its own inputs."""

    def __init__(self, write):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        self.write = write

    def forward(self, x):
        return self.net(self.write(x))


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("write", [lambda x: x.mul_(0.5), lambda x: x.clamp_(-0.5, 0.5)], ids=["halves", "clips"])
@pytest.mark.parametrize("layer", [None, "net.0"])
@pytest.mark.parametrize("kind", ["tensor", "array", "loader"])
def test_the_users_data_are_not_written_to_by_the_model(layer, kind, write):
    data = random_points(12, 3, seed=1)
    given = {"tensor": data, "array": data.numpy(), "loader": DataLoader(TensorDataset(data), batch_size=5)}[kind]
    explain_case(Overwriting(write), posteriors.PointEstimate(), layer, inputs=given)
    assert torch.equal(data, random_points(12, 3, seed=1))


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
def test_additional_arguments_are_not_written_to_by_the_model():
    class Weighted(Overwriting):
        def forward(self, x, weight):
            return self.net(x * self.write(weight))

    weights = random_points(12, 3, seed=1)
    model = Weighted(lambda x: x.clamp_(-0.5, 0.5))
    explain_case(model, posteriors.PointEstimate(), args=weights)
    assert torch.equal(weights, random_points(12, 3, seed=1))


def test_a_model_that_writes_into_its_inputs_is_explained_like_one_that_does_not():
    writing = Overwriting(lambda x: x.mul_(0.5))
    not_writing = nn.Sequential(nn.Linear(3, 3, bias=False).double(), *writing.net)
    with torch.no_grad():
        not_writing[0].weight.copy_(0.5 * torch.eye(3))
    expected = explain_case(not_writing, posteriors.PointEstimate())
    assert np.allclose(
        explain_case(writing, posteriors.PointEstimate()).signed, expected.signed, rtol=1e-12, atol=1e-15
    )
