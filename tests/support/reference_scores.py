"""Comparison of the package's scores with the plain reference."""

from collections.abc import Callable

import numpy as np
import reference
from explaining import explain_point, random_points
from networks import mlp
from torch import nn

import geh_explain as geh

CLOSE = 1e-10


def assert_scores(
    result: geh.Interactions, local: np.ndarray, close: float = CLOSE, *, every_pair: bool = False
) -> None:
    """Compare all three measures with those of the local Hessians (n, D, D), over the groups of the result.

    Two matrices of zeros would agree too: the strongest pair, or with ``every_pair`` each one, must not be 0.
    """
    for scores, truth in (
        (result.aeh, reference.aeh(local)),
        (result.geh, reference.geh(local, result.labels)),
        (result.eah, reference.eah(local)),
    ):
        np.testing.assert_allclose(scores.mean, truth, rtol=0, atol=close)
    strengths = result.eah.mean[np.triu_indices(len(result.names), 1)]
    assert (strengths.min() if every_pair else strengths.max()) > 1e3 * close


def check_deep_network(activation: Callable[[], nn.Module], seed: int) -> None:
    """Check the scores of a network with three hidden layers."""
    net = mlp(4, 8, 6, 5, 1, activation=activation, seed=seed, gain=2.0)
    x = random_points(12, 4, seed=seed)
    assert_scores(explain_point(net, x, groups=3), reference.local_hessians(lambda x: net(x)[:, 0], x))
