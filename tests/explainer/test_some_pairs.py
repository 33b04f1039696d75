"""Explanations of some pairs: the same numbers as those of all pairs, for less work, and nothing said of the others."""

import numpy as np
import pytest
import torch
from networks import mlp
from torch import nn

import geh_explain as geh
from geh_explain.engines import Difference, Stein
from geh_explain.units import PairSet, Subset

POINT = geh.posterior.PointEstimate()
UNITS = 8

#: The three ways to ask for some pairs, and the pairs that they mean.
REQUESTS = {
    "unit": ({"unit": 3}, PairSet.touching([3], UNITS)),
    "pairs": ({"pairs": [(5, 2), ("x0", "x1"), (-1, 2)]}, PairSet.of([(2, 5), (0, 1), (2, 7)], UNITS)),
    "rows": ({"rows": ["x1", 4]}, PairSet.touching([1, 4], UNITS)),
    "most rows": ({"rows": np.arange(6)}, PairSet.touching(range(6), UNITS)),
}


@pytest.fixture(params=REQUESTS)
def request_and_pairs(request):
    return REQUESTS[request.param]


def network(*widths):
    """Return a network with dropout in double precision; a second width below half of the units is a narrow layer."""
    layers = []
    for inputs, outputs in zip((UNITS, *widths), widths, strict=False):
        layers += [nn.Linear(inputs, outputs), nn.Tanh(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1)).double()


def points(n=60, units=UNITS):
    return torch.randn(n, units, generator=torch.Generator().manual_seed(1)).double()


