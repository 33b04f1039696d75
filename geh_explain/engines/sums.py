"""TODO."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass
class GroupSums:
    """Sums over points of the local interactions of all pairs: signed by draw and group (B, M, P), absolute (B, P).

    Several draws B come at once where their rows do: all rows under the first draw, all under the second, and so on.
    ``variance`` (B, M, P) is that of the signed sums where an engine estimates them with noise of its own, ``slopes``
    (B, M, D) are the sums of first derivatives where it knows them. All are in double precision, whatever the model's,
    so that chunks add up the same in any size. ``skipped`` counts the rows of each draw that the absolute sums are
    without.

    >>> import torch
    >>> sums = GroupSums.zeros(groups=2, units=2)
    >>> sums.add(0, torch.tensor([[1.0], [-3.0]]), torch.eye(2, dtype=torch.double))  # one point in each group
    >>> sums.signed.flatten().tolist(), sums.absolute.flatten().tolist()
    ([1.0, -3.0], [4.0])
    """

    signed: Tensor
    absolute: Tensor
    variance: Tensor | None = None
    slopes: Tensor | None = None
    skipped: int = 0

    @classmethod
    def zeros(cls, groups: int, units: int, draws: int = 1) -> GroupSums:
        """Return empty sums for D units."""
        pairs = units * (units - 1) // 2
        return cls(torch.zeros(draws, groups, pairs, dtype=torch.double), torch.zeros(draws, pairs, dtype=torch.double))

    def add(self, start: int, local: Tensor, members: Tensor) -> None:
        """Add local interactions (B * n, w) of ``w`` pairs from number ``start`` on; ``members`` (M, n) is one-hot."""
        local = local.double().reshape(len(self.signed), members.shape[1], -1)
        stop = start + local.shape[2]
        self.signed[:, :, start:stop] += (members @ local).cpu()
        self.absolute[:, start:stop] += local.abs().sum(dim=1).cpu()

    def add_slopes(self, slopes: Tensor, members: Tensor) -> None:
        """Add first derivatives (B * n, D); ``members`` (M, n) is one-hot."""
        slopes = slopes.detach().double().reshape(len(self.signed), members.shape[1], -1)
        total = (members @ slopes).cpu()
        self.slopes = total if self.slopes is None else self.slopes + total

    def one_hot(self, labels: NDArray[np.int64], device: torch.device) -> Tensor:
        """Return which rows of a draw belong to which group, (M, n)."""
        groups = torch.as_tensor(labels, device=device)
        return torch.nn.functional.one_hot(groups, self.signed.shape[1]).T.double()
