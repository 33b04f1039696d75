"""The two axes of a surface: values of a numeric unit, or levels of a category."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import whole_units
from geh_explain.units.categorical import Categorical
from geh_explain.units.category_columns import ObservedCategory

#: The grid covers this share of the data, so that a few outliers do not stretch it.
_COVERED_SHARE = 0.98


@dataclass(frozen=True)
class SurfaceUnit:
    """One unit of a surface, with its category if it is one.

    Values of a category are the indices of its levels, NaN for levels that ``Categorical(..., max_levels=)`` leaves
    out.
    """

    index: int
    category: ObservedCategory | None

    @classmethod
    def of(cls, cut: Cut, index: int) -> SurfaceUnit:
        """Return the unit with this index."""
        categories = cut.units.observed if isinstance(cut.units, Categorical) else ()
        return cls(index, categories[index] if index < len(categories) else None)

    @property
    def levels(self) -> tuple[str, ...] | None:
        """Names of the levels of a category, None for a numeric unit."""
        return None if self.category is None else self.category.levels.names

    @torch.no_grad()
    def values(self, cut: Cut, rows: Rows) -> Floats:
        """Return the values (n,) of the unit in each row; the mean for units that move several numbers."""
        if self.category is not None:
            levels = self.category.find_levels(rows)
            return np.where(levels < 0, np.nan, levels)
        members = cut.units.members(cut.activations(rows))[:, self.index].double()
        inside = torch.isfinite(members)
        return np.asarray((members.masked_fill(~inside, 0).sum(dim=1) / inside.sum(dim=1)).cpu().numpy())

    def grid(self, cut: Cut, values: Floats, count: int) -> Floats:
        """Return ``count`` equidistant values over most of the data, or all distinct ``values`` where there are fewer.

        Values of whole numbers are rounded to such. The grid of a category has all of its levels.
        """
        if self.category is not None:
            return np.arange(len(self.category), dtype=np.float64)
        distinct = np.unique(values)
        if len(distinct) < 2:
            raise GEHValueError(
                f"pair: {cut.unit_names()[self.index]!r} has the same value in all inputs; choose two units that vary."
            )
        if len(distinct) <= count:
            return distinct
        low, high = np.quantile(values, [(1 - _COVERED_SHARE) / 2, (1 + _COVERED_SHARE) / 2])
        grid = np.linspace(low, high, count) if low < high else np.linspace(distinct[0], distinct[-1], count)
        return np.unique(np.rint(grid)) if whole_units(cut)[self.index] else grid

    def move(self, rows: Rows, t: Tensor, own: Tensor, places: Floats) -> Rows:
        """Move the unit of each row to one of ``places`` (n,): change ``t`` (n, D) in place, or return other rows."""
        if self.category is not None:
            return self.category.where.replace_in(rows, self.category.values[places.astype(int)])
        t[:, self.index] = (torch.as_tensor(places) - own).to(t)
        return rows


def nearest_shares(values: Floats, places: Floats) -> Floats:
    """Return the share of the data that is nearest to each grid value; rows without a value are left out.

    >>> nearest_shares(np.array([0.1, 0.9, 1.2, np.nan, 0.8]), np.array([0.0, 1.0])).tolist()
    [0.25, 0.75]
    """
    known = values[~np.isnan(values)]
    nearest = np.abs(known[:, None] - places).argmin(axis=1)
    return np.bincount(nearest, minlength=len(places)) / len(known)
