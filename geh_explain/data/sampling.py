"""Some of the points as one batch of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Ints
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows


def sample_rows(points: Points, chosen: Ints) -> Rows:
    """Return the points with the indices ``chosen``, in ascending order, as one batch; a loader is read once.

    >>> import torch
    >>> from geh_explain.data.forward_args import ForwardArgs
    >>> from geh_explain.data.points import InMemoryPoints
    >>> points = InMemoryPoints(Rows((torch.arange(6.0)[:, None],), ForwardArgs.of(None, (), 6)))
    >>> sample_rows(points, np.array([5, 1])).inputs[0].flatten().tolist()
    [1.0, 5.0]
    """
    wanted = np.sort(chosen)
    parts = []
    for rows in points.batches():
        own = wanted[(wanted >= rows.start) & (wanted < rows.start + len(rows))] - rows.start
        if len(own):
            parts.append(rows.take(own.tolist()))
    return replace(join_rows(parts), start=0)


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Return rows of several batches of the same data as one batch, in this order.

    >>> import torch
    >>> from geh_explain.data.forward_args import ForwardArgs
    >>> rows = Rows((torch.arange(3.0)[:, None],), ForwardArgs.of([7, 8, 9], (), 3))
    >>> join_rows([rows[2:], rows[:1]]).target
    [9, 7]
    """
    if len(parts) == 1:
        return parts[0]
    inputs, below = (
        tuple(torch.cat(tensors) for tensors in zip(*(getattr(part, name) for part in parts), strict=True))
        for name in ("inputs", "below")
    )
    args = parts[0].forward_args
    values = tuple(
        _join([part.forward_args.values[place] for part in parts]) if belongs else args.values[place]
        for place, belongs in enumerate(args.per_row)
    )
    return replace(parts[0], inputs=inputs, below=below, forward_args=replace(args, values=values))


def _join(values: Sequence[Any]) -> Any:
    """Return an argument of several batches as one tensor, array or list."""
    if isinstance(values[0], Tensor):
        return torch.cat(list(values))
    return np.concatenate(values) if isinstance(values[0], np.ndarray) else [entry for part in values for entry in part]
