"""Categories as units."""

from __future__ import annotations

import copy
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain._types import Floats, Shape
from geh_explain._validation import check_int
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.units.base import Units
from geh_explain.units.category_columns import CategoryColumns, ObservedCategory
from geh_explain.units.contrasts import Contrasts
from geh_explain.units.dummies import find_categories
from geh_explain.units.neurons import Neurons
from geh_explain.units.pair_set import PairSet

#: What ``categories`` takes, for error messages.
_FORM = 'give for instance {"ocean": ["ocean_NEAR", "ocean_INLAND"], "weekday": "weekday"}'
#: Columns that an error message names.
_MAX_NAMED = 8


class Categorical(Units):
    """One unit per categorical variable: a block of one-hot columns, or one column of codes.

    A category has no derivative. Its interaction with another unit is a difference between two of its observed levels,
    taken at all rows, whatever their own level. For levels a < b of a category c, and a numeric unit u ::

        h_ab(x) = df/du (x; c <- b) - df/du (x; c <- a),

    and for a second category d with levels k < l ::

        h_abkl(x) = f(x; c <- b, d <- l) - f(x; c <- b, d <- k) - f(x; c <- a, d <- l) + f(x; c <- a, d <- k).

    Each of these contrasts is treated as the second derivative of two numeric units: averaged over the points of a
    group, then its absolute value is taken. The score of a pair is the mean of those of its contrasts, weighted by
    w_ab = p_a p_b / sum over a' < b' of p_a' p_b', with p_a the share of the points, or of their case weights, at level
    a (for two categories by the products of both weights), so that AEH <= GEH <= EAH. ``result.levels(i, j)`` has the
    single contrasts.

    ``scale="std"`` multiplies a category by sqrt((1 - sum of p_a^2) / 2), which is sqrt(p (1 - p)) for two levels: the
    standard deviation of a column of 0 and 1.

    df/du is the derivative of the network itself, without smoothing; with ``engine="difference"`` it is the quotient of
    differences that this engine takes. Pairs of numeric units are computed as without categories. A category with L
    levels costs L evaluations (and gradients) per row, two categories with L and L' levels cost L L' evaluations.

    Parameters
    ----------
    categories
        Name of each category -> its columns, by index into the flattened inputs, side by side, or by name of a data
        frame's column. Several columns are a one-hot block, of which at most one is 1 in a row; rows in which all are 0
        are a level of their own, "(none)". A single column holds codes, each of which is a level.
    rest
        Whether each other column is a numeric unit. If False, they stay fixed.
    max_levels
        Differences are taken between this many of the most frequent levels at most; None for all levels.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> colour = torch.eye(3)[torch.arange(60) % 3]  # red, green, blue
    >>> x = torch.cat([colour, torch.linspace(-1, 1, 60)[:, None]], dim=1)
    >>> units = geh.units.Categorical({"colour": [0, 1, 2]})
    >>> model = lambda x: 2 * x[:, 0] * x[:, 3]  # the slope of x3 is 2 where the colour is red
    >>> explainer = geh.GEHExplainer(model, units=units, posterior=geh.posterior.PointEstimate())
    >>> result = explainer.explain(x, groups=1, progress=False)
    >>> result.names, round(float(result.geh.mean[0, 1]), 4)  # (2 + 2 + 0) / 3
    (['colour', 'x3'], 1.3333)
    >>> result.levels("colour", "x3")[["from_i", "to_i", "weight", "mean"]].round(2).values.tolist()
    [['x0', 'x1', 0.33, -2.0], ['x0', 'x2', 0.33, -2.0], ['x1', 'x2', 0.33, 0.0]]
    """

    has_levels = True

    def __init__(
        self,
        categories: Mapping[str, int | str | Sequence[int | str]],
        *,
        rest: bool = True,
        max_levels: int | None = 20,
    ) -> None:
        if not isinstance(categories, Mapping) or not categories:
            raise GEHTypeError(f"Categorical: categories={categories!r} is not a mapping of names to columns; {_FORM}.")
        self.categories = {str(name): _column_list(name, columns) for name, columns in categories.items()}
        if not isinstance(rest, bool):
            raise GEHTypeError(f"Categorical: rest={rest!r} must be True or False.")
        self.rest = rest
        self.max_levels = None if max_levels is None else check_int("max_levels", max_levels, 2)
        #: The categories in the data, empty before :meth:`observe`.
        self.observed: tuple[ObservedCategory, ...] = ()
        #: Flat indices of the columns of each category, and of the numeric units; empty before :meth:`bind`.
        self._members: list[list[int]] = []
        self._numeric: list[int] = []

    @classmethod
    def detect(cls, frame: Any, *, max_levels: int | None = 20) -> Categorical | None:
        """Return the categories of a data frame as units, with all other columns as numeric units.

        Categories are columns of pandas' dtype ``category``; columns of text with 2 to 20 different values, some of
        them repeated; exclusive 0/1 or boolean columns with a common prefix such as ``ocean_``, as
        ``pandas.get_dummies`` makes them; and single 0/1 or boolean columns. None if there are none.

        >>> import pandas as pd, geh_explain as geh
        >>> frame = pd.DataFrame({"place": ["sea", "hill", "sea"], "member": [True, False, True], "age": [3.0, 1.0, 2]})
        >>> geh.units.Categorical.detect(pd.get_dummies(frame))
        Categorical({'member': ['member'], 'place': ['place_hill', 'place_sea']})
        """
        found = find_categories(frame)
        return cls(found, max_levels=max_levels) if found else None

    # Data.

    @property
    def coded(self) -> tuple[str, ...]:
        """Names of the columns that are categories by themselves; those of pandas' dtype category are read as codes."""
        return tuple(
            columns[0] for columns in self.categories.values() if columns[1:] == [] and type(columns[0]) is str
        )

    def observe(self, points: Points, columns: Sequence[str] | None = None) -> Categorical:
        """Return these units with the levels that occur among ``points``, by one pass over them.

        ``columns`` are names for the columns of points that have none.

        Raises
        ------
        GEHValueError
            If a category has one level or is not one-hot, or if a numeric unit is an integer.
        """
        first = points.first
        shape = (sum(_width(x) for x in first.inputs),)
        known = _flat_names(first, points.columns or columns)
        # A copy, as units that are bound already are returned as they are.
        bound = copy.copy(self.bind(shape, None, known))
        code_names = points.code_names
        names = Neurons().names(shape, "x", known)
        if first.frame is not None:
            # Columns of text are held as codes; those in no category have no values to move along.
            bound._numeric = [column for column in bound._numeric if column not in first.frame.coded]
        bound._check_numeric(first)
        bound.observed = tuple(
            _locate(name, members, first, names, code_names.get(names[members[0]])).observe(points, self.max_levels)
            for name, members in zip(self.categories, bound._members, strict=True)
        )
        return bound

    def weighted(self, points: Points, weights: Floats | None) -> Categorical:
        """Return these units, observed before, with the levels and shares of ``points`` that have case weights (N,)."""
        weighted = copy.copy(self)
        weighted.observed = tuple(
            category.where.observe(points, self.max_levels, weights) for category in self.observed
        )
        return weighted

    def _check_numeric(self, rows: Rows) -> None:
        """Raise if a numeric unit is a column of integers, which have no derivatives."""
        owners = np.repeat(np.arange(len(rows.inputs)), [_width(x) for x in rows.inputs])
        wrong = [column for column in self._numeric if not rows.inputs[owners[column]].is_floating_point()]
        if wrong:
            dtype = rows.inputs[owners[wrong[0]]].dtype
            raise GEHTypeError(
                f"inputs: the columns {wrong[:_MAX_NAMED]} have dtype {dtype}, which has no derivatives, and are in no "
                f'category; give each as a category, Categorical({{..., "x{wrong[0]}": {wrong[0]}}}), pass them as '
                "floating-point numbers, or leave them fixed by rest=False."
            )

    def check_one_hot(self, inputs: Tensor, argument: str) -> None:
        """Raise if inputs (n, ...) have rows with several ones in a block of columns; scaled ones are not checked."""
        flat = inputs.flatten(1)
        for name, members in zip(self.categories, self._members, strict=True):
            block = flat[:, members]
            if len(members) > 1 and bool(((block == 0) | (block == 1)).all()) and bool((block.sum(dim=1) > 1).any()):
                raise GEHValueError(
                    f"{argument}: a row has several ones in the columns of category {name!r}, which is no level; give "
                    "rows in which at most one of them is 1."
                )

    @property
    def category_columns(self) -> set[int]:
        """Flat indices of the columns of all categories."""
        return {column for members in self._members for column in members}

    @property
    def single_columns(self) -> list[int]:
        """Flat indices of the columns that are numeric units."""
        return self._numeric

    def contrasts(self, pairs: PairSet) -> Contrasts:
        """Return the differences between levels that the interactions of some pairs are made of."""
        return Contrasts(pairs, {unit: category.levels for unit, category in enumerate(self.observed)})

    def factors(self, std: Floats) -> Floats:
        """Return the standard deviations (D,) of all units; ``std`` (D,) has those of the numeric ones."""
        return np.concatenate([[category.std for category in self.observed], std[len(self.observed) :]])

    def positions(self, activations: Tensor) -> Tensor:
        """Return flattened inputs (n, d) in which columns of codes are replaced by indicators of their levels.

        A column of two codes stays as it is: it is an indicator up to its scale.
        """
        flat = activations.flatten(1)
        codes = {
            members[0]: place
            for place, members in enumerate(self._members)
            if len(members) == 1 and self.observed[place].n_observed > 2
        }
        parts = [flat[:, [column for column in range(flat.shape[1]) if column not in codes]].double().cpu()]
        for column, place in codes.items():
            parts.append(torch.as_tensor(self.observed[place].one_hot(flat[:, column].double().cpu().numpy())))
        return torch.cat(parts, dim=1)

    # Units.

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Categorical:
        if module is not None:
            raise GEHValueError(
                f"units={self!r}: categories are columns of the inputs, and this explainer is about a hidden layer, "
                "whose numbers have no levels; use layer=None, or other units."
            )
        if self._members:
            return self
        total = math.prod(shape)
        bound = copy.copy(self)
        bound._members = [
            [_index_of(name, column, total, columns) for column in members] for name, members in self.categories.items()
        ]
        used = [index for members in bound._members for index in members]
        twice = [index for index in set(used) if used.count(index) > 1]
        if twice:
            owners = [name for name, m in zip(self.categories, bound._members, strict=True) for i in m if i == twice[0]]
            column = twice[0] if columns is None else columns[twice[0]]
            raise GEHValueError(
                f"Categorical: column {column!r} is in the categories {' and '.join(map(repr, owners))}; give every "
                "column to one category, once."
            )
        bound._numeric = [index for index in range(total) if index not in set(used)] if self.rest else []
        return bound

    def count(self, shape: Shape) -> int:
        return len(self.categories) + len(self._numeric)

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        """Return B t, in which categories do not move: they have levels and no directions."""
        flat = t.new_zeros(len(t), math.prod(shape))
        columns = torch.tensor(self._numeric, device=t.device, dtype=torch.long)
        return flat.index_copy(1, columns, t[:, len(self.categories) :]).reshape(len(t), *shape)

    def values(self, activations: Tensor) -> Tensor:
        """Return the units' values (n, D); 0 for categories, which have none."""
        flat = activations.flatten(1)
        return torch.cat([flat.new_zeros(len(flat), len(self.categories)), flat[:, self._numeric]], dim=1)

    def members(self, activations: Tensor) -> Tensor:
        flat = activations.flatten(1)
        units = [*self._members, *([column] for column in self._numeric)]
        is_member = torch.zeros(len(units), flat.shape[1], dtype=torch.bool, device=flat.device)
        for unit, columns in enumerate(units):
            is_member[unit, columns] = True
        return flat[:, None].masked_fill(~is_member, -math.inf)

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        singles = Neurons().names(shape, prefix, columns)
        return [*self.categories, *(singles[index] for index in self._numeric)]

    def __repr__(self) -> str:
        rest = "" if self.rest else ", rest=False"
        levels = "" if self.max_levels == 20 else f", max_levels={self.max_levels}"
        return f"Categorical({self.categories!r}{rest}{levels})"


