"""Case weights: all means over points are weighted means, and errors are those of weighted means."""

import numpy as np
import pandas as pd
import pytest
import torch
from explaining import explain_draws, explain_point, point_explainer, random_points
from networks import mlp
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import geh_explain as geh
from geh_explain.engines.stein import engine as stein_engine
from geh_explain.errors import GEHTypeError, GEHValueError

MEASURES = ("aeh", "geh", "eah")
ENGINES = {
    "exact": ((4, 10, 8, 1), {"engine": "exact"}),
    "structured": ((4, 10, 8, 1), {"engine": "structured"}),
    "structured, pulled back": ((30, 5, 6, 1), {"engine": "structured"}),
    "structured, some pairs": ((30, 5, 6, 1), {"engine": "structured", "rows": range(20)}),
    "difference": ((4, 10, 8, 1), {"engine": "difference"}),
}


def integer_weights(rows, seed=0):
    return np.random.default_rng(seed).integers(0, 4, rows)


def scores(result):
    return np.concatenate([*(result.scores(measure).draws.ravel() for measure in MEASURES), result.main.draws.ravel()])


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("groups", ["auto", 4])
def test_integer_weights_are_repeated_rows(name, groups):
    widths, options = ENGINES[name]
    model, x, weights = mlp(*widths, dropout=0.2), random_points(60, widths[0]), integer_weights(60)
    options = {**options, "groups": groups, "draws": 22, "scale": "std"}
    weighted = explain_draws(model, x, sample_weight=weights, **options)
    repeated = explain_draws(model, x.repeat_interleave(torch.as_tensor(weights), dim=0), **options)
    assert weighted.record.engine == name.partition(",")[0]
    assert len(weighted.group_names) == len(repeated.group_names)
    np.testing.assert_allclose(scores(weighted), scores(repeated), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(np.repeat(weighted.labels, weights), repeated.labels)
    np.testing.assert_allclose(weighted.group_shares, repeated.sizes / repeated.sizes.sum())


def test_constant_weights_change_nothing():
    x = random_points(50, 4)
    plain, weighted = (
        explain_draws(mlp(4, 8, 1, dropout=0.2), x, groups="auto", draws=21, sample_weight=weights)
        for weights in (None, np.full(50, 0.1))
    )
    assert weighted.sample_weight is None
    np.testing.assert_array_equal(scores(weighted), scores(plain))
    np.testing.assert_array_equal(weighted.point_errors, plain.point_errors)
    assert weighted.table().equals(plain.table())


@pytest.mark.parametrize("engine", ["exact", "structured", "difference", "stein"])
@pytest.mark.parametrize("activation", [torch.nn.Tanh, torch.nn.ReLU])
@pytest.mark.filterwarnings("ignore:smoothing the kinks")
def test_rows_of_weight_0_do_not_count(engine, activation):
    """Also where they are far away: neither groups, steps, smoothing nor errors see them."""
    model, x = mlp(3, 12, 1, activation=activation), random_points(40, 3)
    weights = np.random.default_rng(0).exponential(size=40)
    weights[::3] = 0
    x[::3] *= 50
    labels, clusters = np.arange(40) % 4, np.arange(40) % 13
    for options in ({"groups": 3}, {"groups": labels, "clusters": clusters}, {"groups": 1, "scale": "std"}):
        few = {name: value[weights > 0] for name, value in options.items() if isinstance(value, np.ndarray)}
        all_rows = explain_point(model, x, sample_weight=weights, engine=engine, **options)
        counted = weights > 0
        few_rows = explain_point(model, x[counted], sample_weight=weights[counted], engine=engine, **{**options, **few})
        np.testing.assert_array_equal(scores(all_rows), scores(few_rows))
        np.testing.assert_array_equal(all_rows.point_errors, few_rows.point_errors)
        assert all_rows.table().equals(few_rows.table())
        assert (all_rows.labels[weights == 0] == -1).all()
        np.testing.assert_array_equal(all_rows.labels[weights > 0], few_rows.labels)
        assert all_rows.sizes.sum() == few_rows.sizes.sum() == counted.sum()


@pytest.mark.filterwarnings("ignore:groups. 1 of 2 groups hold a single point")
def test_scores_by_hand():
    """Local interactions 2, 4, 6, -3 with weights 1, 2, 1, 4."""
    x = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [0.0, -1.5]])
    result = explain_point(
        lambda x: x[:, 0] * x[:, 1] ** 2, x, groups=["a", "a", "a", "b"], sample_weight=[1, 2, 1, 4], engine="exact"
    )
    assert result.signed[0].ravel().tolist() == [4, -3]
    assert [float(result.scores(measure).pair_mean[0]) for measure in MEASURES] == [0.5, 3.5, 3.5]
    assert result.regions(0, 1)[["size", "weight"]].to_numpy().tolist() == [[3, 0.5], [1, 0.5]]
    assert result.main.draws[0].tolist() == [pytest.approx((1 + 8 + 9 + 4 * 2.25) / 8), 0]
    # 3 / 2 sum w^2 (h - 4)^2 / (sum w)^2
    assert result.point_errors[0, 0] == pytest.approx(np.sqrt(1.5 * 8 / 16))
    assert np.isnan(result.point_errors[1, 0])
    assert result.effective_counts.tolist() == [pytest.approx(16 / 6), 1]
    assert result.settings["effective_points"] == pytest.approx(64 / 22)


