"""A linear model with all products of two features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geh_explain.baselines.table import read, scaled
from geh_explain.scores.ranking import PairRanking


def lasso(X: Any, y: Any, alpha: float = 5e-4, *, names: Sequence[str] | None = None) -> PairRanking:
    """Rank pairs by the coefficients of their products in a Lasso regression with main effects.

    As in the paper, features are brought to (0.5, 1.5) and the target to (0, 1).

    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(size=(500, 4))
    >>> lasso(x, x[:, 0] + x[:, 1] * x[:, 3]).top(1)
    [('x1', 'x3')]
    """
    from sklearn.linear_model import Lasso

    x, target, found = read(X, y, names)
    x, target = scaled(x, 0.5, 1.5), scaled(target, 0.0, 1.0)
    i, j = np.triu_indices(x.shape[1], 1)
    fitted = Lasso(alpha=alpha, max_iter=10_000).fit(np.hstack([x, x[:, i] * x[:, j]]), target)
    return PairRanking("Lasso", np.abs(fitted.coef_[x.shape[1] :]), found)
