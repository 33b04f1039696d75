"""The arguments ``unit``, ``pairs`` and ``rows`` of ``explain()``: which pairs of units are computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from geh_explain._validation import check_int
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.scores.ranking import find_unit
from geh_explain.units.base import Units
from geh_explain.units.pair_set import PairSet, count_pairs
from geh_explain.units.subset import Subset
from geh_explain.units.unit_lookup import list_names

#: The word by which the units of the strongest pairs are searched for.
_AUTO = "auto"
#: What ``pairs`` and ``rows`` take, for error messages.
_PAIRS = "give a list of pairs of units, by name or index, such as pairs=[(0, 3), ('age', 'bmi')]"
_ROWS = "give a list of units, by name or index, what explainer.screen(...) returns, or 'auto'"
#: How many entries of an argument are recorded.
_MAX_RECORDED = 20


@dataclass(frozen=True)
class PairRequest:
    """Which pairs a call asks for: those of one unit, single pairs, those of several units, or all of them.

    At most one of the three is given.

    Attributes
    ----------
    unit
        A unit, by name or index: its pairs with all others.
    pairs
        Pairs of units.
    rows
        Several units, as a list or a :class:`~geh_explain.units.Subset`: all pairs with an end among them. ``"auto"``:
        units are searched for that the strongest pairs belong to.
    top
        So many of the strongest pairs, which are searched for among all of them; see :meth:`GEHExplainer.search`.
    """

    unit: int | str | None = None
    pairs: Any = None
    rows: Any = None
    top: int | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("unit", "pairs", "rows") if getattr(self, name) is not None]
        if len(given) > 1:
            raise GEHValueError(
                f"{' and '.join(given)} are both given; choose the pairs by one of unit, pairs and rows."
            )
        if self.pairs is not None:
            _check_pairs(self.pairs)
        if self.top is not None:
            object.__setattr__(self, "top", check_int("top", self.top, 1))
        if isinstance(self.rows, str) and self.rows != _AUTO:
            raise GEHValueError(f"rows={self.rows!r} is unknown; {_ROWS}. One unit is unit={self.rows!r}.")

    @property
    def automatic(self) -> bool:
        """Whether the run itself searches for the rows."""
        return isinstance(self.rows, str)

    @property
    def searches(self) -> bool:
        """Whether the run itself searches for rows or pairs."""
        return self.automatic or self.top is not None

    def resolve(self, units: Units, names: Sequence[str], columns: Sequence[str] | None = None) -> PairSet:
        """Return the pairs of the ``units`` of a run, which have these ``names`` (D); all where rows are searched for.

        Where the strongest pairs are searched for, the first ones hold their places until they are found. ``columns``
        are the names of the columns of the inputs, of which some may be no units.

        Raises
        ------
        GEHValueError, GEHTypeError
            For units that do not exist, pairs of a unit with itself, and empty or repeated entries.
        """
        n_units = len(names)
        self._check_columns(names, columns or ())
        if self.top is not None:
            return PairSet.leading(_check_top(self.top, n_units), n_units)
        if self.unit is not None:
            return PairSet.touching([find_unit(self.unit, names)], n_units)
        if self.pairs is not None:
            found_pairs = [_find_pair(pair, names) for pair in self.pairs]
            _check_distinct("pairs", found_pairs, names)
            return PairSet.of(found_pairs, n_units)
        if self.rows is None or self.automatic:
            return PairSet.all(n_units)
        found = [find_unit(unit, names, "rows") for unit in _row_list(self.rows, units)]
        _check_distinct("rows", [(unit,) for unit in found], names)
        return PairSet.touching(found, n_units)

    def _check_columns(self, names: Sequence[str], columns: Sequence[str]) -> None:
        """Raise for a column that is no unit, such as one of text that each row keeps."""
        rows = self.rows if isinstance(self.rows, Sequence) and not self.automatic else ()
        given = {"unit": [self.unit], "pairs": [u for pair in self.pairs or () for u in pair], "rows": rows}
        for argument, units in given.items():
            for unit in units:
                if isinstance(unit, str) and unit not in names and unit in columns:
                    raise GEHValueError(
                        f"{argument}: {unit!r} is a column of the inputs, but no unit of this explainer; the units are "
                        f"{list_names(names)}. GEHExplainer(..., units=Categorical({{{unit!r}: {unit!r}}})) takes it "
                        f"as a category, units=Subset([{unit!r}, ...]) as a unit beside others."
                    )

    def describe(self) -> str | None:
        """Return the argument as text, for the record of a run; None where all pairs are asked for."""
        if self.top is not None:
            return f"search(top={self.top})"
        for name in ("unit", "pairs", "rows"):
            value = getattr(self, name)
            if value is not None:
                entries = value.indices if isinstance(value, Subset) else value
                if isinstance(entries, (Sequence, np.ndarray, Tensor)) and len(entries) > _MAX_RECORDED:
                    return f"{name}=[{len(entries)} entries]"
                return f"{name}={list(entries) if isinstance(value, Subset) else value!r}"
        return None


#: The request of all pairs.
ALL_PAIRS = PairRequest()


def _check_top(top: int, n_units: int) -> int:
    """Return ``top``, after checking that there are so many pairs of different units."""
    if top > count_pairs(n_units) and n_units > 1:
        raise GEHValueError(
            f"top={top}, but {n_units} units have only {count_pairs(n_units):,} pairs; give at most as many, or call "
            "explain(), which computes all pairs."
        )
    return top


def _check_pairs(pairs: Any) -> None:
    """Raise unless ``pairs`` is a list of pairs."""
    if not _is_list(pairs):
        raise GEHTypeError(f"pairs={pairs!r} is not a list; {_PAIRS}.")
    if not len(pairs):
        raise GEHValueError(f"pairs={pairs!r} is empty; {_PAIRS}.")
    for pair in pairs:
        if not _is_list(pair) or len(pair) != 2:
            raise GEHTypeError(f"pairs has the entry {pair!r}, which is no pair of units; {_PAIRS}.")


def _is_list(value: Any) -> bool:
    """Return whether a value is a sequence or an array, and no text; an array without dimensions is a number."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str)


