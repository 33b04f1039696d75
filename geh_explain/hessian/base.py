"""The contract of an engine: sums of local Hessians over groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.attach import Cut
from geh_explain.points import Rows


@dataclass
class GroupSums:
    """Sums over points of the local interactions of all pairs: signed per group (M, P), absolute (P,).

    Kept in double precision, whatever the model's, so that chunks add up the same in any size.
    """

    signed: Tensor
    absolute: Tensor

    @classmethod
    def zeros(cls, groups: int, units: int) -> GroupSums:
        """Return empty sums for D units."""
        pairs = units * (units - 1) // 2
        return cls(torch.zeros(groups, pairs, dtype=torch.double), torch.zeros(pairs, dtype=torch.double))

    def add(self, start: int, local: Tensor, members: Tensor) -> None:
        """Add local interactions (n, w) of ``w`` pairs from number ``start`` on; ``members`` (M, n) is one-hot."""
        local = local.double()
        stop = start + local.shape[1]
        self.signed[:, start:stop] += (members @ local).cpu()
        self.absolute[start:stop] += local.abs().sum(dim=0).cpu()


class Engine(Protocol):
    """Computes local interactions and adds them up by group."""

    name: str

    def chunk_rows(self, cut: Cut, rows: Rows) -> int:
        """Return how many rows fit into memory at once."""
        ...

    def add(self, sums: GroupSums, cut: Cut, rows: Rows, labels: NDArray[np.int64]) -> None:
        """Add the local interactions of a chunk of rows to ``sums``; ``labels`` (n,) are the rows' groups."""
        ...
