"""Rows that two sets of points have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch

from geh_explain.data.points import Points


def count_common_rows(points: Points, others: Points) -> int:
    """Return how many rows of ``points`` have the same inputs as a row of ``others``, number for number.

    >>> from geh_explain.data.forward_args import ForwardArgs
    >>> from geh_explain.data.points import InMemoryPoints
    >>> from geh_explain.data.rows import Rows
    >>> first, second = (torch.tensor(values)[:, None] for values in ([1.0, 2.0, 3.0], [3.0, 4.0]))
    >>> count_common_rows(*(InMemoryPoints(Rows((x,), ForwardArgs.of(None, (), len(x)))) for x in (first, second)))
    1
    """
    known = set(_hashes(others))
    return sum(row in known for row in _hashes(points))


def _hashes(points: Points) -> Iterator[bytes]:
    """Yield a hash of the inputs of each row."""
    for rows in points.batches():
        flat = torch.cat([x.detach().cpu().flatten(1).double() for x in rows.inputs], dim=1).numpy()
        for row in flat:
            yield hashlib.blake2b(row.tobytes(), digest_size=16).digest()
