r"""Shares of an output's variance that interactions carry, by pick-freeze designs.

Let f be a function of independent factors u_1..u_F with variance V and the decomposition f = sum over sets s of f_s
(Hoeffding, Sobol'). The share of interactions is that of all sets of two factors or more, 1 - sum_i V_i / V.

Two independent points A and B are drawn, and A_s is A with the factors s taken from B, B_s is B with those of A. With

    d_i = f(A_i) - f(A),    e_i = f(B) - f(B_i),    the effects of exchanging factor i beside A and beside B,
    R_A = f(B) - f(A) - sum_i d_i,    R_B = f(A) - f(B) + sum_i e_i,
    m_ij = f(A_ij) - f(A_i) - f(A_j) + f(A),    n_ij = f(B) - f(B_i) - f(B_j) + f(B_ij),

the following are unbiased ::

    V            = E (f(A) - f(B))^2 / 2
    V_i          = E d_i e_i / 2                                       main effect of i
    V_Ti - V_i   = E (d_i - e_i)^2 / 4                                 all interactions of i
    V_ij         = E m_ij n_ij / 4                                     interaction of i and j alone
    V - sum V_i  = E [(f - g)(B) R_A + (f - g)(A) R_B] / 2             all interactions, for any additive g

The first ones are the estimators of Jansen (1999), Saltelli et al. (2010) and Owen (2013) in symmetric form. The last
one is that of Saltelli et al., summed over factors: R_A and R_B vanish for additive f, at every point, and are
uncorrelated with every function of one factor, so that g may be subtracted. With g near the main effects of f the error
is proportional to the share itself, and not to the variance of f. g is fitted to other blocks of rows.

Points are made of rows of data: each factor of each point takes its value from another row of the same *block* of rows.
Blocks have no rows in common, so that their sums are independent also where factors of a row depend on each other, and
the jackknife over blocks gives the error over the choice of rows and points together.

Rows with case weights w are not resampled: within a block, a factor takes rows r and s in A and B with a probability
proportional to w_r w_s, r != s, and sums over a block count by the sum of its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geh_explain._types import Floats, Ints

#: Blocks of rows: at most, and at least. The jackknife needs some, and a block has rows for all factors of two points.
_MAX_BLOCKS = 20
_MIN_BLOCKS = 5


@dataclass(frozen=True)
class PickFreezePoints:
    """Two points for each of n comparisons, as indices of the rows from which their factors are taken.

    Attributes
    ----------
    first, second
        Rows (n, F) of the factors of A and of B.
    blocks
        Block (n,) of each comparison.
    """

    first: Ints
    second: Ints
    blocks: Ints


def choose_block_count(n_rows: int, n_factors: int) -> int:
    """Return the number of blocks of rows: 5 to 20, so many that all factors of two points come from different rows.

    >>> choose_block_count(1000, 9), choose_block_count(100, 9)
    (20, 5)
    """
    return int(np.clip(n_rows // (2 * n_factors), _MIN_BLOCKS, _MAX_BLOCKS))


def draw_points(
    blocks: Sequence[Ints],
    n_factors: int,
    per_block: int,
    generator: np.random.Generator,
    weights: Floats | None = None,
) -> PickFreezePoints:
    """Draw ``per_block`` comparisons in each block of rows.

    Parameters
    ----------
    blocks
        Indices of the rows of each block, at least two of them.
    n_factors
        Number of factors F.
    per_block
        Comparisons per block. Each factor takes every row of its block about equally often.
    generator
        Draws the orders of the rows.
    weights
        Case weights of all rows; None where they count alike.

    Returns
    -------
    PickFreezePoints
        A factor has different rows in A and B always. Without weights, all 2 F rows of a comparison are different where
        the block has as many.
    """
    parts: list[tuple[Ints, int]] = []
    for block, rows in enumerate(blocks):
        if weights is not None:
            parts.append((rows[_weighted_places(weights[rows], per_block, n_factors, generator)], block))
            continue
        left = per_block
        while left > 0:
            count = min(left, len(rows))
            offsets = _offsets(len(rows), n_factors, generator)
            places = (np.arange(count)[:, None] + offsets) % len(rows)
            parts.append((generator.permutation(rows)[places], block))
            left -= count
    chosen = np.concatenate([rows for rows, _ in parts])
    labels = np.concatenate([np.full(len(rows), block) for rows, block in parts])
    return PickFreezePoints(chosen[:, :n_factors], chosen[:, n_factors:], labels)


def _offsets(n_rows: int, n_factors: int, generator: np.random.Generator) -> Ints:
    """Return places (2 F,) among the rows of a block: those of A, then those of B, distinct as far as possible."""
    order = generator.permutation(n_rows)
    if n_rows >= 2 * n_factors:
        return np.asarray(order[: 2 * n_factors])
    first = order[np.arange(n_factors) % n_rows]
    return np.concatenate([first, (first + generator.integers(1, n_rows, n_factors)) % n_rows])


def _weighted_places(weights: Floats, count: int, n_factors: int, generator: np.random.Generator) -> Ints:
    """Return places (count, 2 F) among the rows of a block with these ``weights`` (n,): those of A, then those of B.

    A factor is at r in A and at s in B with a probability proportional to w_r w_s, r != s; factors are independent.

    >>> places = _weighted_places(np.array([3.0, 1.0, 0.0]), 1000, 1, np.random.default_rng(0))
    >>> np.unique(places, axis=0).tolist()
    [[0, 1], [1, 0]]
    """
    shares = weights / weights.sum()
    # r has a probability proportional to w_r times the sum of all other weights, and s follows among the others.
    of_first, ends, last = np.cumsum(shares * (1 - shares)), np.cumsum(shares), len(weights) - 1
    strata = generator.permuted(np.tile(np.arange(count), (n_factors, 1)), axis=1).T
    level = (strata + generator.random((count, n_factors))) / count * of_first[-1]
    first = np.minimum(np.searchsorted(of_first, level, side="right"), last)
    level = generator.random((count, n_factors)) * (1 - shares[first])
    level = np.where(level < ends[first] - shares[first], level, level + shares[first])
    second = np.minimum(np.searchsorted(ends, level, side="right"), last)
    # Rounding may lead back to r.
    second = np.where(second == first, (first + 1) % len(weights), second)
    return np.concatenate([first, second], axis=1)


@dataclass(frozen=True)
class PickFreezeOutputs:
    """Outputs at the points of n comparisons.

    Attributes
    ----------
    first, second
        f(A_s) and f(B_s), both (1 + F + P, n), for s empty, each factor, and each of P pairs of factors.
    pairs
        Factors (P, 2) of the pairs.
    n_factors
        Number of factors F.
    """

    first: Floats
    second: Floats
    pairs: Ints
    n_factors: int

    def terms(self, residuals: tuple[Floats, Floats]) -> Floats:
        """Return what is averaged over comparisons, (2 + 2 F + P, n).

        In this order: the variance V, all interactions, main effects (F) and interactions (F) of each factor, pairs.
        ``residuals`` (n,) each are (f - g)(A) and (f - g)(B) for an additive function g.

        One comparison of f = u_0 u_1, A = (1, 2) and B = (3, 5), with g = 0:

        >>> first, second = np.array([[2.0], [6.0], [5.0], [15.0]]), np.array([[15.0], [5.0], [6.0], [2.0]])
        >>> outputs = PickFreezeOutputs(first, second, np.array([[0, 1]]), n_factors=2)
        >>> outputs.terms((first[0], second[0]))[:, 0].tolist()
        [84.5, 51.0, 20.0, 13.5, 9.0, 9.0, 9.0]
        """
        end = 1 + self.n_factors
        a, b = self.first[0], self.second[0]
        beside_a, beside_b = self.first[1:end] - a, b - self.second[1:end]
        remainder_a = b - a - beside_a.sum(axis=0)
        remainder_b = a - b + beside_b.sum(axis=0)
        i, j = 1 + self.pairs.T
        mixed_a = self.first[end:] - self.first[i] - self.first[j] + a
        mixed_b = b - self.second[i] - self.second[j] + self.second[end:]
        return np.concatenate(
            [
                ((a - b) ** 2 / 2)[None],
                ((residuals[1] * remainder_a + residuals[0] * remainder_b) / 2)[None],
                beside_a * beside_b / 2,
                (beside_a - beside_b) ** 2 / 4,
                mixed_a * mixed_b / 4,
            ]
        )


def sums_by_block(terms: Floats, blocks: Ints, n_blocks: int) -> Floats:
    """Return the sums (G, E) of ``terms`` (E, n) over each block.

    >>> sums_by_block(np.array([[1.0, 2.0, 3.0]]), np.array([0, 1, 1]), 2).tolist()
    [[1.0], [5.0]]
    """
    total = np.zeros((n_blocks, len(terms)))
    np.add.at(total, blocks, terms.T)
    return total


def ratios_with_errors(sums: Floats) -> tuple[Floats, Floats]:
    """Return ratios of sums over blocks, and the jackknife errors of their means over draws.

    Parameters
    ----------
    sums
        Sums (K, G, 1 + E) of K draws over G blocks of rows: the denominator first, then E numerators.

    Returns
    -------
    ratios
        Ratios (K, E) of the sums over all blocks.
    errors
        Standard errors (E,) of the means over draws, over the choice of blocks. They have G - 1 degrees of freedom.

    Examples
    --------
    >>> ratios, errors = ratios_with_errors(np.array([[[1.0, 1.0], [1.0, 3.0]]]))
    >>> ratios.tolist(), errors.tolist()
    ([[2.0]], [1.0])
    """
    total = sums.sum(axis=1)
    left = total[:, None] - sums
    without = (left[..., 1:] / left[..., :1]).mean(axis=0)
    n_blocks = len(without)
    spread = ((without - without.mean(axis=0)) ** 2).sum(axis=0)
    return total[:, 1:] / total[:, :1], np.sqrt((n_blocks - 1) / n_blocks * spread)
