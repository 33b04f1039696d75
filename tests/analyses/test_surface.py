"""The surface of a pair: joint effect without main effects, at inputs and hidden layers, drawn with its regions."""

from functools import cache

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from explaining import point_explainer, uniform_points
from torch import nn

import geh_explain as geh
from geh_explain.plots import palette


@cache
def four_features():
    """Return points (300, 4), uniform on [0.5, 1.5), in single precision."""
    return uniform_points(300, 4, dtype=torch.float) + 0.5


def twisted(x):
    return 3 * x[:, 0] * x[:, 1] + x[:, 0] ** 2 - 5 * x[:, 1] + x[:, 2] * x[:, 3]


def surface(*pair, inputs=None, **options):
    inputs = four_features() if inputs is None else inputs
    return point_explainer(twisted).surface(inputs, pair=pair, progress=False, **options)


def test_a_product_is_a_saddle_and_main_effects_are_gone():
    found = surface(0, 1, grid=7)
    mean = four_features().double().mean(dim=0).numpy()
    expected = 3 * (found.first - mean[0])[:, None] * (found.second - mean[1])
    # The grid stands for the data to within half a step.
    np.testing.assert_allclose(found.values, expected, atol=0.02)
    assert found.std.max() == 0


def test_rows_and_columns_average_to_nothing_over_the_data():
    found = surface(0, 1, grid=9)
    nearest = [np.abs(found.points[:, [k]] - places).argmin(1) for k, places in enumerate((found.first, found.second))]
    shares = [np.bincount(index, minlength=9) / len(four_features()) for index in nearest]
    np.testing.assert_allclose(found.values @ shares[1], 0, atol=1e-6)
    np.testing.assert_allclose(shares[0] @ found.values, 0, atol=1e-6)


def test_without_interaction_it_is_flat():
    assert np.abs(surface(0, 2).values).max() < 1e-5


def test_few_values_are_all_taken():
    x = four_features().clone()
    x[:, 1] = (x[:, 1] > 1).float()
    found = surface(0, 1, inputs=x, grid=6)
    assert found.second.tolist() == [0, 1]
    assert found.values.shape == (6, 2)


def test_units_by_name_any_kind_of_input_and_any_batch():
    frame = pd.DataFrame(four_features().numpy(), columns=list("abcd"))
    by_name = surface("b", "a", inputs=frame, grid=5)
    by_number = surface(0, 1, grid=5)
    assert by_name.names == ("b", "a")
    np.testing.assert_allclose(by_name.values.T, by_number.values, atol=1e-5)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(four_features()), batch_size=70)
    np.testing.assert_allclose(surface(0, 1, inputs=loader, grid=5, points=300).values,
                               surface(0, 1, grid=5, points=300, batch_size=64).values, atol=1e-5)  # fmt: skip


def test_hidden_units_and_draws():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 1))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = geh.GEHExplainer(net, "1").surface(four_features(), pair=(0, 3), grid=6, draws=8, progress=False)
    assert found.values.shape == (6, 6)
    assert found.std.max() > 0
    hidden = torch.tanh(net[0](four_features()))[:, [0, 3]]
    np.testing.assert_allclose(found.points, hidden.detach(), rtol=1e-5)
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
    again = geh.GEHExplainer(net, "1").surface(four_features(), pair=(0, 3), grid=6, draws=8, progress=False)
    assert np.array_equal(found.values, again.values)


def test_a_channel_is_its_mean():
    class Maps(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 3, 3)

        def forward(self, x):
            means = self.conv(x).mean(dim=(2, 3))
            return means[:, 0] * means[:, 1] + means[:, 2]

    images = torch.rand(40, 1, 6, 6)
    found = point_explainer(Maps(), "conv").surface(images, pair=(0, 1), grid=5, progress=False)
    mean = found.points.mean(axis=0)
    expected = (found.first - mean[0])[:, None] * (found.second - mean[1])
    np.testing.assert_allclose(found.values, expected, atol=0.02 * np.abs(expected).max() + 1e-3)


def test_regions_of_a_result_are_drawn(tmp_path):
    result = point_explainer(twisted).explain(four_features(), groups=3, progress=False)
    found = point_explainer(twisted).surface(four_features(), pair=(0, 1), result=result, grid=6, progress=False)
    assert found.effects.tolist() == result.regions(0, 1)["mean"].tolist()
    ax = found.plot()
    assert len(ax.patches) == 6  # three ellipses, each with a halo
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x0", "x1")
    assert len(surface(0, 1, grid=4).plot().patches) == 0
    given = ax.figure.subplots()
    assert found.plot(ax=given) is given


def test_dots_are_in_the_colour_of_their_region_where_a_unit_takes_few_values():
    x = torch.stack([(2.0 * (torch.arange(60) % 2)).double(), torch.linspace(-1, 1, 60).double()], dim=1)
    model = point_explainer(lambda x: x[:, 0] * x[:, 1] ** 2)
    sides = (x[:, 1] > 0).long()
    result = model.explain(x, groups=sides, progress=False)
    ax = model.surface(x, pair=(0, 1), result=result, grid=6, progress=False).plot()
    assert len(ax.patches) == 0
    colours = ax.collections[-1].get_facecolors()
    positive, negative = matplotlib.colors.to_rgba_array([palette.POSITIVE, palette.NEGATIVE])
    assert np.allclose(colours, np.where(sides[:, None] == 1, positive, negative))


def test_names_with_a_dollar_sign_are_drawn_as_they_are():
    frame = pd.DataFrame(four_features().numpy(), columns=["$a_1", "b$", "c", "d"])
    ax = surface("$a_1", "b$", inputs=frame, grid=4).plot()
    ax.figure.canvas.draw()
    assert ax.get_xlabel() == "$a_1"


@pytest.mark.parametrize(
    ("pair", "options", "words"),
    [
        ((0, 0), {}, "names the same unit twice"),
        ((0, "z"), {}, "unit 'z' is not among the names"),
        ((0, 9), {}, "unit 9 is out of range; there are 4 units"),
        ((0, 1), {"grid": 1}, "grid=1 must be at least 2"),
        ((0, 1), {"points": 0}, "points=0 must be at least 1"),
    ],
)
def test_wrong_arguments_are_refused(pair, options, words):
    with pytest.raises(geh.GEHError, match=words):
        surface(*pair, **options)


def test_a_unit_that_never_changes_has_no_surface():
    with pytest.raises(geh.GEHError, match=r"pair: 'x\d' has the same value in all inputs"):
        surface(0, 1, inputs=four_features() * torch.tensor([1.0, 0, 1, 1]))


def test_a_result_about_other_points_is_refused():
    result = point_explainer(twisted).explain(four_features(), groups=2, progress=False)
    with pytest.raises(geh.GEHError, match="it is about 300 points, and inputs has 100"):
        point_explainer(twisted).surface(four_features()[:100], pair=(0, 1), result=result, grid=3, progress=False)


def test_units_go_by_the_names_of_the_result():
    explainer = point_explainer(lambda x: x[:, 0] * x[:, 1])
    x = torch.rand(50, 2)
    result = explainer.explain(x, groups=1, names=["rain", "wind"], progress=False)
    assert explainer.surface(x, pair=("rain", "wind"), result=result, grid=4, progress=False).names == ("rain", "wind")
