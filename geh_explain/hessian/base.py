"""The contract of an engine: sums of local interactions over groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.cut import Cut
from geh_explain.points import Points, Rows


@dataclass
class GroupSums:
    """Sums over points of the local interactions of all pairs: signed per group (M, P), absolute (P,).

    ``variance`` (M, P) is that of the signed sums where an engine estimates them with noise of its own. All are
    in double precision, whatever the model's, so that chunks add up the same in any size.
    """

    signed: Tensor
    absolute: Tensor
    variance: Tensor | None = None

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

    def one_hot(self, labels: NDArray[np.int64], device: torch.device) -> Tensor:
        """Return which rows belong to which group, (M, n)."""
        groups = torch.as_tensor(labels, device=device)
        return torch.nn.functional.one_hot(groups, len(self.signed)).T.double()


class Engine(ABC):
    """Computes local interactions and adds them up by group.

    An engine of your own says how many rows it takes at once and adds their interactions; ``cut.outputs(rows,
    t)`` is the function whose mixed second derivatives in ``t`` are wanted.
    """

    #: What ``result.settings["engine"]`` says.
    name: str
    #: Whether it takes second derivatives, so that kinks must be smoothed.
    smooth = True

    def prepare(self, cut: Cut, points: Points, batch_size: int | None) -> None:  # noqa: B027
        """Look at the data once, before the first draw."""

    def start(self, seed: int) -> None:  # noqa: B027
        """Begin a draw."""

    @abstractmethod
    def chunk_rows(self, cut: Cut, rows: Rows) -> int:
        """Return how many rows fit into memory at once."""

    @abstractmethod
    def add(self, sums: GroupSums, cut: Cut, rows: Rows, labels: NDArray[np.int64]) -> None:
        """Add the local interactions of a chunk of rows to ``sums``; ``labels`` (n,) are the rows' groups."""
