"""TODO."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats

#: Of more pairs than this some stand for all where their order is compared.
_MOST_RANKED = 2**20


def reliability(draws: Floats) -> float:
    """Return how far the draws (K, P) settle the order of the pairs: 1 if another K draws would give the same.

    It is the rank correlation of the means of every other draw, brought to all of them (Spearman and Brown).

    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=(200, 50))
    >>> reliability(noise + np.arange(50)) > 0.99, reliability(noise) < 0.5
    (True, True)
    """
    some = draws[:, :: draws.shape[1] // _MOST_RANKED + 1]
    halves = [some[start::2].mean(axis=0) for start in (0, 1)]
    ranks = [np.argsort(np.argsort(half, kind="stable"), kind="stable") for half in halves]
    correlation = float(np.asarray(np.corrcoef(np.stack(ranks)))[0, 1])
    return 2 * correlation / (1 + correlation) if correlation > 0 else 0.0
