"""Categories among the units of an analysis: the level of each row as a code, and rows that are set to other levels."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.data.rows import Rows
from geh_explain.units.base import Units
from geh_explain.units.categorical import Categorical
from geh_explain.units.category_columns import CategoryColumns


class CategoryCodes:
    """The categories of some rows, which are the first C units; none for units without categories.

    All levels that occur in the rows have a code, whether or not ``Categorical(..., max_levels=)`` keeps them.

    Parameters
    ----------
    units
        The units; categories that were observed.
    rows
        The rows whose levels have codes.

    Attributes
    ----------
    codes
        Code (n, C) of each row's level, 0 to the number of levels minus 1.
    """

    def __init__(self, units: Units, rows: Rows) -> None:
        observed = units.observed if isinstance(units, Categorical) else ()
        self._columns: list[CategoryColumns] = [category.where for category in observed]
        self._values: list[Floats] = []
        codes: list[Ints] = []
        for where in self._columns:
            values, own = np.unique(where.values(rows), axis=0, return_inverse=True)
            self._values.append(values)
            codes.append(own.reshape(-1))
        self.codes = np.stack(codes, axis=1) if codes else np.zeros((len(rows), 0), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def n_levels(self) -> list[int]:
        """Number of levels of each category."""
        return [len(values) for values in self._values]

    def set(self, rows: Rows, codes: Ints) -> Rows:
        """Return any ``rows`` with their categories at the levels ``codes`` (n, C)."""
        for where, values, own in zip(self._columns, self._values, codes.T, strict=True):
            rows = where.replace_in(rows, values[own])
        return rows
