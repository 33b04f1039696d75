"""Interactions of categories: differences between levels, against hand-computed answers and brute force."""

import itertools
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from explaining import explain_draws, explain_point, random_points
from torch import nn

import geh_explain as geh
from geh_explain.engines import Difference
from geh_explain.posterior import Ensemble, MCDropout
from geh_explain.units import Categorical

N = 120


def two_categories(rows=N):
    """Return three one-hot columns c, two d, and numbers u, v, w; all six combinations are equally frequent."""
    c, d = torch.arange(rows) % 3, torch.arange(rows) // 3 % 2
    eye = [torch.eye(levels, dtype=torch.double)[codes] for levels, codes in ((3, c), (2, d))]
    return torch.cat([*eye, random_points(rows, 3)], dim=1)


UNITS = {"c": [0, 1, 2], "d": [3, 4]}
NAMES = ["c", "d", "u", "v", "w"]


def known(x):
    """2 where c = a and d = x, 0.3 u v, and w."""
    return 2 * x[:, 0] * x[:, 3] + 0.3 * x[:, 5] * x[:, 6] + x[:, 7]


@pytest.mark.parametrize("engine", ["auto", "exact", "structured", "difference"])
@pytest.mark.parametrize("groups", [1, 3])
def test_a_known_function_of_two_categories_and_three_numbers(engine, groups):
    """Of the three pairs of levels of c two change the effect of d by 2, and one by 0."""
    result = explain_point(known, two_categories(), units=Categorical(UNITS), engine=engine, names=NAMES, groups=groups)
    expected = np.zeros((5, 5))
    expected[0, 1] = expected[1, 0] = 4 / 3
    expected[2, 3] = expected[3, 2] = 0.3
    for scores in (result.aeh, result.geh, result.eah):
        np.testing.assert_allclose(scores.mean, expected, atol=1e-8)
    assert result.table()[["unit_i", "unit_j"]].values[:2].tolist() == [["c", "d"], ["u", "v"]]


def test_scale_std_multiplies_by_the_spread_of_the_levels():
    """1 - 3 / 9 = 2 / 3 for three equally frequent levels, 1 / 2 for two."""
    result = explain_point(known, two_categories(), units=Categorical(UNITS), scale="std")
    assert result.geh.mean[0, 1] == pytest.approx(4 / 3 * np.sqrt(1 / 3) * np.sqrt(1 / 4))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU])
def test_a_network_that_was_fitted_to_the_known_function_has_its_scores(activation):
    torch.manual_seed(0)
    x = two_categories(1200).float()
    y = known(x)[:, None]
    net = nn.Sequential(nn.Linear(8, 64), activation(), nn.Linear(64, 64), activation(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for step in range(400):
        batch = torch.arange(step * 200, step * 200 + 200) % 1200
        loss = nn.functional.mse_loss(net(x[batch]), y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    result = explain_point(net.eval(), x, units=Categorical(UNITS), names=NAMES, groups=1)
    assert result.table()[["unit_i", "unit_j"]].values[:2].tolist() == [["c", "d"], ["u", "v"]]
    assert result.geh.mean[0, 1] == pytest.approx(4 / 3, abs=0.15)
    assert result.geh.mean[2, 3] == pytest.approx(0.3, abs=0.12)


class Embedded(nn.Module):
    """Numbers (n, 2) and two columns of ids, which have embeddings."""

    def __init__(self):
        super().__init__()
        self.city, self.kind = nn.Embedding(4, 3), nn.Embedding(3, 2)
        self.head = nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))

    def forward(self, x, ids):
        return self.head(torch.cat([x, self.city(ids[:, 0]), self.kind(ids[:, 1])], dim=1))[:, 0]


def embedded(seed=0):
    torch.manual_seed(seed)
    ids = torch.stack([torch.arange(N) ** 2 % 7 % 4, torch.arange(N) % 5 % 3], dim=1)
    return Embedded().double().eval(), random_points(N, 2), ids


class BruteForce:
    """The definition, one contrast and one row of levels after the other."""

    def __init__(self, model, x, ids, labels):
        self.model, self.x, self.ids, self.labels = model, x, ids, labels
        self.shares = [np.bincount(column) / len(ids) for column in ids.T]
        self.pairs = [list(itertools.combinations(range(len(shares)), 2)) for shares in self.shares]

    def moved(self, **levels):
        ids = self.ids.clone()
        for column, level in levels.items():
            ids[:, int(column[1:])] = level
        return ids

    def slope(self, unit, **levels):
        x = self.x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self.model(x, self.moved(**levels)).sum(), x)
        return gradient[:, unit].numpy()

    def value(self, **levels):
        with torch.no_grad():
            return self.model(self.x, self.moved(**levels)).numpy()

    def weight(self, column, a, b):
        shares = self.shares[column]
        return shares[a] * shares[b] / sum(shares[k] * shares[m] for k, m in self.pairs[column])

    def category_and_number(self, column, unit):
        name = f"c{column}"
        for a, b in self.pairs[column]:
            yield self.weight(column, a, b), self.slope(unit, **{name: b}) - self.slope(unit, **{name: a})

    def two_categories(self):
        for a, b in self.pairs[0]:
            for k, m in self.pairs[1]:
                h = self.value(c0=b, c1=m) - self.value(c0=b, c1=k) - self.value(c0=a, c1=m) + self.value(c0=a, c1=k)
                yield self.weight(0, a, b) * self.weight(1, k, m), h

    def scores(self, contrasts):
        """Return AEH, GEH and EAH of a pair."""
        total = np.zeros(3)
        for weight, h in contrasts:
            by_group = [abs(h[self.labels == m].sum()) / N for m in np.unique(self.labels)]
            total += weight * np.array([abs(h.mean()), sum(by_group), abs(h).mean()])
        return total