def interactions_of(x):
    """Local interactions (n,) of x0 and x1 in the model below."""
    return x[:, 2] + 2 * x[:, 0]


def curved(x):
    return x[:, 0] * x[:, 1] * x[:, 2] + x[:, 0] ** 2 * x[:, 1]


@pytest.mark.parametrize("measure", ["geh", "aeh"])
def test_the_variance_over_points_is_that_of_a_weighted_ratio(measure):
    """By its definition, from the influence of each point on the score; weights depend on the interaction."""
    x = random_points(80, 3)
    h, weights, labels = interactions_of(x.numpy()), np.exp(x[:, 2].numpy() / 2), np.arange(80) % 3
    result = explain_point(curved, x, groups=labels, sample_weight=weights)
    groups = labels if measure == "geh" else labels * 0
    shares = np.bincount(groups, weights * h) / weights.sum()
    influence = np.zeros(80)
    for group, share in enumerate(shares):
        influence += np.sign(share) * weights * (h * (groups == group) - share) / weights.sum()
    table = result.variance(measure)
    first = (table["unit_i"] == "x0") & (table["unit_j"] == "x1")
    assert table[first]["points"].item() == pytest.approx(80 / 79 * (influence**2).sum(), rel=1e-6)
    assert table[first]["mean"].item() == pytest.approx(np.abs(shares).sum(), rel=1e-6)


def test_points_that_are_clusters_of_one_have_the_same_errors():
    x, weights = random_points(300, 3), np.random.default_rng(0).exponential(size=300)
    options = {"groups": 3, "sample_weight": weights}
    independent = explain_point(curved, x, **options)
    clustered = explain_point(curved, x, clusters=np.arange(300), **options)
    np.testing.assert_allclose(clustered.point_errors, independent.point_errors, rtol=0.05)
    np.testing.assert_allclose(clustered.variance()["points"], independent.variance()["points"], rtol=0.05)


def test_errors_of_clusters_are_those_of_leaving_one_out():
    x, weights = random_points(60, 3), np.random.default_rng(0).exponential(size=60)
    clusters = np.arange(60) % 12
    result = explain_point(curved, x, groups=1, sample_weight=weights, clusters=clusters)
    h = interactions_of(x.numpy())
    left_out = [
        np.average(h[clusters != cluster], weights=weights[clusters != cluster]) - np.average(h, weights=weights)
        for cluster in range(12)
    ]
    assert result.point_errors[0, 0] == pytest.approx(np.sqrt(11 / 12 * np.square(left_out).sum()), rel=1e-6)


