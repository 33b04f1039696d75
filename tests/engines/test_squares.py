"""Sums of squares: all engines give the variance over points of the interactions by plain double backward."""

import numpy as np
import pytest
import torch
from explaining import explain_draws, explain_point, explain_point_quietly, random_points
from networks import mlp
from reference import local_hessians

import geh_explain as geh
from geh_explain.engines.stein import engine as stein_engine
from geh_explain.engines.sums import GroupSums, add_by_group
from geh_explain.posterior import MCDropout
from geh_explain.posterior.protocols import seed_of_draw

pytestmark = pytest.mark.usefixtures("seeded")


def multilinear(x):
    """Mixed differences of it are its second derivatives, whatever the steps."""
    return x[:, 0] * x[:, 1] * (1 + x[:, 2]) - 2 * x[:, 2] * x[:, 3]


def local_pairs(f, x):
    """Return the local interactions (n, P) of all pairs."""
    i, j = np.triu_indices(x.shape[1], 1)
    return local_hessians(f, x)[:, i, j]


def expected_errors(local, labels, visited=None):
    """Return the standard errors (M, P) of group means; the variance is that of the ``visited`` points."""
    visited = np.ones(len(local), dtype=bool) if visited is None else visited
    errors = []
    for group in range(labels.max() + 1):
        inside = local[(labels == group) & visited]
        variance = inside.var(axis=0, ddof=1) if len(inside) > 1 else np.full(local.shape[1], np.nan)
        errors.append(np.sqrt(variance / (labels == group).sum()))
    return np.array(errors)


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("engine", ["structured", "exact", "difference"])
def test_engines_give_the_standard_error_of_each_group(engine, batch_size):
    x, labels = random_points(40, 4), np.arange(40) % 3
    result = explain_point(multilinear, x, engine=engine, groups=labels, batch_size=batch_size)
    assert result.settings["engine"] == engine
    expected = expected_errors(local_pairs(multilinear, x), labels)
    # The pair of units 2 and 3 has the interaction -2 everywhere: its error is the root of rounding errors.
    np.testing.assert_allclose(result.point_errors, expected, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize(("inputs", "hidden"), [(5, (8, 8)), (30, (6,))], ids=["at the units", "pulled back"])
@pytest.mark.parametrize("engine", ["structured", "exact"])
def test_networks_have_the_same_standard_errors_by_double_backward(engine, inputs, hidden):
    net, x, labels = mlp(inputs, *hidden, 1), random_points(90, inputs), np.arange(90) % 4
    result = explain_point(net, x, engine=engine, groups=labels)
    assert result.settings["engine"] == engine
    expected = expected_errors(local_pairs(lambda x: net(x)[:, 0], x), labels)
    np.testing.assert_allclose(result.point_errors, expected, rtol=1e-6, atol=1e-9 * expected.max())


def test_more_units_than_a_block_of_the_pull_back_holds():
    net, x, labels = mlp(300, 4, 1), random_points(70, 300), np.arange(70) % 2
    pulled, plain = (explain_point(net, x, engine=engine, groups=labels) for engine in ("structured", "exact"))
    assert pulled.settings["engine"] == "structured"
    np.testing.assert_allclose(pulled.point_errors, plain.point_errors, rtol=1e-6, atol=1e-9 * plain.point_errors.max())


def test_a_sample_of_the_points_gives_the_variance():
    net, x = mlp(30, 6, 1), random_points(60, 30)
    labels = np.array([0] * 30 + [1] * 28 + [2] * 2)
    result = explain_point(net, x, engine="structured", groups=labels, eah_points=12)
    visited = np.zeros(60, dtype=bool)
    visited[np.random.default_rng(seed_of_draw(0, 0)).choice(60, 12, replace=False)] = True
    assert visited[labels == 2].sum() < 2 <= min(visited[labels == 0].sum(), visited[labels == 1].sum())
    expected = expected_errors(local_pairs(lambda x: net(x)[:, 0], x), labels, visited)
    np.testing.assert_allclose(result.point_errors, expected, rtol=1e-6, atol=1e-9 * np.nanmax(expected))


@pytest.mark.parametrize("engine", ["structured", "exact"])
def test_no_interactions_have_no_error(engine):
    result = explain_point_quietly(torch.nn.Linear(3, 1), torch.randn(10, 3), engine=engine, groups=2)
    np.testing.assert_array_equal(result.point_errors, np.zeros((2, 3)))


def test_the_variance_over_points_contains_the_noise_of_stein(monkeypatch):
    """The interaction is 1 everywhere, so that all variance is noise, whose standard error the engine knows."""
    x = random_points(400, 2)
    monkeypatch.setattr(stein_engine, "find_control", lambda *arguments: None)  # which would leave no noise
    result = explain_point(lambda x: x[:, 0] * x[:, 1], x, engine=geh.engines.Stein(samples=20))
    np.testing.assert_allclose(result.point_errors, result.noise[0], rtol=0.1)


@pytest.mark.parametrize("engine", ["structured", "exact"])
def test_draws_at_once_have_the_errors_of_single_draws(engine):
    net, x = mlp(4, 8, 1, dropout=0.3), random_points(30, 4)
    at_once, single = (
        explain_draws(net, x, engine=engine, groups=2, draws=10, posterior=MCDropout(), batch_size=batch_size)
        for batch_size in (None, 30)
    )
    np.testing.assert_allclose(at_once.point_errors, single.point_errors, rtol=1e-9, atol=1e-12)
    # Later draws do not count: the first four decide.
    four = explain_draws(net, x, engine=engine, groups=2, draws=4, posterior=MCDropout())
    np.testing.assert_allclose(at_once.point_errors, four.point_errors, rtol=1e-9, atol=1e-12)
    one = explain_draws(net, x, engine=engine, groups=2, draws=1, posterior=MCDropout())
    assert np.abs(one.point_errors - four.point_errors).max() > 0.01 * four.point_errors.max()


# Engines of a user's own


class Products(geh.engines.Engine):
    """Returns x_i x_j as the interaction of units i and j, by ``GroupSums.add`` or directly."""

    name = "products"

    def __init__(self, direct: bool) -> None:
        self.direct = direct

    def start(self, cut, limits):
        return ProductsRun(self, cut, limits)


class ProductsRun(geh.engines.EngineRun):
    def chunk_rows(self, rows):
        return 7

    def add(self, sums, rows, labels):
        i, j = np.triu_indices(self.cut.n_units, 1)
        x = self.cut.activations(rows)
        members = sums.one_hot(labels, self.cut.device)
        if self.engine.direct:
            sums.signed += members @ (x[:, i] * x[:, j])
            sums.absolute += (x[:, i] * x[:, j]).abs().sum(0)
        else:
            for start in range(0, len(i), 2):  # in blocks of pairs
                pairs = slice(start, start + 2)
                sums.add(start, x[:, i[pairs]] * x[:, j[pairs]], members)


def test_an_engine_that_calls_add_has_point_errors():
    x, labels = random_points(30, 3), np.arange(30) % 2
    result = explain_point(lambda x: x.sum(1), x, engine=Products(direct=False), groups=labels)
    expected = expected_errors(np.stack([x[:, 0] * x[:, 1], x[:, 0] * x[:, 2], x[:, 1] * x[:, 2]], axis=1), labels)
    np.testing.assert_allclose(result.point_errors, expected, rtol=1e-9)


def test_an_engine_that_adds_no_squares_has_unknown_point_errors():
    result = explain_point(lambda x: x.sum(1), random_points(30, 3), engine=Products(direct=True), groups=2)
    assert np.isnan(result.point_errors).all()
    assert (result.geh.draws > 0).all()


# Sums


def test_squares_are_kept_for_the_first_draws_only():
    sums = GroupSums.zeros(groups=2, units=2, draws=3, squared=2)
    local = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]])  # two points in each of three draws
    sums.add(0, local, torch.eye(2, dtype=torch.double))
    assert sums.squares.tolist() == [[[1.0], [4.0]], [[9.0], [16.0]]]
    assert sums.counts.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert sums.visited is None
    assert GroupSums.zeros(groups=2, units=2, draws=3, squared=0).squares is None


def test_sums_by_group_equal_the_product_with_the_membership():
    values = random_points(2, 9, 5)
    members = torch.nn.functional.one_hot(torch.arange(9) % 4, 4).T.double()
    total = torch.ones(2, 4, 5, dtype=torch.double)
    add_by_group(total, values, members)
    torch.testing.assert_close(total, 1 + members @ values)
