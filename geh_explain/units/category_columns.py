"""The columns of a category: its levels, as they occur in the data, and rows that are set to a level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHValueError
from geh_explain.units.contrasts import Levels

#: Name of the level of rows in which all columns of a one-hot category are 0.
NO_LEVEL = "(none)"
#: Different values of a column of codes at most.
_MAX_VALUES = 10_000
#: Separators between the name of a variable and that of a level.
_SEPARATORS = "_=.:"


@dataclass(frozen=True)
class CategoryColumns:
    """The columns of one category in the inputs.

    Attributes
    ----------
    name
        Name of the category.
    tensor
        Index of the input tensor that holds the columns.
    columns
        Their indices in a flattened row of that tensor.
    column_names
        Their names.
    code_names
        Names of the codes 0, 1, ... of a single column, as a data frame gave them; None where codes have no names.
    """

    name: str
    tensor: int
    columns: tuple[int, ...]
    column_names: tuple[str, ...]
    code_names: tuple[str, ...] | None = None

    def values(self, rows: Rows) -> Floats:
        """Return the columns (n, k) in some rows, in double precision."""
        x = rows.inputs[self.tensor]
        return np.asarray(x.detach().reshape(len(x), -1)[:, list(self.columns)].double().cpu().numpy())

    def replace_in(self, rows: Rows, values: Floats) -> Rows:
        """Return ``rows`` with other ``values`` (n, k) of the columns; what is kept below a layer is left out."""
        inputs = list(rows.inputs)
        x = inputs[self.tensor].clone(memory_format=torch.contiguous_format)
        x.view(len(x), -1)[:, list(self.columns)] = torch.as_tensor(values).to(x)
        inputs[self.tensor] = x
        return replace(rows, inputs=tuple(inputs), below=())

    def observe(self, points: Points, max_levels: int | None, weights: Floats | None = None) -> ObservedCategory:
        """Return the category with the levels that occur among all points, by one pass over them.

        Shares of levels are those of the points' case ``weights`` (N,), None for 1.

        Raises
        ------
        GEHValueError
            If a block of columns is not one-hot, or if there are fewer than two levels or far too many.
        """
        most = _MAX_VALUES if len(self.columns) == 1 else len(self.columns) + 1
        distinct: Floats = np.zeros((0, len(self.columns)))
        counts: Floats = np.zeros(0)
        for rows in points.batches():
            found, place = np.unique(self.values(rows), axis=0, return_inverse=True)
            of_rows = None if weights is None else weights[rows.start : rows.start + len(rows)]
            number = np.bincount(place.ravel(), of_rows, len(found))
            distinct, index = np.unique(np.concatenate([distinct, found]), axis=0, return_inverse=True)
            counts = np.bincount(index.ravel(), np.concatenate([counts, number]), len(distinct)).astype(np.float64)
            if len(distinct) > most:
                self._refuse_values(distinct)
        names, order = self._level_names(distinct)
        if len(distinct) < 2:
            raise GEHValueError(
                f"Categorical: category {self.name!r} has one level, {names[0]!r}, at all {len(points)} points; pass "
                "points at which it varies, or leave it out."
            )
        missing = set(self._short_names()) - set(names) if len(self.columns) > 1 else set()
        return _most_frequent(self, distinct[order], names, counts[order] / counts.sum(), sorted(missing), max_levels)

    def _refuse_values(self, distinct: Floats) -> None:
        """Raise for columns with more different rows than a category can have; ``distinct`` (r, k) are such rows."""
        if len(self.columns) == 1:
            raise GEHValueError(
                f"Categorical: category {self.name!r}, column {self.column_names[0]!r}, has more than {_MAX_VALUES:,} "
                "different values; it seems to be a number. Leave it out, and it is a numeric unit."
            )
        self._hot(distinct)
        raise self._not_one_hot("has more different rows than columns")

    def _not_one_hot(self, problem: str) -> GEHValueError:
        """Return the error for a block of columns that is not one-hot."""
        return GEHValueError(
            f"Categorical: category {self.name!r} {problem}; its columns must be one-hot: each has two values, 0 and 1 "
            "or both scaled, and at most one of them is 1 in a row. Give each column that is a variable of its own as "
            f'a category of its own, {{"{self.column_names[0]}": "{self.column_names[0]}", ...}}, or leave it out.'
        )

    def _level_names(self, distinct: Floats) -> tuple[list[str], Ints]:
        """Return the names of the levels, and the order of the ``distinct`` rows (r, k) to which they belong."""
        if len(self.columns) > 1:
            hot = self._hot(distinct)
            # Rows without a one come first, then in the order of the columns.
            place = np.where(hot.any(axis=1), hot.argmax(axis=1), -1)
            order = np.argsort(place, kind="stable")
            short = self._short_names()
            return [NO_LEVEL if index < 0 else short[index] for index in place[order]], order
        codes = distinct[:, 0]
        if self.code_names is not None and all(code in range(len(self.code_names)) for code in codes.tolist()):
            return [self.code_names[int(code)] for code in codes], np.arange(len(codes))
        texts = [f"{code:g}" for code in codes]
        if len(set(texts)) < len(texts):
            texts = [str(int(code)) if code == int(code) else repr(float(code)) for code in codes]
        return texts, np.arange(len(codes))

    def _hot(self, distinct: Floats) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """Return which columns of the ``distinct`` rows (r, k) are 1, or the larger of two scaled values."""
        for name, column in zip(self.column_names, distinct.T, strict=True):
            values = np.unique(column)
            if len(values) > 2:
                raise self._not_one_hot(f"has the values {', '.join(f'{v:g}' for v in values[:3])} in column {name!r}")
        if np.isin(distinct, (0, 1)).all():
            hot = distinct == 1
        else:
            hot = (distinct == distinct.max(axis=0)) & (distinct.min(axis=0) < distinct.max(axis=0))
        if (hot.sum(axis=1) > 1).any():
            row = hot[np.flatnonzero(hot.sum(axis=1) > 1)[0]]
            both = " and ".join(repr(self.column_names[index]) for index in np.flatnonzero(row)[:2])
            raise self._not_one_hot(f"has rows in which {both} are both 1")
        return np.asarray(hot)

    def _short_names(self) -> list[str]:
        """Return the names of the columns without what they have in common, "ocean_NEAR" -> "NEAR"."""
        names = list(self.column_names)
        # Prefixes of the first column that end at a separator, the longest one first.
        ends = [place + 1 for place, letter in enumerate(names[0]) if letter in _SEPARATORS]
        prefixes = [names[0][:end] for end in reversed(ends)]
        for prefix in prefixes:
            if all(name.startswith(prefix) and len(name) > len(prefix) for name in names):
                return [name.removeprefix(prefix) for name in names]
        return names


@dataclass(frozen=True)
class ObservedCategory:
    """A category with the levels that occur in the data.

    Attributes
    ----------
    where
        Its columns.
    levels
        The levels between which differences are taken.
    values
        Values (L, k) of the columns at each of these levels.
    std
        sqrt((1 - sum of p_a^2) / 2) over all levels a, with their shares p_a of the points or of their case weights:
        the standard deviation of a category. For two levels coded 0 and 1 it is sqrt(p (1 - p)).
    n_observed
        Number of levels that occur, of which ``levels`` are the most frequent ones.
    missing
        Names of columns of a one-hot category that are 1 at no point.
    """

    where: CategoryColumns
    levels: Levels
    values: Floats
    std: float
    n_observed: int
    missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.levels)

    def set_levels(self, rows: Rows, levels: Sequence[int] | Ints) -> Rows:
        """Return ``rows`` once for each of k ``levels``, at that level: all rows at the first one, and so on."""
        return set_levels(rows, [(self, np.asarray(levels))])

    def find_levels(self, rows: Rows) -> Ints:
        """Return the index (n,) of the level of each row; -1 for levels that are left out."""
        distinct, own = np.unique(self.where.values(rows), axis=0, return_inverse=True)
        matches = (distinct[:, None] == self.values).all(axis=2)
        return np.where(matches.any(axis=1), matches.argmax(axis=1), -1)[own.reshape(-1)]

    @cached_property
    def _sorted(self) -> tuple[Floats, Ints]:
        """Values of a column of codes in ascending order, and their levels."""
        order = np.argsort(self.values[:, 0], kind="stable")
        return self.values[order, 0], order

    def one_hot(self, codes: Floats) -> Floats:
        """Return codes (n,) of a single column as indicators (n, L) of the levels; 0 for levels that are left out."""
        values, order = self._sorted
        place = np.clip(np.searchsorted(values, codes), 0, len(values) - 1)
        found = np.zeros((len(codes), len(values)))
        found[np.arange(len(codes)), order[place]] = values[place] == codes
        return found


def set_levels(rows: Rows, assigned: Sequence[tuple[ObservedCategory, Ints]]) -> Rows:
    """Return ``rows`` k times; in copy s each category of ``assigned`` has the level with index ``levels[s]``.

    ``assigned`` are one or more categories, each with its ``levels`` (k,).
    """
    copies = len(assigned[0][1])
    repeated = rows.repeat(copies)
    for category, levels in assigned:
        # A new tensor, made by repeat(), whose rows are views of it.
        x = repeated.inputs[category.where.tensor]
        values = torch.as_tensor(category.values[levels]).to(x).repeat_interleave(len(rows), dim=0)
        x.reshape(len(x), -1)[:, list(category.where.columns)] = values
    return replace(repeated, below=())


def _most_frequent(
    where: CategoryColumns,
    values: Floats,
    names: list[str],
    shares: Floats,
    missing: list[str],
    max_levels: int | None,
) -> ObservedCategory:
    """Return a category with its most frequent levels, in the order of ``values`` (L, k)."""
    std = float(np.sqrt((1 - (shares**2).sum()) / 2))
    kept = np.sort(np.argsort(-shares, kind="stable")[:max_levels])
    levels = Levels(tuple(names[index] for index in kept), shares[kept])
    return ObservedCategory(where, levels, values[kept], std, len(names), tuple(missing))
