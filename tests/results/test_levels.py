"""Results with categories: the table of levels, signs, uncertainty, main effects, files, plots and the page."""

import io
import itertools
import json
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from expected_errors import refused
from explaining import explain_draws, explain_point, random_points
from torch import nn

import geh_explain as geh
from geh_explain.posterior import Ensemble
from geh_explain.run.accumulate import DrawAccumulator
from geh_explain.units import Categorical

N = 150


def points():
    """Return three one-hot columns, of which the levels have shares 1/2, 1/3 and 1/6, a code 0/1, and two numbers."""
    codes = torch.tensor([0, 0, 0, 1, 1, 2]).repeat(N // 6)
    return torch.cat([torch.eye(3, dtype=torch.double)[codes], (torch.arange(N) % 2)[:, None], random_points(N, 2)], 1)


UNITS = Categorical({"c": [0, 1, 2], "d": [3]})


def member(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)).double()


def explain_members(count=6, **options):
    members = [member(seed) for seed in range(count)]
    options = {"units": UNITS, "groups": 3, "draws": count} | options
    return explain_draws(members[0], points(), posterior=Ensemble(members), **options)


def by_hand(x):
    """Slope of x4: 1 at the first level of c, 3 at the second, 0 at the third."""
    return (x[:, 0] + 3 * x[:, 1]) * x[:, 4] + x[:, 3] * x[:, 5]


def test_levels_has_each_difference_with_its_weight_and_sign_the_strongest_first():
    table = explain_point(by_hand, points(), units=UNITS).levels("c", "x4")
    assert table[["from_i", "to_i"]].values.tolist() == [["x1", "x2"], ["x0", "x1"], ["x0", "x2"]]
    np.testing.assert_allclose(table["mean"], [-3, 2, -1])
    # Products of shares 1/18, 1/6, 1/12, of which the sum is 11/36.
    np.testing.assert_allclose(table["weight"], [2 / 11, 6 / 11, 3 / 11])
    np.testing.assert_allclose(table[["low", "high"]].mean(axis=1), table["mean"])
    assert table["std"].isna().all()


def test_weights_times_strengths_are_the_score():
    result = explain_members(scale="std")
    for i, j in itertools.combinations(range(4), 2):
        if i < 2:
            table = result.levels(i, j)
            assert (table["weight"] * table["strength"]).sum() == pytest.approx(result.geh.mean[i, j])
            assert table["weight"].sum() == pytest.approx(1)
    assert (result.aeh.draws <= result.geh.draws + 1e-12).all()
    assert (result.geh.draws <= result.eah.draws + 1e-12).all()


def test_columns_of_levels_follow_the_order_of_the_arguments():
    result = explain_members()
    plain, swapped = result.levels("c", "d"), result.levels("d", "c")
    assert list(plain.columns[:4]) == list(swapped.columns[:4]) == ["from_i", "to_i", "from_j", "to_j"]
    for i, j in (("i", "j"), ("j", "i")):
        assert swapped[f"from_{j}"].tolist() == plain[f"from_{i}"].tolist()
        assert swapped[f"to_{j}"].tolist() == plain[f"to_{i}"].tolist()
    assert "from_i" not in result.levels("x4", "c")


def test_std_of_a_difference_is_that_of_the_members():
    result = explain_members()
    alone = [explain_point(member(seed), points(), units=UNITS).levels("c", "x5") for seed in range(6)]
    values = pd.concat([table.set_index(["from_i", "to_i"])["mean"] for table in alone], axis=1)
    table = result.levels("c", "x5").set_index(["from_i", "to_i"])
    np.testing.assert_allclose(table["mean"], values.mean(axis=1)[table.index])
    np.testing.assert_allclose(table["std"], values.std(axis=1)[table.index])
    assert ((table["low"] < table["mean"]) & (table["mean"] < table["high"])).all()


def test_units_without_levels_are_refused():
    result = explain_members()
    with refused(ValueError, "'x4'", "neither unit is a category", "regions"):
        result.levels("x4", "x5")
    with refused(ValueError, "neither unit is a category", "Categorical"):
        explain_point(lambda x: x.prod(1), random_points(20, 2)).levels(0, 1)
    with refused(ValueError, "did you mean 'x4'"):
        result.levels("c", "x_4")


