"""The group of each point, from labels, from a clusterer of scikit-learn or from a tree of groups."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.groups.kmeans import GroupTree

#: What the argument ``groups`` may be, for error messages.
_ACCEPTED = "a whole number, 'auto', 'pairwise', labels, or a scikit-learn clusterer"


#: Labels of more points take the smallest type that holds them, and are read in blocks of so many.
COMPACT_POINTS = 2**20


def label_type(n_points: int, n_groups: int) -> np.dtype[np.signedinteger[Any]]:
    """Return the type of labels: 64 bits, or the smallest signed one where there are more than a million points.

    >>> label_type(1000, 4), label_type(10**7, 4), label_type(10**7, 1000)
    (dtype('int64'), dtype('int8'), dtype('int16'))
    """
    return np.dtype(np.int64) if n_points <= COMPACT_POINTS else np.min_scalar_type(-n_groups)


def count_labels(labels: Ints, n_groups: int) -> Ints:
    """Return the number of points (M,) of each group; labels (N,) of -1 are in none.

    Block by block: NumPy converts labels of other types to 64 bits.

    >>> count_labels(np.array([0, 2, -1, 0], dtype=np.int8), 3).tolist()
    [2, 0, 1]
    """
    counts = np.zeros(n_groups, dtype=np.int64)
    for start in range(0, len(labels), COMPACT_POINTS):
        block = labels[start : start + COMPACT_POINTS]
        counts += np.bincount(block[block >= 0], minlength=n_groups)
    return counts


@dataclass(frozen=True)
class Grouping:
    """The group of each point.

    Attributes
    ----------
    labels
        Index of each point's group, shape (N,), of :func:`label_type`.
    names
        Name of each group, length M.
    weights
        Case weights (N,) with mean 1, None where all points count alike.
    """

    labels: Ints
    names: list[str]
    weights: Floats | None = None

    @property
    def sizes(self) -> Ints:
        """The number of points in each group, shape (M,)."""
        return count_labels(self.labels, len(self.names))

    @property
    def weight_sums(self) -> Floats | Ints:
        """The sum of the points' weights in each group, shape (M,); the number of points without weights."""
        return self.sizes if self.weights is None else np.bincount(self.labels, self.weights, len(self.names))

    @property
    def unit_sums(self) -> Floats | Ints:
        """The sums of weights, (M,) or (M, D), of the groups that first derivatives of the units are summed over."""
        return self.weight_sums


def check_groups(groups: Any) -> None:
    """Raise if the argument ``groups`` is not a number of groups, "auto", labels or a clusterer."""
    if isinstance(groups, str) and groups not in ("auto", "pairwise"):
        raise GEHValueError(
            f"groups={groups!r} is unknown; use a number, 'auto', 'pairwise', labels such as those of a column, "
            f"groups=frame[{groups!r}], or a scikit-learn clusterer."
        )
    # A class is most likely a clusterer without its parentheses.
    if isinstance(groups, (bool, float)) or groups is None or isinstance(groups, type):
        raise GEHTypeError(f"groups={groups!r}: use {_ACCEPTED}.")
    if not isinstance(groups, (str, int, np.integer, Iterable)) and not hasattr(groups, "fit_predict"):
        raise GEHTypeError(f"groups={groups!r}: use {_ACCEPTED}.")
    if isinstance(groups, (int, np.integer)) and groups < 1:
        raise GEHValueError(f"groups={groups}: at least one group is needed.")


def are_labels(groups: Any) -> bool:
    """Return whether the argument ``groups`` holds labels: it is no number, "auto" or clusterer."""
    return not isinstance(groups, (str, int, np.integer)) and not hasattr(groups, "fit_predict")


def from_labels(labels: Any, points: int, argument: str = "groups") -> Grouping:
    """Return the grouping of a user's labels, one per point; groups are in the sorted order of the labels.

    Parameters
    ----------
    labels
        Tensor, array, series or list of labels of one kind that can be sorted.
    points
        The number of points.
    argument
        The argument by which the user passed the labels, for error messages.

    Raises
    ------
    GEHTypeError, GEHValueError
        If labels are missing (None or NaN), or their number differs from that of the points.

    Examples
    --------
    >>> grouping = from_labels(["b", "a", "b"], 3)
    >>> grouping.names, grouping.labels.tolist(), grouping.sizes.tolist()
    (['a', 'b'], [1, 0, 1], [1, 2])
    """
    entries = labels.tolist() if hasattr(labels, "tolist") else labels
    if not isinstance(entries, Iterable) or isinstance(entries, (set, frozenset)):
        raise GEHTypeError(f"{argument}: {entries!r} are no labels; give one for each of the {points} points.")
    entries = list(entries)
    # Checked before the conversion, as NumPy turns NaN among text into the text 'nan'.
    if any(map(is_missing, entries)):
        raise GEHValueError(
            f"{argument} has missing labels (None, NaN, NaT or NA); give every point a {argument.removesuffix('s')}."
        )
    try:
        array = np.asarray(entries)
    except ValueError as error:
        raise GEHValueError(
            f"{argument}: labels differ in length; give one for each of the {points} points."
        ) from error
    if array.shape != (points,):
        raise GEHValueError(f"{argument} has shape {array.shape}; give one label for each of the {points} points.")
    try:
        names, index = np.unique(array, return_inverse=True)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in entries})
        raise GEHTypeError(
            f"{argument}: labels of type {', '.join(kinds)} cannot be sorted; give numbers or text."
        ) from error
    return Grouping(index.reshape(-1).astype(np.int64), [str(name) for name in names])


def is_missing(label: Any) -> bool:
    """Return whether a label is None, NaN, infinite, or NaT or NA of pandas."""
    if label is None or isinstance(label, float):
        return label is None or not math.isfinite(label)
    try:
        return bool(label != label)
    except TypeError:
        return True  # NA has no truth value
    except (ValueError, RuntimeError):
        return False  # an array is no label, which its shape shows


def from_clusterer(clusterer: Any, positions: Floats, weights: Floats | None = None) -> Grouping:
    """Return the grouping that a scikit-learn clusterer finds for points at ``positions`` (N, d).

    A clone is fitted, so the user's clusterer stays as it is. It gets case ``weights`` (N,) if it takes any.
    """
    from sklearn.base import clone

    try:
        own = clone(clusterer)
        takes_weights = weights is not None and "sample_weight" in signature(own.fit_predict).parameters
        labels = own.fit_predict(positions, **({"sample_weight": weights} if takes_weights else {}))
    except (TypeError, ValueError) as error:
        raise GEHValueError(f"groups={clusterer!r} cannot cluster these {len(positions)} points: {error}") from error
    return from_labels(labels, len(positions))


def from_tree(tree: GroupTree, labels: Ints, groups: int) -> Grouping:
    """Return the partition of a tree into ``groups`` groups; ``labels`` (N,) are those of the finest partition."""
    merged = labels.copy()
    # From the last split to the first, each child returns to its parent.
    for child in range(tree.n_groups - 1, groups - 1, -1):
        merged[merged == child] = tree.splits[child - 1].parent
    return Grouping(merged, [str(group) for group in range(groups)])
