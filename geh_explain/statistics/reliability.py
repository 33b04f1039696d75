"""Reproducibility of a ranking over posterior draws: split-half reliability.

The draws are split into two halves. With r the rank correlation of the pairs' means in the two halves, the correlation
that two sets of all K draws would have is (Spearman and Brown) ::

    reliability = 2 r / (1 + r)
"""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats

#: Maximum number of pairs that are ranked; of more pairs, a regular subset is ranked.
_MAX_PAIRS = 2**20


def split_half_reliability(draws: Floats) -> float:
    """Return the reliability in [0, 1] of the order of the pairs' means.

    It is near 1 if another K draws would rank the pairs in the same order, and 0 if the halves do not correlate
    positively. Even and odd draws form the halves, so that a drift over draws affects both.

    Parameters
    ----------
    draws
        Scores (K, P) of P pairs in K draws; at least 2 draws and 2 pairs.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=(200, 50))
    >>> split_half_reliability(noise + np.arange(50)) > 0.99, split_half_reliability(noise) < 0.5
    (True, True)
    """
    sample = draws[:, :: draws.shape[1] // _MAX_PAIRS + 1]
    halves = [sample[start::2].mean(axis=0) for start in (0, 1)]
    ranks = [np.argsort(np.argsort(half, kind="stable"), kind="stable") for half in halves]
    correlation = float(np.asarray(np.corrcoef(np.stack(ranks)))[0, 1])
    return 2 * correlation / (1 + correlation) if correlation > 0 else 0.0
