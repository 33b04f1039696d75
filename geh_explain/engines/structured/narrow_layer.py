"""Hessians at a narrow layer, summed over the points of a draw until they are pulled back to the units."""

from __future__ import annotations

import torch
from torch import Tensor

from geh_explain.engines.structured.program import LocalHessians
from geh_explain.engines.structured.pull_back import make_pull_back
from geh_explain.engines.sums import GroupSums, sums_by_group
from geh_explain.units.pair_set import PairSet


class NarrowLayer:
    """The sums of one draw at a narrow layer z = W t, which are pulled back at its end, or where W changes.

    The map W is the same for all rows of a chunk. Chunks may have different ones, as in a network that multiplies its
    inputs with a further argument.

    Attributes
    ----------
    total
        Sums (B, M, d * d) of the Hessians since the last pull-back; None without any.
    """

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self._linear_map: Tensor | None = None
        #: Hessians of the points at which absolute values are measured, their groups (M, n) and case weights (n,).
        self._measured: list[tuple[Tensor, Tensor, Tensor | None]] = []

    def add(self, sums: GroupSums, local: LocalHessians, members: Tensor, pairs: PairSet) -> None:
        """Add the Hessians (B * n, d, d) of n points with group membership ``members`` (M, n)."""
        assert local.linear_map is not None
        if self._linear_map is not None and not torch.equal(self._linear_map, local.linear_map):
            self.pull_back(sums, pairs)
        n_draws, n_rows = len(sums.signed), members.shape[1]
        total = sums_by_group(local.hessians.reshape(n_draws, n_rows, -1), members).double()
        self.total = total if self.total is None else self.total + total
        self._linear_map = local.linear_map

    def measure(self, hessians: Tensor, members: Tensor, weights: Tensor | None) -> None:
        """Keep the Hessians (n, d, d) of the points of the last chunk at which absolute values are measured."""
        self._measured.append((hessians, members, weights))

    def pull_back(self, sums: GroupSums, pairs: PairSet) -> None:
        """Add what was summed and kept to the ``pairs`` in ``sums``, and start anew."""
        if self._linear_map is None or self.total is None:
            return
        width, pull_back = len(self._linear_map), make_pull_back(self._linear_map, pairs)
        if self._measured:
            hessians, groups_of_points, weights = zip(*self._measured, strict=True)
            members, own = torch.cat(groups_of_points, dim=1), sums.weights
            sums.weights = None if own is None else torch.cat(weights)
            pull_back.add_points(sums, 0, torch.cat(hessians), members)
            sums.visit(members)
            sums.weights = own
        for draw, groups in enumerate(self.total):
            for group, total in enumerate(groups):
                pull_back.add(sums.signed[draw, group], total.reshape(width, width).to(self._linear_map))
        self.reset()

    def reset(self) -> None:
        """Forget everything that was added."""
        self.total, self._linear_map, self._measured = None, None, []
