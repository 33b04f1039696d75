"""Sums of local interactions over the points of each group: what an engine fills."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass
class GroupSums:
    """Sums over points of the local interactions of all pairs, in double precision on the CPU.

    With H the local Hessian at a point, M groups and P = D (D - 1) / 2 pairs i < j in row-major order::

        signed[b, m, p] = sum over the points of group m of H_p,    absolute[b, p] = sum over all points of |H_p|.

    Divided by the number of points they give AEH, GEH and EAH; an array of all local Hessians is never needed. Double
    precision, whatever the model's, makes the sums independent of the size of chunks up to rounding.

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

    Examples
    --------
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
        """Return sums of no points yet, for M groups, D units and B draws."""
        pairs = units * (units - 1) // 2
        return cls(torch.zeros(draws, groups, pairs, dtype=torch.double), torch.zeros(draws, pairs, dtype=torch.double))

    def add(self, start: int, local: Tensor, members: Tensor) -> None:
        """Add the local interactions of further points.

        Parameters
        ----------
        start
            Index of the first pair in ``local``: pairs may be added block by block.
        local
            Local interactions (B * n, w) of the pairs ``start`` to ``start + w``.
        members
            One-hot group membership (M, n) of the points, see :meth:`one_hot`.
        """
        # Rows come draw by draw, so that the first dimension splits into (B, n).
        local = local.double().reshape(len(self.signed), members.shape[1], -1)
        stop = start + local.shape[2]
        self.signed[:, :, start:stop] += (members @ local).cpu()
        self.absolute[:, start:stop] += local.abs().sum(dim=1).cpu()

    def add_slopes(self, slopes: Tensor, members: Tensor) -> None:
        """Add first derivatives (B * n, D) of further points; ``members`` (M, n) as in :meth:`add`."""
        slopes = slopes.detach().double().reshape(len(self.signed), members.shape[1], -1)
        total = (members @ slopes).cpu()
        self.slopes = total if self.slopes is None else self.slopes + total

    def one_hot(self, labels: NDArray[np.int64], device: torch.device) -> Tensor:
        """Return the group membership (M, n) of n points with ``labels`` (n,): 1 where a point is in a group."""
        groups = torch.as_tensor(labels, device=device)
        return torch.nn.functional.one_hot(groups, self.signed.shape[1]).T.double()
