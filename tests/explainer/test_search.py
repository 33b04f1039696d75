"""search(): the strongest pairs of very many units, with the draws, intervals and files of any result of some pairs."""

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.engines.structured import directions, pull_back
from geh_explain.errors import GEHValueError
from geh_explain.run import hub_search, pair_search
from geh_explain.units.pair_set import PairSet

POINT = geh.posterior.PointEstimate()


def network(units, width=6, seed=0, dropout=0.0):
    torch.manual_seed(seed)
    layers = [nn.Linear(units, width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, 1)]
    return nn.Sequential(*layers).double()


def inputs(rows, units, seed=1):
    spread = torch.linspace(0.5, 2, units).double()
    return torch.randn(rows, units, generator=torch.Generator().manual_seed(seed)).double() * spread


def quadratic(matrix):
    weights = torch.as_tensor(matrix)
    return lambda x: torch.einsum("ni,ij,nj->n", x, weights, x) / 2


def pairs_of(result, count=None):
    return set(result.ranking().top(count or len(result.pairs)))


def assert_agrees(found, full):
    """The pairs that were found are the strongest of all pairs, with the same values."""
    assert pairs_of(found) == pairs_of(full, len(found.pairs))
    np.testing.assert_allclose(found.geh.draws, full.geh.draws[:, found.pairs.positions], rtol=1e-9)


# Through a narrow layer.


