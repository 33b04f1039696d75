"""The model as a function of how far each unit has moved from the baseline to the row."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from geh_explain._types import Shape
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Limits
from geh_explain.engines.exact import Exact, ExactRun
from geh_explain.model.cut import Cut
from geh_explain.model.view import View
from geh_explain.units.base import Units

#: Rows in one call of the model, where the user does not choose.
_CALL_ROWS = 4096
#: Bytes of the rows of one call at most.
_CALL_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Members:
    """The numbers of a layer that belong to each unit, as a list of M memberships.

    Attributes
    ----------
    n_units, size
        Number of units D, and of numbers in one row of the layer.
    numbers, owners
        Number of the flattened layer, and its unit, of each membership (M,).
    shares
        Part (M,) of the number's difference that belongs to the unit: 1, or 1 / k for a number of k units.
    """

    n_units: int
    size: int
    numbers: Tensor
    owners: Tensor
    shares: Tensor

    @classmethod
    def of(cls, units: Units, shape: Shape, device: torch.device) -> Members:
        """Read the members of bound ``units`` at a layer of this shape.

        >>> from geh_explain.units import FeatureGroups
        >>> units = FeatureGroups({"a": [0, 2], "b": [3]}).bind((4,), None, None)
        >>> members = Members.of(units, (4,), torch.device("cpu"))
        >>> members.numbers.tolist(), members.owners.tolist()
        ([0, 2, 3], [0, 0, 1])
        """
        size = math.prod(shape)
        # The values of this row are the positions of its numbers.
        positions = units.members(torch.arange(size, dtype=torch.double, device=device).reshape(1, *shape))[0]
        owners, places = torch.isfinite(positions).nonzero(as_tuple=True)
        numbers = positions[owners, places].long()
        counts = torch.bincount(numbers, minlength=size)
        return cls(len(positions), size, numbers, owners, 1.0 / counts[numbers])

    @property
    def are_disjoint(self) -> bool:
        """Whether no number belongs to two units."""
        return bool((self.shares == 1).all())

    def means(self, values: Tensor) -> Tensor:
        """Return the mean (n, D) of the members of each unit in flat rows ``values`` (n, size); 0 without members."""
        ones = torch.ones(len(self.owners), dtype=values.dtype, device=values.device)
        counts = values.new_zeros(self.n_units).index_add(0, self.owners, ones)
        sums = values.new_zeros(len(values), self.n_units).index_add(1, self.owners, values[:, self.numbers])
        return sums / counts.clamp_min(1)


class Directions(Units):
    """Units that move along their members' own differences between a row and a baseline.

    With d the differences of the members (n, M) and u = 1 + ``offset`` + t the positions of the units on the path, 1 at
    the row and 0 at the baseline, the layer's output a(x) becomes ::

        a(x) + sum over units k of (u_k - 1) d_k.

    The map is affine in t, so that an engine which differentiates at t = 0 does so at any place of the path.
    """

    def __init__(self, members: Members, differences: Tensor, offset: Tensor) -> None:
        self._members = members
        self._differences = differences
        self._offset = offset

    def count(self, shape: Shape) -> int:
        return self._members.n_units

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        moved = (t + self._offset).index_select(1, self._members.owners) * self._differences
        flat = t.new_zeros(len(t), self._members.size).index_add(1, self._members.numbers, moved)
        return flat.reshape(len(t), *shape)


@dataclass(frozen=True)
class UnitPath:
    """The output as a function of the positions u of the units on R paths, each from a baseline to a row.

    ::

        F_r(u) = g(a(x) + sum over units k of (u_k - 1) d_rk),    d_rk = a(x) - a(b_r) at the members of unit k.

    F_r(1) is the prediction. F_r(0) is the reference: all units at the baseline, and what belongs to no unit at the
    values of the row.

    Attributes
    ----------
    cut
        The model as a function of the units' shifts; its view is active where derivatives are taken.
    row
        The row x of all paths, or one row for each path.
    members
        The numbers of the layer that belong to each unit.
    own, baselines
        Flat values of the layer at the row (1, size), or those of all paths (R, size), and at the baselines (R, size).
    batch_size
        Rows per call of the model; None for a default.
    n_rows
        Number of distinct rows N. Paths r = 0, ..., R / N - 1 belong to the first row, and so on.
    """

    cut: Cut
    row: Rows
    members: Members
    own: Tensor
    baselines: Tensor
    batch_size: int | None
    n_rows: int = 1

    @classmethod
    def of_rows(
        cls, cut: Cut, rows: Rows, members: Members, own: Tensor, baselines: Tensor, batch_size: int | None
    ) -> UnitPath:
        """Return the paths from each of R baselines (R, size) to each of N rows with the values ``own`` (N, size)."""
        if len(rows) == 1:
            return cls(cut, rows, members, own, baselines, batch_size)
        each = [row for row in range(len(rows)) for _ in range(len(baselines))]
        ends = own[each], baselines.repeat(len(rows), 1)
        return cls(cut, rows.take(each), members, *ends, batch_size, len(rows))

    def of_row(self, number: int) -> slice:
        """Return the paths of one row."""
        count = len(self.baselines) // self.n_rows
        return slice(number * count, (number + 1) * count)

    def part(self, numbers: Sequence[int]) -> UnitPath:
        """Return the paths of some rows."""
        if self.n_rows == 1:
            return self
        paths = [path for number in numbers for path in range(len(self.baselines))[self.of_row(number)]]
        ends = self.own[paths], self.baselines[paths]
        return replace(self, row=self.row.take(paths), own=ends[0], baselines=ends[1], n_rows=len(numbers))

    @property
    def differences(self) -> Tensor:
        """Differences d (R, M) of the members between row and baseline."""
        numbers = self.members.numbers
        return (self.own[:, numbers] - self.baselines[:, numbers]) * self.members.shares.to(self.own)

    @property
    def call_rows(self) -> int:
        """Rows per call of the model."""
        row_bytes = sum(x[:1].nbytes for x in (*self.row.inputs, self.own))
        return self.batch_size or max(1, min(_CALL_ROWS, _CALL_BYTES // row_bytes))

    def at(self, baseline: Tensor, positions: Tensor) -> tuple[Cut, Rows]:
        """Return the cut and the rows at ``positions`` u (n, D) or (n, 1), for baselines by their index (n,)."""
        moved = copy.copy(self.cut)
        offset = positions.to(device=self.cut.device, dtype=self.cut.dtype) - 1
        differences = self.differences.to(self.cut.dtype)[baseline]
        moved.units = Directions(self.members, differences, offset)
        moved.n_units = self.members.n_units
        return moved, self._rows(baseline)

    def _rows(self, baseline: Tensor) -> Rows:
        """Return the rows of paths by their index (n,)."""
        return self.row.repeat(len(baseline)) if len(self.row) == 1 else self.row.take(baseline.tolist())

    def engine(self) -> ExactRun:
        """Return the engine of second derivatives at the baselines of the path."""
        cut, rows = self.at(torch.zeros(1, dtype=torch.long), torch.ones(1, 1))
        return Exact().start(cut, Limits(len(rows), self.batch_size))

    @torch.no_grad()
    def outputs(self, baseline: Tensor, positions: Tensor, *, viewed: bool = False) -> Tensor:
        """Return F (n,) in double precision at ``positions`` u (n, D) or (n, 1) for baselines by index (n,).

        ``viewed``: by the smooth forms of the cut's view, else by the model itself.
        """
        parts = []
        for some, places in zip(
            torch.split(baseline, self.call_rows), torch.split(positions, self.call_rows), strict=True
        ):
            if self.cut.layer is None and not viewed and self.members.are_disjoint and _is_binary(places):
                parts.append(self.cut.outputs(self.switched(some, places)).double().cpu())
                continue
            cut, rows = self.at(some, places)
            with cut.viewed(cut.view if viewed else View()):
                parts.append(cut.outputs(rows, cut.zeros(rows)).double().cpu())
        return torch.cat(parts)

    def switched(self, baseline: Tensor, positions: Tensor) -> Rows:
        """Return rows of inputs with the values of the baseline, to the last bit, where positions are 0."""
        on = positions.expand(-1, self.members.n_units)[:, self.members.owners].to(self.own.device) > 0
        values = self.own.expand(len(self.baselines), -1)[baseline]
        numbers = self.members.numbers
        values[:, numbers] = torch.where(on, values[:, numbers], self.baselines[baseline][:, numbers])
        inputs = self.row.inputs
        parts = torch.split(values, [x[0].numel() for x in inputs], dim=1)
        filled = tuple(part.reshape(-1, *x.shape[1:]).to(x) for part, x in zip(parts, inputs, strict=True))
        return replace(self._rows(baseline), inputs=filled)


def _is_binary(positions: Tensor) -> bool:
    return bool(((positions == 0) | (positions == 1)).all())