def assert_agrees(part, full, known):
    """Assert that all numbers of a partial result are those of the full one, at its pairs."""
    assert part.pairs == known
    chosen = known.positions
    for name in ("signed", "absolute", "noise", "point_errors"):
        found, expected = getattr(part, name), getattr(full, name)
        assert (found is None) == (expected is None), name
        if found is not None:
            np.testing.assert_allclose(found, expected[..., chosen], rtol=1e-9, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(part.main.mean, full.main.mean, rtol=1e-9, atol=1e-12)
    mask = np.isnan(known.matrix(np.zeros(len(known))))
    np.testing.assert_allclose(part.geh.mean, np.where(mask, np.nan, full.geh.mean), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("widths", [(12, 10), (3, 10)], ids=["wide", "narrow"])
@pytest.mark.parametrize("engine", ["structured", "exact", "difference", Stein(samples=3), Difference(baseline=0.0)])
def test_some_pairs_have_the_numbers_of_all_pairs(engine, widths, request_and_pairs):
    """Draws are computed together after the first one where engine and posterior allow it."""
    argument, known = request_and_pairs
    explainer = geh.GEHExplainer(network(*widths), engine=engine)
    options = {"groups": 3, "draws": 5, "scale": "std", "progress": False}
    full = explainer.explain(points(), **options)
    assert_agrees(explainer.explain(points(), **options, **argument), full, known)


@pytest.mark.parametrize("groups", [1, np.arange(60)])
def test_groups_of_all_points_and_of_single_points(groups, request_and_pairs):
    argument, known = request_and_pairs
    explainer = geh.GEHExplainer(network(9), posterior=POINT)
    full = explainer.explain(points(), groups=groups, progress=False)
    assert_agrees(explainer.explain(points(), groups=groups, progress=False, **argument), full, known)


@pytest.mark.parametrize(
    "posterior",
    [
        pytest.param(lambda net: geh.posterior.Ensemble([network(6) for _ in range(3)]), id="ensemble"),
        pytest.param(
            lambda net: geh.posterior.WeightSamples(
                [{k: (1 + 0.1 * i) * v for k, v in net.state_dict().items()} for i in range(3)]
            ),
            id="weights",
        ),
    ],
)
def test_other_posteriors(posterior, request_and_pairs):
    argument, known = request_and_pairs
    net = network(6)
    explainer = geh.GEHExplainer(net, posterior=posterior(net))
    full = explainer.explain(points(), groups=2, draws=3, progress=False)
    assert_agrees(explainer.explain(points(), groups=2, draws=3, progress=False, **argument), full, known)


def test_clusters_and_a_sample_of_points_for_eah(request_and_pairs):
    argument, known = request_and_pairs
    explainer = geh.GEHExplainer(network(3, 10))
    for options in ({"clusters": np.arange(60) // 4}, {"eah_points": 20}):
        options |= {"groups": 2, "draws": 5, "progress": False}
        full, part = explainer.explain(points(), **options), explainer.explain(points(), **options, **argument)
        if part.settings["engine"] != "structured" and "eah_points" in options:
            # The exact engine measures EAH at all points.
            np.testing.assert_allclose(part.signed, full.signed[..., known.positions], rtol=1e-9, atol=1e-12)
            continue
        assert_agrees(part, full, known)
        if full.cluster_errors is not None:
            expected = full.cluster_errors.covariance[..., known.positions]
            np.testing.assert_allclose(part.cluster_errors.covariance, expected, rtol=1e-9, atol=1e-14)


def test_draws_that_do_not_fit_into_memory(request_and_pairs):
    argument, known = request_and_pairs
    explainer = geh.GEHExplainer(network(9))
    options = {"groups": np.arange(60) // 2, "draws": 30, "memory": 1e-4, "progress": False}
    full, part = explainer.explain(points(), **options), explainer.explain(points(), **options, **argument)
    assert not full.record.draws_kept
    np.testing.assert_allclose(part.geh.pair_mean, full.geh.pair_mean[known.positions], rtol=1e-9)
    np.testing.assert_allclose(part.geh.pair_std, full.geh.pair_std[known.positions], rtol=1e-7)


def test_channels_of_a_convolution():
    net = nn.Sequential(
        nn.Conv2d(1, UNITS, 3), nn.Tanh(), nn.Conv2d(UNITS, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(36, 1)
    ).double()
    x = torch.randn(12, 1, 7, 7, generator=torch.Generator().manual_seed(0)).double()
    explainer = geh.GEHExplainer(net, "1", posterior=POINT)
    full = explainer.explain(x, groups=1, progress=False)
    assert_agrees(explainer.explain(x, groups=1, unit=2, progress=False), full, PairSet.touching([2], UNITS))


def test_an_engine_of_the_users_own_computes_all_pairs_and_these_are_selected(request_and_pairs):
    class NumberedRun(geh.engines.EngineRun):
        def chunk_rows(self, rows):
            return 25

        def add(self, sums, rows, labels):
            local = torch.arange(28.0).expand(len(rows), 28)
            sums.add(0, local, sums.one_hot(labels, self.cut.device))

    class Numbered(geh.engines.Engine):
        name = "numbered"

        def start(self, cut, limits):
            return NumberedRun(self, cut, limits)

    argument, known = request_and_pairs
    explainer = geh.GEHExplainer(lambda x: x.sum(1), engine=Numbered(), posterior=POINT)
    result = explainer.explain(points(), groups=1, progress=False, **argument)
    assert result.geh.pair_mean.tolist() == known.positions.tolist()


def test_one_unit_takes_one_second_backward_pass(monkeypatch):
    """The work: rows of the Hessian that autograd computes."""
    from geh_explain.engines import exact

    counted = []
    plain = exact.ExactRun._hessian_rows

    def counting(self, gradient, t, units):
        counted.append(len(units))
        return plain(self, gradient, t, units)

    monkeypatch.setattr(exact.ExactRun, "_hessian_rows", counting)
    explainer = geh.GEHExplainer(mlp(30, 20, 1), posterior=POINT, engine="exact")
    x = torch.randn(10, 30).double()
    for argument, rows in (({"unit": 4}, 1), ({"rows": [1, 2, 3]}, 3), ({"pairs": [(0, 9), (9, 4)]}, 1), ({}, 29)):
        counted.clear()
        explainer.explain(x, groups=1, progress=False, **argument)
        assert sum(counted) == rows


def test_what_screening_returns_are_rows():
    explainer = geh.GEHExplainer(lambda x: x[:, 1] * x[:, 5] + x[:, 5] * x[:, 6] + 0.01 * x.sum(1), posterior=POINT)
    x = points()
    found = explainer.screen(x, keep=2, progress=False)
    result = explainer.explain(x, groups=1, rows=found, progress=False)
    assert result.pairs == PairSet.touching(found.indices, UNITS)
    assert {tuple(pair) for pair in result.top(2)[["unit_i", "unit_j"]].values} == {("x1", "x5"), ("x5", "x6")}


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"unit": "x33"}, "unit 'x33' is not among .*did you mean 'x3'"),
        ({"unit": 8}, "unit 8 is out of range; there are 8"),
        ({"unit": 1.5}, "unit 1.5 must be a name or an index"),
        ({"rows": ["x1", "y"]}, "rows: unit 'y' is not among"),
        ({"rows": [0, "x0"]}, "rows has 'x0' twice"),
        ({"rows": []}, r"rows=\[\] is empty"),
        ({"rows": 3}, "rows=3 is not a list"),
        ({"rows": "x1"}, "rows='x1' is unknown; .*unit='x1'"),
        ({"rows": Subset([1], of=geh.units.FeatureGroups({"a": [0]}))}, "part of other units"),
        ({"rows": Subset([9])}, "rows: unit 9 is out of range"),
        ({"pairs": [(0, 0)]}, r"pairs has the entry \(0, 0\), a unit with itself"),
        ({"pairs": [(0, 1), ("x1", "x0")]}, "pairs has 'x0' and 'x1' twice"),
        ({"pairs": []}, r"pairs=\[\] is empty"),
        ({"pairs": 5}, "pairs=5 is not a list"),
        ({"pairs": np.array(5)}, r"pairs=array\(5\) is not a list"),
        ({"pairs": [np.array(5)]}, r"pairs has the entry array\(5\), which is no pair"),
        ({"pairs": ["ab"]}, "entry 'ab', which is no pair"),
        ({"pairs": [(0, 1, 2)]}, "no pair of units"),
        ({"unit": 0, "rows": [1]}, "unit and rows are .*given; choose"),
        ({"rows": "auto", "pairs": [(0, 1)]}, "pairs and rows are .*given; choose"),
    ],
)
def test_wrong_requests_name_the_argument_and_the_way_out(argument, words):
    explainer = geh.GEHExplainer(lambda x: x.prod(1), posterior=POINT)
    with pytest.raises(geh.GEHError, match=words):
        explainer.explain(points(), groups=1, progress=False, **argument)


@pytest.fixture(scope="module")
def partial():
    torch.manual_seed(0)
    names = ["age", "bmi", "sugar", "sport", "height", "north", "rooms", "year"]
    explainer = geh.GEHExplainer(network(16))
    return explainer, explainer.explain(points(), groups=2, draws=30, rows=[0, 2], names=names, progress=False)


def test_decisions_are_about_the_computed_pairs(partial):
    _, result = partial
    assert len(result.table()) == 13 == len(result.decisions().p_value)
    assert set(result.table(unit="bmi")["unit_i"]) | set(result.table(unit="bmi")["unit_j"]) == {"age", "bmi", "sugar"}
    assert result.ranking().ranks.tolist() == (13 - np.argsort(np.argsort(result.geh.pair_mean))).tolist()
    assert np.isnan(result.ranking().matrix[1, 3])
    assert result.regions("bmi", "sugar")["mean"].tolist() == result.signed_means[0][:, result.pair(1, 2)].tolist()
    for call in (
        lambda: result.regions("bmi", "sport"),
        lambda: result.ranking().rank(1, 3),
        lambda: result.pair(5, 6),
    ):
        with pytest.raises(geh.GEHError, match="was not computed"):
            call()


def test_words_say_which_pairs_were_computed(partial):
    explainer, result = partial
    assert "13 of 28 pairs were computed: those of age, sugar\n" in repr(result)
    assert "13 of 28 pairs were computed: those of age, sugar." in result._repr_html_()
    assert result.settings["pair_request"] == "rows=[0, 2]"
    single = explainer.explain(points(), groups=1, draws=2, pairs=[("x1", "x5")], progress=False)
    assert "1 of 28 pairs was computed: x1 × x5\n" in repr(single)
    with pytest.raises(geh.GEHError, match="unit='x0': none of its pairs was computed"):
        single.table(unit="x0")


def test_exports_have_the_computed_pairs_only(partial, tmp_path):
    _, result = partial
    pairs = {frozenset(pair) for pair in result.table()[["unit_i", "unit_j"]].values}
    assert {frozenset(edge) for edge in result.to_networkx().edges} == pairs
    assert len(result.to_csv(tmp_path / "pairs.csv").read_text().splitlines()) == 14
    assert np.isnan(result.geh.mean[1, 3])
    assert result.geh.mean[3, 3] == 0
    assert len(result.variance()) == len(result.monte_carlo()) == 13


def test_exports_to_xarray_have_the_computed_pairs_only(partial):
    pytest.importorskip("xarray")
    assert partial[1].to_xarray()["geh"].shape == (1, 30, 13)


def test_files_keep_the_pairs(partial, tmp_path):
    _, result = partial
    loaded = geh.Interactions.load(result.save(tmp_path / "part.npz"))
    assert loaded.pairs == result.pairs
    assert loaded.table().equals(result.table())
    assert repr(loaded) == repr(result)


def test_further_analyses_take_a_partial_result(partial):
    explainer, result = partial
    x = points()
    check = explainer.check(result, x, pairs=13, progress=False)
    assert {frozenset(pair) for pair in check.pairs} == {frozenset(p) for p in result.ranking().top(13)}
    surface = explainer.surface(x, pair=("age", "bmi"), result=result, draws=2, grid=3, progress=False)
    assert surface.names == ("age", "bmi")
    with pytest.raises(geh.GEHError, match=r"\('bmi', 'sport'\) was not computed"):
        explainer.surface(x, pair=("bmi", "sport"), result=result, draws=2, grid=3, progress=False)


def test_sharpness_of_a_partial_result_is_measured_for_its_pairs():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(UNITS, 32), nn.ReLU(), nn.Linear(32, 1)).double()
    explainer = geh.GEHExplainer(net, posterior=POINT)
    result = explainer.explain(points(), groups=1, unit=2, progress=False)
    table = explainer.stability(result, points(), pairs=4, progress=False)
    assert table["score"].to_numpy() == pytest.approx(np.sort(result.geh.pair_mean)[::-1][:4])
    assert {2} <= {int(name[1:]) for name in table[["unit_i", "unit_j"]].values[0]}


def test_units_of_a_partial_result_are_interpreted():
    net = mlp(3, 6, 6, 1)
    explainer = geh.GEHExplainer(net, "1", posterior=POINT)
    x = torch.randn(80, 3).double()
    result = explainer.explain(x, groups=1, unit=4, progress=False)
    gallery = explainer.interpret(result, x, pairs=2, ascent=False, progress=False)
    assert all(4 in pair.numbers for pair in gallery.pairs)


def test_evidence_is_about_the_computed_pairs():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(900, 5, generator=generator).double()
    y = x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3] + torch.randn(900, generator=generator)
    explainer = geh.GEHExplainer(
        lambda x: x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3] + 0.3 * x[:, 0] * x[:, 4], posterior=POINT
    )
    full = explainer.explain(x, groups=1, progress=False, evidence=(x, y))
    part = explainer.explain(x, groups=1, progress=False, evidence=(x, y), unit=0)
    assert part.pairs == PairSet.touching([0], 5)
    np.testing.assert_allclose(part.evidence.slope, full.evidence.slope[part.pairs.positions])
    np.testing.assert_allclose(part.evidence.true_scores.signed, full.evidence.true_scores.signed[part.pairs.positions])
    table = explainer.test(part.with_evidence(None), x, y, progress=False).table()
    assert table[table["significant"]][["unit_i", "unit_j"]].values.tolist() == [["x0", "x1"]]


