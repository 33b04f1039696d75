"""Lasso regression on all features and all products of two features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geh_explain.baselines.table import read_table, scale_columns
from geh_explain.scores.ranking import PairRanking

#: Ranges to which the paper scales features and target.
_FEATURE_RANGE = (0.5, 1.5)
_TARGET_RANGE = (0.0, 1.0)
#: Products are strongly correlated with their features, so coordinate descent needs more steps than by default.
_MAX_ITERATIONS = 10_000


def lasso(X: Any, y: Any, alpha: float = 5e-4, *, names: Sequence[str] | None = None) -> PairRanking:
    """Rank pairs by the absolute coefficient of their product in a Lasso regression with main effects.

    The model is ``y = b + sum_i a_i x_i + sum_{i<j} c_ij x_i x_j``, and the score of a pair is ``|c_ij|``. As in the
    paper, features are scaled to (0.5, 1.5) and the target to (0, 1). Needs scikit-learn.

    Parameters
    ----------
    X, y
        Table (n, D) and target (n,): tensors, arrays, DataFrame and Series.
    alpha
        Penalty of the absolute coefficients.
    names
        Names of the columns; those of a DataFrame, else x0, x1, ..., by default.

    Raises
    ------
    GEHValueError
        If the table has fewer than two columns, or target or names do not match it.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(size=(500, 4))
    >>> lasso(x, x[:, 0] + x[:, 1] * x[:, 3]).top(1)
    [('x1', 'x3')]
    """
    from sklearn.linear_model import Lasso

    x, target, columns = read_table(X, y, names)
    x = scale_columns(x, *_FEATURE_RANGE)
    target = scale_columns(target, *_TARGET_RANGE)
    n_features = x.shape[1]
    i, j = np.triu_indices(n_features, 1)
    design = np.hstack([x, x[:, i] * x[:, j]])
    # Without random_state scikit-learn draws from the global generator, whose numbers it does not use here.
    model = Lasso(alpha=alpha, max_iter=_MAX_ITERATIONS, random_state=0).fit(design, target)
    return PairRanking("Lasso", np.abs(model.coef_[n_features:]), columns)
