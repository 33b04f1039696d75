"""Data frames as tensors of doubles, and back to frames with the same columns and dtypes.

Engines move rows of numbers. A model that is given a data frame may select columns by name, or by dtype, and encode
text itself, so that it is called with a frame again: :class:`FrameLayout` holds what a tensor cannot.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._hashing import digest
from geh_explain.data.conversion import array_to_tensor
from geh_explain.errors import GEHTypeError, GEHValueError

if TYPE_CHECKING:
    import pandas as pd

#: Codes and whole numbers are recognised up to this distance.
_ROUNDING = 1e-6
#: Indicator columns of one column of text at most.
_MAX_INDICATORS = 20


def is_pandas(value: Any) -> bool:
    """Return whether ``value`` is a data frame of pandas, without importing it."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


@dataclass(frozen=True, eq=False)
class FrameLayout:
    """Columns and dtypes of a data frame whose n rows are held as a tensor (n, columns) of doubles.

    Numbers and booleans are held as they are. Any other column, such as text, categories or dates, is held as the
    index of its value among its distinct ones.

    Attributes
    ----------
    columns
        The column labels, an index of pandas.
    dtypes
        The dtype of each column.
    levels
        Distinct values of the columns that are held as indices, by the position of the column.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [30, 41], "city": ["Oslo", "Bonn"], "member": [True, False]})
    >>> values, layout = FrameLayout.read(frame, "inputs")
    >>> values.tolist(), layout.coded
    ([[30.0, 1.0, 1.0], [41.0, 0.0, 0.0]], (1,))
    >>> layout.to_frame(values).equals(frame)
    True
    """

    columns: Any
    dtypes: tuple[Any, ...]
    levels: Mapping[int, Any]

    @classmethod
    def read(cls, frame: pd.DataFrame, argument: str) -> tuple[Tensor, FrameLayout]:
        """Return the values of a frame and its layout; missing numbers become NaN.

        Raises
        ------
        GEHTypeError
            If a column has complex numbers.
        """
        columns: list[np.ndarray[Any, Any]] = []
        levels: dict[int, Any] = {}
        for place, dtype in enumerate(frame.dtypes):
            column = frame.iloc[:, place]
            kind = getattr(dtype, "kind", "O")
            if kind == "c":
                raise GEHTypeError(
                    f"{argument}: the column {frame.columns[place]!r} is complex; pass its real and imaginary parts as "
                    "columns."
                )
            if kind in "fiub":
                columns.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
            else:
                codes, levels[place] = _factorize(column)
                columns.append(codes.astype(np.float64))
        values = np.stack(columns, axis=1) if columns else np.zeros((len(frame), 0))
        return array_to_tensor(values, argument), cls(frame.columns, tuple(frame.dtypes), levels)

    @property
    def coded(self) -> tuple[int, ...]:
        """Positions of the columns that are held as indices of their values."""
        return tuple(self.levels)

    @property
    def numeric(self) -> list[int]:
        """Positions of the columns of numbers and booleans."""
        return [place for place in range(len(self.dtypes)) if place not in self.levels]

    @property
    def whole(self) -> list[int]:
        """Positions of the columns that hold whole numbers only: integers, booleans, indices of values."""
        return [place for place, dtype in enumerate(self.dtypes) if place in self.levels or dtype.kind in "iub"]

    @property
    def has_one_float_dtype(self) -> bool:
        """Whether all columns are floats of the same dtype of NumPy."""
        first = self.dtypes[0] if self.dtypes else None
        return isinstance(first, np.dtype) and first.kind == "f" and all(dtype == first for dtype in self.dtypes)

    @property
    def precision(self) -> torch.dtype:
        """Single precision if all columns have it, else double."""
        single = all(getattr(dtype, "kind", "O") == "f" and getattr(dtype, "itemsize", 8) == 4 for dtype in self.dtypes)
        return torch.float32 if single and self.dtypes else torch.float64

    def code_names(self) -> dict[str, tuple[str, ...]]:
        """Return the values of the columns that are held as indices, as text, by the name of the column."""
        return {str(self.columns[place]): tuple(map(str, levels)) for place, levels in self.levels.items()}

    def names(self, places: tuple[int, ...] | list[int]) -> list[str]:
        """Return the names of the columns at some positions."""
        return [str(self.columns[place]) for place in places]

    def to_frame(self, values: Tensor) -> pd.DataFrame:
        """Return rows (n, columns) as a frame with the columns and dtypes of the layout.

        Integers and booleans that were moved to other numbers than these become floats.

        Raises
        ------
        GEHValueError
            If a column of text was moved to somewhere between its values.
        """
        import pandas as pd

        array = values.detach().cpu().double().numpy()
        if self.has_one_float_dtype:
            # Faster than column by column for wide tables.
            return pd.DataFrame(array.astype(self.dtypes[0]), columns=self.columns)
        frame = pd.DataFrame({place: self._column(place, array[:, place]) for place in range(array.shape[1])})
        frame.columns = self.columns
        return frame

    def _column(self, place: int, numbers: np.ndarray[Any, Any]) -> Any:
        """Return one column in its own dtype."""
        dtype, nearest = self.dtypes[place], np.rint(numbers)
        is_whole = bool((np.abs(numbers - nearest) <= _ROUNDING).all())
        if place in self.levels:
            levels = self.levels[place]
            if not is_whole or nearest.min(initial=0) < 0 or nearest.max(initial=0) >= len(levels):
                name = str(self.columns[place])
                raise GEHValueError(
                    f"units: column {name!r} is not numeric, and cannot be moved to somewhere between its values; use "
                    "engine=Difference(), by which it jumps, or leave it out of the units."
                )
            return levels.take(nearest.astype(np.intp))
        if dtype.kind == "f":
            return _as_dtype(numbers, dtype)
        return _as_dtype(nearest, dtype) if is_whole and _fits(nearest, dtype) else numbers

    def indicators(self, values: Tensor) -> Tensor:
        """Return the columns of numbers of rows (n, columns), and a column of 0 and 1 for each level of the others.

        Of very many levels the first ones have a column.
        """
        parts = [values[:, self.numeric]]
        for place, levels in self.levels.items():
            codes = torch.arange(min(len(levels), _MAX_INDICATORS), device=values.device)
            parts.append((values[:, place, None] == codes).to(values.dtype))
        return torch.cat(parts, dim=1)

    def digest(self) -> str:
        """Return a hash of columns, dtypes and levels."""
        levels = {str(place): [str(level) for level in levels] for place, levels in self.levels.items()}
        return digest([str(name) for name in self.columns], [str(dtype) for dtype in self.dtypes], levels)


