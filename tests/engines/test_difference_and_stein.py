"""Mixed differences and Stein's identity against known interactions."""

import numpy as np
import pytest
import torch
from explaining import explain_draws, explain_point, explain_point_quietly, random_points
from sklearn.ensemble import GradientBoostingRegressor
from torch import Tensor, nn

import geh_explain as geh
from geh_explain.engines import Difference, Stein
from geh_explain.engines.stein import engine as stein_engine


@pytest.fixture(scope="module")
def relu_network() -> tuple[nn.Module, Tensor]:
    """A pure ReLU network trained on y = x0 x1 + x2, and fresh points."""
    torch.manual_seed(0)
    x = torch.randn(3000, 4)
    y = x[:, :1] * x[:, 1:2] + x[:, 2:3]
    net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 40)
    for _ in range(40):
        for batch in torch.randperm(3000).split(128):
            optimiser.zero_grad()
            nn.functional.mse_loss(net(x[batch]), y[batch]).backward()
            optimiser.step()
        schedule.step()
    return net, torch.randn(1000, 4)


@pytest.mark.parametrize("engine", ["exact", "difference", "stein"])
@pytest.mark.parametrize("groups", [1, 5])
def test_every_engine_finds_the_interaction_of_a_relu_network(relu_network, engine, groups):
    net, x = relu_network
    best, second = explain_point(net, x, engine=engine, groups=groups).top(2).to_dict("records")
    assert (best["unit_i"], best["unit_j"]) == ("x0", "x1")
    assert best["mean"] == pytest.approx(1, rel=0.2)
    assert second["mean"] < 0.1


def test_a_boosted_forest_in_a_lambda_is_explained_by_differences():
    x = random_points(2000, 4).numpy()
    forest = GradientBoostingRegressor(n_estimators=200, random_state=0).fit(x, x[:, 0] * x[:, 1] + x[:, 2])
    with pytest.warns(geh.GEHWarning, match="mixed differences: the model's output has no gradients"):
        result = explain_point(lambda x: forest.predict(x.numpy()), x[:500], engine="auto")
    best = result.top(1).iloc[0]
    assert (best.unit_i, best.unit_j) == ("x0", "x1")
    assert best["mean"] == pytest.approx(1, rel=0.3)
    assert result.settings["engine"] == "difference"


@pytest.mark.parametrize("step", [0.1, 1.0])
def test_differences_of_products_are_exact_for_any_step(step):
    x = random_points(50, 3)
    result = explain_point(
        lambda x: 3 * x[:, 0] * x[:, 1] - x[:, 1] * x[:, 2] + x.pow(3).sum(1), x, engine=Difference(step)
    )
    assert result.geh.draws[0] == pytest.approx([3, 0, 1], abs=1e-9)


def test_small_steps_approach_the_derivative():
    x = random_points(200, 3)

    def model(x: Tensor) -> Tensor:
        return torch.sin(x[:, 0] * x[:, 1]) + torch.exp(x[:, 1] - x[:, 2])

    exact = explain_point(model, x, engine="exact", groups=4).geh.draws[0]
    errors = [
        np.abs(explain_point(model, x, engine=Difference(step), groups=4).geh.draws[0] - exact).max()
        for step in (0.1, 0.01)
    ]
    assert errors[1] < 0.02
    assert errors[1] == pytest.approx(0.1 * errors[0], rel=0.3)  # of first order in the step


