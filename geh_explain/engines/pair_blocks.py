"""Blocks of rows of Hessians that hold the pairs of a run, so that no whole matrix is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from geh_explain.units.pair_set import PairSet

#: Numbers of a block whose pairs are picked by their places, at most: these are kept for the next blocks of the size.
_MAX_INDEXED = 2**18


@dataclass(frozen=True)
class PairBlock:
    """Some rows of a Hessian (D, D), and the pairs of a set that they hold.

    Attributes
    ----------
    rows, columns
        Units of the rows, and of the columns that are computed.
    places
        Places of the pairs of the block in the set.
    chosen
        Where they are in the block as one row of numbers; None for all pairs, which are above the diagonal.
    """

    rows: slice | Tensor
    columns: slice
    places: slice | Tensor
    chosen: Tensor | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.rows.stop - self.rows.start if isinstance(self.rows, slice) else len(self.rows)

    def pick(self, block: Tensor) -> Tensor:
        """Return the entries (..., p) of a block (..., rows, columns) that belong to pairs."""
        if self.chosen is not None:
            return block.flatten(-2)[..., self.chosen]
        n_rows = min(block.shape[-2], block.shape[-1] - 1)
        if block.device.type == "cpu" and block.shape[-2] * block.shape[-1] <= _MAX_INDEXED:
            picked: Tensor = block.flatten(-2).index_select(-1, _upper_entries(block.shape[-2], block.shape[-1]))
            return picked
        return torch.cat([block[..., row, row + 1 :] for row in range(n_rows)], dim=-1)


@lru_cache(maxsize=8)
def _upper_entries(n_rows: int, n_columns: int) -> Tensor:
    """Return the places (p,) of the entries above the diagonal in a matrix (rows, columns) as one row of numbers."""
    row, column = torch.triu_indices(n_rows, n_columns, offset=1)
    places: Tensor = row * n_columns + column
    return places


def split_pairs(pairs: PairSet, max_rows: int, device: torch.device) -> Iterator[PairBlock]:
    """Yield the blocks of at most ``max_rows`` rows that hold all pairs, each pair once.

    For all pairs only columns from the first row of the block on are needed, for others the rows of ``pairs.rows``.

    >>> block, other = split_pairs(PairSet.all(4), 2, torch.device("cpu"))
    >>> block.rows, block.columns, block.places, other.places
    (slice(0, 2, None), slice(0, None, None), slice(0, 5, None), slice(5, 6, None))
    >>> block.pick(torch.arange(8.0).reshape(2, 4)).tolist()
    [1.0, 2.0, 3.0, 6.0, 7.0]
    """
    for first in range(0, len(pairs.rows), max_rows):
        rows = pairs.rows[first : first + max_rows]
        if pairs.complete:
            places = slice(rows[0].positions[0], rows[-1].positions[-1] + 1)
            yield PairBlock(slice(first, first + len(rows)), slice(first, None), places, None)
            continue
        n_units = pairs.n_units
        chosen = np.concatenate([number * n_units + np.arange(n_units)[row.others] for number, row in enumerate(rows)])
        yield PairBlock(
            torch.as_tensor([row.unit for row in rows], device=device),
            slice(None),
            torch.as_tensor(np.concatenate([np.asarray(row.positions) for row in rows])),
            torch.as_tensor(chosen, device=device),
        )
