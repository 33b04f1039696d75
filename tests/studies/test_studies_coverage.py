"""The study of coverage: the scores of its population, its samples, and a page that marks misses."""

import numpy as np
import pandas as pd
import pytest
import torch
from reference import local_hessians

from studies.coverage import experiment, page, population, summary


@pytest.mark.parametrize("number", [1, 4, 10])
def test_scores_of_the_population_are_those_of_many_points(number):
    """100,000 points by plain double backward: the error is a few thousandths of the standard deviation."""
    x = population.draw_points(100_000, np.random.default_rng(0))
    labels = population.regions(x, number)
    z, w = x[:, 8], x[:, 9]
    local = {"same sign": 2 + z, "sign changes": z, "skewed": np.exp(0.6 * z), "weak": 0.2 + w}
    true = population.true_geh(number, np.array([2.0, -1.0, 1.0, 1.0]))
    for kind, h in local.items():
        score = sum(abs(h[labels == region].sum()) for region in range(number)) / len(x)
        assert true[kind] == pytest.approx(score, abs=0.02)
    assert true["none"] == 0
    eah = population.true_eah()
    for kind, h in {**local, "same sign": 1 + z / 2}.items():
        assert eah[kind] == pytest.approx(np.abs(h).mean(), abs=0.01)


def test_the_function_has_the_interactions_that_it_should():
    x = torch.as_tensor(population.draw_points(20, np.random.default_rng(0)))
    hessians = local_hessians(lambda x: population.KnownFunction()(x)[:, 0], x)
    i, j = np.triu_indices(population.FEATURES, 1)
    local = hessians[:, i, j]
    np.testing.assert_allclose(local[:, population.PAIRS["same sign"][0]], 1 + x[:, 8] / 2)
    np.testing.assert_allclose(local[:, population.PAIRS["weak"][0]], 0.2 + x[:, 9])
    # Pairs of kind none vary from point to point; all others without a kind are 0.
    named = np.concatenate(list(population.PAIRS.values()))
    assert (local[:, named].std(axis=0) > 0.1).all()
    assert np.abs(np.delete(local, named, axis=1)).max() < 1e-12


def test_points_of_a_cluster_have_the_correlation_of_the_scenario():
    x, clusters = population.draw_clusters(4000, 0.5, np.random.default_rng(0))
    first = np.flatnonzero(np.diff(clusters) == 0)  # pairs of neighbours in one cluster
    assert np.corrcoef(x[first, 0], x[first + 1, 0])[0, 1] == pytest.approx(0.5, abs=0.03)
    sizes = np.bincount(clusters)
    assert (sizes.mean(), sizes.std()) == pytest.approx((9.0, 7.1), abs=0.4)


def test_a_block_of_samples_compares_intervals_with_the_truth():
    clustered = next(n for n, s in enumerate(experiment.SCENARIOS) if s.clusters and s.correlation == 0.5)
    record = experiment.run((clustered, 0, 2))
    first, second = record["samples"]
    assert first["geh"] != second["geh"]
    assert set(first["geh"]) == {*population.KINDS, population.NONE}
    assert all(0 <= above + below <= 1 for above, below, *_ in first["geh"].values())
    # Clusters make intervals wider.
    assert first["geh"]["same sign"][2] > first["clusters ignored"]["same sign"][2]
    table = summary.tabulate(record["samples"])
    assert table["samples"].tolist() == [2] * 10


def test_the_page_marks_misses():
    size = experiment.QUICK
    rows = [
        {"part": "geh", "kind": kind, "coverage": coverage, "true": float(kind != population.NONE), "samples": 20}
        for kind, coverage in zip((*population.KINDS, population.NONE), (0.95, 0.9, 0.98, 0.93, 0.99), strict=True)
    ]
    table = pd.DataFrame([{"scenario": scenario.name, **row} for scenario in size.scenarios for row in rows])
    text = page.build_page(table, size, 1.0)
    assert f"| {size.scenarios[0].name} | 95.0 | **90.0** | **98.0** | 93.0 | 99.0 |" in text
    assert "9 of 15 entries" in text
    assert "the lowest coverage is 90.0 %" in text
