"""Layers whose output shares memory with a tensor that the model changes in place after the layer was called."""

import numpy as np
import pytest
import torch
from explaining import explain_point, random_points
from torch import nn

import geh_explain as geh
from geh_explain.data.reader import Reader
from geh_explain.model.cut import Cut
from geh_explain.model.layers import find_layer


class InPlaceResidual(nn.Module):
    """In eval mode dropout returns its input, to which the residual is added in place afterwards."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.below, self.drop = nn.Linear(5, 6), nn.Dropout(0.1)
        self.branch, self.head = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        hidden = self.below(x)
        residual = self.branch(self.drop(hidden).relu())
        hidden += 10 * residual
        return self.head(hidden.relu())


@pytest.fixture(scope="module")
def x():
    return random_points(60, 5, seed=1, dtype=torch.float)


@pytest.fixture(scope="module")
def activations(x):
    with torch.no_grad():
        return InPlaceResidual().below(x).double().numpy()


def test_standard_deviations_are_those_of_the_layer_when_it_was_called(x, activations):
    labels = np.arange(60) % 2
    scaled, plain = (
        explain_point(InPlaceResidual(), x, layer="drop", groups=labels, scale=scale) for scale in ("std", None)
    )
    std = activations.std(axis=0)
    expected = plain.geh.mean * np.outer(std, std)
    np.testing.assert_allclose(scaled.geh.mean, expected, rtol=1e-5)


def test_groups_are_found_from_the_layer_when_it_was_called(x, activations):
    result = explain_point(InPlaceResidual(), x, layer="drop", groups=2)
    means = [activations[result.labels == group].mean(axis=0) for group in (0, 1)]
    # Two-means: each point is nearer to the mean of its own group.
    distances = np.stack([((activations - mean) ** 2).sum(axis=1) for mean in means])
    assert (distances.argmin(axis=0) == result.labels).mean() > 0.95


def test_smoothing_is_compared_with_the_model_itself(x):
    """Replacing the layer's output takes it out of the in-place addition; the comparison must show that."""
    rows = Reader().read(x).first
    model = InPlaceResidual().eval()
    cut = Cut(model, find_layer(model, "drop"), None, "raw", rows)
    assert not cut.replaces_shared_memory(rows)  # the residual is added to the replaced tensor's source only

    class ShiftedInPlace(InPlaceResidual):
        def forward(self, x):
            hidden = self.below(x)
            dropped = self.drop(hidden)
            hidden += 1
            return self.above(dropped)

        def above(self, dropped):
            return self.head(self.branch(dropped).relu())

    model = ShiftedInPlace().eval()
    cut = Cut(model, find_layer(model, "drop"), None, "raw", rows)
    assert cut.replaces_shared_memory(rows)
    with pytest.warns(geh.GEHWarning, match="smoothing the kinks"):
        change = explain_point(model, x, layer="drop").settings["smoothed"]["mean_change"]
    with torch.no_grad():
        hidden = model.below(x)
        gap = (model.above(hidden) - model.above(hidden + 1)).abs().mean()
    assert change == pytest.approx(float(gap), rel=0.5)