def test_signed_effects_are_oriented_by_the_sign_of_each_difference_over_all_points():
    """Slopes of x4 are 1, 3, 0 times the sign of x5: the pattern of most rows is reversed in the others."""
    x = points()
    x[:, 5] = torch.where(torch.arange(N) % 3 < 2, 1.0, -1.0)
    result = explain_point(lambda x: x[:, 5] * by_hand(x), x, units=UNITS, groups=(x[:, 5] > 0).numpy())
    regions = result.regions("c", "x4")["mean"]
    score = (6 * 2 + 3 * 1 + 2 * 3) / 11
    np.testing.assert_allclose(regions[["True", "False"]], [score, -score])
    assert result.aeh.mean[0, 2] == pytest.approx(score / 3)
    assert result.geh.mean[0, 2] == pytest.approx(score)
    assert result.majority_signs()[result.pair("c", "x4")] == 0


def test_two_levels_keep_their_sign():
    result = explain_point(lambda x: x[:, 0] - 2 * x[:, 3] * x[:, 4] + x[:, 5], points(), units=UNITS)
    place = result.pair("d", "x4")
    np.testing.assert_allclose(result.signed[0, 0, place], -2)
    assert result.majority_signs()[place] == -1


def test_main_effects_of_a_category_are_differences_of_mean_outputs():
    """Outputs 1, 3, 0 at the levels of c: weighted absolute differences; d has two levels, and keeps its sign."""
    result = explain_point(lambda x: x[:, 0] + 3 * x[:, 1] - 2 * x[:, 3] + x[:, 4] * x[:, 5], points(), units=UNITS)
    np.testing.assert_allclose(result.main.mean[:2], [(6 * 2 + 3 * 1 + 2 * 3) / 11, -2])


def test_p_values_of_the_sign_rule_hold_their_level_if_no_difference_is_real():
    """Draws scatter about a centre that is as far from 0 as they are from it: 200 pairs, none of them real."""
    levels, units, draws = 5, 200, 10
    x = torch.cat([(torch.arange(N) % levels)[:, None].double(), random_points(N, units)], dim=1)
    centre, scatter = random_points(levels, units, seed=1), random_points(draws, levels, units, seed=2)
    members = [lambda x, e=centre + noise: (e[x[:, 0].long()] * x[:, 1:]).sum(1) for noise in scatter]
    options = {"posterior": Ensemble(members), "draws": draws, "units": Categorical({"c": 0})}
    p_values = explain_draws(members[0], x, unit="c", **options).sign_p_values()
    for level in (0.01, 0.05, 0.2):
        assert np.mean(p_values < level) < level + 3 * np.sqrt(level / units)
    assert np.mean(p_values < 0.2) > 0.1


def test_a_real_difference_is_stable():
    members = [lambda x, k=k: by_hand(x) + 0.01 * k * x[:, 2] * x[:, 4] for k in range(6)]
    result = explain_draws(members[0], points(), posterior=Ensemble(members), draws=6, units=UNITS)
    table = result.table().set_index(["unit_i", "unit_j"])
    assert table.loc[("c", "x4"), "stable"]
    assert not table.loc[("c", "d"), "stable"]


@pytest.fixture
def no_room(monkeypatch):
    """Leave no memory for draws, so that only their moments are kept."""
    start = DrawAccumulator.__init__

    def without_room(self, *args):
        start(self, *args)
        self._max_bytes = 0

    monkeypatch.setattr(DrawAccumulator, "__init__", without_room)


def test_a_saved_result_without_draws_has_the_same_tables(tmp_path, no_room):
    check_saved(tmp_path, explain_members())


