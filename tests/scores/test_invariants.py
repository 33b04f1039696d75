"""Invariants of the three measures, for random networks, data and groupings."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from explaining import explain_point, random_points
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import geh_explain as geh

CLOSE = 1e-10
MEASURES = ("aeh", "geh", "eah")

#: The same examples on every run.
fixed = settings(derandomize=True, deadline=None, max_examples=15, database=None)

seeds = st.integers(0, 10_000)
widths = st.integers(2, 5)


def quiet(model: Any, x: Tensor, groups: int, **options: Any) -> geh.Interactions:
    """Explain with groups found by the package, of which some may hold a single point."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="groups: ", category=geh.GEHWarning)
        return explain_point(model, x, groups=groups, **options)


def network(features: int, seed: int, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(features, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 6), nn.Softplus(), nn.Linear(6, 1)
    ).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2.0)
    return net


def labels(rows: int, groups: int, seed: int) -> np.ndarray:
    """Random labels, each at least twice."""
    drawn = np.random.default_rng(seed).integers(0, groups, rows)
    drawn[: 2 * groups] = np.repeat(np.arange(groups), 2)
    return drawn


def assert_same(one: geh.Interactions, other: geh.Interactions, close: float = CLOSE) -> None:
    for name in MEASURES:
        np.testing.assert_allclose(getattr(one, name).draws, getattr(other, name).draws, rtol=close, atol=close)


def assert_identical(one: geh.Interactions, other: geh.Interactions) -> None:
    np.testing.assert_array_equal(one.signed, other.signed)
    np.testing.assert_array_equal(one.absolute, other.absolute)
    np.testing.assert_array_equal(one.labels, other.labels)


# Groups.


@fixed
@given(features=widths, rows=st.integers(10, 30), groups=st.integers(1, 5), seed=seeds)
def test_aeh_is_at_most_geh_and_geh_at_most_eah(features: int, rows: int, groups: int, seed: int) -> None:
    net, x = network(features, seed), random_points(rows, features, seed=seed)
    for result in (explain_point(net, x, groups=labels(rows, groups, seed)), quiet(net, x, groups)):
        assert (result.aeh.draws <= result.geh.draws + 1e-12).all()
        assert (result.geh.draws <= result.eah.draws + 1e-12).all()


@fixed
@given(features=widths, rows=st.integers(2, 12), seed=seeds)
def test_one_group_is_aeh_and_a_group_per_point_is_eah(features: int, rows: int, seed: int) -> None:
    net, x = network(features, seed), random_points(rows, features, seed=seed)
    one, each = explain_point(net, x, groups=1), explain_point(net, x, groups=rows)
    np.testing.assert_allclose(one.geh.draws, one.aeh.draws, rtol=0, atol=1e-14)
    np.testing.assert_allclose(each.geh.draws, each.eah.draws, rtol=0, atol=1e-14)
    np.testing.assert_allclose(one.eah.draws, each.eah.draws, rtol=0, atol=1e-14)
    np.testing.assert_allclose(one.aeh.draws, each.aeh.draws, rtol=0, atol=1e-14)


@fixed
@given(features=widths, coarse=st.integers(1, 4), parts=st.integers(2, 3), seed=seeds)
def test_refining_a_grouping_never_lowers_geh(features: int, coarse: int, parts: int, seed: int) -> None:
    rows = 40
    net, x = network(features, seed), random_points(rows, features, seed=seed)
    few = labels(rows, coarse, seed)
    many = few * parts + np.random.default_rng(seed).integers(0, parts, rows)
    assume(np.bincount(many)[np.unique(many)].min() > 1)
    rough, fine = explain_point(net, x, groups=few), explain_point(net, x, groups=many)
    assert (rough.geh.draws <= fine.geh.draws + 1e-12).all()


@fixed
@given(features=widths, seed=seeds)
def test_more_groups_never_lower_geh(features: int, seed: int) -> None:
    explainer = geh.GEHExplainer(network(features, seed), posterior=geh.posterior.PointEstimate())
    scores = explainer.choose_groups(random_points(25, features, seed=seed), max_groups=25, progress=False).scores
    assert len(scores) == 25
    assert (np.diff(scores, axis=0) >= -1e-12).all()


@fixed
@given(features=widths, groups=st.integers(1, 4), seed=seeds)
def test_the_names_of_the_groups_do_not_matter(features: int, groups: int, seed: int) -> None:
    net, x = network(features, seed), random_points(20, features, seed=seed)
    given_labels = labels(20, groups, seed)
    words = np.array(["d", "c", "b", "a"])[given_labels]
    assert_same(explain_point(net, x, groups=given_labels), explain_point(net, x, groups=words), 1e-14)


# Units.


