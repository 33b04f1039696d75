"""Accounts by differences: hand-computed, for black boxes, jumps and categories."""

import numpy as np
import pytest
import torch
from explaining import point_explainer, random_points

import geh_explain as geh


def effects(local):
    """Return main effects by unit, and effects of pairs by their units."""
    main = dict(zip(local.main["unit"], local.main["mean"], strict=True))
    pairs = {(i, j): mean for i, j, mean in local.pairs[["unit_i", "unit_j", "mean"]].itertuples(index=False)}
    return main, pairs


def test_units_are_switched_from_the_baseline_to_the_row():
    """f = x0 x1 + 2 x2 from (1, 1, 1) to (3, 5, 2): singles add 2, 4 and 2, the pair (3 - 1) (5 - 1)."""
    explainer = point_explainer(lambda x: x[:, 0] * x[:, 1] + 2 * x[:, 2], engine="difference")
    local = explainer.explain_row(torch.tensor([3.0, 5.0, 2.0]), baseline=1.0, progress=False)
    main, pairs = effects(local)
    assert main == {"x0": 2, "x1": 4, "x2": 2}
    assert pairs == {("x0", "x1"): 8, ("x0", "x2"): 0, ("x1", "x2"): 0}
    assert (local.prediction, local.reference, local.remainder) == (19, 3, 0)
    assert (local.method, local.steps, local.error) == ("differences", 0, 0)


def test_what_three_units_do_together_is_the_remainder():
    explainer = point_explainer(lambda x: x.prod(1), engine=geh.engines.Difference())
    with pytest.warns(geh.GEHWarning, match=r"24 \(100% .* three or more units act together"):
        local = explainer.explain_row(torch.tensor([2.0, 3.0, 4.0]), baseline="zeros", progress=False)
    assert local.remainder == local.prediction == 24
    assert not local.main["mean"].any()


def test_a_black_box_of_arrays_needs_no_gradients():
    def black_box(x):
        values = x.numpy()
        return torch.as_tensor(np.where(values[:, 0] > 0, values[:, 1] ** 2, -values[:, 1]))

    with pytest.warns(
        geh.GEHWarning, match="takes differences in place of derivatives: the model's output has no gradi"
    ):
        local = point_explainer(black_box).explain_row(torch.tensor([1.0, 3.0]), baseline=torch.tensor([-1.0, 0.5]))
    main, pairs = effects(local)
    # f(b) = -0.5; x0 alone: 0.25; x1 alone: -3; both: 9.
    assert main == {"x0": 0.75, "x1": -2.5}
    assert pairs == {("x0", "x1"): 9 - 0.25 + 3 - 0.5}


def test_values_between_row_and_baseline_never_occur():
    """Not even by rounding: a category is looked up by equality."""
    row, baseline = torch.tensor([0.1, 0.7, 1.0]), torch.tensor([0.3, 0.9, 0.0])
    allowed = torch.stack([row, baseline])

    def lookup(x):
        assert all((column[:, None] == values).any(1).all() for column, values in zip(x.T, allowed.T, strict=True))
        return (x == row).float().sum(1) ** 2

    local = point_explainer(lookup, engine="difference").explain_row(row, baseline=baseline, progress=False)
    assert (local.prediction, local.reference, local.remainder) == (9, 0, 0)
    assert local.main["mean"].tolist() == [1, 1, 1]
    assert local.pairs["mean"].tolist() == [2, 2, 2]


def test_a_group_of_columns_switches_as_one():
    groups = geh.units.FeatureGroups({"ocean": [0, 1]}, rest=True)
    one_hot = point_explainer(lambda x: (3 * x[:, 0] - x[:, 1]) * x[:, 2], units=groups, engine="difference")
    local = one_hot.explain_row(torch.tensor([1.0, 0.0, 2.0]), baseline=torch.tensor([0.0, 1.0, 1.0]), progress=False)
    # f(b) = -1; the category alone: 3; x2 alone: -2; both: 6.
    main, pairs = effects(local)
    assert main == {"ocean": 4, "x2": -1}
    assert pairs == {("ocean", "x2"): 6 - 3 + 2 - 1}


def test_hidden_units_are_switched_too():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 4), torch.nn.ReLU(),
                              torch.nn.Linear(4, 1)).double()  # fmt: skip
    x, b = random_points(2, 3)
    local = point_explainer(net, "1", engine="difference").explain_row(x, baseline=b, progress=False)
    at_x, at_b = net[:2](x).detach(), net[:2](b).detach()

    def upper(*units):
        return net[2:](torch.stack([at_x[k] if k in units else at_b[k] for k in range(2)])).item()

    assert local.reference == pytest.approx(upper())
    main, pairs = effects(local)
    assert main == pytest.approx({"1[0]": upper(0) - upper(), "1[1]": upper(1) - upper()})
    assert pairs == pytest.approx({("1[0]", "1[1]"): upper(0, 1) - upper(0) - upper(1) + upper()})


def test_derivatives_and_differences_agree_in_total_for_two_units():
    x, b = random_points(2, 2)
    model = lambda x: torch.sin(x[:, 0] * x[:, 1]) + x[:, 0]  # noqa: E731
    for engine in ("auto", "difference"):
        local = point_explainer(model, engine=engine).explain_row(x, baseline=b, progress=False)
        assert abs(local.remainder) < 1e-10


class Colour(geh.units.Units):
    """The first three columns are a one-hot variable, which does not move; the last one is a number."""

    has_levels = True

    def count(self, shape):
        return 2

    def shift(self, t, shape):
        return torch.cat([torch.zeros_like(t[:, :1]).expand(-1, 3), t[:, 1:]], dim=1)

    def members(self, activations):
        last = torch.full((len(activations), 3), -torch.inf).to(activations)
        last[:, 0] = activations[:, 3]
        return torch.stack([activations[:, :3], last], dim=1)


def test_units_with_levels_are_switched_whatever_the_engine():
    def model(x):
        assert ((x[:, :3] == 0) | (x[:, :3] == 1)).all()
        assert (x[:, :3].sum(1) == 1).all()
        return (x[:, 0] + 4 * x[:, 2]) * x[:, 3]

    row, baseline = torch.tensor([0.0, 0.0, 1.0, 3.0]), torch.tensor([1.0, 0.0, 0.0, 2.0])
    local = point_explainer(model, units=Colour()).explain_row(row, baseline=baseline, names=["colour", "size"])
    # f(b) = 2; the colour alone: 8; the size alone: 3; both: 12.
    assert effects(local) == ({"colour": 6, "size": 1}, {("colour", "size"): 12 - 8 - 3 + 2})
    with pytest.raises(geh.GEHError, match="the mean of the data is no level of a category; give a row"):
        point_explainer(model, units=Colour()).explain_row(row, data=baseline[None])