def test_embedded_categories_have_the_scores_of_brute_force():
    model, x, ids = embedded()
    result = explain_point(model, (x, ids), units=Categorical({"city": 2, "kind": [3]}), groups=3)
    reference = BruteForce(model, x, ids, result.labels)
    expected = {
        ("city", "kind"): reference.two_categories(),
        **{("city", f"x{unit}"): reference.category_and_number(0, unit) for unit in (0, 1)},
        **{("kind", f"x{unit}"): reference.category_and_number(1, unit) for unit in (0, 1)},
    }
    for pair, contrasts in expected.items():
        place = result.pair(*pair)
        found = [scores.pair_mean[place] for scores in (result.aeh, result.geh, result.eah)]
        np.testing.assert_allclose(found, reference.scores(contrasts), rtol=1e-10)
    plain = explain_point(model, x, None, ids, groups=result.labels)
    assert result.geh.mean[2, 3] == pytest.approx(plain.geh.mean[0, 1])


def test_a_category_with_two_levels_is_a_column_of_0_and_1_under_differences():
    x = torch.cat([(torch.arange(N) % 3 == 0).double()[:, None], random_points(N, 2)], dim=1)

    def model(x):
        return torch.sin(x[:, 0] + x[:, 1]) * x[:, 2] + x[:, 0] * x[:, 1] ** 2

    options = {"engine": "difference", "groups": 4, "scale": "std"}
    category = explain_point(model, x, units=Categorical({"x0": 0}), **options)
    column = explain_point(model, x, **(options | {"engine": Difference(discrete=[0])}))
    np.testing.assert_allclose(category.signed, column.signed, atol=1e-12)
    np.testing.assert_allclose(category.absolute, column.absolute, atol=1e-12)
    np.testing.assert_allclose(category.point_errors, column.point_errors, atol=1e-12)
    np.testing.assert_allclose(category.main.mean, column.main.mean, atol=1e-12)
    pd.testing.assert_frame_equal(category.table(), column.table())


