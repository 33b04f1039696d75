"""The part of a pair's score that depends on a third unit.

An interaction of i and j such as x_i x_j + 2 x_i x_j x_k has two directions in the held-out test: the mean interaction,
and products of three units. Labels may contain one of them and not the other. The slope of the pair is the mean of both
slopes, weighted by what the directions contribute to the score: with one group that averages over x_k, nothing of the
second one is left; in groups with positive and with negative x_k it may be most of it.
"""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats
from geh_explain.evidence.explained import Explained
from geh_explain.evidence.nuisance import bounded, value_bounds
from geh_explain.evidence.pair_functions import Pair


class ThirdOrderShares:
    """Shares of scores that products of three units explain.

    Parameters
    ----------
    values
        Values (n, D) of the units in the held-out rows.
    explained
        The points whose scores are meant.

    Examples
    --------
    The interaction x0 x1 + 2 x0 x1 x2 at points of which half have x2 = 1 and half x2 = -1, in one group and in two:

    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> values = np.concatenate([generator.uniform(-1, 1, (1000, 2)), np.repeat([1.0, -1.0], 500)[:, None]], axis=1)
    >>> one = Explained(values, np.zeros(1000, int), np.ones(1), np.array([[1.0]]), np.ones(3))
    >>> halves = np.repeat([0, 1], 500)
    >>> two = Explained(values, halves, np.full(2, 0.5), np.array([[3.0], [-1.0]]), np.ones(3))
    >>> [round(ThirdOrderShares(values, points).of_pair((0, 1), 0, np.array([2.0])), 2) for points in (one, two)]
    [0.0, 1.0]
    """

    def __init__(self, values: Floats, explained: Explained) -> None:
        self._explained = explained
        low, high = value_bounds(values)
        self._bounded = bounded(explained.values, low, high)
        # By the chain rule. Beyond the bounds nothing changes; a unit with two values lies on them.
        inside = (explained.values >= low) & (explained.values <= high)
        slopes = 2 / np.where(high > low, high - low, np.inf) * explained.factors
        self._derivatives = np.where(inside, slopes, 0)

    def of_pair(self, pair: Pair, index: int, coefficients: Floats) -> float:
        """Return the share, from 0 to 1, of one pair's score.

        Parameters
        ----------
        pair, index
            Units i and j, and the index of the pair.
        coefficients
            Coefficients of the products of i, j and each other unit, bounded as in
            :meth:`~geh_explain.evidence.nuisance.Nuisance.triple_products`. Those of covariates, at the end, are left
            out: their values at the explained points are not known.
        """
        i, j = pair
        explained = self._explained
        network = explained.signed[:, index]
        score = float(np.abs(network) @ explained.shares)
        if score == 0:
            return 0.0
        others = [unit for unit in range(self._bounded.shape[1]) if unit not in pair]
        changes = self._bounded[:, others] @ coefficients[: len(others)]
        mixed = self._derivatives[:, i] * self._derivatives[:, j] * changes
        by_group = explained.group_means(mixed)
        return float(np.clip((explained.shares * np.sign(network)) @ by_group / score, 0, 1))