@fixed
@given(features=widths, seed=seeds)
def test_every_matrix_is_symmetric_with_a_zero_diagonal(features: int, seed: int) -> None:
    net, x = network(features, seed, dropout=0.3), random_points(20, features, seed=seed)
    result = geh.GEHExplainer(net).explain(x, groups=1, draws=3, progress=False)
    for name in MEASURES:
        scores = getattr(result, name)
        for matrix in (scores.mean, scores.std, *scores.interval(), *scores.interval(kind="quantile")):
            assert matrix.shape == (features, features)
            np.testing.assert_array_equal(matrix, matrix.T)
            np.testing.assert_array_equal(np.diag(matrix), 0)


@fixed
@given(features=widths, seed=seeds, data=st.data())
def test_permuting_the_columns_permutes_the_pairs(features: int, seed: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(features)))
    net, x = network(features, seed), random_points(20, features, seed=seed)
    back = np.argsort(order)
    straight = quiet(net, x, 3)
    permuted = quiet(lambda x: net(x[:, back]), x[:, order], 3)
    for name in MEASURES:
        expected = getattr(straight, name).mean[np.ix_(order, order)]
        np.testing.assert_allclose(getattr(permuted, name).mean, expected, rtol=0, atol=CLOSE)


@fixed
@given(features=widths, seed=seeds, size=st.floats(0.01, 100), negative=st.booleans(), data=st.data())
def test_scaling_a_column_divides_its_pairs(
    features: int, seed: int, size: float, negative: bool, data: st.DataObject
) -> None:
    column = data.draw(st.integers(0, features - 1))
    net, x = network(features, seed), random_points(20, features, seed=seed)
    units = torch.ones(features, dtype=torch.double)
    units[column] = -size if negative else size
    plain = quiet(net, x, 3)
    scaled = quiet(lambda x: net(x / units), x * units, 3)
    factors = np.ones((features, features))
    factors[column, :] = factors[:, column] = 1 / size
    for name in MEASURES:
        np.testing.assert_allclose(getattr(scaled, name).mean, getattr(plain, name).mean * factors, rtol=1e-9, atol=0)


@fixed
@given(features=widths, seed=seeds, size=st.floats(0.01, 100))
def test_scaling_by_std_makes_units_of_measure_irrelevant(features: int, seed: int, size: float) -> None:
    net, x = network(features, seed), random_points(20, features, seed=seed)
    assert_same(
        explain_point(net, x, groups=1, scale="std"),
        explain_point(lambda x: net(x / size), x * size, groups=1, scale="std"),
    )


@fixed
@given(features=widths, seed=seeds, factor=st.floats(-5, 5))
def test_interactions_are_linear_in_the_function(features: int, seed: int, factor: float) -> None:
    assume(abs(factor) > 1e-3)
    net, x = network(features, seed), random_points(20, features, seed=seed)
    plain = explain_point(net, x, groups=1)
    changed = explain_point(lambda x: factor * net(x)[:, 0] + x.sum(dim=1) - 7, x, groups=1)
    np.testing.assert_allclose(changed.geh.draws, abs(factor) * plain.geh.draws, rtol=0, atol=CLOSE)