def test_no_more_evaluations_than_pairs_and_units_need():
    evaluated = 0

    def counting(x: Tensor) -> Tensor:
        nonlocal evaluated
        evaluated += len(x)
        return x.prod(1)

    rows, units = 40, 6
    explain_point(counting, random_points(rows, units), engine="difference")
    checks = 200  # rows on which the model is checked before the run, which do not grow with the data
    assert evaluated <= rows * (units * (units - 1) // 2 + units + 1) + checks


def test_binary_columns_jump_to_their_other_value():
    x = random_points(60, 3)
    x[:, 0] = (x[:, 0] > 0).double()
    x[:, 2] = torch.where(x[:, 2] > 0, 5.0, -1.0)
    outside = []

    def model(x: Tensor) -> Tensor:
        outside.append(bool((~torch.isin(x[:, 0], torch.tensor([0.0, 1.0]).double())).any()))
        return torch.where(x[:, 0] > 0.5, x[:, 1] * 4, x[:, 1]) + x[:, 0] * x[:, 2].clamp(0, 3)

    with pytest.warns(geh.GEHWarning, match="x0, x2 have two values"):
        result = explain_point(model, x, engine="difference")
    assert result.settings["jumping_units"] == [0, 2]
    assert not any(outside)
    # From 0 to 1 the slope in x1 grows by 3; x2 lifts x0's effect by 3 over a jump of 6.
    assert result.geh.draws[0] == pytest.approx([3, 0.5, 0], abs=1e-9)
    declared = explain_point(model, x, engine=Difference(discrete=[0, 2]))
    assert np.array_equal(declared.signed, result.signed)
    x = torch.cat([x, x + 100])  # 120 different values
    with pytest.raises(geh.GEHError, match=r"discrete unit 1 has 101 values or more"):
        explain_point(model, x, engine=Difference(discrete=[1]))


def test_categories_coded_as_numbers_jump_from_level_to_level():
    x = random_points(90, 2)
    x[:, 0] = torch.tensor([0.0, 1.0, 4.0]).double().repeat(30)
    outside = []

    def model(x: Tensor) -> Tensor:
        outside.append(bool((~torch.isin(x[:, 0], torch.tensor([0.0, 1.0, 4.0]).double())).any()))
        slopes = {0.0: 1.0, 1.0: 3.0, 4.0: -3.0}
        return sum((x[:, 0] == level) * slope * x[:, 1] for level, slope in slopes.items())

    groups = np.arange(90) % 3
    result = explain_point(model, x, engine=Difference(discrete=[0]), groups=groups)
    assert not any(outside)
    # From 0 to 1 the slope grows by 2; from 1 to 4, and back, it falls by 6 over 3.
    assert result.signed[0, :, 0] == pytest.approx([2, -2, -2], abs=1e-9)


def test_towards_a_baseline_a_saturated_conjunction_is_seen():
    net = nn.Sequential(nn.Identity(), nn.Linear(2, 1), nn.Sigmoid()).double()
    with torch.no_grad():
        net[1].weight.fill_(20)
        net[1].bias.fill_(-30)  # on only if both are
    x = torch.ones(30, 2).double() + 0.01 * random_points(30, 2)
    flat = explain_point(net, x, engine="exact", layer="0").geh.mean[0, 1]
    off = explain_point(net, x, engine=Difference(baseline=0.0), layer="0").geh.mean[0, 1]
    assert flat < 0.05
    assert off == pytest.approx(1, abs=0.05)


def test_a_unit_that_is_at_its_baseline_makes_no_difference():
    x = random_points(20, 2)
    x[:, 0] = 0
    with pytest.warns(geh.GEHWarning, match="exactly 0"):
        result = explain_point(lambda x: x.prod(1), x, engine=Difference(baseline=0.0))
    assert result.geh.mean[0, 1] == 0


@pytest.mark.parametrize("engine", [Difference(), Stein(samples=2)], ids=["difference", "stein"])
def test_batch_sizes_and_batches_of_a_loader_do_not_matter(engine):
    x = random_points(300, 3)

    def model(x: Tensor) -> Tensor:
        return torch.sin(x[:, 0] * x[:, 1]) * x[:, 2]

    expected = explain_point(model, x, engine=engine, groups=3)
    for size in (1, 7, 128):
        assert explain_point(model, x, engine=engine, groups=3, batch_size=size).signed == pytest.approx(
            expected.signed, abs=1e-9
        )


@pytest.mark.parametrize("engine", ["difference", "stein"])
def test_hidden_units_posteriors_and_targets_work_alike(engine):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 4), nn.Softmax(1)).double()
    x, target = random_points(400, 3), torch.arange(400) % 4
    options = {"posterior": geh.posterior.MCDropout(), "target": target, "draws": 12, "groups": 2, "scale": "std"}
    exact = explain_draws(net, x, engine="exact", layer="1", **options).geh.draws
    other = explain_draws(net, x, engine=engine, layer="1", **options).geh.draws
    assert np.corrcoef(exact.mean(0), other.mean(0))[0, 1] > 0.95
    assert other.std(0).min() > 0