@pytest.mark.parametrize(
    "options",
    [
        {"groups": 1},
        {"groups": np.arange(60) % 7, "scale": np.linspace(-1, 2, 80)},
        {"groups": 3, "scale": "std", "sample_weight": np.linspace(0, 2, 60)},
        {"groups": 2, "clusters": np.arange(60) // 3},
        {"groups": "auto"},
    ],
)
def test_the_pairs_of_a_narrow_network_are_the_strongest_of_all(options):
    explainer, x = geh.GEHExplainer(network(80), posterior=POINT), inputs(60, 80)
    found = explainer.search(x, top=25, progress=False, **options)
    assert_agrees(found, explainer.explain(x, progress=False, **(options | {"groups": found_labels(found)})))
    assert "found exactly among 3,160 pairs: all units enter through one linear map into 6" in repr(found)


def found_labels(result):
    """Return the groups of a result as labels; points without weight may have any."""
    return np.maximum(result.labels, 0)


def test_the_number_of_groups_is_chosen_by_strong_pairs_without_draws():
    """The interaction of each pair changes its sign where x0 does, so that one group does not suffice."""
    x = inputs(100, 60)
    x[:, 0] *= 20
    weights = torch.linspace(0.1, 1, 60).double()

    class Net(nn.Module):
        def forward(self, x):
            return (torch.tanh(nn.functional.linear(x, torch.stack([weights, weights**2]))) ** 2).sum(1)

    found = geh.GEHExplainer(Net(), posterior=POINT).search(x, top=5, progress=False)
    assert found.settings["group_count"] == len(found.group_names) > 1


def test_draws_are_those_of_explain_for_these_pairs():
    net, x = network(80, dropout=0.2), inputs(40, 80)
    options = {"groups": 2, "draws": 6, "progress": False}
    found = geh.GEHExplainer(net).search(x, top=10, **options)
    ends = list(zip(*found.pairs.ends, strict=True))
    expected = geh.GEHExplainer(net).explain(x, pairs=ends, **options)
    np.testing.assert_array_equal(found.geh.draws, expected.geh.draws)
    without = geh.GEHExplainer(net, posterior=POINT).explain(x, groups=2, progress=False)
    assert pairs_of(found) == pairs_of(without, 10)


def test_a_linear_path_beside_the_narrow_layer_changes_nothing():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.deep, self.wide = network(60), nn.Linear(60, 1).double()

        def forward(self, x):
            return self.deep(x) + self.wide(x)

    explainer, x = geh.GEHExplainer(Skip(), posterior=POINT), inputs(30, 60)
    found = explainer.search(x, top=10, groups=2, progress=False)
    assert "found exactly" in found.settings["row_search"]
    assert_agrees(found, explainer.explain(x, groups=2, progress=False))


def test_a_curved_path_beside_the_narrow_layer_is_searched_without_it():
    class Curved(nn.Module):
        def __init__(self):
            super().__init__()
            self.deep = network(60)

        def forward(self, x):
            return self.deep(x) + 0.01 * (x[:, :1] * x[:, 1:2])

    explainer, x = geh.GEHExplainer(Curved(), posterior=POINT), inputs(30, 60)
    found = explainer.search(x, top=10, groups=2, progress=False)
    assert "linear map" not in found.settings["row_search"]
    assert_agrees(found, explainer.explain(x, groups=2, progress=False))


@pytest.mark.parametrize("scale", [None, "std"])
def test_sets_of_columns_enter_through_the_sums_of_their_weights(monkeypatch, scale):
    """Without the array of units by columns, which is large for thousands of sets."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network(90)

        def forward(self, x):
            return self.net((x.flatten(1) - 0.3) / torch.linspace(1, 2, 90).double())

    units = geh.units.FeatureGroups({f"g{k}": [3 * k, 3 * k + 2] for k in range(30)})
    explainer, x = geh.GEHExplainer(Net(), units=units, posterior=POINT), inputs(40, 90)
    full = explainer.explain(x, groups=2, scale=scale, progress=False)
    monkeypatch.setattr(directions, "_MAX_NUMBERS", 0)
    found = explainer.search(x, top=8, groups=2, scale=scale, progress=False)
    assert "found exactly among 435 pairs" in found.settings["row_search"]
    assert_agrees(found, full)


def test_a_network_without_interactions_gives_the_first_pairs():
    explainer = geh.GEHExplainer(nn.Linear(50, 1), posterior=POINT)
    with pytest.warns(geh.GEHWarning, match="0"):
        found = explainer.search(torch.randn(20, 50), top=3, groups=1, progress=False)
    assert found.pairs == PairSet.leading(3, 50)
    assert not found.geh.pair_mean.any()


def test_all_pairs_may_be_asked_for():
    explainer, x = geh.GEHExplainer(network(12), posterior=POINT), inputs(20, 12)
    found = explainer.search(x, top=66, groups=1, progress=False)
    assert found.pairs.complete
    np.testing.assert_allclose(found.geh.mean, explainer.explain(x, groups=1, progress=False).geh.mean, rtol=1e-9)


# Without a narrow layer.


def hub_matrix(units, hubs, seed):
    """Return a symmetric matrix whose first ``hubs`` rows are large."""
    rng = np.random.default_rng(seed)
    matrix = 0.01 * rng.normal(size=(units, units))
    matrix[:hubs] += rng.normal(size=(hubs, units))
    return matrix + matrix.T


@pytest.mark.parametrize("seed", range(3))
def test_the_pairs_of_hubs_are_found_by_random_directions(seed):
    matrix, x = hub_matrix(150, 3, seed), inputs(20, 150)
    found = geh.GEHExplainer(quadratic(matrix), posterior=POINT).search(x, top=30, groups=1, progress=False)
    first, second = np.triu_indices(150, 1)
    strongest = np.argsort(-np.abs(matrix[first, second]))[:30]
    assert found.pairs == PairSet.of(zip(first[strongest], second[strongest], strict=True), 150)
    np.testing.assert_allclose(found.geh.pair_mean, np.abs(matrix[found.pairs.ends]), rtol=1e-9)
    assert found.settings["row_search"].endswith("with 95 % confidence: 8 of 150 units were compared with all others")


def test_all_units_are_compared_where_no_few_suffice():
    matrix, x = hub_matrix(100, 0, 0), inputs(20, 100)
    found = geh.GEHExplainer(quadratic(matrix), posterior=POINT).search(x, top=10, groups=1, progress=False)
    assert found.settings["row_search"].endswith("without draws: all pairs were compared")
    assert found.geh.pair_mean.min() == pytest.approx(np.sort(np.abs(np.triu(matrix, 1)), axis=None)[-10])


def test_a_search_that_ends_early_says_what_may_be_missed(monkeypatch):
    monkeypatch.setattr(pair_search, "_MAX_ROWS", 16)
    matrix, x = hub_matrix(100, 0, 0), inputs(20, 100)
    explainer = geh.GEHExplainer(quadratic(matrix), posterior=POINT)
    with pytest.warns(geh.GEHWarning, match="no 16 of the 100 units surely hold the 10 strongest pairs"):
        found = explainer.search(x, top=10, groups=1, progress=False)
    search = hub_search.HubSearch(MatrixProducts(matrix), seed=0, top=10, n_stages=2)
    search.extend(8)
    search.extend(16)
    others = np.delete(np.arange(100), search.units)
    assert np.abs(np.triu(matrix, 1)[np.ix_(others, others)]).max() <= search.bound
    assert f"no other pair exceeds {search.bound:.3g}, and the last of these has" in found.settings["row_search"]


class MatrixProducts:
    """Products with one matrix, in one group."""

    n_groups = 1

    def __init__(self, matrix):
        self.matrix, self.n_units = matrix, len(matrix)

    def of(self, directions):
        return (directions @ self.matrix)[None]


@pytest.mark.parametrize("seed", range(5))
def test_bounds_hold_for_all_pairs_that_were_not_compared(seed):
    matrix = hub_matrix(120, 2, seed)
    search = hub_search.HubSearch(MatrixProducts(matrix), seed, top=20, n_stages=3)
    for size in (8, 16, 32):
        search.extend(size)
        others = np.delete(np.arange(120), search.units)
        assert np.abs(np.triu(matrix, 1)[np.ix_(others, others)]).max() <= search.bound
        rows = np.abs(np.triu(matrix, 1))
        rows[np.ix_(others, others)] = 0
        np.testing.assert_allclose(search.scores, np.sort(rows, axis=None)[::-1][:20], rtol=1e-9)


def test_pairs_of_another_network_than_the_draws_come_with_a_warning():
    """Samples of weights that have nothing to do with the network that is searched, as a template without training."""
    x, options = inputs(40, 80), {"top": 10, "groups": 2, "progress": False}
    others = [network(80, seed=seed).state_dict() for seed in (1, 2)]
    explainer = geh.GEHExplainer(network(80), posterior=geh.posterior.WeightSamples(others))
    with pytest.warns(
        geh.GEHWarning, match=r"other interactions than the draws of posterior=WeightSamples\(2\).* 1 if"
    ):
        explainer.search(x, **options)
    near = [{name: value * (1 + k / 10) for name, value in network(80).state_dict().items()} for k in range(2)]
    geh.GEHExplainer(network(80), posterior=geh.posterior.WeightSamples(near)).search(x, **options)


@pytest.mark.parametrize("model", [network(80), quadratic(hub_matrix(80, 3, 0))])
def test_the_search_keeps_the_signed_interactions_of_its_pairs(model, monkeypatch):
    searches = []
    found_by = pair_search.find_pairs
    monkeypatch.setattr(pair_search, "find_pairs", lambda *args: searches.append(found_by(*args)) or searches[-1])
    options = {"groups": 3, "scale": "std", "sample_weight": np.linspace(0, 2, 60), "progress": False}
    result = geh.GEHExplainer(model, posterior=POINT).search(inputs(60, 80), top=9, **options)
    sizes = np.bincount(result.labels[1:], options["sample_weight"][1:])
    expected = result.signed_means[0] * (sizes / sizes.sum())[:, None]
    np.testing.assert_allclose(searches[0].signed, expected, rtol=1e-9, atol=1e-12 * abs(expected).max())


# The result.


def test_a_checkpoint_resumes_the_draws_of_the_pairs(tmp_path):
    explainer, x = geh.GEHExplainer(network(80, dropout=0.2)), inputs(30, 80)
    options = {"top": 6, "groups": 2, "progress": False, "checkpoint": tmp_path / "run"}
    first = explainer.search(x, draws=2, **options)
    more = explainer.search(x, draws=4, **options)
    assert more.pairs == first.pairs
    np.testing.assert_array_equal(more.geh.draws[:2], first.geh.draws)
    with pytest.raises(geh.GEHError, match="belongs to another run"):
        explainer.search(x, draws=4, **(options | {"top": 7}))


@pytest.fixture(scope="module")
def wide():
    """A result of 30,000 units: a matrix of them would take 7 GB."""
    x = inputs(30, 30_000).float()
    net = network(30_000, dropout=0.1).float()
    explainer = geh.GEHExplainer(net)
    return explainer, x, explainer.search(x, top=12, groups=2, draws=3, progress=False)


def test_tables_regions_and_text_of_a_wide_result(wide):
    _, _, result = wide
    table = result.table()
    assert len(table) == len(result.top(12)) == 12
    assert len(result.regions(table.unit_i[0], table.unit_j[0])) == 2
    assert "12 of 449,985,000 pairs were computed" in repr(result)
    assert "search(top=12): the 12 strongest pairs, by GEH in 2 groups of the network without draws" in repr(result)


def test_a_matrix_that_does_not_fit_is_refused_with_the_way_out(wide, monkeypatch):
    monkeypatch.setattr("geh_explain.units.pair_set.free_bytes", lambda device: 8 * 10**9)
    with pytest.raises(geh.GEHError, match=r"takes 7 GB.*pair_mean"):
        _ = wide[2].geh.mean
    with pytest.raises(geh.GEHError, match="too much for the memory"):
        wide[2].geh.interval()


def test_plots_page_and_files_of_a_wide_result_need_no_matrix(wide, monkeypatch, tmp_path):
    monkeypatch.setattr(PairSet, "matrix", lambda self, values: pytest.fail("a matrix of all units was made"))
    result = wide[2]
    cells = result.plot.heatmap(max_units=6).images[0].get_array()
    units = [label.get_text() for label in result.plot.heatmap(max_units=6).get_xticklabels()]
    known = {frozenset((row.unit_i, row.unit_j)): row.mean for row in result.table().itertuples()}
    shown = np.ma.filled(cells, np.nan)[np.tril_indices(6, -1)]
    ends = [frozenset((units[i], units[j])) for i, j in zip(*np.tril_indices(6, -1), strict=True)]
    np.testing.assert_allclose(shown, [known.get(pair, np.nan) for pair in ends])
    result.plot.network()
    result.plot.intervals()
    assert result.report(tmp_path / "page.html", share=False).stat().st_size < 3e6
    loaded = geh.Interactions.load(result.save(tmp_path / "result.npz"))
    assert loaded.table().equals(result.table())
    assert loaded.settings["row_search"] == result.settings["row_search"]


def test_the_test_on_held_out_rows_says_how_many_it_needs(wide):
    explainer, x, result = wide
    with pytest.raises(GEHValueError, match="30 held-out rows are too few to test pairs of 30000 units"):
        explainer.test(result, x, np.arange(30.0), progress=False)
    with pytest.raises(GEHValueError, match="too few"):
        explainer.search(x, top=5, evidence=(x, np.arange(30.0)), progress=False)


def test_the_pairs_that_were_found_are_tested_on_held_out_rows():
    x = torch.randn(800, 14, generator=torch.Generator().manual_seed(0)).double()
    y = x[:, 0] * x[:, 1] + torch.randn(800, generator=torch.Generator().manual_seed(1)).double()
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3] / 2 + x.sum(1) / 9, posterior=POINT)
    result = explainer.search(x[:100], top=2, groups=1, evidence=(x, y), progress=False)
    assert result.table()["significant"].tolist() == [True, False]


def test_single_pairs_are_pulled_back_one_by_one_with_the_sums_of_rows(monkeypatch):
    """EAH and errors of the points are those of all points in both ways."""
    explainer, x = geh.GEHExplainer(network(200), posterior=POINT), inputs(50, 200)
    options = {"pairs": [(k, 150 - k) for k in range(12)], "groups": 3, "progress": False, "eah_points": 50}
    options["sample_weight"] = np.linspace(1, 2, 50)
    single = explainer.explain(x, **options)
    assert single.settings["engine"] == "structured"
    monkeypatch.setattr(pull_back, "_SINGLE_COST", np.inf)
    rows = explainer.explain(x, **options)
    for name in ("signed", "absolute", "point_errors"):
        np.testing.assert_allclose(getattr(single, name), getattr(rows, name), rtol=1e-9)
