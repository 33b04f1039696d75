"""Means and variances of Stein's samples by matrix products.

A sample of a point is L_ij = (w_i v_j + w_j v_i) / 2, with w = d / s^2 of the noise d and v half the difference of the
gradients at x + d and x - d. Samples are arrays w and v (S, n, D) of S samples of n points. Sums over samples of L and
of L^2 are sums of products of one number per row i and one per column j, and so are matrix products::

    2 L_ij   = w_i v_j + v_i w_j,
    4 L_ij^2 = w_i^2 v_j^2 + v_i^2 w_j^2 + 2 (w_i v_i) (w_j v_j).

No array of samples and pairs is needed, and for the sum over a group no array of points and pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geh_explain._process import cached_property

#: A product of factors: pairs of arrays (k, n, D), for rows and for columns, with the number that multiplies each.
_Factors = list[tuple[Tensor, Tensor, float]]


@dataclass(frozen=True)
class Samples:
    """S samples of n points.

    Rows and columns of Hessians are chosen by ``rows`` and ``columns``, so that large ones are computed block by block.

    Attributes
    ----------
    w
        The noise d / s^2 (S, n, D).
    v
        Half the difference of gradients (S, n, D), less a control variate if there is one.

    Examples
    --------
    >>> samples = Samples(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0, 4.0]]]))
    >>> samples.first_sum(slice(None), slice(None))[0].tolist()  # L_01 = (1 * 4 + 2 * 3) / 2
    [[3.0, 5.0], [5.0, 8.0]]
    """

    w: Tensor
    v: Tensor

    def of_points(self, points: slice | Tensor) -> Samples:
        """Return the samples of some of the points."""
        return Samples(self.w[:, points], self.v[:, points])

    def first_sum(self, rows: slice | Tensor, columns: slice) -> Tensor:
        """Return the sum over samples of L of each point, (n, rows, columns)."""
        return _point_products(_first(self.w, self.v), rows, columns)

    def second_sum(self, rows: slice | Tensor, columns: slice) -> Tensor:
        """Return the sum over samples of L^2 of each point, (n, rows, columns)."""
        return _point_products(self._second, rows, columns)

    def first_total(self, rows: slice | Tensor, columns: slice) -> Tensor:
        """Return the sum of L over samples and points (rows, columns)."""
        return _total_products(_first(self.w, self.v), rows, columns)

    def difference_total(self, rows: slice | Tensor, columns: slice) -> Tensor:
        """Return the sum of (L - L')^2 over the points and over pairs L, L' of consecutive samples (rows, columns).

        Its expectation is twice the number of pairs times the sum over points of the variance of a sample.
        """
        return _total_products(self._differences, rows, columns)

    @cached_property
    def _second(self) -> _Factors:
        return _second(self.w, self.v)

    @cached_property
    def _differences(self) -> _Factors:
        """The factors of (L - L')^2 = L^2 + L'^2 - 2 L L'.

        4 L L' = (w w')_i (v v')_j + (v v')_i (w w')_j + (w v')_i (v w')_j + (v w')_i (w v')_j.
        """
        n_pairs = len(self.w) // 2
        w, v = self.w[: 2 * n_pairs], self.v[: 2 * n_pairs]
        (w1, w2), (v1, v2) = ((x[::2], x[1::2]) for x in (w, v))
        ww, vv, wv, vw = w1 * w2, v1 * v2, w1 * v2, v1 * w2
        crossed = [(ww, vv, -0.5), (vv, ww, -0.5), (wv, vw, -0.5), (vw, wv, -0.5)]
        return [*_second(w, v), *crossed]


class SummedSamples:
    """Sums over samples of L and L^2 (n, D, D), where the samples of a point do not fit into memory at once.

    It has the sums of :class:`Samples` that are over the samples of each point, for samples that are added in parts.
    """

    def __init__(self) -> None:
        self._first: Tensor | None = None
        self._second: Tensor | None = None

    def add(self, samples: Samples) -> None:
        """Add further samples of the same points."""
        everything = slice(None)
        first, second = (sums(everything, everything) for sums in (samples.first_sum, samples.second_sum))
        self._first = first if self._first is None else self._first.add_(first)
        self._second = second if self._second is None else self._second.add_(second)

    def of_points(self, points: slice | Tensor) -> SummedSamples:
        """Return the sums of some of the points."""
        found = SummedSamples()
        found._first, found._second = (None if x is None else x[points] for x in (self._first, self._second))
        return found

    def first_sum(self, rows: slice | Tensor, columns: slice) -> Tensor:
        """Return the sum over samples of L of each point, (n, rows, columns)."""
        assert self._first is not None
        return self._first[:, rows, columns]

    def second_sum(self, rows: slice | Tensor, columns: slice) -> Tensor:
        """Return the sum over samples of L^2 of each point, (n, rows, columns)."""
        assert self._second is not None
        return self._second[:, rows, columns]


def _first(w: Tensor, v: Tensor) -> _Factors:
    """Return the factors of L."""
    return [(w, v, 0.5), (v, w, 0.5)]


def _second(w: Tensor, v: Tensor) -> _Factors:
    """Return the factors of L^2."""
    ww, vv, wv = w * w, v * v, w * v
    return [(ww, vv, 0.25), (vv, ww, 0.25), (wv, wv, 0.5)]


def _point_products(factors: _Factors, rows: slice | Tensor, columns: slice) -> Tensor:
    """Return the products of each point, (n, rows, columns), summed over samples."""
    total: Tensor | None = None
    for left, right, factor in factors:
        a, b = left[:, :, rows].permute(1, 2, 0), right[:, :, columns].permute(1, 0, 2)
        total = torch.bmm(a, b).mul_(factor) if total is None else total.baddbmm_(a, b, alpha=factor)
    assert total is not None
    return total


def _total_products(factors: _Factors, rows: slice | Tensor, columns: slice) -> Tensor:
    """Return the products (rows, columns), summed over samples and points."""
    total: Tensor | None = None
    for left, right, factor in factors:
        a, b = left[:, :, rows].flatten(0, 1).T, right[:, :, columns].flatten(0, 1)
        total = (a @ b).mul_(factor) if total is None else total.addmm_(a, b, alpha=factor)
    assert total is not None
    return total