def test_the_interval_of_a_weighted_mean_covers_that_of_the_population():
    """Rows are sampled with probabilities that depend on the interaction, and weighted by their inverse."""
    covered = 0
    for seed in range(40):
        x = random_points(1500, 3, seed=seed)
        probability = 1 / (1 + torch.exp(-1.5 * x[:, 2])) / 2
        chosen = torch.rand(1500, generator=torch.Generator().manual_seed(1000 + seed)) < probability
        result = explain_point(curved, x[chosen], groups=1, sample_weight=1 / probability[chosen])
        low, high = result.regions(0, 1)[["low", "high"]].iloc[0]
        covered += low <= 0 <= high  # the mean of x2 + 2 x0
    assert covered >= 34  # 38 of 40 expected; fewer than 34 have probability 1 %
    unweighted = explain_point(curved, x[chosen], groups=1).regions(0, 1)
    assert unweighted["low"].item() > 0.2


def test_eah_of_a_sample_of_the_points_is_unbiased():
    model, x = mlp(40, 4, 4, 1, gain=2.0), random_points(50, 40)
    weights = np.exp(x[:, 0].numpy())
    posterior = geh.posterior.WeightSamples([model.state_dict()] * 200)
    options = {"sample_weight": weights, "engine": "structured"}
    complete = explain_point(model, x, **options)
    sampled = explain_draws(model, x, posterior=posterior, draws=200, eah_points=20, **options)
    with pytest.warns(geh.GEHWarning, match="measured on 20 of 50 points"):
        draws = sampled.eah.draws
    # EAH is at least GEH, which cuts the draws of pairs whose interactions have one sign at all points.
    free = complete.geh.pair_mean < 0.3 * complete.eah.pair_mean
    assert free.sum() > 20
    errors = draws.std(axis=0) / np.sqrt(200)
    ratio = (draws.mean(axis=0) - complete.eah.pair_mean) / errors
    assert np.abs(ratio[free]).max() < 4.5
    np.testing.assert_allclose(
        sampled.point_errors, complete.point_errors, rtol=0.1, atol=0.1 * complete.point_errors.max()
    )


def test_stein_estimates_the_weighted_score(monkeypatch):
    monkeypatch.setattr(stein_engine, "find_control", lambda *arguments: None)  # which would leave no noise
    x, weights = random_points(400, 3), integer_weights(400)
    result = explain_point(curved, x, engine=geh.engines.Stein(samples=40), sample_weight=weights)
    truth = np.average(interactions_of(x.numpy()), weights=weights)
    assert abs(result.signed[0, 0, 0] - truth) < 4 * result.noise[0, 0, 0] < 0.5


