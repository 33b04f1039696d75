"""Sets of columns as units."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain._types import Shape
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.units.base import Units
from geh_explain.units.neurons import Neurons
from geh_explain.units.unit_lookup import list_names, suggest


class FeatureGroups(Units):
    """One unit per set of columns: all columns of a set shift by the same amount.

    Column k of B is 1 at the columns of set k and 0 elsewhere, so the interaction of two sets is the sum of those of
    their pairs of columns. An example is the measurements of one instrument.

    For the columns of a one-hot variable a common shift is no change of category, and opposite effects cancel:
    :class:`~geh_explain.units.Categorical` takes them as one unit with levels.

    Parameters
    ----------
    groups
        Name of each unit -> its columns, by index into the flattened row or by name of a data frame's column.
    rest
        Whether each column in no set is a unit of its own. By default such columns stay fixed.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> units = geh.units.FeatureGroups({"size": [0, 1], "place": [2, 4]})
    >>> units.count((5,))
    2
    >>> units.bind((5,), None, None).shift(torch.eye(2), (5,))
    tensor([[1., 1., 0., 0., 0.],
            [0., 0., 1., 0., 1.]])
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
        #: Column indices of each unit, named sets first, then single columns; empty before :meth:`bind`.
        self._members: list[list[int]] = []

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> FeatureGroups:
        """Return the groups with columns in place of names."""
        total = math.prod(shape)
        members = [[_index_of(name, column, total, columns) for column in group] for name, group in self.groups.items()]
        grouped = [index for group in members for index in group]
        if len(set(grouped)) < len(grouped) or not all(members):
            raise GEHValueError(
                f"FeatureGroups: groups={self.groups!r} has an empty group or a column in two groups; "
                "give every group at least one column, and every column one group."
            )
        if self.rest:
            members += [[index] for index in sorted(set(range(total)) - set(grouped))]
        bound = copy.copy(self)
        bound._members = members
        return bound

    @property
    def single_columns(self) -> list[int]:
        """Indices of the columns that are units of their own."""
        return [members[0] for members in self._members if len(members) == 1]

    def count(self, shape: Shape) -> int:
        return len(self._members or self.groups)

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        flat = t.new_zeros(len(t), math.prod(shape))
        members = torch.tensor([index for group in self._members for index in group], device=t.device)
        sizes = torch.tensor([len(group) for group in self._members], device=t.device)
        # The unit of each member, so that one gather and one scatter do for all units.
        owners = torch.arange(len(sizes), device=t.device).repeat_interleave(sizes)
        return flat.index_copy(1, members, t.index_select(1, owners)).reshape(len(t), *shape)

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        singles = Neurons().names(shape, prefix, columns)
        return [*self.groups, *(singles[members[0]] for members in self._members[len(self.groups) :])]

    def __repr__(self) -> str:
        return f"FeatureGroups({self.groups!r}{', rest=True' if self.rest else ''})"


def _index_of(group: str, column: int | str, total: int, columns: Sequence[str] | None) -> int:
    """Return the index from 0 to ``total`` - 1 of a column that is given by index or by name."""
    if isinstance(column, str):
        if columns is None or column not in columns:
            have = "the inputs have no column names." if columns is None else f"the columns are {list_names(columns)}"
            have += "" if columns is None else suggest(column, columns)
            raise GEHValueError(f"FeatureGroups: group {group!r} has the column {column!r}, but {have}")
        return list(columns).index(column)
    if isinstance(column, bool) or not isinstance(column, (int, np.integer)):
        raise GEHTypeError(f"FeatureGroups: group {group!r} has the column {column!r}; give indices or names.")
    index = int(column)
    if not -total <= index < total:
        raise GEHValueError(f"FeatureGroups: group {group!r} has the column {index}, but there are {total} columns.")
    return index % total
