"""Models that compute with fewer digits than single precision: explained with a warning, or in single precision."""

import numpy as np
import pytest
import torch
from explaining import explain_point, explain_point_quietly, random_points
from torch import nn

import geh_explain as geh


class Precise(nn.Module):
    """A small network; ``half`` is the type in which subclasses compute."""

    def __init__(self, half=torch.bfloat16):
        super().__init__()
        torch.manual_seed(0)
        self.below = nn.Linear(4, 16)
        self.above = nn.Sequential(nn.Tanh(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 1))
        self.half = half

    def forward(self, x):
        return self.above(self.below(x))


class Autocast(Precise):
    def forward(self, x):
        with torch.autocast("cpu", dtype=self.half):
            return super().forward(x).float()


class PartlyAutocast(Precise):
    def forward(self, x):
        hidden = self.below(x)
        with torch.autocast("cpu", dtype=self.half):
            return self.above(hidden).float()


class Converted(Precise):
    def forward(self, x):
        return self.above(self.below(x).to(self.half).float())


def points():
    return random_points(200, 4, dtype=torch.float)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layer", [None, "below"])
@pytest.mark.parametrize("make", [Autocast, PartlyAutocast, Converted])
def test_half_precision_inside_the_model_is_explained_by_double_backward_with_a_warning(make, layer, half):
    with pytest.warns(geh.GEHWarning, match=rf"compute in {half}, with \d digits.*rounding.*without autocast"):
        found = explain_point(make(half), points(), layer=layer)
    assert found.settings["engine"] == "exact"
    assert str(half) in found.settings["engine_reason"]
    expected = explain_point(Precise(), points(), layer=layer)
    np.testing.assert_allclose(found.eah.mean, expected.eah.mean, atol=0.05 * expected.eah.mean.max())


@pytest.mark.parametrize("engine", ["exact", "difference", "stein", "structured"])
def test_every_engine_warns_of_half_precision_inside_the_model(engine):
    with pytest.warns(geh.GEHWarning, match=r"compute in torch.bfloat16"):
        explain_point(Autocast(), points(), engine=engine)


def test_half_precision_below_the_layer_is_no_matter():
    class Below(Precise):
        def forward(self, x):
            with torch.autocast("cpu", dtype=self.half):
                hidden = self.below(x)
            return self.above(hidden.float())

    explain_point(Below(), points(), layer="above.0")  # a warning would be an error


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_parameters_in_8_bits_are_explained_in_single_precision_with_a_warning(dtype):
    model, rounded = Precise(), Precise()
    model.above[1].weight = nn.Parameter(model.above[1].weight.detach().to(dtype), requires_grad=False)
    rounded.above[1].weight.data = model.above[1].weight.float()
    with pytest.warns(geh.GEHWarning, match=rf"{dtype}, and was explained in torch.float32"):
        found = explain_point(model, points())
    assert np.array_equal(found.signed, explain_point(rounded, points()).signed)
    assert model.above[1].weight.dtype == dtype


def test_a_first_buffer_in_8_bits_does_not_decide_on_the_inputs():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.linspace(-1, 1, 12).reshape(4, 3).to(torch.float8_e5m2))

        def forward(self, x):
            return torch.tanh(x @ self.weight.float()).sum(1)

    assert explain_point_quietly(Scaled(), points()).eah.mean.any()
