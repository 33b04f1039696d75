"""Consecutive points, ready for one call of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.frames import FrameLayout


@dataclass(frozen=True)
class Rows:
    """Consecutive points: the arguments of one call of the model, and the output to explain for each of them.

    Engines receive their points as ``Rows``. ``len(rows)`` is the number of rows n, and ``rows[a:b]`` slices all that
    belongs to a row.

    Attributes
    ----------
    inputs
        The input tensors of the model, each of shape (n, ...).
    forward_args
        The target and the additional forward arguments, of which some have one entry per row.
    start
        Index of the first row among all points.
    input_names
        Names by which the inputs are passed to the model, if the user passed a dict; else empty.
    repeats
        How many times the points are repeated, see :meth:`repeat`. There are n / ``repeats`` distinct points.
    argument
        The argument by which the user passed these rows, for error messages.
    below
        What the part of the model below the layer passes on for these rows, each of shape (n, ...); empty if it is not
        kept, see :mod:`geh_explain.model.below`.
    weights
        Case weights (n,), by which the explained number of each row is multiplied, and with it all of its derivatives;
        None for 1.
    frame
        Columns and dtypes of the data frame as which the model is called with the inputs; None for tensors.

    Examples
    --------
    >>> x = torch.arange(6.0).reshape(3, 2)
    >>> rows = Rows((x,), ForwardArgs.of(target=[0, 1, 1], additional=(), rows=3))
    >>> last = rows[2:]
    >>> last.inputs[0].tolist(), last.target, last.start
    ([[4.0, 5.0]], [1], 2)
    """

    inputs: tuple[Tensor, ...]
    forward_args: ForwardArgs
    start: int = 0
    input_names: tuple[str, ...] = ()
    repeats: int = 1
    argument: str = "inputs"
    below: tuple[Tensor, ...] = ()
    weights: Tensor | None = None
    frame: FrameLayout | None = None

    def __len__(self) -> int:
        return self.inputs[0].shape[0]

    def __getitem__(self, rows: slice) -> Rows:
        """Return a contiguous slice of these rows."""
        # Only slices with step 1 occur, so one start index is enough.
        start = self.start + rows.indices(len(self))[0]
        return replace(self._map(lambda x: x[rows]), forward_args=self.forward_args[rows], start=start)

    @property
    def target(self) -> Any:
        """The output to explain, for all rows or one per row, by the rules of Captum."""
        return self.forward_args.values[0]

    @property
    def additional_forward_args(self) -> tuple[Any, ...]:
        """The model's arguments after the inputs, positional ones first."""
        return self.forward_args.values[1:]

    def index_of(self, row: int) -> int:
        """Return the index among all points of the point in row ``row``.

        >>> Rows((torch.zeros(2, 3),), ForwardArgs.of(None, (), 2), start=10).repeat(4).index_of(5)
        11
        """
        return self.start + row % (len(self) // self.repeats)

    def split(self, size: int) -> Iterator[Rows]:
        """Yield these rows in order, ``size`` at a time; the last part may be smaller."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def repeat(self, repeats: int) -> Rows:
        """Return all rows ``repeats`` times, one copy of the block after the other."""
        repeated = self._map(lambda x: torch.cat([x] * repeats))
        return replace(repeated, forward_args=self.forward_args.repeat(repeats), repeats=self.repeats * repeats)

    def take(self, indices: Sequence[int]) -> Rows:
        """Return the rows with these indices, in their order.

        >>> rows = Rows((torch.arange(3.0)[:, None],), ForwardArgs.of(target=[0, 1, 2], additional=(), rows=3))
        >>> rows.take([2, 0]).target
        [2, 0]
        """
        chosen = list(indices)
        return replace(self._map(lambda x: x[chosen]), forward_args=self.forward_args.take(chosen))

    def _map(self, function: Callable[[Tensor], Tensor]) -> Rows:
        """Apply a function to all tensors that have one entry per row."""
        inputs, below = (tuple(function(x) for x in tensors) for tensors in (self.inputs, self.below))
        weights = None if self.weights is None else function(self.weights)
        return replace(self, inputs=inputs, below=below, weights=weights)

    def with_target(self, target: Any) -> Rows:
        """Return these rows with another output to explain, the same for all of them."""
        if target is self.target:
            return self
        args = self.forward_args
        values, per_row = (target, *args.values[1:]), (False, *args.per_row[1:])
        return replace(self, forward_args=replace(args, values=values, per_row=per_row))

    def weighted(self, weights: NDArray[np.float64] | None) -> Rows:
        """Return these rows with their weights, out of those (N,) of all points; None leaves them without.

        >>> Rows((torch.zeros(2, 3),), ForwardArgs.of(None, (), 2), start=1).weighted(np.arange(4.0)).weights.tolist()
        [1.0, 2.0]
        """
        if weights is None:
            return self
        return replace(self, weights=torch.as_tensor(weights[self.start : self.start + len(self)]))

    def weigh(self, values: Tensor) -> Tensor:
        """Return one number per row (n,) times its weight."""
        return values if self.weights is None else values * self.weights.to(values)
