"""Pull-back of Hessians at a narrow layer to the units: W^T H W for z = W t.

Both functions work on blocks of rows of the (D, D) results and on their upper triangle only, so that no array of
n (D, D) is held.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from geh_explain.engines.sums import GroupSums, add_by_group

#: Hessians that :func:`add_points` pulls back at a time.
_MAX_HESSIANS = 64
#: Rows of the Hessian at the units per block.
_BLOCK_ROWS = 256
#: Numbers of all Hessians at the units that are computed at a time.
_MAX_NUMBERS = 2**20


def add_pulled_back(pairs: Tensor, linear_map: Tensor, hessian: Tensor) -> None:
    """Add W^T H W to the pairs of units.

    Parameters
    ----------
    pairs
        Sums (P,) over pairs i < j in row-major order, changed in place.
    linear_map
        The map W (d, D) from the units to the narrow layer.
    hessian
        A Hessian (d, d) at the narrow layer, or a sum of Hessians.
    """
    half = linear_map.T @ hessian[None]
    for first in range(0, linear_map.shape[1] - 1, _BLOCK_ROWS):
        for _, part in _products(half, linear_map, first):
            _add_triangle(pairs, first, part[0])


def add_points(sums: GroupSums, draw: int, linear_map: Tensor, hessians: Tensor, members: Tensor) -> None:
    """Add ``|W^T H W|``, and its squares by group, of each of n points to the sums of a draw.

    Parameters
    ----------
    sums
        Sums of all draws. ``absolute`` is changed, and ``squares`` and ``visited`` where they have this draw.
    draw
        Index of the draw.
    linear_map
        The map W (d, D) from the units to the narrow layer.
    hessians
        Hessians (n, d, d) at the narrow layer.
    members
        Group membership (M, n) of the points.
    """
    squared = sums.squares is not None and draw < len(sums.squares)
    by_group = [part[draw] for part in (sums.squares, sums.visited) if squared and part is not None]
    n_units, n_groups = linear_map.shape[1], len(members)
    # For each block of rows the sums (M, rows, columns) by group, of all points: to pick the pairs takes some time.
    totals: dict[int, list[Tensor]] = {}
    for start in range(0, len(hessians), _MAX_HESSIANS):
        halves = linear_map.T @ hessians[start : start + _MAX_HESSIANS]
        for first in range(0, n_units - 1, _BLOCK_ROWS):
            absolute = linear_map.new_zeros(min(_BLOCK_ROWS, n_units - first), n_units - first)
            if start == 0:
                totals[first] = [absolute.new_zeros(n_groups, *absolute.shape) for _ in by_group]
            of_block = totals[first]
            for points, part in _products(halves, linear_map, first):
                groups = members[:, start + points.start : start + points.stop]
                if len(of_block) > 1:
                    add_by_group(of_block[1].flatten(1), part.flatten(1), groups)
                absolute += part.abs_().sum(dim=0)
                if of_block:
                    add_by_group(of_block[0].flatten(1), part.square_().flatten(1), groups)
            _add_triangle(sums.absolute[draw], first, absolute)
            if start + _MAX_HESSIANS >= len(hessians):
                for pairs, total in zip(by_group, totals.pop(first), strict=True):
                    _add_triangle(pairs, first, total)


def _products(halves: Tensor, linear_map: Tensor, first: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield rows of W^T H W from row ``first`` on, columns ``first`` to D - 1, for a few of the points at a time.

    ``halves`` are the products W^T H (n, D, d). Each item is a slice of the points and a new tensor (k, rows, columns).
    """
    rows = halves[:, first : first + _BLOCK_ROWS]
    step = max(1, _MAX_NUMBERS // (rows.shape[1] * (linear_map.shape[1] - first)))
    for start in range(0, len(halves), step):
        part = rows[start : start + step] @ linear_map[:, first:]
        yield slice(start, start + len(part)), part


def _add_triangle(pairs: Tensor, first: int, block: Tensor) -> None:
    """Add the entries above the diagonal of a block to the sums (..., P) over pairs.

    ``block`` (..., rows, columns) begins at row and column ``first`` of a (D, D) matrix, and ends at its last column.
    """
    n_rows, n_columns = block.shape[-2:]
    above = torch.cat([block[..., row, row + 1 :] for row in range(n_rows)], dim=-1).cpu()
    # Rows before ``first`` hold (D - 1) + (D - 2) + ... pairs, and D = first + columns.
    start = first * (first + n_columns) - first * (first + 1) // 2
    pairs[..., start : start + above.shape[-1]] += above
