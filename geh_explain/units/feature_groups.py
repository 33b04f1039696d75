"""TODO."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain._types import Shape
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.units.base import Units
from geh_explain.units.neurons import Neurons


class FeatureGroups(Units):
    """Columns that move together, such as the measurements of one instrument.

    ``groups`` maps a name to its columns, by index or by name (of a DataFrame). Columns in no group
    stay where they are; with ``rest=True`` each of them is a unit of its own. All columns of a group move up
    together: for the columns of a one-hot variable that is no change of category, and opposite effects cancel.
    Explain those one by one, with ``engine="difference"``, which lets each jump between 0 and 1.

    >>> FeatureGroups({"size": [0, 1], "place": [2, 3]}).count((5,))
    2
    """

    def __init__(self, groups: Mapping[str, Sequence[int | str]], *, rest: bool = False) -> None:
        if not isinstance(groups, Mapping) or not groups:
            raise GEHTypeError(
                f"FeatureGroups: groups={groups!r} is not a mapping of names to columns; "
                'pass for instance {"size": [0, 1], "place": [2, 3]}.'
            )
        for name, columns in groups.items():
            if isinstance(columns, str) or not isinstance(columns, Iterable):
                raise GEHTypeError(f"FeatureGroups: group {name!r} has the columns {columns!r}; give them as a list.")
        self.groups = {str(name): list(columns) for name, columns in groups.items()}
        self.rest = rest
        self._members: list[list[int]] = []

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> FeatureGroups:
        total = math.prod(shape)
        bound = FeatureGroups(self.groups, rest=self.rest)
        bound._members = [
            [_column(name, column, total, columns) for column in members] for name, members in self.groups.items()
        ]
        taken = [i for members in bound._members for i in members]
        if len(set(taken)) < len(taken) or not all(bound._members):
            raise GEHValueError(
                f"FeatureGroups: groups={self.groups!r} has an empty group or a column in two groups; "
                "give every group at least one column, and every column one group."
            )
        if self.rest:
            bound._members += [[i] for i in sorted(set(range(total)) - set(taken))]
        return bound

    def count(self, shape: Shape) -> int:
        return len(self._members or self.groups)

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        flat = t.new_zeros(len(t), math.prod(shape))
        members = torch.tensor([i for group in self._members for i in group], device=t.device)
        sizes = torch.tensor([len(group) for group in self._members], device=t.device)
        owners = torch.arange(len(sizes), device=t.device).repeat_interleave(sizes)
        return flat.index_copy(1, members, t.index_select(1, owners)).reshape(len(t), *shape)

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        singles = Neurons().names(shape, prefix, columns)
        return [*self.groups, *(singles[members[0]] for members in self._members[len(self.groups) :])]

    def __repr__(self) -> str:
        return f"FeatureGroups({self.groups!r}{', rest=True' if self.rest else ''})"


def _column(group: str, column: int | str, total: int, columns: Sequence[str] | None) -> int:
    if isinstance(column, str):
        if columns is None or column not in columns:
            have = "the inputs have no column names" if columns is None else f"the columns are {list(columns)}"
            raise GEHValueError(f"FeatureGroups: group {group!r} has the column {column!r}, but {have}.")
        return list(columns).index(column)
    if isinstance(column, bool) or not isinstance(column, (int, np.integer)):
        raise GEHTypeError(f"FeatureGroups: group {group!r} has the column {column!r}; give indices or names.")
    index = int(column)
    if not -total <= index < total:
        raise GEHValueError(f"FeatureGroups: group {group!r} has the column {index}, but there are {total} columns.")
    return index % total