def _check_distinct(argument: str, entries: Sequence[tuple[int, ...]], names: Sequence[str]) -> None:
    """Raise if a unit or a pair, in any order, occurs twice among ``entries``."""
    repeated = [entry for entry, count in Counter(tuple(sorted(entry)) for entry in entries).items() if count > 1]
    if repeated:
        shown = " and ".join(repr(names[unit]) for unit in repeated[0])
        raise GEHValueError(f"{argument} has {shown} twice; give each entry once.")


def _find_pair(pair: Any, names: Sequence[str]) -> tuple[int, int]:
    """Return the indices of the units of a pair."""
    first, second = (find_unit(unit, names, "pairs") for unit in pair)
    if first == second:
        raise GEHValueError(f"pairs has the entry {tuple(pair)!r}, a unit with itself; an interaction needs two.")
    return first, second


def _row_list(rows: Any, units: Units) -> Sequence[Any]:
    """Return the units of ``rows``, by name or index, after checking that they are some of ``units``."""
    if isinstance(rows, Subset):
        if rows.of is not None and repr(rows.of) != repr(units):
            raise GEHValueError(
                f"rows={rows!r} is a part of other units than those that are explained, {units!r}; use the explainer "
                "that screened them, or give a list of indices."
            )
        return rows.indices
    if isinstance(rows, (Tensor, np.ndarray)) and rows.ndim == 1:
        rows = rows.tolist()
    if not isinstance(rows, Sequence):
        raise GEHTypeError(f"rows={rows!r} is not a list; {_ROWS}.")
    if not rows:
        raise GEHValueError(f"rows={rows!r} is empty; {_ROWS}.")
    return rows