def refuse_categories(units: Any, what: str, way_out: str) -> None:
    """Raise that ``what`` does not take categories, if ``units`` are categories; ``way_out`` says what to do."""
    if isinstance(units, Categorical):
        raise GEHValueError(f"{what}: units=Categorical(...) has categories, which it does not take. {way_out}")


def _column_list(name: Any, columns: Any) -> list[int | str]:
    """Return the columns of a category as a list; a single name or index is one column."""
    if isinstance(columns, (str, int, np.integer)) and not isinstance(columns, bool):
        return [columns if isinstance(columns, str) else int(columns)]
    if not isinstance(columns, Iterable):
        raise GEHTypeError(f"Categorical: category {name!r} has the columns {columns!r}; {_FORM}.")
    found: list[Any] = [column.item() if isinstance(column, (np.generic, Tensor)) else column for column in columns]
    if not found:
        raise GEHValueError(f"Categorical: category {name!r} has no columns; {_FORM}.")
    return found


def _index_of(category: str, column: Any, total: int, columns: Sequence[str] | None) -> int:
    """Return the flat index of a column that is given by index or by name."""
    where = f"Categorical: category {category!r} has the column {column!r}"
    if isinstance(column, str):
        if columns is None:
            raise GEHValueError(f"{where}, but the inputs have no column names; give indices, or pass a DataFrame.")
        if column not in columns:
            close = difflib.get_close_matches(column, columns, n=3)
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
            more = " ..." if len(columns) > _MAX_NAMED else ""
            raise GEHValueError(f"{where}, which is not among the columns {list(columns[:_MAX_NAMED])}{more}{hint}")
        if list(columns).count(column) > 1:
            raise GEHValueError(f"{where}, and the inputs have several columns of this name; give its index.")
        return list(columns).index(column)
    if isinstance(column, bool) or not isinstance(column, int):
        raise GEHTypeError(f"{where}; give names or indices.")
    if not -total <= column < total:
        raise GEHValueError(f"{where}, but there are {total} columns; give indices from 0 to {total - 1}.")
    return column % total


