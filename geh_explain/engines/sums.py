"""Sums of local interactions over the points of each group: what an engine fills."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.units.pair_set import count_pairs

#: Names of the arrays of GroupSums. Their first dimension are draws; those over parts of the points add up.
ARRAYS = ("signed", "absolute", "variance", "slopes", "squares", "counts", "visited", "cells")
#: Those whose last dimension are pairs.
_OVER_PAIRS = ("signed", "absolute", "variance", "squares", "visited", "cells")
#: With more groups than this a product with the group membership costs more than adding row by row.
_MAX_PRODUCT_GROUPS = 64


@dataclass
class GroupSums:
    """Sums over points of the local interactions of all pairs, in double precision on the CPU.

    With H the local Hessian at a point, M groups and P pairs i < j in row-major order, D (D - 1) / 2 or some of them::

        signed[b, m, p] = sum over the points of group m of H_p,    absolute[b, p] = sum over all points of |H_p|,
        squares[b, m, p] = sum over the points of group m of H_p^2.

    Divided by the number of points the first two give AEH, GEH and EAH; an array of all local Hessians is never needed.
    The third gives the variance of H_p over the points of a group, and by it the sampling error of the group's mean.
    Double precision, whatever the model's, makes the sums independent of the size of chunks up to rounding.

    B draws are computed at once where rows are repeated: all rows under the first draw, then all under the second, and
    so on.

    Attributes
    ----------
    signed
        Sums of the interactions (B, M, P).
    absolute
        Sums of their absolute values (B, P).
    variance
        Variance (B, M, P) of ``signed``, where an engine estimates it with noise of its own; else None.
    slopes
        Sums (B, M, D) of first derivatives, from which main effects are computed; None where the engine has none.
    skipped
        Number of points per draw that ``absolute`` leaves out.
    squares
        Sums (S, M, P) of the squared interactions over the points that ``absolute`` visits, of the first S <= B draws:
        the variance over points does not need all draws. None for S = 0.
    counts
        Number of points (S, M) of each group in ``squares``. 0 where an engine adds to ``signed`` without :meth:`add`,
        so that nothing is known of the variance. With case weights the sum of their squares.
    visited
        Sums (S, M, P) of the interactions over the points in ``squares``, where these are a sample of the points; None
        where they are all, so that ``signed`` has these sums. With case weights w always the sums of w^2 H_p.
    cells
        Sums (S, C, P) of the interactions over cells, the parts of a group that belong to one cluster of points; in
        place of ``squares`` where points come in clusters. See :meth:`merged`.
    weights
        Case weights (n,) of the points that are added next, None for 1. The interactions that engines add are those of
        outputs that were multiplied by them, see :class:`~geh_explain.data.rows.Rows`.

    Examples
    --------
    >>> import torch
    >>> sums = GroupSums.zeros(groups=2, units=2)
    >>> sums.add(0, torch.tensor([[1.0], [-3.0]]), torch.eye(2, dtype=torch.double))  # one point in each group
    >>> sums.signed.flatten().tolist(), sums.absolute.flatten().tolist(), sums.squares.flatten().tolist()
    ([1.0, -3.0], [4.0], [1.0, 9.0])
    """

    #: Whether each pair has groups of its own, so that only :meth:`add` may add to ``signed``.
    by_pair: ClassVar[bool] = False

    signed: Tensor
    absolute: Tensor
    variance: Tensor | None = None
    slopes: Tensor | None = None
    skipped: int = 0
    squares: Tensor | None = None
    counts: Tensor | None = None
    visited: Tensor | None = None
    cells: Tensor | None = None
    weights: Tensor | None = None

    @classmethod
    def zeros(
        cls, groups: int, units: int, draws: int = 1, squared: int | None = None, pairs: int | None = None
    ) -> GroupSums:
        """Return sums of no points yet, for M groups, D units and B draws.

        ``squared`` is the number S of draws with sums of squares, None for all of them; ``pairs`` is the number P of
        pairs, None for all pairs of the units.
        """
        pairs = count_pairs(units) if pairs is None else pairs
        squared = draws if squared is None else squared
        sums = cls(torch.zeros(draws, groups, pairs, dtype=torch.double), torch.zeros(draws, pairs, dtype=torch.double))
        if squared:
            sums.squares = torch.zeros(squared, groups, pairs, dtype=torch.double)
            sums.counts = torch.zeros(squared, groups, dtype=torch.double)
        return sums

    def first(self, draws: int) -> GroupSums:
        """Return the sums of the first ``draws`` draws."""
        parts = {name: part[:draws] for name in ARRAYS if (part := getattr(self, name)) is not None}
        return replace(self, **parts)

    def select(self, pairs: NDArray[np.int64]) -> GroupSums:
        """Return the sums of some of the pairs, with these indices."""
        index = torch.as_tensor(pairs)
        parts = {name: part[..., index] for name in _OVER_PAIRS if (part := getattr(self, name)) is not None}
        return replace(self, **parts)

    def joined(self, further: GroupSums) -> GroupSums:
        """Return the sums of these pairs, then those of ``further`` ones over the same points.

        ``slopes`` of both are side by side, too.
        """
        parts: dict[str, Any] = {}
        for name in (*_OVER_PAIRS, "slopes"):
            own, other = getattr(self, name), getattr(further, name)
            if name == "variance" and own is not None and other is None:
                other = torch.zeros_like(further.signed)  # these are without noise
            parts[name] = None if own is None or other is None else torch.cat([own, other], dim=-1)
        if self.counts is not None and further.counts is not None:
            # Engines do not count the points where they have no pairs.
            parts["counts"] = torch.maximum(self.counts, further.counts)
        return replace(self, **parts)

    def merged(self, groups: NDArray[np.int64], n_groups: int) -> GroupSums:
        """Return the sums over groups from these, which are over C cells; they become ``cells``.

        ``groups`` (C,) are the groups of the cells.
        """
        index = torch.as_tensor(groups).long()

        def merge(part: Tensor | None) -> Tensor | None:
            if part is None:
                return None
            return part.new_zeros(len(part), n_groups, part.shape[2]).index_add_(1, index, part)

        signed = merge(self.signed)
        assert signed is not None
        return replace(self, signed=signed, variance=merge(self.variance), slopes=merge(self.slopes), cells=self.signed)

    def add(self, start: int | Tensor, local: Tensor, members: Tensor, chosen: Tensor | None = None) -> None:
        """Add the local interactions of further points.

        Parameters
        ----------
        start
            Index of the first pair in ``local``, or the distinct indices (w,) of all of them: pairs may be added block
            by block.
        local
            Local interactions (B * n, w) of the pairs ``start`` to ``start + w``.
        members
            One-hot group membership (M, n) of the points, see :meth:`one_hot`.
        chosen
            Indices (w,) of the columns of ``local`` that are pairs, if it has others too; None for all. They are chosen
            after the sum over points, which is faster than for each point.
        """
        # Rows come draw by draw, so that the first dimension splits into (B, n).
        local = local.double().reshape(len(self.signed), members.shape[1], -1)
        where = slice(start, start + local.shape[2]) if isinstance(start, int) else start
        columns = slice(None) if chosen is None else chosen
        self.signed[:, :, where] += sums_by_group(local, members)[:, :, columns].cpu()
        self.absolute[:, where] += local.abs().sum(dim=1)[:, columns].cpu()
        self.add_squares(start, local, members, chosen)

    def add_squares(self, start: int | Tensor, local: Tensor, members: Tensor, chosen: Tensor | None = None) -> None:
        """Add the squares of local interactions (B, n, w), see :meth:`add`, which calls this.

        The points are counted with the pair of index 0.
        """
        columns = slice(None) if chosen is None else chosen
        where = slice(start, start + local.shape[2]) if isinstance(start, int) else start
        for sums, power in ((self.squares, 2), (self.visited, 1)):
            if sums is not None:
                total = local.new_zeros(len(sums), len(members), local.shape[2])
                values = local[: len(sums)] ** power
                add_by_group(total, values if power == 2 else scale_points(values, self.weights), members)
                sums[:, :, where] += total[:, :, columns].cpu()
        if start == 0 if isinstance(start, int) else bool((start == 0).any()):
            self.visit(members)

    def visit(self, members: Tensor) -> None:
        """Count points with group membership ``members`` (M, n) as those of ``squares``.

        :meth:`add` does so. An engine calls it for points whose local interactions are all 0 and are not added.
        """
        if self.counts is not None:
            counted = members if self.weights is None else members * self.weights.to(members) ** 2
            self.counts += counted.sum(dim=1).cpu()

    def visit_sample(self) -> None:
        """Prepare for squares of a sample of the points: the sums over this sample go to ``visited``."""
        if self.squares is not None and self.visited is None:
            self.visited = torch.zeros_like(self.squares)

    def add_slopes(self, slopes: Tensor, members: Tensor) -> None:
        """Add first derivatives (B * n, D) of further points; ``members`` (M, n) as in :meth:`add`."""
        slopes = slopes.detach().double().reshape(len(self.signed), members.shape[1], -1)
        total = (members @ slopes).cpu()
        self.slopes = total if self.slopes is None else self.slopes + total

    def one_hot(self, labels: NDArray[np.int64], device: torch.device) -> Tensor:
        """Return the group membership (M, n) of n points with ``labels`` (n,): 1 where a point is in a group."""
        groups = torch.as_tensor(labels, device=device)
        return torch.nn.functional.one_hot(groups.long(), self.signed.shape[1]).T.double()


def scale_points(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return ``values`` (..., n, w) of n points times their ``weights`` (n,); None leaves them as they are."""
    return values if weights is None else values * weights.to(values)[:, None]


