"""The held-out test with case weights: level, power, and the answers of equal weights and left-out rows."""

import numpy as np
import pytest
import torch
from explaining import point_explainer

from geh_explain.errors import GEHValueError
from geh_explain.statistics.logistic import fit_logistic

ROWS = 700


def network(x):
    """Return the outputs of a model with two interactions, x0 × x1 and a spurious x1 × x3."""
    return x[:, 0] * x[:, 1] + torch.sin(x[:, 2]) + 0.5 * x[:, 1] * torch.tanh(x[:, 3]) + 0.3 * x[:, 3]


def truth(x):
    return x[:, 0] * x[:, 1] + 1.5 * np.sin(x[:, 2]) + x[:, 3] ** 2 - (x[:, 1] > 0)


def data(seed, rows=ROWS):
    generator = np.random.default_rng(seed)
    x = np.sqrt(0.6) * generator.normal(size=(rows, 1)) + np.sqrt(0.4) * generator.normal(size=(rows, 4))
    return x, truth(x) + generator.normal(size=rows) * (0.5 + np.abs(x[:, 0])), generator


def evidence(x, y, **options):
    return point_explainer(network).test_pairs(torch.as_tensor(x, dtype=torch.float), y, progress=False, **options)


WEIGHTS = {
    "independent of the rows": lambda x, generator: generator.lognormal(0, 0.8, len(x)),
    "of both units": lambda x, generator: np.exp(0.6 * x[:, 1] + 0.4 * x[:, 3]),
    "of their product": lambda x, generator: np.exp(np.clip(0.5 * x[:, 1] * x[:, 3], -2, 2)),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_the_level_holds_and_interactions_are_found(kind):
    p_values = []
    for seed in range(25):
        x, y, generator = data(seed)
        p_values.append(evidence(x, y, sample_weight=WEIGHTS[kind](x, generator)).p_value)
    spurious, true = np.array(p_values)[:, [4, 0]].T
    assert (spurious < 0.05).sum() <= 5  # 1 of 25 expected; more than 5 have probability 0.1 %
    assert 0.25 < spurious.mean() < 0.75
    assert (true < 0.01).mean() > 0.9


@pytest.mark.parametrize("link", ["identity", "logit"])
def test_equal_weights_change_nothing_and_rows_of_weight_0_are_left_out(link):
    x, y, _ = data(0)
    y = y if link == "identity" else (y > 0).astype(int)
    plain = evidence(x[:500], y[:500])
    assert plain.link == link
    assert evidence(x[:500], y[:500], sample_weight=np.full(500, 7.0)).p_value.tolist() == plain.p_value.tolist()
    masked = evidence(x, y, sample_weight=np.arange(ROWS) < 500)
    assert masked.n_rows == 500
    np.testing.assert_array_equal(masked.p_value, plain.p_value)
    np.testing.assert_array_equal(masked.slope, plain.slope)


def test_weights_undo_a_selection_by_the_labels():
    """Rows with large labels were sampled more often, most where x0 x1 is large: the sample shows another slope."""
    x, y, generator = data(1, 30_000)
    y = x[:, 0] * x[:, 1] + x[:, 2] + generator.normal(size=len(x))
    probability = np.clip(np.exp(0.7 * (y - 3)), 0.02, 1)
    chosen = generator.random(len(x)) < probability
    model = point_explainer(lambda x: 1.0 * x[:, 0] * x[:, 1] + x[:, 2])
    sample = torch.as_tensor(x[chosen], dtype=torch.float)
    plain, weighted = (
        model.test_pairs(sample, y[chosen], sample_weight=weights, progress=False)
        for weights in (None, 1 / probability[chosen])
    )
    assert abs(weighted.slope[0] - 1) < 3 * weighted.slope_se[0]
    assert abs(plain.slope[0] - 1) > 3 * plain.slope_se[0]


def test_weighted_logistic_regression_is_that_of_repeated_rows():
    generator = np.random.default_rng(0)
    columns, weights = generator.normal(size=(100, 3)), generator.integers(0, 4, 100)
    labels = (generator.random(100) < 0.4).astype(float)
    weighted = fit_logistic(columns, labels, np.zeros(100), 1e-6, case_weights=weights.astype(float))
    repeated = fit_logistic(
        np.repeat(columns, weights, axis=0), np.repeat(labels, weights), np.zeros(weights.sum()), 1e-6
    )
    np.testing.assert_allclose(weighted, repeated, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:evidence. the labels contain an interaction of 1 pair")
def test_true_scores_are_estimated_at_weighted_points():
    """x0 and x1 interact by 1 + x2: the weighted mean of x2 decides on the score."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(3000, 3))
    y = x[:, 0] * x[:, 1] * (1 + x[:, 2]) + 0.3 * generator.normal(size=3000)
    explainer = point_explainer(lambda x: x[:, 0] * x[:, 1] * (1 + x[:, 2]))
    rows, weights = torch.as_tensor(x), np.where(x[:, 2] > 0, 1.0, 0.1)
    result = explainer.explain(rows, groups=1, sample_weight=weights, evidence=(rows, y), progress=False)
    score = 1 + np.average(x[:, 2], weights=weights)
    low, high = result.table().iloc[0][["true_low", "true_high"]]
    assert result.table().iloc[0]["mean"] == pytest.approx(score, rel=1e-6)
    assert low < score < high
    assert high - low < 0.3
    again = explainer.test(result, rows, y, explained=rows, progress=False)
    assert again.table().iloc[0]["true_low"] == pytest.approx(low, rel=1e-6)


def test_wrong_weights_of_held_out_rows_are_refused():
    x, y, _ = data(0)
    with pytest.raises(GEHValueError, match="sample_weight has shape"):
        evidence(x, y, sample_weight=np.ones(3))
    with pytest.raises(GEHValueError, match="700 held-out rows with these weights tell as much as 5 of equal weight"):
        evidence(x, y, sample_weight=np.where(np.arange(ROWS) < 5, 1.0, 1e-9))
