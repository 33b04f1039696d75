"""Sums of local interactions over groups that each pair has of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from geh_explain.engines.sums import GroupSums


@dataclass
class PairSums(GroupSums):
    """Sums over the points of the groups of each pair: halves of its two units, and of a third one.

    With b (n, D) the halves of the points, 1 where a unit is high, the group of a point for the pair (i, j) with the
    third unit k is 2 b_i + b_j + 4 b_k, or 2 b_i + b_j without one. ``slopes`` has in its first two rows the sums over
    the points at which the unit itself is low and high. ``counts`` counts points in all groups together.

    Attributes
    ----------
    first_units, second_units, third_units
        Indices (P,) of the units of each pair, -1 for no third one.
    halves
        Halves (n, D) of the points that are added next, as 0 and 1.

    Examples
    --------
    >>> import torch
    >>> sums = PairSums.zeros(groups=4, units=2)
    >>> sums.set_units(torch.tensor([0]), torch.tensor([1]), torch.tensor([-1]))
    >>> sums.halves = torch.tensor([[0, 0], [1, 0], [1, 0]])
    >>> sums.add(0, torch.tensor([[1.0], [2.0], [-5.0]]), torch.ones(4, 3))
    >>> sums.signed.flatten().tolist(), sums.absolute.flatten().tolist()
    ([1.0, 0.0, -3.0, 0.0], [8.0])
    """

    by_pair: ClassVar[bool] = True

    first_units: Tensor | None = None
    second_units: Tensor | None = None
    third_units: Tensor | None = None
    halves: Tensor | None = None

    def set_units(self, first: Tensor, second: Tensor, third: Tensor) -> None:
        """Set the units (P,) of each pair; no third one is -1."""
        self.first_units, self.second_units, self.third_units = first, second, third

    def add(self, start: int | Tensor, local: Tensor, members: Tensor, chosen: Tensor | None = None) -> None:
        """Add the local interactions of further points; the parameters are those of :meth:`GroupSums.add`."""
        local = local.double().reshape(len(self.signed), members.shape[1], -1)
        local = local if chosen is None else local[:, :, chosen]
        where = torch.arange(start, start + local.shape[2]) if isinstance(start, int) else start.cpu()
        self.add_columns(where, local)
        self.absolute[:, where] += local.abs().sum(dim=1).cpu()
        if bool((where == 0).any()):
            self.visit(members)

    def add_columns(self, where: Tensor, local: Tensor) -> None:
        """Add local interactions (B, n, w) of the pairs ``where`` (w,) to the sums of their groups."""
        groups = self.groups_of(where, local.device)
        self.signed[:, :, where] += _sums_by_group(local, groups, self.signed.shape[1]).cpu()
        if self.squares is not None:
            squared = local[: len(self.squares)].square()
            self.squares[:, :, where] += _sums_by_group(squared, groups, self.squares.shape[1]).cpu()

    def groups_of(self, where: Tensor, device: torch.device) -> Tensor:
        """Return the group (n, w) of each point for the pairs ``where`` (w,)."""
        assert self.first_units is not None
        assert self.second_units is not None
        assert self.third_units is not None
        halves = self._halves(device)
        thirds = self.third_units[where]
        groups = 2 * halves[:, self.first_units[where]] + halves[:, self.second_units[where]]
        if bool((thirds >= 0).any()):
            groups = groups + 4 * halves[:, thirds.clamp_min(0)] * (thirds >= 0).to(device)
        return groups

    def add_slopes(self, slopes: Tensor, members: Tensor) -> None:
        """Add first derivatives (B * n, D) of further points, by the half of each unit."""
        slopes = slopes.detach().double().reshape(len(self.signed), members.shape[1], -1)
        total = _sums_by_group(slopes, self._halves(slopes.device), self.signed.shape[1]).cpu()
        self.slopes = total if self.slopes is None else self.slopes + total

    def _halves(self, device: torch.device) -> Tensor:
        assert self.halves is not None
        return self.halves.to(device=device, dtype=torch.int64)


@dataclass
class ThirdUnitSums(PairSums):
    """Sums from which the third unit of each pair is chosen, see :func:`~geh_explain.groups.pairwise.choose_thirds`.

    Attributes
    ----------
    by_unit
        Sums (2, 4, P, D + 1) of the local interactions over every other point, the groups of each pair, and those of
        their points at which each unit is high; the last column has all points.
    parity
        Which of the two parts (n,) each of the points that are added next is in, 0 or 1.
    """

    by_unit: Tensor | None = None
    parity: Tensor | None = None

    def add_columns(self, where: Tensor, local: Tensor) -> None:
        """Add local interactions (1, n, w) of the pairs ``where`` (w,)."""
        assert self.by_unit is not None
        assert self.parity is not None
        groups, halves = self.groups_of(where, local.device), self._halves(local.device).to(local)
        high = torch.cat([halves, torch.ones_like(halves[:, :1])], dim=1)
        for part in range(2):
            chosen = self.parity == part
            for group in range(4):
                own = local[0, chosen] * (groups[chosen] == group)
                self.by_unit[part, group, where] += (own.T @ high[chosen]).cpu()


def _sums_by_group(values: Tensor, groups: Tensor, n_groups: int) -> Tensor:
    """Return the sums (B, M, w) of ``values`` (B, n, w) over the points of each column's own ``groups`` (n, w)."""
    if values.device.type == "cpu":
        total = values.new_zeros(len(values), n_groups, values.shape[2])
        return total.scatter_add_(1, groups.expand(len(values), -1, -1), values)
    # Elsewhere scatter_add_() adds in an order that differs from call to call.
    return torch.stack([(values * (groups == group)).sum(dim=1) for group in range(n_groups)], dim=1)
