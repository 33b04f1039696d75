"""Groups that two results have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geh_explain._types import Floats, Ints


@dataclass(frozen=True)
class GroupAlignment:
    """Common groups of two results, each of which is a union of groups of either result.

    Attributes
    ----------
    names
        Names of the common groups.
    first, second
        Index of the common group that each group of the first and of the second result is part of; -1 for groups that
        have no counterpart.
    weights
        Share of each common group in the points; where the points differ, the mean of both shares.
    """

    names: list[str]
    first: Ints
    second: Ints
    weights: Floats

    @property
    def dropped(self) -> int:
        """Number of groups of both results without a counterpart."""
        return int((self.first < 0).sum() + (self.second < 0).sum())


def align_labels(first: Ints, second: Ints, names: tuple[list[str], list[str]]) -> GroupAlignment:
    """Return the finest common groups of two groupings of the same points.

    They are the sets of points that are unions of groups in both. Nested groupings have the coarser one in common,
    groupings that cross each other may have a single group.

    Parameters
    ----------
    first, second
        Group of each point (N,) in both groupings.
    names
        Names of the groups of both.

    Examples
    --------
    >>> import numpy as np
    >>> coarse, fine = np.array([0, 0, 0, 1, 1]), np.array([0, 2, 2, 1, 1])
    >>> common = align_labels(coarse, fine, (["low", "high"], ["0", "1", "2"]))
    >>> common.names, common.first.tolist(), common.second.tolist(), common.weights.tolist()
    (['low', 'high'], [0, 1], [0, 1, 0], [0.6, 0.4])
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    of_first, of_second = (len(group_names) for group_names in names)
    total = of_first + of_second
    # Earlier versions of SciPy take indices of 32 bits only.
    ends = (first.astype(np.int32), (second + of_first).astype(np.int32))
    graph = coo_array((np.ones(len(first)), ends), shape=(total, total))
    _, component = connected_components(graph, directed=False)
    sizes = np.bincount(component[first], minlength=int(component.max()) + 1)
    # Groups without points are components of their own.
    number = np.where(sizes > 0, np.cumsum(sizes > 0) - 1, -1)
    to_common = number[component].astype(np.int64)
    maps = to_common[:of_first], to_common[of_first:]
    weights = sizes[sizes > 0] / len(first)
    return GroupAlignment(_common_names(maps, names, len(weights)), *maps, weights)


def align_names(first: list[str], second: list[str], shares: tuple[Floats, Floats]) -> GroupAlignment | None:
    """Return the groups of the same names in two results; None if there are none.

    ``shares`` are those of the groups in the points of either result.

    >>> import numpy as np
    >>> common = align_names(["a", "b"], ["b", "c"], (np.array([0.5, 0.5]), np.array([0.2, 0.8])))
    >>> common.names, common.first.tolist(), common.second.tolist(), common.dropped
    (['b'], [-1, 0], [0, -1], 2)
    """
    common = [name for name in first if name in second]
    if not common:
        return None
    maps = [np.array([common.index(name) if name in common else -1 for name in names]) for names in (first, second)]
    weights = np.zeros(len(common))
    for mapping, share in zip(maps, shares, strict=True):
        np.add.at(weights, mapping[mapping >= 0], share[mapping >= 0])
    return GroupAlignment(common, maps[0], maps[1], weights / weights.sum())


def align_all(first: int, second: int) -> GroupAlignment:
    """Return a single group of all points of two results with these numbers of groups."""
    return GroupAlignment(["all"], np.zeros(first, dtype=np.int64), np.zeros(second, dtype=np.int64), np.ones(1))


def _common_names(maps: tuple[Ints, Ints], names: tuple[list[str], list[str]], count: int) -> list[str]:
    """Return the names of the common groups: those of the grouping that they are, else numbers."""
    for mapping, group_names in zip(maps, names, strict=True):
        used = np.flatnonzero(mapping >= 0)
        if len(used) == count:
            return [group_names[index] for index in used[np.argsort(mapping[used])]]
    return ["all"] if count == 1 else [str(number) for number in range(count)]
