"""Recognition of categories in a data frame: pandas categoricals, text, dummy columns, and columns of 0 and 1."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geh_explain.data.conversion import is_frame
from geh_explain.errors import GEHTypeError

#: Separators between the name of a variable and that of a level, as pandas and scikit-learn write them.
_SEPARATORS = "_="
#: Columns of text with more different values than this may be names or remarks, and are no categories.
_MAX_TEXTS = 20


def find_categories(frame: Any) -> dict[str, list[str]]:
    """Return the columns of each category of a data frame, by its name, in the order of the columns.

    See :meth:`geh_explain.units.Categorical.detect`, which calls this.
    """
    if not is_frame(frame) or not hasattr(frame, "iloc"):
        raise GEHTypeError(
            f"frame is a {type(frame).__name__}; detect() takes a DataFrame of pandas. For arrays give the columns "
            'yourself: Categorical({"ocean": [3, 4, 5]}).'
        )
    found: dict[str, list[str]] = {}
    binary: dict[str, NDArray[np.bool_]] = {}
    for name in dict.fromkeys(str(column) for column in frame.columns):
        column = frame.iloc[:, [str(other) for other in frame.columns].index(name)]
        if hasattr(column.dtype, "categories") or _is_text_category(column):
            found[name] = [name]
        elif (values := _binary_values(column)) is not None:
            binary[name] = values
    blocks = _dummy_blocks(binary)
    inside = {name for block in blocks.values() for name in block}
    # Two values must occur, else it is no category.
    single = {name: [name] for name, values in binary.items() if name not in inside and 0 < values.sum() < len(values)}
    found |= blocks | single
    order = {str(name): place for place, name in reversed(list(enumerate(frame.columns)))}
    return dict(sorted(found.items(), key=lambda entry: order[entry[1][0]]))


def _is_text_category(column: Any) -> bool:
    """Return whether a column is text with a few different values, of which one occurs twice."""
    if getattr(column.dtype, "kind", "O") not in "OUT":
        return False
    values = column.dropna().unique()
    few = 2 <= len(values) <= _MAX_TEXTS and len(values) < column.notna().sum()
    return few and all(isinstance(value, str) for value in values)


def _binary_values(column: Any) -> NDArray[np.bool_] | None:
    """Return a column of a data frame as booleans, None if it holds anything but 0 and 1."""
    if getattr(column.dtype, "kind", "O") not in "fiub" or bool(column.isna().any()):
        return None
    values = column.to_numpy(dtype=np.float64)
    return values == 1 if np.isin(values, (0, 1)).all() else None


def _dummy_blocks(binary: dict[str, NDArray[np.bool_]]) -> dict[str, list[str]]:
    """Return blocks of exclusive columns with a common prefix, by this prefix; large blocks first.

    Levels and variables may have separators in their names, so that every prefix that ends at one is tried.
    """
    by_prefix: dict[str, list[str]] = defaultdict(list)
    for name in binary:
        for place, letter in enumerate(name):
            if letter in _SEPARATORS and 0 < place < len(name) - 1:
                by_prefix[name[:place]].append(name)
    blocks: dict[str, list[str]] = {}
    used: set[str] = set()
    for prefix, names in sorted(by_prefix.items(), key=lambda entry: (-len(entry[1]), -len(entry[0]))):
        total = np.sum([binary[name] for name in names], axis=0)
        exclusive = total.max(initial=0) == 1 and sum(bool(binary[name].any()) for name in names) > 1
        if len(names) > 1 and exclusive and not used & set(names) and prefix not in binary:
            blocks[prefix] = names
            used |= set(names)
    return blocks
