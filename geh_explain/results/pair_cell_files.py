"""Groups of each pair's own in a file of results, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain.scores.pair_cells import PairCells
from geh_explain.units.pair_set import PairSet

#: Names of the arrays in a file, and the attributes of PairCells that they hold.
_ATTRIBUTES = {
    "cell_edges": "edges",
    "cell_thirds": "thirds",
    "cell_sizes": "sizes",
    "cell_unit_sizes": "unit_sizes",
}
CELL_ARRAYS = tuple(_ATTRIBUTES)


def cells_to_arrays(cells: PairCells | None) -> dict[str, Any]:
    """Return the arrays that a file holds of the groups of each pair; none where groups are common to all pairs."""
    return {} if cells is None else {name: getattr(cells, attribute) for name, attribute in _ATTRIBUTES.items()}


def parse_cells(arrays: dict[str, Any], pairs: PairSet, labels: Any, group_names: list[str]) -> PairCells | None:
    """Return the groups of each pair of a file, None if there are none.

    Raises ``ValueError`` unless they are groups of these pairs and of as many points as there are ``labels``.
    """
    if not arrays:
        return None
    if set(arrays) != set(CELL_ARRAYS):
        raise ValueError("its groups of pairs are incomplete")
    cells = PairCells(**{attribute: arrays[name] for name, attribute in _ATTRIBUTES.items()})
    n_groups, n_units = len(group_names), pairs.n_units
    shapes = {"edges": (n_units,), "thirds": (len(pairs),), "sizes": (n_groups, len(pairs))}
    for attribute, shape in (shapes | {"unit_sizes": (n_groups, n_units)}).items():
        array = getattr(cells, attribute)
        if array.shape != shape or array.dtype != (np.float64 if attribute == "edges" else np.int64):
            raise ValueError("its groups of pairs do not fit")
    valid = n_groups in (4, 8) and cells.names == group_names and not labels.any() and not np.isinf(cells.edges).any()
    for sizes in (cells.sizes, cells.unit_sizes):
        valid = valid and bool((sizes >= 0).all() and (sizes.sum(axis=0) == len(labels)).all())
    thirds, has_third = cells.thirds, cells.thirds >= 0
    valid = valid and bool((thirds >= -1).all() and (thirds < n_units).all())
    valid = valid and not any(bool((thirds == end)[has_third].any()) for end in pairs.ends)
    if not valid or cells.sizes[4:, ~has_third].any() or (n_groups == 4 and has_third.any()):
        raise ValueError("its groups of pairs are impossible")
    return cells