@pytest.mark.parametrize("options", [{}, {"clusters": np.arange(N) // 5}, {"unit": "c"}])
def test_a_saved_result_has_the_same_tables(tmp_path, options):
    check_saved(tmp_path, explain_members(**options))


def check_saved(tmp_path, result):
    loaded = geh.Interactions.load(result.save(tmp_path / "result.npz"))
    pd.testing.assert_frame_equal(loaded.levels("c", "d"), result.levels("c", "d"))
    pd.testing.assert_frame_equal(loaded.table(), result.table())
    pd.testing.assert_frame_equal(loaded.table("eah", rule="interval"), result.table("eah", rule="interval"))
    pd.testing.assert_frame_equal(loaded.regions("c", "x4"), result.regions("c", "x4"))
    pd.testing.assert_frame_equal(loaded.variance(), result.variance())
    assert loaded.main.table().equals(result.main.table())


def test_moments_are_those_of_the_draws_where_draws_are_not_kept(request):
    kept = explain_members(groups=np.arange(N) % 3)
    request.getfixturevalue("no_room")
    moments = explain_members(groups=np.arange(N) % 3)
    assert not moments.settings["draws_kept"]
    np.testing.assert_allclose(moments.geh.pair_mean, kept.geh.pair_mean)
    np.testing.assert_allclose(moments.geh.pair_std, kept.geh.pair_std)
    columns = ["weight", "strength", "mean"]
    pd.testing.assert_frame_equal(moments.levels("c", "d")[columns], kept.levels("c", "d")[columns])
    assert (moments.levels("c", "d")["std"] >= kept.levels("c", "d")["std"] - 1e-12).all()


def test_errors_of_points_are_those_of_the_differences_and_bounds_for_pairs():
    """Slopes of x4 at the three levels are x5, 3 x5 and 0: differences have the spread of 2, 1 and 3 times x5."""
    x = points()
    result = explain_point(lambda x: by_hand(x) * x[:, 5], x, units=UNITS)
    error = x[:, 5].std().item() / np.sqrt(N)
    assert result.point_errors[0, result.pair("c", "x4")] == pytest.approx(error * (6 * 2 + 3 * 1 + 2 * 3) / 11)


def rewritten(path, target, **changes):
    """Copy a saved result with some of its JSON changed."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            content = source.read(name)
            if name == "about.npy":
                about = json.loads(np.load(io.BytesIO(content)).tobytes()) | changes
                file = io.BytesIO()
                np.save(file, np.frombuffer(json.dumps(about).encode(), dtype=np.uint8))
                content = file.getvalue()
            copy.writestr(name, content)
    return target


@pytest.mark.parametrize(
    "categories",
    [
        None,
        [],
        [{"unit": 0, "levels": ["a", "b"], "shares": [0.5, 0.5]}],
        [{"unit": 0, "levels": ["a", "b", "c"], "shares": [0.5, 0.3, 0.2]}],
        [{"unit": 9, "levels": ["a", "b", "c"], "shares": [0.5, 0.3, 0.2]}],
        [{"unit": 0, "levels": ["a"] * 5000, "shares": [1 / 5000] * 5000}],
        [{"unit": k, "levels": ["a", "b", "c"][: 3 - k], "shares": [-0.5, 0.3, 0.2][: 3 - k]} for k in range(2)],
        [{"unit": k, "levels": ["a", "b", 3][: 3 - k], "shares": [0.5, 0.3, 0.2][: 3 - k]} for k in range(2)],
    ],
)
def test_a_file_with_other_categories_is_refused(tmp_path, categories):
    path = explain_members().save(tmp_path / "result.npz")
    with refused(ValueError, "not an intact file"):
        geh.Interactions.load(rewritten(path, tmp_path / "forged.npz", categories=categories))
    with refused(ValueError, "not an intact file"):
        geh.Interactions.load(rewritten(path, tmp_path / "older.npz", format="geh_explain.Interactions/1"))


def test_plots_page_and_exports_take_categories(tmp_path):
    result = explain_members()
    result.report(tmp_path / "page.html")
    graph = result.to_networkx()
    assert graph.edges["c", "x4"]["sign"] == 0
    assert len(result.plot.regions("c", "d").collections) > 0
    assert "evidence=" not in repr(result)
    legend = result.plot.network().get_legend()
    assert "no single sign" in [text.get_text() for text in legend.get_texts()]
    for draw in (result.plot.heatmap, result.plot.intervals, result.plot.draws):
        draw().figure.clear()
