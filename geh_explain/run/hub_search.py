"""The search for the units of the strongest pairs by products of Hessians with random directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from geh_explain._types import Floats, Ints
from geh_explain.data.points import Points
from geh_explain.engines.base import check_finite
from geh_explain.engines.exact import ExactRun
from geh_explain.groups.grouping import Grouping

#: Random directions that order the units, and as many that bound what is left.
DIRECTIONS = 32
#: Units of the first stage; each further stage has twice as many.
FIRST_ROWS = 8
#: Probability that all bounds hold together.
CONFIDENCE = 0.95
#: Numbers of the rows that are computed at a time.
_MAX_NUMBERS = 2**25


class GroupProducts(Protocol):
    """Multiplies the mean Hessian of each of M groups, times its share of the points, with directions."""

    @property
    def n_units(self) -> int:
        """Number of units D."""

    @property
    def n_groups(self) -> int:
        """Number of groups M."""

    def of(self, directions: Floats) -> Floats:
        """Return the products (M, k, D) with k directions (k, D)."""


@dataclass(frozen=True)
class HessianProducts:
    """:class:`GroupProducts` by double backward; units are multiplied by ``factors`` (D,)."""

    exact: ExactRun
    points: Points
    grouping: Grouping
    factors: Floats

    @property
    def n_units(self) -> int:
        return len(self.factors)

    @property
    def n_groups(self) -> int:
        return len(self.grouping.names)

    def of(self, directions: Floats) -> Floats:
        """Return the products (M, k, D) with k directions (k, D); raise where some are NaN or infinite."""
        cut, labels = self.exact.cut, self.grouping.labels
        scaled = torch.as_tensor(directions * self.factors).to(cut.device, cut.dtype)
        total = torch.zeros(len(self.grouping.names), *directions.shape, dtype=torch.double)
        fitting = self.exact.chunk_bytes // (16 * directions.size)
        for unweighted in self.points.batches():
            batch = unweighted.weighted(self.grouping.weights)
            for rows in batch.split(max(1, min(fitting, self.exact.chunk_rows(batch)))):
                groups = torch.as_tensor(labels[rows.start : rows.start + len(rows)]).long()
                local = self.exact.products(rows, scaled).double().cpu()
                total.index_add_(0, groups, local.transpose(0, 1))
                check_finite(total, rows)
        return np.asarray(total.numpy() / len(labels) * self.factors)


class HubSearch:
    """Rows of the Hessians of more and more units, with a bound of all pairs without an end among them.

    With H_m the mean Hessian of group m times its share n_m / N, GEH_ij = sum_m |H_m,ij|. For random normal directions
    v, the product y = H_m v has y_i = H_m,ii v_i + sum_j H_m,ij v_j, which is normal given v_i. Let R be the units that
    have rows already, so that their part of the sum is known. The residuals e of the rest after regression on v_i, over
    K directions, have ::

        sum of e^2  ~  (sum over j not in R of H_m,ij^2) chi2(K - 1),

    so that the quantile of chi2 gives an upper bound b_mi of the norm of what is left of the row. Each pair of i and j
    that is not known has GEH_ij <= min(sum_m b_mi, sum_m b_mj). In each stage R grows by the units with the largest
    norms of what is left. These norms are estimated from other directions than those of the bounds, so that R does not
    depend on the latter; all bounds of all stages hold together with 95 % probability.

    Parameters
    ----------
    products
        Multiplies the H_m with directions.
    seed
        Seed of the directions.
    top
        How many of the strongest pairs are wanted.
    n_stages
        Number of stages, for the bounds to hold in all of them together.

    Attributes
    ----------
    units
        The units R that have rows, in the order in which they were found.
    first, second, scores
        The strongest of the pairs with an end among them, at most ``top``, the strongest first.
    signed
        Entries (M, top) of the H_m at these pairs.
    bound
        Upper bound of the scores of all other pairs; infinite before the first stage.
    """

    def __init__(self, products: GroupProducts, seed: int, top: int, n_stages: int) -> None:
        n_units = products.n_units
        self._products, self._top = products, top
        self._directions = np.random.default_rng((seed, n_units)).standard_normal((2 * DIRECTIONS, n_units))
        self._remaining = products.of(self._directions)
        self._quantile = _lower_quantile((1 - CONFIDENCE) / (n_units * products.n_groups * n_stages))
        self.units: Ints = np.arange(0)
        self._others: Ints = np.arange(n_units)
        self.first, self.second, self.scores = np.arange(0), np.arange(0), np.zeros(0)
        self.signed: Floats = np.zeros((products.n_groups, 0))
        self.bound = np.inf

    @property
    def threshold(self) -> float:
        """Score of the last of the strongest pairs; negative while there are too few."""
        return float(self.scores[-1]) if len(self.scores) == self._top else -1.0

    @property
    def settled(self) -> bool:
        """Whether no other pair exceeds the strongest ones, with 95 % probability."""
        return self.bound <= self.threshold

    def strongest_units(self, count: int) -> Ints:
        """Return the ``count`` units with the largest estimated norms of what is left of their rows."""
        others, part = self._others, slice(DIRECTIONS)
        norms = _rest_norms(self._remaining[:, part, others], self._directions[part, others], 1.0)
        return np.asarray(others[np.argsort(-norms, kind="stable")][:count])

    def extend(self, size: int) -> None:
        """Compute the rows of further units, until ``size`` of them have some."""
        new = self.strongest_units(size - len(self.units))
        step = max(1, _MAX_NUMBERS // (self._products.n_units * self._products.n_groups))
        for start in range(0, len(new), step):
            self._add(new[start : start + step])
        self._others = np.setdiff1d(self._others, new)
        self.bound = 0.0
        if len(self._others) > 1:
            part, others = slice(DIRECTIONS, None), self._others
            norms = _rest_norms(self._remaining[:, part, others], self._directions[part, others], self._quantile)
            self.bound = float(np.partition(norms, -2)[-2])

    def _add(self, new: Ints) -> None:
        """Compute the rows of some units, and keep the strongest pairs."""
        n_units = self._products.n_units
        directions = np.zeros((len(new), n_units))
        directions[np.arange(len(new)), new] = 1
        found = self._products.of(directions)
        self._remaining -= self._directions[:, new] @ found
        scores = np.abs(found).sum(axis=0)
        # A pair of two units that have rows counts once.
        scores[:, self.units] = -1.0
        scores[:, new] = np.where(np.tri(len(new), k=0, dtype=bool), -1.0, scores[:, new])
        self.units = np.append(self.units, new)
        flat, count = scores.ravel(), min(self._top, scores.size)
        chosen = np.flatnonzero(flat >= max(0.0, np.partition(flat, flat.size - count)[flat.size - count]))
        rows, columns = np.divmod(chosen, n_units)
        first = np.concatenate([self.first, np.minimum(new[rows], columns)])
        second = np.concatenate([self.second, np.maximum(new[rows], columns)])
        scores = np.concatenate([self.scores, flat[chosen]])
        signed = np.concatenate([self.signed, found[:, rows, columns]], axis=1)
        kept = np.lexsort((second, first, -scores))[: self._top]
        self.signed = signed[:, kept]
        self.first, self.second, self.scores = first[kept], second[kept], scores[kept]


def stage_sizes(largest: int) -> list[int]:
    """Return the numbers of units of the stages, up to ``largest``.

    >>> stage_sizes(40)
    [8, 16, 32]
    """
    return [FIRST_ROWS * 2**k for k in range(int(np.log2(largest / FIRST_ROWS)) + 1)]


def _rest_norms(products: Floats, directions: Floats, quantile: float) -> Floats:
    """Return sqrt(sum of e^2 / quantile) (d,) of each unit, summed over groups.

    e are the residuals of the ``products`` (M, K, d) of d units after regression on their entries of the ``directions``
    (K, d).
    """
    slopes = (products * directions).sum(axis=1) / (directions**2).sum(axis=0)
    residuals = products - slopes[:, None] * directions
    return np.asarray(np.sqrt((residuals**2).sum(axis=1) / quantile).sum(axis=0))


def _lower_quantile(probability: float) -> float:
    """Return the quantile of the chi-square distribution with K - 1 degrees of freedom."""
    from scipy.stats import chi2

    return float(chi2.ppf(probability, DIRECTIONS - 1))