def test_a_permutation_test_refuses_some_pairs():
    x, y = np.random.default_rng(0).normal(size=(2, 40, 4))
    explainer = geh.GEHExplainer(lambda x: x.prod(1), posterior=POINT)

    def fit(X, y):
        return explainer.explain(X, groups=1, unit=0, progress=False)

    with pytest.raises(geh.GEHError, match=r"PairSet\(3 of 6 pairs of 4 units\).*without unit=, pairs= and rows="):
        geh.inference.permutation_test(fit, x, y[:, 0], permutations=2, progress=False)


def test_a_checkpoint_of_other_pairs_is_refused(tmp_path):
    explainer = geh.GEHExplainer(network(6))
    options = {"groups": 2, "draws": 3, "progress": False, "checkpoint": tmp_path / "run"}
    first = explainer.explain(points(), unit=1, **options)
    again = explainer.explain(points(), unit=1, **options)
    np.testing.assert_array_equal(again.signed, first.signed)
    for other in ({"unit": 2}, {}, {"rows": [1, 2]}):
        with pytest.raises(geh.GEHError, match=r"belongs to another run, with another .*pairs"):
            explainer.explain(points(), **options, **other)


def test_few_pairs_that_choose_the_number_of_groups_are_reported():
    explainer = geh.GEHExplainer(network(6), posterior=POINT)
    with pytest.warns(geh.GEHWarning, match=r"groups='auto' took \d+ from the 2 of all pairs.*pass groups="):
        explainer.explain(points(), pairs=[(0, 1), (2, 3)], progress=False)