def _width(x: Tensor) -> int:
    """Return the number of numbers per row of an input tensor (n, ...)."""
    return math.prod(x.shape[1:])


def _flat_names(rows: Rows, columns: Sequence[str] | None) -> list[str] | None:
    """Return names of the flat columns: those of a data frame, or those by which inputs are passed in a dict."""
    if columns is not None or not rows.input_names:
        return None if columns is None else list(columns)
    names: list[str] = []
    for name, x in zip(rows.input_names, rows.inputs, strict=True):
        names += [name] if _width(x) == 1 else [f"{name}[{index}]" for index in range(_width(x))]
    return names


def _locate(
    name: str, members: list[int], rows: Rows, names: list[str], code_names: tuple[str, ...] | None
) -> CategoryColumns:
    """Return where the columns of a category are, from their flat indices."""
    ends = list(accumulate(_width(x) for x in rows.inputs))
    tensors = {int(np.searchsorted(ends, index, side="right")) for index in members}
    if len(tensors) > 1:
        raise GEHValueError(
            f"Categorical: category {name!r} has columns {members} of several input tensors; its columns must be in "
            "one tensor."
        )
    tensor = tensors.pop()
    start = ends[tensor] - _width(rows.inputs[tensor])
    local = tuple(index - start for index in members)
    return CategoryColumns(name, tensor, local, tuple(names[index] for index in members), code_names)