def _factorize(column: pd.Series[Any]) -> tuple[np.ndarray[Any, Any], Any]:
    """Return the code (n,) of each entry of a column, and its distinct values, sorted where they can be compared.

    Missing values come last. Those of a column of objects keep their kind, None, NaN or NA: encoders of scikit-learn
    take them for different categories.
    """
    import pandas as pd

    is_object = column.dtype == object
    try:
        codes, levels = pd.factorize(column, sort=True, use_na_sentinel=is_object)
    except TypeError:
        codes, levels = pd.factorize(column, use_na_sentinel=is_object)
    if not is_object:
        return np.asarray(codes), levels
    codes, missing = np.array(codes), column.isna().to_numpy()
    kinds = {type(value): value for value in column[missing]}
    places = {kind: len(levels) + place for place, kind in enumerate(kinds)}
    codes[missing] = [places[type(value)] for value in column[missing]]
    return codes, pd.Index([*levels, *kinds.values()], dtype=object)


def _as_dtype(numbers: np.ndarray[Any, Any], dtype: Any) -> Any:
    """Return numbers (n,) as an array of a NumPy or pandas dtype."""
    import pandas as pd

    if isinstance(dtype, np.dtype):
        return numbers.astype(dtype)
    return pd.Series(numbers).astype(dtype).array


def _fits(numbers: np.ndarray[Any, Any], dtype: Any) -> bool:
    """Return whether whole numbers can be held by a dtype of integers or booleans."""
    if dtype.kind == "b":
        low, high = 0, 1
    else:
        info = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
        low, high = info.min, info.max
    return bool(numbers.min(initial=0) >= low and numbers.max(initial=0) <= high)