def test_the_cost_is_estimated_for_some_pairs():
    explainer = geh.GEHExplainer(network(6))
    assert explainer.estimate(points(), draws=5, unit="x2").pairs == 7
    assert explainer.estimate(points(), draws=5).pairs == 28


def test_pairs_that_are_all_zero_are_said_to_be_some_of_all():
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2] ** 2, posterior=POINT)
    with pytest.warns(
        geh.GEHWarning, match="all 7 pairs that were computed are exactly 0: these units do not interact"
    ):
        explainer.explain(points(), groups=1, unit=2, progress=False)


def test_more_units_than_all_pairs_have_memory_for_are_explained_by_rows():
    x = torch.randn(6, 900)
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + (x**2).sum(1), posterior=POINT)
    with pytest.raises(geh.GEHError, match=r"404,550 pairs, which do not fit .*rows=explainer.screen"):
        explainer.explain(x, groups=1, memory=0.05, progress=False)
    assert len(explainer.explain(x, groups=1, memory=0.05, unit=0, progress=False).pairs) == 899


def test_several_inputs_with_one_number_per_row_are_refused_in_words():
    explainer = geh.GEHExplainer(lambda x, weight: x.prod(1) * weight, posterior=geh.posterior.PointEstimate())
    with pytest.raises(geh.GEHError, match="inputs: a tensor of the tuple has one number per row; give it as a column"):
        explainer.explain((torch.rand(9, 2), torch.rand(9)), progress=False)
