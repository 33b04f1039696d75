"""The target and the additional forward arguments of the model, cut along with the rows they belong to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class ForwardArgs:
    """The target and the additional forward arguments of some rows.

    As in Captum, an argument belongs to the rows if it is a tensor, array or list with one entry per row of *all* the
    data. Such an argument is sliced, repeated and reordered with the rows; any other one, and a sparse tensor, is
    passed on as it is.

    Attributes
    ----------
    values
        The target, followed by the additional arguments: first the positional ones, then the values of ``keywords``.
    per_row
        For each of ``values``, whether it has one entry per row.
    keywords
        The names of the arguments that are passed by keyword, in the order of the last ``values``.

    Examples
    --------
    >>> args = ForwardArgs.of(target=[0, 1, 1], additional={"weight": torch.arange(3.0), "power": 2.0}, rows=3)
    >>> args.per_row, args.keywords
    ((True, True, False), ('weight', 'power'))
    >>> args[1:3].values
    ([1, 1], tensor([1., 2.]), 2.0)
    """

    values: tuple[Any, ...]
    per_row: tuple[bool, ...]
    keywords: tuple[str, ...]

    @classmethod
    def of(cls, target: Any, additional: Mapping[str, Any] | tuple[Any, ...], rows: int) -> ForwardArgs:
        """Decide which arguments belong to the rows; ``rows`` is the number of rows of all the data.

        The length of a single batch must not be used for this: an argument may have that length by chance.
        """
        keywords = tuple(additional) if isinstance(additional, Mapping) else ()
        values = (target, *(additional.values() if isinstance(additional, Mapping) else additional))
        return cls(values, tuple(_length(value) == rows for value in values), keywords)

    def __getitem__(self, rows: slice) -> ForwardArgs:
        """Return the arguments of a slice of the rows."""
        return self._map(lambda value: value[rows])

    def repeat(self, repeats: int) -> ForwardArgs:
        """Return the arguments of the rows concatenated ``repeats`` times."""
        return self._map(lambda value: _repeat(value, repeats))

    def take(self, indices: Sequence[int]) -> ForwardArgs:
        """Return the arguments of the rows with these indices, in their order."""
        return self._map(lambda value: _take(value, indices))

    def _map(self, function: Callable[[Any], Any]) -> ForwardArgs:
        """Apply a function to the arguments that belong to the rows."""
        pairs = zip(self.values, self.per_row, strict=True)
        return replace(self, values=tuple(function(value) if belongs else value for value, belongs in pairs))


def _length(value: Any) -> int | None:
    """Return the number of entries of a tensor, array or list, None for anything else."""
    # Sparse tensors cannot be sliced.
    if isinstance(value, Tensor) and value.layout != torch.strided:
        return None
    if isinstance(value, (Tensor, np.ndarray)):
        return len(value) if value.ndim else None
    return len(value) if isinstance(value, list) else None


def _repeat(value: Any, repeats: int) -> Any:
    if isinstance(value, Tensor):
        return torch.cat([value] * repeats)
    return np.concatenate([value] * repeats) if isinstance(value, np.ndarray) else value * repeats


def _take(value: Any, indices: Sequence[int]) -> Any:
    return [value[index] for index in indices] if isinstance(value, list) else value[list(indices)]
