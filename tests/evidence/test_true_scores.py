"""Intervals of true scores where labels have no noise."""

import numpy as np

from geh_explain.evidence.explained import Explained
from geh_explain.evidence.true_scores import TrueScores


def test_labels_that_differ_from_outputs_by_nuisance_alone_give_the_scores_of_the_network() -> None:
    """No noise is left from which an error could be estimated: neither NaN nor an error of linear algebra."""
    values = np.random.default_rng(0).normal(size=(60, 2))
    group = (np.arange(60) < 20).astype(float)
    explained = Explained(values, np.zeros(60, dtype=int), np.ones(1), np.array([[0.7]]), np.ones(2))
    common = (group / np.sqrt(20))[:, None]
    for residual in (3 * group, 0 * group):
        scores = TrueScores(values, residual, common, explained, np.ones(60))
        assert scores.estimate((0, 1), 0, None, np.zeros((60, 0))) == (0.7, 0.0, 0.7, 0.0)