def test_draws_list_the_pairs_row_by_row() -> None:
    class Pairs(nn.Module):
        """Interactions 1 (0,1), 2 (0,2), 3 (0,3), 12 (1,2), 13 (1,3), 23 (2,3), times a weight."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(1.0))

        def forward(self, x: Tensor) -> Tensor:
            total = sum((10 * i + j) * x[:, i] * x[:, j] for i in range(4) for j in range(i + 1, 4))
            return self.weight * total

    samples = geh.posterior.WeightSamples([{"weight": torch.tensor(float(k))} for k in (1, -2, 4)])
    explainer = geh.GEHExplainer(Pairs(), posterior=samples)
    result = explainer.explain(torch.rand(6, 4), groups=1, progress=False)
    by_hand = np.outer([1, 2, 4], [1, 2, 3, 12, 13, 23])
    for name in MEASURES:
        np.testing.assert_allclose(getattr(result, name).draws, by_hand, rtol=1e-6)
    np.testing.assert_allclose(result.signed[:, 0], by_hand * [[1], [-1], [1]], rtol=1e-6)
    np.testing.assert_allclose(result.geh.mean[1], [7 / 3, 0, 7 / 3 * 12, 7 / 3 * 13], rtol=1e-6)
    np.testing.assert_allclose(result.geh.std[2, 3], 23 * np.std([1, 2, 4], ddof=1), rtol=1e-6)


# How the work is done does not matter.


@fixed
@given(features=widths, rows=st.integers(8, 20), seed=seeds)
def test_the_batch_size_does_not_matter(features: int, rows: int, seed: int) -> None:
    net, x = network(features, seed), random_points(rows, features, seed=seed)
    complete = quiet(net, x, 3)
    for batch_size in (1, 2, 7):
        pieces = quiet(net, x, 3, batch_size=batch_size)
        np.testing.assert_array_equal(pieces.labels, complete.labels)
        assert_same(pieces, complete)


@pytest.mark.parametrize("layer", [None, "0"])
def test_the_batch_size_does_not_matter_with_dropout_and_images(layer: str | None) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 2), nn.Tanh(), nn.Dropout2d(0.3), nn.Flatten(), nn.Dropout(0.3), nn.Linear(12, 4), nn.Softplus()
    )
    net = nn.Sequential(*net, nn.Linear(4, 2)).double()
    x = random_points(11, 9, seed=0).reshape(11, 1, 3, 3)
    explainer = geh.GEHExplainer(net, layer)
    groups = np.arange(11) % 3
    complete = explainer.explain(x, 1, groups=groups, draws=3, scale="std", progress=False)
    for batch_size in (1, 2, 7):
        pieces = explainer.explain(x, 1, groups=groups, draws=3, scale="std", batch_size=batch_size, progress=False)
        assert_same(pieces, complete)
    assert complete.eah.std.max() > 1e-4


@fixed
@given(features=widths, seed=seeds)
def test_the_order_of_the_rows_does_not_matter(features: int, seed: int) -> None:
    net, x = network(features, seed), random_points(20, features, seed=seed)
    order = np.random.default_rng(seed).permutation(20)
    assert_same(quiet(net, x[order], 3), quiet(net, x, 3))


@pytest.mark.parametrize("features", [2, 3, 5])
def test_the_numbers_of_the_groups_do_not_depend_on_the_order_of_the_rows(features: int) -> None:
    # With two standardised columns the entries of the principal axis are equal up to sign, and rounding.
    net, x = network(features, 0), random_points(20, features, seed=0)
    straight = quiet(net, x, 3).labels
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(20)
        np.testing.assert_array_equal(quiet(net, x[order], 3).labels, straight[order])


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_the_rows_of_a_full_factorial_design_does_not_matter(seed: int) -> None:
    # All columns are uncorrelated, so that no axis is more principal than another.
    levels = torch.tensor([0.1, 0.3, 0.7, 0.9], dtype=torch.double)
    x = torch.cartesian_prod(levels, levels, levels)
    order = np.random.default_rng(seed).permutation(64)

    def function(x: Tensor) -> Tensor:
        return torch.sin(3 * x[:, 0] * x[:, 1]) + x[:, 1] ** 2 * x[:, 2]

    assert_same(explain_point(function, x[order], groups=3), explain_point(function, x, groups=3))


@fixed
@given(seed=seeds)
def test_points_that_occur_twice_count_twice(seed: int) -> None:
    net, x = network(3, seed), random_points(12, 3, seed=seed)
    for grouping in (1, labels(12, 3, seed)):
        twice = grouping if isinstance(grouping, int) else np.concatenate([grouping, grouping])
        assert_same(explain_point(net, torch.cat([x, x]), groups=twice), explain_point(net, x, groups=grouping))


# Draws.


@fixed
@given(features=widths, seed=seeds)
def test_the_first_draws_are_the_same_however_many_follow(features: int, seed: int) -> None:
    net, x = network(features, seed, dropout=0.3), random_points(12, features, seed=seed)
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.MCDropout())
    few = explainer.explain(x, groups=1, draws=5, seed=seed, progress=False)
    many = explainer.explain(x, groups=1, draws=10, seed=seed, progress=False)
    assert few.geh.draws.shape == (5, features * (features - 1) // 2)
    for name in MEASURES:
        np.testing.assert_array_equal(getattr(many, name).draws[:5], getattr(few, name).draws)


@fixed
@given(features=widths, seed=seeds)
def test_the_same_seed_gives_the_same_result_and_another_seed_another(features: int, seed: int) -> None:
    net, x = network(features, seed, dropout=0.3), random_points(12, features, seed=seed)
    explainer = geh.GEHExplainer(net)
    groups = labels(12, 3, seed)
    first, again, other = (
        explainer.explain(x, groups=groups, draws=4, seed=given_seed, progress=False)
        for given_seed in (seed, seed, seed + 1)
    )
    assert_identical(first, again)
    assert not np.array_equal(first.geh.draws, other.geh.draws)


def test_the_global_random_state_neither_matters_nor_moves() -> None:
    net, x = network(3, 0, dropout=0.3), random_points(12, 3, seed=0)
    results = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        results.append(geh.GEHExplainer(net).explain(x, groups=1, draws=4, progress=False))
        assert torch.equal(torch.get_rng_state(), before)
    assert_identical(*results)


def test_one_draw_is_one_network_for_all_rows() -> None:
    # With one mask for all rows, each row explained alone has the draws it has among others.
    net, x = network(3, 0, dropout=0.5), random_points(6, 3, seed=0)
    explainer = geh.GEHExplainer(net)
    together = explainer.explain(x, groups=np.arange(6), draws=8, progress=False)
    for row in range(6):
        alone = explainer.explain(x[row : row + 1], groups=1, draws=8, progress=False)
        np.testing.assert_allclose(together.signed[:, row], alone.signed[:, 0], rtol=0, atol=CLOSE)
