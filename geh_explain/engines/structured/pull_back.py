"""Pull-back of Hessians at a narrow layer to the units: W^T H W for z = W t."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from geh_explain._process import cached_property
from geh_explain.engines.base import Limits
from geh_explain.engines.pair_blocks import PairBlock, split_pairs
from geh_explain.engines.structured.recorder import UnsupportedOp
from geh_explain.engines.sums import GroupSums, add_by_group, scale_points
from geh_explain.units.pair_set import PairSet, count_pairs

#: Hessians that :meth:`PullBack.add_points` pulls back at a time.
_MAX_HESSIANS = 64
#: Rows of the Hessian at the units per block.
_BLOCK_ROWS = 256
#: Pairs are computed one by one where these are so many times fewer than the entries of their rows.
_SINGLE_COST = 16
#: Numbers of all Hessians at the units that are computed at a time.
_MAX_NUMBERS = 2**20


def check_common_groups(limits: Limits, narrow_width: int) -> None:
    """Raise UnsupportedOp if units enter through a narrow layer and pairs have groups of their own.

    Hessians at the narrow layer are summed over the points of a group before they are pulled back to the pairs.
    """
    if narrow_width and limits.by_pair:
        raise UnsupportedOp("groups='pairwise' of units that enter through a narrow layer")


def make_pull_back(linear_map: Tensor, pairs: PairSet) -> PullBack | SinglePullBack:
    """Return the map from Hessians at a narrow layer to the ``pairs`` of the units, by rows or pair by pair."""
    return SinglePullBack(linear_map, pairs) if _are_single(pairs) else PullBack(linear_map, pairs)


def count_work(pairs: PairSet, width: int) -> float:
    """Return the number of multiplications that the pull-back of one Hessian (width, width) to the pairs takes."""
    n_units = pairs.n_units
    if pairs.complete:
        return n_units * width * (width + n_units / 2)
    n_rows = len(pairs.rows)
    return width * (n_rows * width + (len(pairs) if _are_single(pairs) else n_rows * n_units))


def _are_single(pairs: PairSet) -> bool:
    """Return whether pairs are a small part of the rows of the Hessian that hold them."""
    return not pairs.complete and _SINGLE_COST * len(pairs) < len(pairs.rows) * pairs.n_units


class SinglePullBack:
    """The same as :class:`PullBack` for few pairs, one scalar product for each: w_i^T H w_j.

    Work and memory depend on the number of pairs, not on that of the units.

    Parameters
    ----------
    linear_map
        The map W (d, D) from the units to the narrow layer.
    pairs
        The pairs of the D units.
    """

    def __init__(self, linear_map: Tensor, pairs: PairSet) -> None:
        rows, others = np.empty((2, len(pairs)), dtype=np.int64)
        for number, row in enumerate(pairs.rows):
            places = np.asarray(row.positions)
            rows[places], others[places] = number, np.asarray(row.others)
        columns = linear_map.T
        self._left = columns[[row.unit for row in pairs.rows]]
        self._rows, self._right = torch.as_tensor(rows), columns[torch.as_tensor(others)]

    def add(self, values: Tensor, hessian: Tensor) -> None:
        """Add w_i^T H w_j of one Hessian (d, d), or of a sum of Hessians, to the ``values`` (P,), in place."""
        values += self._products(hessian[None])[0].cpu()

    def add_points(self, sums: GroupSums, draw: int, hessians: Tensor, members: Tensor) -> None:
        """Add the absolute interactions, and their squares by group, of n points; see :meth:`PullBack.add_points`."""
        squared = sums.squares is not None and draw < len(sums.squares)
        step = max(1, _MAX_NUMBERS // self._right.numel())
        for start in range(0, len(hessians), step):
            points = slice(start, start + step)
            part, groups = self._products(hessians[points]).double().cpu(), members[:, points].cpu()
            sums.absolute[draw] += part.abs().sum(dim=0)
            if squared and sums.visited is not None:
                weights = None if sums.weights is None else sums.weights[points]
                add_by_group(sums.visited[draw], scale_points(part, weights), groups)
            if squared and sums.squares is not None:
                add_by_group(sums.squares[draw], part.square(), groups)

    def _products(self, hessians: Tensor) -> Tensor:
        """Return the interactions (n, P) of n Hessians (n, d, d)."""
        halves = self._left @ hessians
        return torch.einsum("npd,pd->np", halves[:, self._rows], self._right)


class PullBack:
    """The map from Hessians H (d, d) at a narrow layer to the entries of W^T H W that belong to pairs of units.

    Only the rows that hold the pairs are computed, in blocks, and for all pairs only the upper triangle. No array of
    n (D, D) is held. Where more than half of the units have rows, the triangle is less work, and pairs are selected.

    Parameters
    ----------
    linear_map
        The map W (d, D) from the units to the narrow layer.
    pairs
        The pairs of the D units.
    """

    def __init__(self, linear_map: Tensor, pairs: PairSet) -> None:
        self._map = linear_map
        self._pairs = pairs
        #: W^T (r, d) of the units that have a row.
        self._left = linear_map.T if pairs.complete else linear_map.T[[row.unit for row in pairs.rows]]
        selects = not pairs.complete and 2 * len(self._left) > pairs.n_units
        self._of_all = PullBack(linear_map, PairSet.all(pairs.n_units)) if selects else None
        #: Index of the first row of each block; of all pairs the last unit needs no row.
        self._blocks = range(0, len(self._left) - pairs.complete, _BLOCK_ROWS)

    def add(self, values: Tensor, hessian: Tensor) -> None:
        """Add W^T H W of one Hessian (d, d), or of a sum of Hessians, to the ``values`` (P,) of the pairs, in place."""
        if self._of_all is not None:
            all_values = values.new_zeros(count_pairs(self._pairs.n_units))
            self._of_all.add(all_values, hessian)
            values += all_values[torch.as_tensor(self._pairs.positions)]
            return
        half = self._left @ hessian[None]
        for first in self._blocks:
            for _, part in self._products(half, first):
                self._add_pairs(values, first, part[0])

    def add_points(self, sums: GroupSums, draw: int, hessians: Tensor, members: Tensor) -> None:
        """Add ``|W^T H W|``, and its squares by group, of each of n points to the sums of a draw.

        Parameters
        ----------
        sums
            Sums of all draws. ``absolute`` is changed, and ``squares`` and ``visited`` where they have this draw.
        draw
            Index of the draw.
        hessians
            Hessians (n, d, d) at the narrow layer.
        members
            Group membership (M, n) of the points.
        """
        squared = sums.squares is not None and draw < len(sums.squares)
        if self._of_all is not None:
            found = GroupSums.zeros(len(members), self._pairs.n_units, 1, int(squared))
            found.weights = sums.weights
            if sums.visited is not None:
                found.visit_sample()
            self._of_all.add_points(found, 0, hessians, members)
            chosen = torch.as_tensor(self._pairs.positions)
            sums.absolute[draw] += found.absolute[0, chosen]
            for total, added in ((sums.squares, found.squares), (sums.visited, found.visited)):
                if total is not None and added is not None:
                    total[draw] += added[0][:, chosen]
            return
        by_group = [part[draw] for part in (sums.squares, sums.visited) if squared and part is not None]
        # For each block of rows the sums (M, rows, columns) by group, of all points: to pick the pairs takes some time.
        totals: dict[int, list[Tensor]] = {}
        for start in range(0, len(hessians), _MAX_HESSIANS):
            halves = self._left @ hessians[start : start + _MAX_HESSIANS]
            for first in self._blocks:
                n_rows = min(_BLOCK_ROWS, len(self._left) - first)
                absolute = self._map.new_zeros(n_rows, self._map.shape[1] - self._first_column(first))
                if start == 0:
                    totals[first] = [absolute.new_zeros(len(members), *absolute.shape) for _ in by_group]
                of_block = totals[first]
                for points, part in self._products(halves, first):
                    rows = slice(start + points.start, start + points.stop)
                    groups, weights = members[:, rows], None if sums.weights is None else sums.weights[rows]
                    if len(of_block) > 1:
                        add_by_group(of_block[1].flatten(1), scale_points(part.flatten(1), weights), groups)
                    absolute += part.abs_().sum(dim=0)
                    if of_block:
                        add_by_group(of_block[0].flatten(1), part.square_().flatten(1), groups)
                self._add_pairs(sums.absolute[draw], first, absolute)
                if start + _MAX_HESSIANS >= len(hessians):
                    for values, total in zip(by_group, totals.pop(first), strict=True):
                        self._add_pairs(values, first, total)

    def _first_column(self, first: int) -> int:
        """Return the first column that a block from row ``first`` on needs."""
        return first if self._pairs.complete else 0

    def _products(self, halves: Tensor, first: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield a block of rows of W^T H W, from row ``first`` on, for a few of the points at a time.

        ``halves`` are the products W^T H (n, r, d). Each item is a slice of the points and a new tensor (k, rows,
        columns).
        """
        rows, right = halves[:, first : first + _BLOCK_ROWS], self._map[:, self._first_column(first) :]
        step = max(1, _MAX_NUMBERS // (rows.shape[1] * right.shape[1]))
        for start in range(0, len(halves), step):
            part = rows[start : start + step] @ right
            yield slice(start, start + len(part)), part

    def _add_pairs(self, values: Tensor, first: int, block: Tensor) -> None:
        """Add the entries of a block (..., rows, columns) that belong to pairs to their ``values`` (..., P)."""
        pairs = self._pair_blocks[first]
        values[..., pairs.places] += pairs.pick(block).cpu()

    @cached_property
    def _pair_blocks(self) -> dict[int, PairBlock]:
        """The pairs of each block, by its first row."""
        return dict(zip(self._blocks, split_pairs(self._pairs, _BLOCK_ROWS, self._map.device), strict=True))
