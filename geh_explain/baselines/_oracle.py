"""A regression on the true forms, which nobody knows outside of simulations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.baselines.table import read
from geh_explain.scores.ranking import PairRanking


def oracle(
    X: Any, y: Any, forms: Mapping[tuple[int, int], Floats], *, names: Sequence[str] | None = None
) -> PairRanking:
    """Rank pairs by a regression on ``forms``, the true effect (n,) of each interacting pair.

    The other pairs enter by their products, all features by themselves. The score is the size of the standardised
    coefficient, so that all effects count in the target's units.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(size=(500, 3))
    >>> effect = np.sin(3 * x[:, 0] * x[:, 2])
    >>> oracle(x, effect + x[:, 1], {(0, 2): effect}).top(1)
    [('x0', 'x2')]
    """
    x, target, found = read(X, y, names)
    pairs = zip(*np.triu_indices(x.shape[1], 1), strict=True)
    centred = x - x.mean(axis=0)  # or products would be sums of their features, almost
    effects = np.stack([forms.get((int(i), int(j)), centred[:, i] * centred[:, j]) for i, j in pairs], axis=1)
    design = np.hstack([effects, x])
    design = (design - design.mean(axis=0)) / design.std(axis=0)
    coefficients = np.linalg.lstsq(design, target - target.mean(), rcond=None)[0]
    return PairRanking("Oracle", np.abs(coefficients[: effects.shape[1]]), found)
