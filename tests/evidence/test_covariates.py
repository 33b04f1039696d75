"""What rows contain beside the units: found, reduced, and accounted for by the held-out test."""

import numpy as np
import pytest
import torch

import geh_explain as geh
from geh_explain.evidence.covariates import Covariates, read_covariates
from geh_explain.evidence.nuisance import choose_with_covariates
from geh_explain.evidence.pair_functions import _rows_per_call
from geh_explain.run.setup import ModelSetup

POINT = geh.posterior.PointEstimate()


def covariates_of(model, x, units, arguments=None):
    explainer = geh.GEHExplainer(model, posterior=POINT, units=units)
    setup: ModelSetup = explainer._setup
    points, cut = setup.read(torch.as_tensor(x), None, arguments)
    return read_covariates(cut, points, None)


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(40, 5))


def test_all_features_as_units_leave_nothing(x):
    found = covariates_of(lambda x: x.sum(dim=1), x, None)
    assert found.count == found.members.shape[1] == 0


def test_features_that_are_no_units_are_covariates(x):
    found = covariates_of(lambda x: x.sum(dim=1), x, geh.units.Subset([0, 3]))
    expected = x[:, [1, 2, 4]]
    np.testing.assert_allclose(found.columns, (expected - expected.mean(axis=0)) / expected.std(axis=0), atol=1e-12)
    assert found.members.shape[1] == 0


def test_groups_leave_the_differences_of_their_members(x):
    found = covariates_of(lambda x: x.sum(dim=1), x, geh.units.FeatureGroups({"a": [0, 1], "b": [2, 3]}))
    difference = x[:, 0] - x[:, 1]
    # Both members of a group have the same difference from its mean, with opposite signs: one of them is kept. The
    # fifth feature is left.
    correlations = np.abs(np.corrcoef(np.column_stack([difference, found.columns]).T)[0, 1:])
    assert correlations.max() == pytest.approx(1, abs=1e-9)
    assert found.count == 3
    np.testing.assert_allclose(found.members, x[:, :4])


def test_arguments_of_rows_are_covariates(x):
    dose = torch.arange(40.0)
    found = covariates_of(lambda x, dose, power: x.sum(dim=1) + dose**power, x.astype("f"), None, (dose, 2))
    assert found.count == 1
    assert abs(np.corrcoef(found.columns[:, 0], dose)[0, 1]) == pytest.approx(1)


def test_many_covariates_become_principal_components():
    generator = np.random.default_rng(0)
    sources = generator.normal(size=(200, 2))
    columns = sources @ generator.normal(size=(2, 500))
    reduced = Covariates(columns / columns.std(axis=0), columns[:, :0]).reduced(2)
    assert reduced.share == pytest.approx(1)
    # The components span the two sources.
    _, residuals, *_ = np.linalg.lstsq(reduced.columns, sources - sources.mean(axis=0), rcond=None)
    assert residuals.max() < 1e-16 * 200 * 200
    assert Covariates(columns, columns[:, :0]).reduced(1).share < 0.9


def test_more_rows_allow_more_covariates():
    counts = [choose_with_covariates(rows, 8, 500)[1] for rows in (300, 1000, 3000)]
    assert 0 < counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("rows", [300, 1000, 3000, 20_000])
@pytest.mark.parametrize("covariates", [1, 8, 60, 500])
def test_columns_of_covariates_are_at_most_their_share_of_the_rows(rows, covariates):
    degrees, count = choose_with_covariates(rows, 6, covariates)
    assert 0 < count <= covariates
    assert degrees.n_columns(6, count) <= 0.3 * rows


def test_units_keep_their_main_effects_beside_many_covariates():
    """With 1,000 rows main effects of four units had degree 3 of ranks beside 60 covariates, and none of values."""
    degrees, count = choose_with_covariates(1000, 4, 60)
    assert (degrees.ranks, degrees.values, degrees.covariates) == (5, 3, 1)
    assert 50 < count <= 60


def left_out(seed, rows=1000):
    """Return rows whose left-out features have effects that the model misses, and the model."""
    generator = np.random.default_rng(seed)
    common = generator.normal(size=(rows, 1))
    x = 0.6 * common + 0.8 * generator.normal(size=(rows, 6))
    y = x[:, 0] + x[:, 1] + 0.8 * x[:, 3] ** 2 + 0.6 * x[:, 4] * x[:, 5] + generator.normal(size=rows)
    return x, y, lambda x: x[:, 0] + x[:, 1] + 0.2 * x[:, 0] * x[:, 1] + 0.1 * x[:, 0] * x[:, 2]


