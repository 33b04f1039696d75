"""Rows that two sets of points have in common, and rows that one set has several times."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch

from geh_explain._types import Floats
from geh_explain.data.points import Points

#: A column is nearly unique if this share of its values differ.
_NEARLY_UNIQUE = 0.9
#: Repetitions are in the nature of the data where distinct rows are a smaller share of all rows than this, for instance
#: a few settings with many rows each,
_MIN_DISTINCT = 0.1
#: or where rows with copies are a smaller share of the distinct rows than this, for instance zeros in all columns.
_MIN_COPIED = 0.01
#: At most this many columns of the inputs are examined for nearly unique values.
_MAX_COLUMNS = 100


def count_common_rows(points: Points, others: Points) -> tuple[int, float]:
    """Return how many rows of ``points`` have the same inputs as a row of ``others``, and how many by chance.

    By chance means: as many, in proportion, as rows of ``others`` that have the same inputs as another one of them. In
    tables of few values most rows do.

    >>> from geh_explain.data.forward_args import ForwardArgs
    >>> from geh_explain.data.points import InMemoryPoints
    >>> from geh_explain.data.rows import Rows
    >>> first, second = (torch.tensor(values)[:, None] for values in ([1.0, 2.0, 3.0], [3.0, 4.0, 5.0, 5.0]))
    >>> count_common_rows(*(InMemoryPoints(Rows((x,), ForwardArgs.of(None, (), len(x)))) for x in (first, second)))
    (1, 1.5)
    """
    known = Counter(_hashes(others))
    repeated = sum(count for count in known.values() if count > 1)
    common = sum(row in known for row in _hashes(points))
    return common, len(points) * repeated / max(1, known.total())


def count_copied_rows(points: Points, labels: Floats) -> int:
    """Return how many rows repeat the inputs and the label (n,) of an earlier row, if that is no chance.

    Rows of a table whose columns all have few values repeat by chance. So copies are counted only if the label or a
    column of the inputs is nearly unique among the distinct rows, and if many of these have copies.

    >>> from geh_explain.data.forward_args import ForwardArgs
    >>> from geh_explain.data.points import InMemoryPoints
    >>> from geh_explain.data.rows import Rows
    >>> x, few = torch.rand(200, 1).repeat(3, 1), torch.randint(2, (600, 1)) * 1.0
    >>> [count_copied_rows(InMemoryPoints(Rows((x,), ForwardArgs.of(None, (), 600))), np.ones(600)) for x in (x, few)]
    [400, 0]
    """
    counts: Counter[bytes] = Counter()
    distinct: list[Floats] = []
    for start, block in _blocks(points):
        own_labels = labels[start : start + len(block), None]
        examined = np.hstack([block[:, :: -(-block.shape[1] // _MAX_COLUMNS)], own_labels])
        for row, key in enumerate(map(_hash, np.hstack([block, own_labels]))):
            counts[key] += 1
            if counts[key] == 1:
                distinct.append(examined[row])
    n_copied = sum(count > 1 for count in counts.values())
    if len(distinct) < _MIN_DISTINCT * len(labels) or n_copied < _MIN_COPIED * len(distinct):
        return 0
    n_values = max(len(np.unique(column)) for column in np.transpose(distinct))
    return len(labels) - len(distinct) if n_values >= _NEARLY_UNIQUE * len(distinct) else 0


def _hashes(points: Points) -> Iterator[bytes]:
    """Yield a hash of the inputs of each row."""
    return (_hash(row) for _, block in _blocks(points) for row in block)


def _hash(row: Floats) -> bytes:
    """Return a hash of the numbers of a row."""
    return hashlib.blake2b(row.tobytes(), digest_size=16).digest()


def _blocks(points: Points) -> Iterator[tuple[int, Floats]]:
    """Yield the inputs (m, d) of some rows after the other, with the index of the first of them."""
    for rows in points.split(None):
        yield rows.start, torch.cat([x.detach().cpu().flatten(1).double() for x in rows.inputs], dim=1).numpy()
