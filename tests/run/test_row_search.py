"""rows="auto": the strongest pairs are found where few units hold them, and all pairs are computed where not."""

import numpy as np
import pytest
import torch

import geh_explain as geh
from geh_explain.run import hub_search

POINT = geh.posterior.PointEstimate()


def quadratic(matrix):
    """Return a model whose Hessian is ``matrix`` at all points."""
    weights = torch.as_tensor(matrix)
    return lambda x: torch.einsum("ni,ij,nj->n", x, weights, x) / 2


def hub_matrix(units, hubs, seed, background=0.01, diagonal=1.0):
    """Return a symmetric matrix with normal entries, large in the rows of the first ``hubs`` of shuffled units."""
    rng = np.random.default_rng(seed)
    matrix = background * rng.normal(size=(units, units))
    chosen = rng.permutation(units)[:hubs]
    matrix[chosen] += rng.normal(size=(hubs, units))
    return (matrix + matrix.T) / 2 + diagonal * np.diag(rng.normal(size=units)), set(chosen.tolist())


def strongest(matrix, count=10):
    first, second = np.triu_indices(len(matrix), 1)
    order = np.argsort(-np.abs(matrix[first, second]))[:count]
    return {(int(first[k]), int(second[k])) for k in order}


def explain(model, units, **options):
    x = torch.randn(20, units, generator=torch.Generator().manual_seed(3)).double()
    options = {"groups": 1, "progress": False, "rows": "auto"} | options
    return geh.GEHExplainer(model, posterior=POINT).explain(x, **options)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("hubs", "rows"), [(3, 8), (13, 16)])
def test_the_pairs_of_hubs_are_found(hubs, rows, seed):
    matrix, _ = hub_matrix(96, hubs, seed)
    result = explain(quadratic(matrix), 96)
    assert len(result.pairs.units) == rows
    assert all(result.pairs.find(*pair) is not None for pair in strongest(matrix))
    np.testing.assert_allclose(result.geh.pair_mean, np.abs(matrix[result.pairs.ends]), rtol=1e-9, atol=1e-12)


def test_a_large_diagonal_does_not_hide_the_hubs():
    matrix, hubs = hub_matrix(96, 3, seed=5, diagonal=1000.0)
    assert hubs < set(explain(quadratic(matrix), 96).pairs.units.tolist())


def test_a_network_without_hubs_is_explained_as_a_whole():
    matrix, _ = hub_matrix(80, 0, seed=0, background=1.0)
    result = explain(quadratic(matrix), 80)
    assert result.pairs.complete
    assert "rows='auto': no half of the units surely holds the 10 strongest pairs" in repr(result)


@pytest.mark.parametrize("units", [20, 72])
def test_few_units_are_not_searched(units):
    """With one draw 72 rows cost as much as 64 products with directions and 8 rows."""
    matrix, _ = hub_matrix(units, 1, seed=0)
    result = explain(quadratic(matrix), units)
    assert result.pairs.complete
    assert "rows='auto': all pairs were computed, as a search would take as long\n" in repr(result)


def test_the_conclusion_is_recorded():
    matrix, _ = hub_matrix(96, 3, seed=1)
    result = explain(quadratic(matrix), 96, groups=2)
    sentence = "the 10 strongest pairs, by GEH in 2 groups and without draws, are among these with 95 % confidence"
    assert result.settings["row_search"] == sentence
    assert f"rows='auto': {sentence}\n" in repr(result)
    assert result.settings["pair_request"] == "rows='auto'"


def test_scores_of_groups_and_of_scaled_units_decide():
    """The pair (0, 1) cancels over all points and not in groups; unit 5 is strong because of its scale only."""
    units = 80
    x = torch.randn(120, units, generator=torch.Generator().manual_seed(0)).double()
    x[:, 5] *= 1000
    weights = torch.linspace(0.5, 1.5, units).double()

    def model(x):
        return 20 * x[:, 0] ** 2 * (x * weights).sum(1) + x[:, 5] * (x * weights).sum(1) / 50

    explainer = geh.GEHExplainer(model, posterior=POINT)
    signs = (x[:, 0] > 0).numpy()
    result = explainer.explain(x, groups=signs, rows="auto", scale="std", progress=False)
    assert not result.pairs.complete
    assert {0, 5} < set(result.pairs.units.tolist())
    full = explainer.explain(x, groups=signs, scale="std", progress=False)
    assert set(full.ranking().top(10)) == set(result.ranking().top(10))


def test_draws_are_computed_for_the_rows_that_were_found():
    """The structured engine computes all pairs of the network without draws, and tells the strongest exactly."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(30, 1))
    with torch.no_grad():
        net[0].weight[:, 2:] *= 0.01
    x = torch.randn(50, 40)
    explainer = geh.GEHExplainer(net)
    result = explainer.explain(x, groups=1, draws=4, rows="auto", progress=False)
    assert result.geh.n_draws == 4
    assert {0, 1} < set(result.pairs.units.tolist())
    assert result.settings["row_search"].endswith("by GEH in 1 group and without draws, are among these")
    point = geh.GEHExplainer(net, posterior=POINT)
    without_draws = point.explain(x, groups=1, progress=False)
    assert all(result.pair(*pair) >= 0 for pair in without_draws.ranking().top(10))
    assert point.explain(x, groups=1, rows="auto", progress=False).pairs.complete  # one draw: nothing is gained
    full = explainer.explain(x, groups=1, draws=4, progress=False)
    np.testing.assert_allclose(result.signed, full.signed[..., result.pairs.positions], rtol=1e-3, atol=1e-7)


def test_engines_without_second_derivatives_are_refused():
    explainer = geh.GEHExplainer(lambda x: x.prod(1), posterior=POINT, engine="difference")
    with pytest.raises(geh.GEHError, match=r"rows='auto' .*engine='difference' does not; .*rows=explainer.screen"):
        explainer.explain(torch.randn(10, 40), groups=1, rows="auto", progress=False)


def test_bounds_hold_together_with_the_stated_confidence():
    """The norm of what is left of each row, by numpy, against its bound from products with random directions."""
    units, groups, repeats = 30, 2, 400
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(groups, units, units)) * rng.exponential(size=(groups, 1, units)) ** 3
    matrices = matrices + matrices.transpose(0, 2, 1)
    norms = np.sqrt((matrices**2).sum(axis=2) - np.einsum("mii->mi", matrices) ** 2)
    quantile = hub_search._lower_quantile(0.05 / (units * groups))
    missed = 0
    for _ in range(repeats):
        directions = rng.normal(size=(hub_search.DIRECTIONS, units))
        products = directions @ matrices
        bounds = np.array([hub_search._rest_norms(part[None], directions, quantile) for part in products])
        missed += bool((bounds < norms).any())
    # A binomial number with mean 20 at most; 35 is beyond its 99.9 % quantile.
    assert missed <= 35