def test_neither_batches_nor_the_order_of_rows_matter():
    x, weights = random_points(90, 4), np.random.default_rng(0).exponential(size=90)
    order = np.random.default_rng(1).permutation(90)
    options = {"groups": 3, "draws": 5, "engine": "structured"}
    model = mlp(4, 8, 1, dropout=0.2)
    one = explain_draws(model, x, sample_weight=weights, **options)
    for other in (
        explain_draws(model, x, sample_weight=weights, batch_size=7, **options),
        explain_draws(model, x[order], sample_weight=pd.Series(weights[order]), **options),
        explain_draws(model, TensorDataset(x), sample_weight=torch.as_tensor(1e6 * weights), **options),
        explain_draws(model, DataLoader(TensorDataset(x), 11), sample_weight=weights.tolist(), **options),
    ):
        np.testing.assert_allclose(scores(other), scores(one), rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(other.point_errors, one.point_errors, rtol=1e-7)


def test_streamed_rows_of_weight_0_are_skipped():
    x, weights = random_points(40, 3, dtype=torch.float), integer_weights(40)
    loader = DataLoader(TensorDataset(x), 6)
    model = mlp(3, 8, 1, dtype=torch.float)
    streamed = explain_point(model, loader, groups=2, sample_weight=weights, memory=1e-6 * 200)
    in_memory = explain_point(model, x, groups=2, sample_weight=weights)
    np.testing.assert_allclose(streamed.geh.draws, in_memory.geh.draws, rtol=1e-5)
    np.testing.assert_array_equal(streamed.labels, in_memory.labels)


def test_groups_of_a_clusterer_are_weighted():
    from sklearn.cluster import AgglomerativeClustering, KMeans

    x, weights = random_points(60, 2), integer_weights(60)
    repeated = np.repeat(x.numpy(), weights, axis=0)
    start = repeated[[0, 9, 30]]
    found = explain_point(curved_pair, x, groups=KMeans(3, init=start, n_init=1), sample_weight=weights)
    expected = KMeans(3, init=start, n_init=1).fit(repeated).labels_
    np.testing.assert_array_equal(np.repeat(found.labels, weights), expected)
    plain = explain_point(curved_pair, x, groups=AgglomerativeClustering(3), sample_weight=weights)
    assert len(plain.group_names) == 3


def curved_pair(x):
    return (x[:, 0] * x[:, 1]) ** 2


def test_rows_of_the_strongest_pairs_are_searched_with_weights():
    model, x, weights = mlp(40, 30, 1, gain=2.0), random_points(60, 40), integer_weights(60)
    repeated = x.repeat_interleave(torch.as_tensor(weights), dim=0)
    for engine in ("exact", "structured"):
        options = {"rows": "auto", "engine": engine, "groups": 1, "posterior": None, "draws": 2}
        options["posterior"] = geh.posterior.WeightSamples([model.state_dict()] * 2)
        with pytest.warns(geh.GEHWarning, match="same scores"):
            weighted = explain_draws(model, x, sample_weight=weights, **options)
        with pytest.warns(geh.GEHWarning, match="same scores"):
            assert weighted.pairs == explain_draws(model, repeated, **options).pairs


def test_a_checkpoint_belongs_to_its_weights(tmp_path):
    x, weights = random_points(40, 3), np.random.default_rng(0).exponential(size=40)
    model = mlp(3, 8, 1, dropout=0.2)
    options = {"draws": 6, "groups": 2, "checkpoint": tmp_path}
    first = explain_draws(model, x, sample_weight=weights, **options)
    again = explain_draws(model, x, sample_weight=4 * weights, **options)
    np.testing.assert_array_equal(scores(first), scores(again))
    np.testing.assert_array_equal(first.point_errors, again.point_errors)
    for other in (weights[::-1].copy(), None):
        with pytest.raises(GEHValueError, match="another sample_weight"):
            explain_draws(model, x, sample_weight=other, **options)
    with pytest.raises(GEHValueError, match="another"):
        explain_draws(model, x, sample_weight=np.where(np.arange(40) < 5, 0, weights), **options)


@pytest.mark.parametrize("clusters", [None, np.arange(40) % 11])
def test_a_saved_result_keeps_its_weights(tmp_path, clusters):
    weights = integer_weights(40)
    result = explain_draws(
        mlp(3, 8, 1, dropout=0.2), random_points(40, 3), groups=2, sample_weight=weights, clusters=clusters
    )
    loaded = geh.Interactions.load(result.save(tmp_path / "result"))
    assert loaded.table().equals(result.table())
    assert loaded.regions(0, 1).equals(result.regions(0, 1))
    assert loaded.variance().equals(result.variance())
    assert loaded.main.table().equals(result.main.table())
    np.testing.assert_array_equal(loaded.sample_weight, result.sample_weight)
    np.testing.assert_array_equal(loaded.sizes, result.sizes)
    assert repr(loaded) == repr(result)
    assert "with case weights" in repr(result)
    assert "with case weights" in result.report(tmp_path / "page.html").read_text()


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
def test_an_ensemble_of_one_kinked_network_is_the_network():
    model, x = mlp(4, 20, 1, activation=nn.ReLU), random_points(60, 4)
    weights = np.where(x[:, 0] > 0, 20.0, 1.0)  # the standard deviations of the units set the sharpness
    single = explain_point(model, x, sample_weight=weights)
    member = explain_draws(model, x, posterior=geh.posterior.Ensemble([model]), draws=1, sample_weight=weights)
    np.testing.assert_allclose(member.signed, single.signed, rtol=1e-12)


def test_moments_of_draws_are_weighted():
    model, x, weights = mlp(12, 6, 1, dropout=0.2), random_points(30, 12), integer_weights(30)
    kept = explain_draws(model, x, groups=2, draws=30, sample_weight=weights)
    moments = explain_draws(model, x, groups=2, draws=30, sample_weight=weights, memory=2e-5)
    assert not moments.record.draws_kept
    np.testing.assert_allclose(moments.geh.pair_mean, kept.geh.pair_mean, rtol=1e-9)
    np.testing.assert_allclose(moments.main.mean, kept.main.mean, rtol=1e-9)


BAD = {
    "a name": ("weight", GEHTypeError, "frame\\['weight'\\]"),
    "a number": (1.0, GEHValueError, "shape \\(\\)"),
    "text": (["a"] * 20, GEHTypeError, "without numbers"),
    "too few": (np.ones(19), GEHValueError, "shape \\(19,\\); give one number for each of the 20 rows"),
    "a column": (np.ones((20, 1)), GEHValueError, "shape \\(20, 1\\)"),
    "negative": (
        [1.0] * 19 + [-2.0],
        GEHValueError,
        "1 of 20 weights are negative \\(the first is -2, of row 19\\)",
    ),
    "missing": ([1.0] * 18 + [np.nan, None], GEHValueError, "2 of 20 weights are missing"),
    "infinite": ([np.inf] * 20, GEHValueError, "20 of 20"),
    "all 0": (np.zeros(20), GEHValueError, "all 20 weights are 0"),
    "masked": (np.ma.masked_equal(np.arange(20.0), 3.0), GEHValueError, "masked"),
    "ragged": ([[1], [1, 2]], GEHTypeError, "without numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_weights_that_cannot_be_right_are_refused(name):
    weights, error, message = BAD[name]
    with pytest.raises(error, match=message) as raised:
        explain_point(curved, random_points(20, 3), sample_weight=weights)
    assert "sample_weight" in str(raised.value)


def test_weights_of_a_loader_without_order_are_refused():
    data = TensorDataset(random_points(20, 3))
    loader = DataLoader(data, 4, sampler=RandomSampler(data, replacement=True, num_samples=20))
    with pytest.raises(GEHValueError, match="sample_weight has one entry per row, but the loader"):
        explain_point(curved, loader, sample_weight=np.ones(20))


def test_labels_are_checked_before_rows_are_left_out():
    weights = np.arange(20)
    with pytest.raises(GEHValueError, match="each of the 20 points"):
        explain_point(curved, random_points(20, 3), groups=np.arange(19), sample_weight=weights)


def test_triples_are_weighted():
    """The third derivative of x0 x1 x2 x3 in x0, x1 and x2 is x3."""
    x, weights = random_points(50, 4), integer_weights(50)
    explainer = point_explainer(lambda x: x.prod(dim=1))
    result = explainer.explain(x, groups=1, sample_weight=weights, progress=False)
    triples = result.triples(pairs=6, progress=False)
    found = triples[(triples[["unit_i", "unit_j", "unit_k"]] != "x3").all(axis=1)]["mean"].item()
    assert found == pytest.approx(abs(np.average(x[:, 3], weights=weights)), rel=1e-6)
    pd.testing.assert_frame_equal(explainer.triples(result, x, pairs=6, progress=False), triples)


def test_other_methods_take_a_weighted_result():
    x, weights = random_points(60, 3, dtype=torch.float), integer_weights(60)
    explainer = point_explainer(mlp(3, 12, 1, activation=torch.nn.ReLU, dtype=torch.float))
    result = explainer.explain(x, groups=2, sample_weight=weights, progress=False)
    surface = explainer.surface(x, pair=(0, 1), result=result, grid=4, points=10, progress=False)
    np.testing.assert_array_equal(surface.labels, result.labels)
    surface.plot()
    table = explainer.stability(result, x, pairs=2, progress=False)
    assert table["score"].tolist() == pytest.approx(result.top(2)["mean"].tolist(), rel=1e-4)