def sums_by_group(values: Tensor, members: Tensor) -> Tensor:
    """Return the sums (B, M, w) of ``values`` (B, n, w) over the points of each group; ``members`` is (M, n)."""
    if len(members) <= _MAX_PRODUCT_GROUPS:
        return members.to(values.dtype) @ values
    total = values.new_zeros(len(values), len(members), values.shape[2])
    add_by_group(total, values, members)
    return total


def add_by_group(total: Tensor, values: Tensor, members: Tensor) -> None:
    """Add ``values`` (..., n, w) of n points to the sums ``total`` (..., M, w) of their groups, in place.

    ``members`` (M, n) is the one-hot group membership of the points.

    >>> total = torch.zeros(2, 1)
    >>> add_by_group(total, torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    >>> total.tolist()
    [[5.0], [2.0]]
    """
    if total.device.type == "cpu":
        # A product with ``members`` would cost M multiplications per number, all but one of them by 0.
        total.index_add_(-2, members.argmax(dim=0), values)
    else:
        # Elsewhere index_add_() adds in an order that differs from call to call.
        total += members.to(values.dtype) @ values


def add_hessians(sums: GroupSums, hessians: Tensor, members: Tensor, pairs: Tensor) -> None:
    """Add local Hessians (B * n, D, D) to ``sums``; they are overwritten. ``pairs`` (P,) are places in D * D numbers.

    Whole matrices are summed over the points before the pairs are picked: picking them for each point is slow.
    """
    if sums.by_pair:
        sums.add(0, hessians.flatten(1)[:, pairs], members)
        return
    flat = hessians.reshape(len(sums.signed), members.shape[1], -1)
    sums.signed += sums_by_group(flat, members)[:, :, pairs].double().cpu()
    if sums.visited is not None:
        visited = scale_points(flat[: len(sums.visited)], sums.weights)
        sums.visited += sums_by_group(visited, members)[:, :, pairs].double().cpu()
    sums.absolute += flat.abs_().sum(dim=1)[:, pairs].double().cpu()
    if sums.squares is not None:
        squares = flat.new_zeros(len(sums.squares), len(members), flat.shape[2])
        add_by_group(squares, flat[: len(squares)].square_(), members)
        sums.squares += squares[:, :, pairs].double().cpu()
        sums.visit(members)