def test_steins_estimate_is_right_within_its_standard_error(monkeypatch):
    monkeypatch.setattr(stein_engine, "find_control", lambda *arguments: None)  # which would leave no noise
    x = random_points(400, 4)

    def model(x: Tensor) -> Tensor:
        return 2 * x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3] - x[:, 0] * x[:, 3] + x.pow(2).sum(1)

    truth = np.array([2.0, 0, -1, 0, 0, 1])
    draws = [explain_point(model, x, engine=Stein(samples=4), seed=seed) for seed in range(40)]
    signed, noise = (np.stack([getattr(result, name)[0, 0] for result in draws]) for name in ("signed", "noise"))
    scores = (signed - truth) / noise
    # 240 standardised errors: their mean square is 1, with a standard error of 0.09.
    assert (scores**2).mean() == pytest.approx(1, abs=0.35)
    assert abs(scores.mean()) < 0.3


def test_noise_does_not_pass_for_interaction(monkeypatch):
    monkeypatch.setattr(stein_engine, "find_control", lambda *arguments: None)  # which would leave no noise
    x = random_points(300, 6)
    additive = explain_point_quietly(lambda x: x.pow(2).sum(1) * 3, x, engine=Stein(samples=4), groups=10)
    naive = np.abs(additive.signed[0]).mean()
    assert additive.geh.draws.mean() < 0.6 * naive
    assert additive.eah.draws.mean() < 0.6 * np.abs(additive.noise[0]).mean() * np.sqrt(30)


def test_the_cost_in_gradients_does_not_grow_with_the_units():
    calls = []

    def model(x: Tensor) -> Tensor:
        calls.append(len(x))
        return x.prod(1)

    for units in (3, 30):
        calls.clear()
        explain_point_quietly(model, random_points(100, units), engine=Stein(samples=4))
        assert sum(calls) <= 100 * 2 * 4 + 400


def test_standard_errors_are_saved_with_the_result(tmp_path):
    result = explain_point(lambda x: x.prod(1), random_points(50, 3), engine="stein", groups=2)
    again = geh.Interactions.load(result.save(tmp_path / "stein.npz"))
    assert np.array_equal(again.noise, result.noise)
    assert np.array_equal(again.geh.draws, result.geh.draws)
    assert explain_point(lambda x: x.prod(1), random_points(50, 3), engine="exact").noise is None


def test_an_engine_of_ones_own_is_a_description_and_a_run():
    class ProductsRun(geh.engines.EngineRun):
        def chunk_rows(self, rows):
            return 16

        def add(self, sums, rows, labels):
            x = rows.inputs[0]
            local = torch.stack([x[:, 2], x[:, 1], x[:, 0]], dim=1)
            sums.add(0, local, sums.one_hot(labels, self.cut.device))

    class Products(geh.engines.Engine):
        """Local interactions of a model that multiplies its three inputs."""

        name = "products"

        def start(self, cut, limits):
            return ProductsRun(self, cut, limits)

    x = random_points(50, 3)
    exact = explain_point(lambda x: x.prod(1), x, engine="exact", groups=3)
    assert explain_point(lambda x: x.prod(1), x, engine=Products(), groups=3).signed == pytest.approx(exact.signed)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Difference(step=0),
        lambda: Difference(baseline="median"),
        lambda: Difference(discrete="all"),
        lambda: Stein(noise=-1),
        lambda: Stein(samples=1),
        lambda: geh.GEHExplainer(lambda x: x, engine=Difference),
        lambda: explain_point(lambda x: x.prod(1), random_points(5, 2), engine=Difference(baseline=[1.0, 2.0, 3.0])),
        lambda: explain_point(lambda x: x.prod(1), random_points(5, 2), engine=Difference(discrete=[7])),
        lambda: explain_point(lambda x: x.detach().prod(1), random_points(5, 2), engine="stein"),
    ],
)
def test_wrong_engines_are_refused(wrong):
    with pytest.raises(geh.GEHError):
        wrong()


@pytest.mark.parametrize("engine", [Difference(), Stein(samples=64)])
def test_one_outlier_does_not_set_the_steps_of_all_rows(engine: Difference | Stein) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 1)).double()
    with torch.no_grad():
        net[0].weight.mul_(3)
    x = random_points(300, 3)
    expected = explain_point(net, x, groups=1, engine=engine).geh.pair_mean
    x[7] *= 1000
    scores = explain_point(net, x, groups=1, engine=engine).geh.pair_mean
    assert np.abs(scores - expected).max() < 0.3 * expected.max()
