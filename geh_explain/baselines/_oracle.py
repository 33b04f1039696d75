"""Regression on the true forms of the interactions, which are available in simulations only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.baselines.table import read_table
from geh_explain.scores.ranking import PairRanking


def oracle(
    X: Any, y: Any, forms: Mapping[tuple[int, int], Floats], *, names: Sequence[str] | None = None
) -> PairRanking:
    """Rank pairs by a least-squares regression on the true interaction effects.

    Interacting pairs enter the regression by their true effects, all other pairs by their products, and every feature
    as a main effect. Columns are standardised; the score of a pair is its absolute coefficient, in units of the
    target.

    Parameters
    ----------
    X, y
        Table (n, D) and target (n,).
    forms
        True effect (n,) of each interacting pair (i, j), i < j.
    names
        Names of the columns; those of a DataFrame, else x0, x1, ..., by default.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(size=(500, 3))
    >>> effect = np.sin(3 * x[:, 0] * x[:, 2])
    >>> oracle(x, effect + x[:, 1], {(0, 2): effect}).top(1)
    [('x0', 'x2')]
    """
    x, target, columns = read_table(X, y, names)
    pairs = zip(*np.triu_indices(x.shape[1], 1), strict=True)
    # A product of features far from 0 is almost a sum of them; centred features avoid this collinearity.
    centred = x - x.mean(axis=0)
    effects = np.stack([forms.get((int(i), int(j)), centred[:, i] * centred[:, j]) for i, j in pairs], axis=1)
    design = np.hstack([effects, x])
    design = (design - design.mean(axis=0)) / design.std(axis=0)
    coefficients = np.linalg.lstsq(design, target - target.mean(), rcond=None)[0]
    n_pairs = effects.shape[1]
    return PairRanking("Oracle", np.abs(coefficients[:n_pairs]), columns)
