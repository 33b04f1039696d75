"""The share of interactions: analytic values, draws, hidden layers, dependent units, and what a result says of it."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from explaining import point_explainer, random_points, uniform_points
from torch import nn

import geh_explain as geh
from geh_explain.analyses.share import InteractionShare
from geh_explain.analyses.share_design import ShareDesign

FAST: dict[str, Any] = {"evaluations": 200_000, "progress": False}


def share_of(
    model: Any, x: Any, layer: Any = None, target: Any = None, units: Any = None, **options: Any
) -> InteractionShare:
    explainer = point_explainer(model, layer, units=units)
    with warnings.catch_warnings():
        # Units that the model ignores are part of several cases.
        warnings.simplefilter("ignore", geh.GEHWarning)
        result = explainer.explain(x, target, groups=1, progress=False)
    return result.share(**{**FAST, **options})


def test_a_product_of_uniform_units():
    # u v on (0, 1): variance 7 / 144; f_u = u / 2 has variance 1 / 48, so that 1 / 7 is interaction.
    share = share_of(lambda x: x[:, 0] * x[:, 1], uniform_points(2000, 2))
    assert share.low < 1 / 7 < share.high
    assert share.high - share.low < 0.03
    assert share.units()["main"].to_numpy() == pytest.approx(3 / 7, abs=0.03)
    table = share.pairs()
    assert table["low"][0] < 1 / 7 < table["high"][0]


def test_a_sum_of_products_is_divided_among_its_pairs():
    # Variances 1, 4 and 1 of the terms for standard normal units; the last one is a main effect.
    share = share_of(lambda x: x[:, 0] * x[:, 1] + 2 * x[:, 2] * x[:, 3] + x[:, 4], random_points(3000, 5))
    assert share.low < 5 / 6 < share.high
    pairs = share.pairs().set_index(["unit_i", "unit_j"])
    assert pairs.loc[("x2", "x3"), "low"] < 4 / 6 < pairs.loc[("x2", "x3"), "high"]
    assert pairs.loc[("x0", "x1"), "low"] < 1 / 6 < pairs.loc[("x0", "x1"), "high"]
    assert pairs.index[0] == ("x2", "x3")
    units = share.units().set_index("unit")
    assert units.loc["x4", "share"] == pytest.approx(0, abs=1e-10)
    assert units.loc["x4", "main"] == pytest.approx(1 / 6, abs=0.05)


@pytest.mark.parametrize("background", ["permuted", "conditional"])
def test_an_additive_network_has_no_interactions(background):
    share = share_of(
        lambda x: x[:, 0] + x[:, 1] ** 2 + torch.sin(x[:, 2]), random_points(500, 3), background=background
    )
    assert share.low - 1e-3 <= 0 <= share.high + 1e-3
    assert abs(share.overall) < 1e-3
    assert share.high < 2e-3
    assert "interactions carry 0.0 %" in share.describe()


def test_intervals_cover_the_share_of_a_known_function():
    hits, repetitions = 0, 40
    for seed in range(repetitions):
        x = random_points(300, 3, seed=seed)
        share = share_of(lambda x: x[:, 0] + x[:, 1] + 0.5 * x[:, 1] * x[:, 2], x, evaluations=20_000, pairs=1)
        hits += share.low < 0.25 / 2.25 < share.high
    # 38 are expected; fewer than 34 have a probability below 2 % at 95 % coverage.
    assert hits >= 34


def test_dependent_units_have_other_shares_by_both_backgrounds():
    # u and v = u + noise / 10: as independent units u v is all interaction; in the data it is nearly u^2.
    u, noise = random_points(2000, 2).T
    x = torch.stack([u, (u + noise / 10) / (1.01**0.5)], dim=1)
    model = lambda x: x[:, 0] * x[:, 1]  # noqa: E731
    assert share_of(model, x).high > 0.9
    assert share_of(model, x, background="conditional").overall < 0.02


def test_the_conditional_share_of_independent_units_is_the_same():
    x = random_points(3000, 4)
    share = share_of(lambda x: x[:, 0] * x[:, 1] + x[:, 2], x, background="conditional")
    assert share.low < 0.5 < share.high
    assert share.pairs()["share"][0] == pytest.approx(0.5, abs=0.06)
    with pytest.raises(geh.GEHError, match="background='conditional' has no shares of single units"):
        share.units()


def test_what_rows_hold_beside_the_units_is_no_unit_and_no_interaction():
    # x2 is no unit: its main effect is the rest, its product with x0 an interaction. Variances 1, 4, 1.
    model = lambda x: x[:, 0] + 2 * x[:, 2] + x[:, 0] * x[:, 2]  # noqa: E731
    share = share_of(model, random_points(3000, 3), units=geh.units.Subset([0, 1]))
    assert share.low < 1 / 6 < share.high
    assert share.of_rest is not None
    assert share.of_rest.mean[0] == pytest.approx(4 / 6, abs=0.05)
    assert "what rows hold beside the units carries" in share.describe()


def test_units_of_a_hidden_layer_take_values_of_other_rows():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(2, 2)

        def forward(self, x):
            hidden = self.first(x)
            return hidden[:, 0] * hidden[:, 1]

    net = Product().double()
    net.first.weight.data, net.first.bias.data = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).double(), torch.ones(2).double()
    x = random_points(3000, 2)
    share = share_of(net, x, "first")
    # Independent h0 ~ N(1, 1) and h1 ~ N(1, 2): Var(h0 h1) = 1 + 2 + 1 * 2, of which the product of variances is 2.
    assert share.low < 2 / 5 < share.high


def test_draws_are_those_of_the_explanation_and_widen_the_interval():
    models = [torch.tensor(weight) for weight in (0.2, 0.6, 1.0)]

    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()).double())

        def forward(self, x):
            return x[:, 0] + x[:, 1] + self.weight * x[:, 0] * x[:, 1]

    posterior = geh.posterior.WeightSamples([{"weight": weight.double()} for weight in models])
    result = geh.GEHExplainer(Weighted(), posterior=posterior).explain(
        random_points(2000, 2), groups=1, draws=3, progress=False
    )
    share = result.share(**FAST)
    expected = [weight**2 / (2 + weight**2) for weight in (0.2, 0.6, 1.0)]
    assert share.all_interactions.draws[:, 0] == pytest.approx(expected, abs=0.04)
    assert share.overall == pytest.approx(np.mean(expected), abs=0.03)
    # Student's quantile with 2 degrees of freedom, for one more draw.
    assert share.high - share.overall > 4.3 * np.sqrt(4 / 3) * np.std(expected, ddof=1) * 0.8
    assert result.share(**FAST, draws=1).n_draws == 1


def test_the_same_seed_gives_the_same_share_whatever_the_batch_size_and_the_container():
    x, explainer = random_points(200, 2), point_explainer(lambda x: torch.exp(x[:, 0] * x[:, 1] / 4))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=32)
    shares = [
        explainer.explain(inputs, groups=1, batch_size=size, progress=False).share(progress=False, evaluations=10_000)
        for inputs, size in ((x, None), (x, 33), (loader, None))
    ]
    assert shares[1].overall == pytest.approx(shares[0].overall, rel=1e-9)
    assert shares[2].overall == pytest.approx(shares[0].overall, rel=1e-9)


def test_more_evaluations_narrow_the_interval_until_it_is_precise_enough():
    x, model = random_points(4000, 3), lambda x: x[:, 0] + x[:, 1] * x[:, 2]
    coarse, fine = (share_of(model, x, evaluations=evaluations) for evaluations in (1, 300_000))
    assert fine.high - fine.low < (coarse.high - coarse.low) * 0.8
    enough = share_of(model, x, precision=0.2)
    assert coarse.evaluations < enough.evaluations < 20_000


def test_clusters_are_not_divided_between_blocks():
    # Each cluster is one row, repeated: the error is that of 60 rows, not of 1,200.
    x = random_points(60, 2)
    model = lambda x: x[:, 0] + x[:, 1] + x[:, 0] * x[:, 1]  # noqa: E731
    explainer = point_explainer(model)
    repeated = x.repeat_interleave(20, dim=0)
    widths = [
        np.ptp(explainer.explain(repeated, groups=1, clusters=clusters, progress=False).share(**FAST).interval())
        for clusters in (None, np.repeat(np.arange(60), 20))
    ]
    assert widths[1] > 1.5 * widths[0]


def test_a_constant_output_has_no_shares():
    result = None
    with pytest.warns(geh.GEHWarning):
        result = point_explainer(lambda x: 0 * x[:, 0] + 5).explain(random_points(50, 2), groups=1, progress=False)
    for background in ("permuted", "conditional"):
        with pytest.warns(geh.GEHWarning, match="does not vary"):
            share = result.share(background=background, **FAST)
        assert np.isnan(share.overall)
        assert "does not vary" in repr(share)


def test_outputs_that_fail_at_mixed_rows_are_named():
    x = uniform_points(100, 2)
    x[:, 0] += x[:, 1]
    result = point_explainer(lambda x: torch.log(x[:, 0] - x[:, 1])).explain(x, groups=1, progress=False)
    with pytest.raises(geh.GEHError, match="combination of values that come from different rows"):
        result.share(**FAST)
    assert 0 < result.share(background="conditional", **FAST).overall < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": -1}, "pairs=-1"),
        ({"background": "other"}, "background='other'"),
        ({"draws": 0}, "draws=0"),
        ({"precision": -1.0}, "precision=-1.0"),
        ({"evaluations": 1.5}, "evaluations=1.5"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    result = point_explainer(lambda x: x.prod(1)).explain(random_points(30, 2), groups=1, progress=False)
    with pytest.raises(geh.GEHError, match=message):
        result.share(progress=False, **options)


def test_few_rows_are_refused():
    result = point_explainer(lambda x: x.prod(1)).explain(random_points(10, 2), groups=1, progress=False)
    with pytest.raises(geh.GEHError, match="inputs: there are 10 rows"):
        result.share(progress=False)


def test_the_network_comes_back_as_it_was():
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1)).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x = random_points(60, 3, dtype=torch.float)
    result = geh.GEHExplainer(net, output=lambda y: y.tanh()).explain(x, groups=1, draws=3, progress=False)
    result.share(progress=False, evaluations=1)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not net[0]._forward_hooks


def test_an_interrupt_leaves_the_rounds_before_it(monkeypatch):
    result = point_explainer(lambda x: x[:, 0] * x[:, 1]).explain(random_points(300, 2), groups=1, progress=False)
    first = result.share(precision=10, progress=False)
    evaluate, n_calls = ShareDesign.exchanged_outputs, 0

    def interrupted(*args: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls > 1:
            raise KeyboardInterrupt
        return evaluate(*args)

    monkeypatch.setattr(ShareDesign, "exchanged_outputs", interrupted)
    with pytest.warns(geh.GEHWarning, match="share: interrupted"):
        share = result.share(progress=False, precision=1e-9)
    assert (share.overall, share.evaluations) == (first.overall, first.evaluations)
    with pytest.raises(KeyboardInterrupt):
        result.share(progress=False)


def test_few_evaluations_keep_the_additive_part_rigid():
    # 130 points do not determine polynomials of degree 6; an additive function that follows them would swamp the share.
    share = share_of(lambda x: torch.sin(x[:, 0]) * x[:, 1], random_points(300, 4), evaluations=1)
    assert share.evaluations < 5000
    assert 0.4 < share.overall < 1.6
    assert share.high - share.low < 1.5


def test_rows_that_hold_more_than_the_units_are_named_for_the_conditional_background():
    x = random_points(200, 4)
    with pytest.warns(geh.GEHWarning, match="rows hold more than the units"):
        share_of(lambda x: x[:, 0] * x[:, 1] + x[:, 3], x, units=geh.units.Subset([0, 1]), background="conditional")
    share_of(lambda x: x[:, 0] * x[:, 1] + x[:, 3], x, background="conditional")  # warnings are errors