def grouped(seed, rows=1000):
    """Return rows with additive effects of features of unequal scales, and a model with a wrong product of groups."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 4)) * np.array([2, 0.5, 2, 0.5])
    y = x[:, 0] - x[:, 1] + 0.5 * x[:, 2] + generator.normal(size=rows)
    return x, y, lambda x: x[:, 0] - x[:, 1] + 0.5 * x[:, 2] + 0.5 * x[:, 0] * x[:, 2]


@pytest.mark.filterwarnings("ignore:evidence. the outputs explain none")
@pytest.mark.parametrize(
    ("make", "units"),
    [(left_out, geh.units.Subset([0, 1, 2])), (grouped, geh.units.FeatureGroups({"a": [0, 1], "b": [2, 3]}))],
)
def test_the_level_holds_where_units_do_not_determine_the_rows(make, units):
    """Without covariates about a third of the pairs of the first design, and all of the second, are found."""
    p_values = []
    for seed in range(30):
        x, y, model = make(seed)
        explainer = geh.GEHExplainer(model, posterior=POINT, units=units)
        evidence = explainer.test_pairs(torch.as_tensor(x), y, progress=False)
        p_values.append(evidence.p_value[~np.isnan(evidence.slope)])
    found = np.concatenate(p_values) < 0.05
    assert len(found) >= 30
    assert found.mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(found))


def test_too_few_rows_for_what_units_leave_are_warned_of():
    generator = np.random.default_rng(0)
    maps = torch.as_tensor(generator.normal(size=(400, 3, 12, 12)))

    def model(x):
        return x.mean(dim=(2, 3)).prod(dim=1) + x[:, 0, 0, 0]

    y = model(maps).numpy() + generator.normal(size=400)
    explainer = geh.GEHExplainer(model, posterior=POINT, units=geh.units.Channels(dim=1))
    with pytest.warns(geh.GEHWarning, match="principal components with .* of its variance"):
        explainer.test_pairs(maps, y, progress=False)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_a_rare_flag_is_a_covariate_whatever_the_order_of_rows_and_the_scale_of_others(scale):
    """The flag is 0 in the first rows, and tiny beside an income in cents."""
    generator = np.random.default_rng(0)
    x = np.column_stack([generator.normal(size=(200, 2)), np.repeat([0.0, 1.0], [150, 50]), generator.normal(size=200)])
    x[:, 3] *= scale
    found = covariates_of(lambda x: x[:, 0] * x[:, 1], x, geh.units.Subset([0, 1]))
    assert found.count == 2
    assert abs(np.corrcoef(found.columns[:, 0], x[:, 2])[0, 1]) == pytest.approx(1)


def test_large_layers_become_random_sums(monkeypatch):
    """Distances between rows are retained on average, and no numbers of the layer are held."""
    x = np.random.default_rng(0).normal(size=(30, 3, 40, 40))
    exact = covariates_of(lambda x: x.sum(dim=(1, 2, 3)), x, geh.units.Channels(dim=1))
    monkeypatch.setattr("geh_explain.evidence.covariates._MAX_NUMBERS", 1000)
    sums = covariates_of(lambda x: x.sum(dim=(1, 2, 3)), x, geh.units.Channels(dim=1))
    assert (exact.count, sums.count, sums.members.shape[1]) == (3 * 1600, 256, 0)
    grams = [columns @ columns.T / columns.shape[1] for columns in (exact.columns, sums.columns)]
    assert np.abs(grams[0] - grams[1]).max() < 0.5
    assert np.abs(np.diagonal(grams[1]) - 1).mean() < 0.15


def test_rows_of_one_call_fall_with_the_size_of_feature_maps():
    explainer = geh.GEHExplainer(lambda x: x.sum(dim=(1, 2, 3)), posterior=POINT, units=geh.units.Channels(dim=1))
    rows = []
    for size in (4, 128):
        points, cut = explainer._setup.read(torch.zeros(2, 64, size, size), None, None)
        rows.append(_rows_per_call(cut, points))
    assert rows == [8192, 2**25 // (64 * 128 * 128)]


def within_patches(seed, rows=600):
    """Return images whose two halves have curved effects of their means, and a model with a product of the halves."""
    generator = np.random.default_rng(seed)
    image = generator.normal(size=(rows, 1, 4, 8))
    image[..., 1:] += 0.5 * image[..., :-1]
    image[:, :, 1:] += 0.5 * image[:, :, :-1]
    image += 0.5 * generator.normal(size=(rows, 1, 1, 1))
    left, right = image[..., :4].mean(axis=(1, 2, 3)), image[..., 4:].mean(axis=(1, 2, 3))
    y = 3 * left**2 + 3 * np.abs(right) + 0.3 * generator.normal(size=rows)
    return image, y, lambda x: x[..., :4].mean(dim=(1, 2, 3)) * x[..., 4:].mean(dim=(1, 2, 3))


@pytest.mark.filterwarnings("ignore:evidence. the outputs explain none")
def test_curved_main_effects_of_patches_are_no_interaction():
    """With the columns of the units as poor as those of 32 pixels, all 25 pairs are found."""
    p_values = []
    for seed in range(25):
        image, y, model = within_patches(seed)
        explainer = geh.GEHExplainer(model, posterior=POINT, units=geh.units.Patches(4))
        evidence = explainer.test_pairs(torch.as_tensor(image), y, progress=False)
        p_values.append(evidence.p_value[~np.isnan(evidence.slope)])
    found = np.concatenate(p_values) < 0.05
    assert len(found) >= 20
    assert found.mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(found))
