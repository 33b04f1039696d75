"""Groups of each pair's own: halves of its two units, and of a third unit that changes it."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import reference
import torch
from explaining import explain_draws, explain_point, point_explainer, random_points, uniform_points
from networks import mlp
from scipy.stats import t
from torch import Tensor, nn

import geh_explain as geh
from geh_explain.errors import GEHValueError, GEHWarning
from geh_explain.groups.pairwise import choose_thirds, median_edges


def odd(x: Tensor) -> Tensor:
    """Interactions of opposite sign in the halves of x0, and one whose sign is that of a third unit."""
    return x[:, 0].abs() ** 3 * x[:, 1] + x[:, 2] * x[:, 3] * x[:, 4] + x[:, 5] ** 2


def by_hand(local: Any, values: Any, i: int, j: int, third: int = -1) -> tuple[dict[tuple[int, ...], float], float]:
    """Mean local interaction in each group of a pair, and its GEH; loops over points."""
    groups: dict[tuple[int, ...], list[float]] = {}
    edges = np.median(values, axis=0)  # an even number of distinct values: the middle between two of them
    for point, value in enumerate(values):
        units = [i, j] if third < 0 else [i, j, third]
        groups.setdefault(tuple(int(value[unit] >= edges[unit]) for unit in units), []).append(local[point, i, j])
    means = {group: sum(own) / len(own) for group, own in groups.items()}
    return means, sum(len(own) / len(values) * abs(means[group]) for group, own in groups.items())


def test_scores_and_regions_are_those_of_loops_over_points():
    net, x = mlp(5, 12, 12, 1, gain=2.0), random_points(60, 5)  # too few points for third units
    result = explain_point(net, x, groups="pairwise")
    local = reference.local_hessians(lambda x: net(x)[:, 0], x)
    for i, j in combinations(range(5), 2):
        means, score = by_hand(local, x.numpy(), i, j)
        assert result.geh.mean[i, j] == pytest.approx(score, abs=1e-10)
        words = ["low", "high"]
        expected = {f"x{i} {words[a]}, x{j} {words[b]}": mean for (a, b), mean in means.items()}
        assert result.regions(i, j)["mean"].to_dict() == pytest.approx(expected, abs=1e-10)
    assert result.aeh.mean == pytest.approx(reference.aeh(local), abs=1e-10)
    assert result.eah.mean == pytest.approx(reference.eah(local), abs=1e-10)


def test_odd_interactions_do_not_cancel_as_they_do_in_clusters():
    x = 2 * uniform_points(400, 6) - 1
    own, clusters = explain_point(odd, x, groups="pairwise"), explain_point(odd, x, groups=8)
    pairs = [(0, 1), (2, 3), (2, 4), (3, 4)]
    for i, j in pairs:
        assert own.geh.mean[i, j] > 0.98 * own.eah.mean[i, j]
        assert own.geh.mean[i, j] > clusters.geh.mean[i, j]
        assert own.aeh.mean[i, j] < 0.15 * own.eah.mean[i, j]
    strongest = own.top(4)[["unit_i", "unit_j"]].to_numpy().tolist()
    assert sorted(strongest) == [[f"x{i}", f"x{j}"] for i, j in pairs]


def test_the_third_unit_of_a_product_of_three_is_found_and_named():
    x = 2 * uniform_points(400, 6) - 1
    result = explain_point(odd, x, groups="pairwise")
    local = reference.local_hessians(odd, x)
    means, score = by_hand(local, x.numpy(), 2, 3, third=4)
    assert result.geh.mean[2, 3] == pytest.approx(score, abs=1e-10)
    table = result.regions("x2", "x3")
    assert table.index[0] == "x2 low, x3 low, x4 low"
    assert table.loc["x2 high, x3 low, x4 high", "mean"] == pytest.approx(means[1, 0, 1], abs=1e-10)
    assert table["size"].sum() == 400
    edge = np.median(x[:, 4].numpy())
    assert table.loc["x2 low, x3 low, x4 high", "description"].endswith(f"x4 >= {edge:.4g}")
    assert len(result.regions("x0", "x1")) == 4  # no third unit changes it


def test_a_third_unit_needs_the_agreement_of_both_parts_and_a_gain_of_half():
    sums = np.zeros((2, 4, 3, 5))
    sums[:, :, :, -1] = 1.0
    sums[:, :, 0, 2] = 2.0  # |2| + |1 - 2| = 3 in place of 1
    sums[0, :, 1, 2], sums[1, :, 1, 3] = 2.0, 2.0  # the parts disagree
    sums[:, :, 2, 2] = 1.2  # 1.4 in place of 1
    ends = np.array([0, 0, 0]), np.array([1, 1, 1])
    assert choose_thirds(sums, ends).tolist() == [2, -1, -1]


def test_values_with_ties_are_split_as_evenly_as_possible():
    values = np.array([[0, 1, 3, 2.0], [0, 1, 1, 2], [0, 1, 1, 2], [1, 0, 2, 2], [1, 1, 2, 2]])
    assert median_edges(values).tolist()[:3] == [0.5, 0.5, 1.5]
    assert np.isnan(median_edges(values)[3])
    assert np.isnan(median_edges(values[:1])).all()
    close = np.array([[1.0], [np.nextafter(1.0, 2.0)]])
    assert (close >= median_edges(close)).ravel().tolist() == [False, True]


def test_values_near_the_largest_number_are_split():
    edges = median_edges(np.array([[1.0e308], [1.2e308], [1.6e308], [1.7e308]]))
    assert 1.2e308 < edges[0] < 1.6e308


def test_the_bounds_hold_in_every_draw_and_sizes_add_up():
    net = nn.Sequential(*mlp(6, 12, 12, 1, gain=2.0)[:-1], nn.Dropout(0.3), nn.Linear(12, 1).double())
    result = explain_draws(net, random_points(200, 6), groups="pairwise", draws=25)
    aeh, geh_, eah = (result.scores(name).draws for name in ("aeh", "geh", "eah"))
    assert (aeh <= geh_ + 1e-12).all()
    assert (geh_ <= eah + 1e-12).all()
    np.testing.assert_array_equal(result.sizes.sum(axis=0), 200)
    np.testing.assert_allclose(result.group_shares.sum(axis=0), 1)
    np.testing.assert_allclose((result.group_shares * np.abs(result.signed)).sum(axis=1), geh_, atol=1e-12)


def test_point_errors_and_p_values_are_those_of_the_points_in_each_group():
    x = random_points(60, 3)
    result = explain_point(mlp(3, 8, 8, 1, gain=2.0), x, groups="pairwise")
    local = reference.local_hessians(lambda x: mlp(3, 8, 8, 1, gain=2.0)(x)[:, 0], x)[:, 0, 1]
    high = x.numpy() >= np.median(x.numpy(), axis=0)
    own = local[high[:, 0] & ~high[:, 1]]
    group = result.group_names.index("high low")
    assert result.point_errors[group, 0] == pytest.approx(own.std(ddof=1) / np.sqrt(len(own)), rel=1e-9)
    # The interval of a single group's mean is Student's.
    row = result.regions(0, 1).loc["x0 high, x1 low"]
    half = t.ppf(0.975, len(own) - 1) * own.std(ddof=1) / np.sqrt(len(own))
    assert row["high"] - row["mean"] == pytest.approx(half, rel=1e-6)


def test_groups_that_a_pair_does_not_have_are_no_hypotheses():
    x = 2 * uniform_points(400, 6) - 1
    result = explain_point(odd, x, groups="pairwise")
    assert result.sizes.shape == (8, 15)
    pair, without = result.pair(0, 1), explain_point(odd, x, groups="pairwise", pairs=[(0, 1)])
    assert without.sizes.shape == (4, 1)  # nor does any other pair
    np.testing.assert_allclose(result.sign_p_values()[pair], without.sign_p_values()[0])
    for source in ("points", "both"):
        full, single = (r.decisions(rule="sign", source=source) for r in (result, without))
        assert full.low[pair] == pytest.approx(single.low[0], rel=1e-9)
        assert full.high[pair] == pytest.approx(single.high[0], rel=1e-9)


def test_main_effects_are_summed_over_the_halves_of_each_unit():
    x = 2 * uniform_points(200, 2) - 1
    result = explain_point(lambda x: x[:, 0] ** 2 + 3 * x[:, 1] + 1e-9 * x[:, 0] * x[:, 1], x, groups="pairwise")
    slope = 2 * x[:, 0].numpy()
    assert result.main.mean == pytest.approx([slope.mean(), 3])
    edges = np.median(x[:, 0].numpy())
    high = x[:, 0].numpy() >= edges
    assert result.main.strength == pytest.approx([(abs(slope[high].sum()) + abs(slope[~high].sum())) / 200, 3])


@pytest.mark.parametrize("engine", ["exact", "structured", geh.engines.Difference(step=1e-4)])
def test_engines_agree_whatever_the_size_of_batches(engine: Any):
    net, x = mlp(4, 10, 10, 1, gain=2.0), random_points(100, 4)
    expected = explain_point(net, x, groups="pairwise")
    for batch_size in (None, 7):
        result = explain_point(net, x, groups="pairwise", engine=engine, batch_size=batch_size)
        tolerance = 1e-4 if isinstance(engine, geh.engines.Difference) else 1e-10
        np.testing.assert_allclose(result.signed, expected.signed, atol=tolerance)
        np.testing.assert_array_equal(result.pair_cells.thirds, expected.pair_cells.thirds)


def test_units_that_enter_through_a_narrow_layer_are_computed_one_by_one():
    net, x = mlp(12, 3, 3, 1, gain=2.0), random_points(70, 12)
    result = explain_point(net, x, groups="pairwise")
    assert result.settings["engine"] == "exact"
    assert "narrow" in result.settings["engine_reason"]
    np.testing.assert_allclose(result.eah.mean, reference.eah(reference.local_hessians(lambda x: net(x)[:, 0], x)))


def test_hidden_units_are_halved_by_their_activations():
    net, x = mlp(3, 4, 6, 1, gain=2.0), random_points(60, 3)
    result = explain_point(net, x, layer="0", groups="pairwise")
    hidden = net[0](x).detach()
    local = reference.local_hessians(lambda z: net[1:](z)[:, 0], hidden)
    assert result.geh.mean[1, 3] == pytest.approx(by_hand(local, hidden.numpy(), 1, 3)[1], abs=1e-10)


def test_a_constant_unit_is_low_everywhere():
    x = random_points(60, 3)
    x[:, 2] = 1.0
    result = explain_point(lambda x: x[:, 0] * x[:, 1] * x[:, 2], x, groups="pairwise")
    assert result.regions("x0", "x2").index.tolist() == ["x0 low, x2 low", "x0 high, x2 low"]
    assert not result.regions("x0", "x2")["description"].str.contains("x2").any()
    assert explain_point(lambda x: x.prod(1), x[:1], groups="pairwise").geh.mean[0, 1] > 0  # one row


def test_files_hold_the_groups_of_each_pair(tmp_path: Path):
    net = nn.Sequential(*mlp(6, 8, 8, 1, gain=2.0)[:-1], nn.Dropout(0.3), nn.Linear(8, 1).double())
    result = explain_draws(net, random_points(120, 6), groups="pairwise")
    loaded = geh.Interactions.load(result.save(tmp_path / "result.npz"))
    pd.testing.assert_frame_equal(loaded.table(), result.table())
    pd.testing.assert_frame_equal(loaded.regions(0, 1), result.regions(0, 1))
    assert loaded.pair_cells.equals(result.pair_cells)
    assert loaded.compare(result, measure="geh").table()["difference"].abs().max() == 0


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cell_thirds", lambda a: a * 0),
        ("cell_sizes", lambda a: a + 1),
        ("cell_edges", lambda a: a[:-1]),
        ("cell_unit_sizes", lambda a: -a),
        ("cell_sizes", None),
    ],
)
def test_files_with_impossible_groups_are_refused(tmp_path: Path, name: str, change: Any):
    path = explain_point(odd, uniform_points(80, 6), groups="pairwise").save(tmp_path / "result.npz")
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays[name] = None if change is None else change(arrays[name])
    np.savez(path, **{key: array for key, array in arrays.items() if array is not None})
    with pytest.raises(GEHValueError, match="groups of pairs"):
        geh.Interactions.load(path)


def test_what_needs_common_groups_is_refused_with_words():
    x = uniform_points(80, 3)
    explainer = point_explainer(lambda x: x.prod(1))
    result = explainer.explain(x, groups="pairwise", progress=False)
    for call in (
        lambda: explainer.explain(x, groups="pairwise", sample_weight=torch.ones(80)),
        lambda: explainer.explain(x, groups="pairwise", clusters=[0, 1] * 40),
        lambda: explainer.explain(x, groups="pairwise", rows="auto"),
        lambda: point_explainer(lambda x: x.prod(1), engine="stein").explain(x, groups="pairwise", progress=False),
        lambda: point_explainer(lambda x: x, units=None).explain(x, groups="pairwise", targets=[0, 1], progress=False),
        lambda: point_explainer(lambda x: x.prod(1), units=geh.units.Categorical({"c": 0})).explain(
            x.round(), groups="pairwise", progress=False
        ),
        lambda: result.triples(progress=False),
        lambda: result.compare(result),
        lambda: result.compare(explainer.explain(x, groups=2, progress=False), measure="mean"),
        lambda: explainer.test(result, x, x.prod(1), explained=x, progress=False),
    ):
        with pytest.raises(GEHValueError, match="pairwise"):
            call()
    with pytest.raises(GEHValueError, match="different groups"):
        result.compare(explainer.explain(x, groups=4, progress=False), measure="geh")
    with pytest.raises(GEHValueError, match="'pairwise'"):
        explainer.explain(x, groups="pairs")


def test_memory_that_is_too_short_for_third_units_is_said():
    x = random_points(70, 20)
    with pytest.warns(GEHWarning, match="third units"):
        result = point_explainer(mlp(20, 15, 15, 1)).explain(x, groups="pairwise", memory=1e-3, progress=False)
    assert (result.pair_cells.thirds == -1).all()


def test_evidence_and_the_page_take_groups_of_each_pair(tmp_path: Path):
    x = 2 * uniform_points(400, 6) - 1
    labels = odd(x) + 0.1 * random_points(400, 1, seed=1)[:, 0]
    result = point_explainer(odd).explain(x, groups="pairwise", evidence=(x, labels), progress=False)
    assert result.table()["significant"].sum() >= 4
    page = result.report(tmp_path / "page.html").read_text()
    assert "x2 low, x3 low, x4 high" in page
    assert "in groups of each pair" in page
    labels = [label.get_text().replace("\n", " ") for label in result.plot.regions(0, 1).get_yticklabels()]
    assert labels[0].startswith("x0 low, x1 low (")


def test_networks_are_refitted_with_groups_of_their_own():
    x, y = uniform_points(80, 3).float(), uniform_points(80, 1, seed=1)[:, 0].float()

    def fit(x: Any, y: Any) -> nn.Module:
        del x, y
        return nn.Sequential(*mlp(3, 4, 1).float(), nn.Dropout(1e-6))

    options = {"groups": "pairwise", "draws": 1}
    found = geh.inference.permutation_test(fit, x, y, permutations=3, explain=options, progress=False)
    # All networks are the same, so that no permutation differs from the observed scores.
    assert found.table()["p_value"].eq(1.0).any()
