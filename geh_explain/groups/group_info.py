"""What the groups of points of a result are: descriptions in words for tables, typical points for other inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain.groups.descriptions import CodeNames, Description, describe_groups
from geh_explain.groups.grouping import COMPACT_POINTS, count_labels


@dataclass(frozen=True)
class TableSample:
    """Rows of a table that stand for all points of a run.

    Attributes
    ----------
    values
        The rows (n, c).
    labels
        Group of each row (n,).
    weights
        How many points each row (n,) stands for.
    columns
        Names of the columns (c).
    n_groups
        Number of groups M.
    codes
        Columns of codes, by index: text, categories, dates.
    """

    values: Floats
    labels: Ints
    weights: Floats
    columns: Sequence[str]
    n_groups: int
    codes: Mapping[int, CodeNames] = field(default_factory=dict)


class GroupInfo:
    """Descriptions and exemplars of the M groups of a result.

    Parameters
    ----------
    sample
        Rows of the table that the points are, from which descriptions are made when they are first read; else None.
    descriptions
        Descriptions (M) that are known already, as in a file; None if there are none.
    exemplars
        Indices (M, k) of the points nearest to the centre of each group, the nearest first, -1 where a group has fewer;
        None if they were not found.

    Examples
    --------
    >>> import numpy as np
    >>> values, labels = np.array([[0.1], [0.2], [0.8]]), np.array([0, 0, 1])
    >>> info = GroupInfo(TableSample(values, labels, np.ones(3), ["age"], 2))
    >>> [str(description) for description in info.descriptions]
    ['age < 0.5 (100 %)', 'age >= 0.5 (100 %)']
    """

    def __init__(
        self,
        sample: TableSample | None = None,
        descriptions: list[Description] | None = None,
        exemplars: Ints | None = None,
    ) -> None:
        self._sample = sample
        self._known = descriptions
        self.exemplars = exemplars

    @cached_property
    def descriptions(self) -> list[Description] | None:
        """What each group is, in words; None if the inputs are no table."""
        sample = self._sample
        if sample is None:
            return self._known
        return describe_groups(
            sample.values, sample.labels, sample.columns, sample.n_groups, sample.weights, sample.codes
        )


def stratified_sample(labels: Ints, n_groups: int, rows: int, least: int) -> tuple[Ints, Floats]:
    """Return the indices of about ``rows`` points in ascending order, and how many points each stands for.

    Of each group at least ``least`` points are taken, or all of its points; the same ones for the same labels.

    >>> import numpy as np
    >>> indices, weights = stratified_sample(np.array([0] * 6 + [1]), 2, rows=4, least=1)
    >>> len(indices), float(weights.sum().round(6))
    (4, 7.0)
    """
    if len(labels) <= rows:
        return np.arange(len(labels)), np.ones(len(labels))
    generator = np.random.default_rng(0)
    sizes = count_labels(labels, n_groups)
    chosen: list[Ints] = []
    weights: list[Floats] = []
    for group in range(n_groups):
        size = int(sizes[group])
        if not size:
            continue
        count = min(size, max(least, rows * size // len(labels)))
        chosen.append(_choose_members(labels, group, size, count, generator))
        weights.append(np.full(count, size / count))
    indices = np.concatenate(chosen)
    order = np.argsort(indices)
    return indices[order], np.concatenate(weights)[order]


def _choose_members(labels: Ints, group: int, size: int, count: int, generator: np.random.Generator) -> Ints:
    """Return the indices of ``count`` random points of a group, which has ``size`` of them."""
    if len(labels) <= COMPACT_POINTS:
        return generator.permutation(np.flatnonzero(labels == group))[:count]
    # Numbers within the group first, so that no array of all its points is needed.
    numbers = np.sort(generator.choice(size, count, replace=False))
    found: list[Ints] = []
    seen = 0
    for start in range(0, len(labels), COMPACT_POINTS):
        members = np.flatnonzero(labels[start : start + COMPACT_POINTS] == group)
        inside = numbers[(numbers >= seen) & (numbers < seen + len(members))] - seen
        found.append(start + members[inside])
        seen += len(members)
    return np.concatenate(found)


def nearest_to_centres(positions: Floats, labels: Ints, indices: Ints, n_groups: int, count: int) -> Ints:
    """Return the ``indices`` (M, count) of the points nearest to the centres of their groups; -1 where there are fewer.

    Parameters
    ----------
    positions
        Positions (n, d) of the points.
    labels
        Group of each (n,).
    indices
        Index of each among all points (n,).
    n_groups, count
        Number of groups M, and of points per group.

    Examples
    --------
    >>> import numpy as np
    >>> positions, labels = np.array([[0.0], [1.0], [5.0], [9.0]]), np.array([0, 0, 0, 1])
    >>> nearest_to_centres(positions, labels, np.arange(4), n_groups=2, count=2).tolist()
    [[1, 0], [3, -1]]
    """
    found = np.full((n_groups, count), -1, dtype=np.int64)
    for group in range(n_groups):
        members = np.flatnonzero(labels == group)
        if len(members):
            distance = ((positions[members] - positions[members].mean(axis=0)) ** 2).sum(axis=1)
            nearest = members[np.argsort(distance, kind="stable")[:count]]
            found[group, : len(nearest)] = indices[nearest]
    return found