def test_a_black_box_of_categories_alone():
    ids = torch.stack([torch.arange(N) % 3, torch.arange(N) // 3 % 4], dim=1)
    effects = np.random.default_rng(0).normal(size=(3, 4))
    result = explain_point(lambda ids: effects[tuple(ids.numpy().T)], ids, units=Categorical({"a": 0, "b": 1}))
    mixed = [
        abs(effects[b, m] - effects[b, k] - effects[a, m] + effects[a, k])
        for a, b in itertools.combinations(range(3), 2)
        for k, m in itertools.combinations(range(4), 2)
    ]
    assert result.geh.mean[0, 1] == pytest.approx(np.mean(mixed))
    assert result.settings["engine"] == "levels"


def test_scaled_contrasts_have_the_standard_deviation_of_the_joint_effect_as_their_root_mean_square():
    """Levels with other shares; the joint effect is what is left of the effects after both means are subtracted."""
    ids = torch.stack([torch.arange(N) % 7 // 3, torch.arange(N) % 5 // 2], dim=1)
    effects = np.random.default_rng(0).normal(size=(3, 3))
    result = explain_point(
        lambda ids: effects[tuple(ids.numpy().T)], ids, units=Categorical({"a": 0, "b": 1}), scale="std"
    )
    p, q = (np.bincount(column) / N for column in ids.T)
    joint = effects - effects @ q[:, None] - p @ effects + p @ effects @ q
    table = result.levels("a", "b")
    assert (table["weight"] * table["mean"] ** 2).sum() == pytest.approx(p @ joint**2 @ q)
    assert result.geh.mean[0, 1] ** 2 < p @ joint**2 @ q


def test_a_black_box_with_numbers_takes_differences():
    x = two_categories()
    with pytest.warns(geh.GEHWarning, match="mixed differences"):
        result = explain_point(lambda x: known(torch.as_tensor(x.numpy())), x, units=Categorical(UNITS))
    assert result.geh.mean[0, 1] == pytest.approx(4 / 3)


def test_a_callable_of_data_frames_has_categories_of_text():
    """The slope of age is 2 in Oslo, 0 in Bonn and 0 in Rome."""
    cities = np.array(["Oslo", "Bonn", "Rome"])[np.arange(N) % 3]
    frame = pd.DataFrame({"city": cities, "age": np.linspace(0, 1, N), "size": np.linspace(1, -1, N) ** 2})

    def model(frame):
        return (2 * (frame["city"] == "Oslo") * frame["age"] + frame["size"]).to_numpy()

    options = {"units": Categorical({"city": "city"}), "engine": "difference"}
    result = explain_point(model, frame, **options)
    assert result.names == ["city", "age", "size"]
    assert result.geh.mean[0, 1] == pytest.approx(4 / 3)
    strongest = result.levels("city", "age").iloc[:2]
    assert {"Oslo"} == set.intersection(*(set(row) for row in strongest[["from_i", "to_i"]].values))


@pytest.mark.parametrize("engine", ["exact", "difference"])
def test_the_batch_size_does_not_matter(engine):
    model, x, ids = embedded()
    options = {"units": Categorical({"city": 2, "kind": 3}), "groups": 3, "engine": engine}
    whole = explain_point(model, (x, ids), **options)
    parts = explain_point(model, (x, ids), batch_size=7, **options)
    np.testing.assert_allclose(parts.signed, whole.signed, atol=1e-12)
    np.testing.assert_allclose(parts.absolute, whole.absolute, atol=1e-12)


def test_some_pairs_have_the_scores_that_they_have_among_all():
    model, x, ids = embedded()
    options = {"units": Categorical({"city": 2, "kind": 3}), "groups": 3}
    whole = explain_point(model, (x, ids), **options)
    for request in ({"unit": "city"}, {"pairs": [("kind", "x1"), ("x0", "x1")]}, {"rows": ["x0"]}, {"pairs": [(2, 3)]}):
        some = explain_point(model, (x, ids), **options, **request)
        first, second = some.pairs.ends
        np.testing.assert_allclose(some.geh.mean[first, second], whole.geh.mean[first, second])
        np.testing.assert_allclose(some.main.mean, whole.main.mean)


def test_draws_of_an_ensemble_are_those_of_its_members():
    members = [embedded(seed)[0] for seed in range(3)]
    model, x, ids = embedded()
    options = {"units": Categorical({"city": 2, "kind": 3}), "groups": 2}
    result = explain_draws(model, (x, ids), posterior=Ensemble(members), draws=3, **options)
    alone = [explain_point(member, (x, ids), **(options | {"groups": result.labels})) for member in members]
    np.testing.assert_allclose(result.geh.draws, [each.geh.draws[0] for each in alone])
    low, high = result.geh.interval()
    assert (low[0, 1:] < high[0, 1:]).all()


def test_one_dropout_mask_is_used_for_all_levels_of_a_draw():
    """With one mask an additive network has no interactions; with a mask per row it would have."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Dropout(0.5), nn.Linear(8, 1)).double()
    result = explain_draws(net, two_categories(), units=Categorical(UNITS), posterior=MCDropout(), draws=5)
    assert result.eah.draws.max() < 1e-12
    assert result.main.std[0] > 0.01


def test_an_interrupted_run_resumes_from_its_checkpoint(tmp_path):
    model, x, ids = embedded()
    options = {"units": Categorical({"city": 2, "kind": 3}), "posterior": MCDropout(), "groups": 2}
    whole = explain_draws(model, (x, ids), draws=6, **options)
    explain_draws(model, (x, ids), draws=3, checkpoint=tmp_path, **options)
    resumed = explain_draws(model, (x, ids), draws=6, checkpoint=tmp_path, **options)
    assert np.array_equal(resumed.geh.draws, whole.geh.draws)
    assert np.array_equal(resumed.main.draws, whole.main.draws)


def test_a_category_of_many_levels_is_bounded_in_cost_and_all_levels_are_possible():
    codes = torch.arange(600) % 150
    x = torch.cat([codes.double()[:, None], random_points(600, 2)], dim=1)
    slopes = random_points(150, seed=3)
    rows: list[int] = []

    def model(x):
        rows.append(len(x))
        return slopes[x[:, 0].long()] * x[:, 1] + x[:, 2] * x[:, 1]

    with pytest.warns(geh.GEHWarning, match="20 most frequent"):
        explain_point(model, x, units=Categorical({"c": 0}))
    assert sum(rows) < 40 * 600
    result = explain_point(model, x, units=Categorical({"c": 0}, max_levels=None))
    first, second = np.triu_indices(150, 1)
    assert result.geh.mean[0, 1] == pytest.approx((slopes[first] - slopes[second]).abs().mean().item())


def test_kinked_networks_are_not_smoothed_between_levels():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 1)).double()
    x = two_categories()
    result = explain_point(net, x, units=Categorical(UNITS))

    def at(c, d):
        moved = x.clone()
        moved[:, :5] = 0
        moved[:, c] = moved[:, 3 + d] = 1
        with torch.no_grad():
            return net(moved)[:, 0]

    mixed = [abs((at(b, 1) - at(b, 0) - at(a, 1) + at(a, 0)).mean().item()) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert result.geh.mean[0, 1] == pytest.approx(np.mean(mixed))


HOUSING = Path(os.environ.get("GEH_EXPLAIN_DATA", "")) / "california_housing" / "housing.csv"


@pytest.mark.skipif(not HOUSING.is_file(), reason="GEH_EXPLAIN_DATA names no folder with housing.csv")
def test_an_effect_that_was_added_to_inland_houses_of_one_kind_ranks_first():
    """California housing with its ocean proximity, a random category of three levels, and an effect of 1 of both."""
    houses = pd.read_csv(HOUSING).dropna().sample(3000, random_state=0).reset_index(drop=True)
    houses["tenure"] = np.random.default_rng(0).choice(["rent", "own", "mixed"], len(houses))
    value = houses.pop("median_house_value")
    added = (houses["ocean_proximity"] == "INLAND") & (houses["tenure"] == "own")
    y = torch.tensor(((value - value.mean()) / value.std() + added).to_numpy(), dtype=torch.float)[:, None]
    numbers = houses.columns[:8]
    houses[numbers] = (houses[numbers] - houses[numbers].mean()) / houses[numbers].std()
    table = pd.get_dummies(houses, columns=["ocean_proximity", "tenure"])
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(table.shape[1], 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    optimiser, x = torch.optim.Adam(net.parameters(), 3e-3), torch.tensor(table.to_numpy(dtype=np.float32))
    for step in range(400):
        batch = torch.arange(step * 250, step * 250 + 250) % len(x)
        loss = nn.functional.mse_loss(net(x[batch]), y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)  # a level may be rare
        result = explain_point(net, table, units=Categorical.detect(table))
    assert result.ranking().top(1) == [("ocean_proximity", "tenure")]
    strongest = result.levels("ocean_proximity", "tenure").query("weight > 0.1").iloc[0]
    assert {"INLAND", "own"} < set(strongest[["from_i", "to_i", "from_j", "to_j"]])
    assert strongest["strength"] == pytest.approx(1, abs=0.35)
