"""Triples: third derivatives and differences agree with analytic ones and with plain triple autograd."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from explaining import point_explainer, random_points, uniform_points
from torch import Tensor, nn

import geh_explain as geh

UNITS = ["unit_i", "unit_j", "unit_k"]


def explained(model: Any, x: Any, layer: Any = None, engine: Any = "auto", **options: Any) -> geh.Interactions:
    explainer = point_explainer(model, layer, engine=engine)
    return explainer.explain(x, **{"groups": 1, "progress": False, **options})


def by_units(table: Any, column: str = "mean") -> dict[frozenset[str], float]:
    """Return a column of the table by the names of the three units."""
    return {frozenset(row[UNITS]): row[column] for _, row in table.iterrows()}


def third_derivatives(function: Any, points: Tensor, i: int, j: int, k: int) -> np.ndarray:
    """Return d3 f / dx_i dx_j dx_k at each point by three plain calls of autograd."""
    points = points.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(points).sum(), points, create_graph=True)
    (row,) = torch.autograd.grad(gradient[:, i].sum(), points, create_graph=True)
    (third,) = torch.autograd.grad(row[:, j].sum(), points)
    return third[:, k].numpy()


@pytest.mark.parametrize("engine", ["auto", "exact", "difference", "stein"])
def test_a_product_of_three_units_has_third_derivative_one(engine):
    model = lambda x: x[:, 0] * x[:, 1] * x[:, 2] + x[:, 3] * x[:, 0]  # noqa: E731
    table = explained(model, uniform_points(60, 4), engine=engine).triples(pairs=6, progress=False)
    assert set(table.loc[0, UNITS]) == {"x0", "x1", "x2"}
    assert table["mean"].to_numpy() == pytest.approx([1, 0, 0, 0], abs=1e-9)
    assert list(table.columns) == [*UNITS, "mean", "std", "low", "high", "stable"]


def test_only_triples_of_the_strongest_pairs_are_computed_and_each_is_listed_once():
    model = lambda x: 2 * x[:, 0] * x[:, 1] * x[:, 2] + 9 * x[:, 3] * x[:, 4]  # noqa: E731
    result = explained(model, uniform_points(60, 5))
    one = result.triples(pairs=1, progress=False)
    assert {frozenset(pair) for pair in one[["unit_i", "unit_j"]].to_numpy()} == {frozenset(("x3", "x4"))}
    assert one["mean"].to_numpy() == pytest.approx(0, abs=1e-12)
    table = result.triples(pairs=10, progress=False)
    assert len(by_units(table)) == len(table) == 10
    assert by_units(table)[frozenset(("x0", "x1", "x2"))] == pytest.approx(2)


def test_groups_keep_signs_apart_and_scale_multiplies():
    # d3 f = cos x0 cos x1 cos x2, positive near 0; here the sign is that of the factor 1 - 2 g of the group.
    model = lambda x: torch.sin(x[:, 0]) * torch.sin(x[:, 1]) * torch.sin(x[:, 2]) * x[:, 3]  # noqa: E731
    x = uniform_points(100, 4)
    groups = np.repeat([0, 1], 50)
    x[:, 3] = torch.as_tensor(1.0 - 2 * groups)
    local = (torch.cos(x[:, :3]).prod(dim=1) * x[:, 3]).numpy()
    result = explained(model, x, groups=groups, scale=[2.0, 1.0, 3.0, 1.0])
    table = result.triples(pairs=6, progress=False)
    expected = 6 * (abs(local[:50].mean()) + abs(local[50:].mean())) / 2
    assert by_units(table)[frozenset(("x0", "x1", "x2"))] == pytest.approx(expected)
    assert by_units(explained(model, x).triples(pairs=6, progress=False))[
        frozenset(("x0", "x1", "x2"))
    ] == pytest.approx(abs(local.mean()))


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Softplus(beta=3), nn.GELU(), nn.SiLU()])
def test_networks_agree_with_plain_autograd(activation):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 12), activation, nn.Linear(12, 12), activation, nn.Linear(12, 1)).double()
    x = random_points(40, 4)
    table = explained(net, x).triples(pairs=6, progress=False)
    function = lambda points: net(points)[:, 0]  # noqa: E731
    expected = {
        frozenset(f"x{unit}" for unit in triple): abs(third_derivatives(function, x, *triple).mean())
        for triple in itertools.combinations(range(4), 3)
    }
    assert by_units(table) == pytest.approx(expected, rel=1e-9)


def test_hidden_units_agree_with_plain_autograd_in_groups():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    x, groups = random_points(60, 3), np.arange(60) % 3
    table = explained(net, x, "1", target=1, groups=groups).triples(pairs=6, progress=False)
    hidden = net[:2](x).detach()
    for triple in itertools.combinations(range(4), 3):
        local = third_derivatives(lambda points: net[2:](points)[:, 1], hidden, *triple)
        expected = np.mean([abs(local[groups == group].mean()) for group in range(3)])
        assert by_units(table)[frozenset(f"1[{unit}]" for unit in triple)] == pytest.approx(expected, rel=1e-9)


def test_intervals_over_points_hold_the_population_mean():
    # d3 f = 2 + x3 has mean 2.5 over uniform points, and standard deviation 1 / sqrt(12).
    model = lambda x: x[:, 0] * x[:, 1] * x[:, 2] * (2 + x[:, 3])  # noqa: E731
    table = explained(model, uniform_points(200, 4)).triples(pairs=1, progress=False)
    row = table.loc[0]
    assert row["low"] < 2.5 < row["high"]
    assert row["high"] - row["low"] == pytest.approx(2 * 1.97 / np.sqrt(12 * 200), rel=0.15)
    assert row["stable"]


def test_draws_are_those_of_the_explanation():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()).double())

        def forward(self, x):
            return self.weight * x.prod(dim=1)

    weights = [1.0, 2.0, 4.0]
    samples = [{"weight": torch.tensor(weight).double()} for weight in weights]
    explainer = geh.GEHExplainer(Weighted(), posterior=geh.posterior.WeightSamples(samples))
    table = explainer.explain(uniform_points(30, 3), groups=1, draws=3, progress=False).triples(progress=False)
    assert table.loc[0, "mean"] == pytest.approx(np.mean(weights))
    assert table.loc[0, "std"] == pytest.approx(np.std(weights, ddof=1))


def test_third_differences_of_a_network_are_near_its_derivatives():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    x = random_points(300, 3)
    exact, differences = (
        point_explainer(net, engine=engine).explain(x, groups=1, progress=False).triples(progress=False)["mean"][0]
        for engine in ("exact", geh.engines.Difference(step=0.01))
    )
    assert differences == pytest.approx(exact, rel=0.02)


def test_black_boxes_and_binary_units_have_third_differences():
    def black_box(x):
        values = x.numpy()
        return torch.as_tensor(np.where(values[:, 0] > 0.5, 3 * values[:, 1] * values[:, 2], 0.0))

    x = uniform_points(80, 3)
    x[:, 0] = torch.arange(80) % 2
    result = explained(black_box, x, engine=geh.engines.Difference(discrete=[0]))
    table = result.triples(progress=False)
    assert table.loc[0, "mean"] == pytest.approx(3)


def test_kinked_networks_are_smoothed_and_a_warning_says_so():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    result = explained(net, random_points(200, 3, dtype=torch.float))
    with pytest.warns(geh.GEHWarning, match="how sharply these are smoothed"):
        table = result.triples(progress=False)
    assert np.isfinite(table["mean"]).all()
    assert table.loc[0, "mean"] > 0


def test_functions_whose_curvature_jumps_are_named():
    net = nn.Sequential(nn.Linear(3, 8), nn.ELU(), nn.Linear(8, 1)).double()
    result = explained(net, random_points(50, 3))
    with pytest.warns(geh.GEHWarning, match="second derivative of ELU jumps"):
        result.triples(progress=False)


def test_batches_do_not_change_triples():
    model = lambda x: torch.sin(x[:, 0] * x[:, 1] * x[:, 2])  # noqa: E731
    x = random_points(50, 3)
    tables = [explained(model, x, batch_size=size).triples(progress=False) for size in (None, 7)]
    assert tables[1]["mean"].to_numpy() == pytest.approx(tables[0]["mean"].to_numpy(), rel=1e-12)


def test_two_units_have_no_triple():
    with pytest.raises(geh.GEHError, match="there are 2 units; a triple needs three"):
        explained(lambda x: x.prod(1), random_points(20, 2)).triples(progress=False)
