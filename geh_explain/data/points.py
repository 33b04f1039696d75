"""All points to explain; those that are streamed from a loader are in ``streams``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from geh_explain._hashing import digest
from geh_explain._process import cached_property
from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHValueError

#: Rows of one call of the model where the user does not choose.
DEFAULT_BATCH_SIZE = 256
#: Rows of :attr:`Points.first`: enough for a check of the model, cheap for any model.
FIRST_ROWS = 8
#: Rows of :attr:`Points.spread`.
_SPREAD_ROWS = 64


def spread_places(n_points: int) -> Ints:
    """Return the indices of up to 64 points at equal distances, from the first to the last."""
    return np.unique(np.linspace(0, n_points - 1, _SPREAD_ROWS).astype(int))


class Points(ABC):
    """All points to explain, as batches of rows that are the same on every pass.

    Attributes
    ----------
    columns
        Names of the columns of a data frame, else None.
    ordered
        Whether the rows come in the order of the data, so that arguments with one entry per row can be matched.
    code_names
        Names of the codes 0, 1, ... of columns that were categories in a data frame, by the name of the column.
    """

    columns: list[str] | None
    ordered: bool
    code_names: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    #: Whether every pass reads the points anew from a loader.
    streamed: bool = False

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def represented(self) -> int:
        """Number of points that these stand for: more than their own number for a sample."""
        return len(self)

    @abstractmethod
    def batches(self) -> Iterator[Rows]:
        """Yield all rows in order, in the batches in which they are stored."""

    @abstractmethod
    def digest(self) -> str:
        """Return a hash of the inputs of all rows, 16 hexadecimal digits, without a pass over a loader.

        Equal hashes mean equal inputs in equal batches. Targets and further arguments are not part of it.
        """

    def split(self, size: int | None) -> Iterator[Rows]:
        """Yield all rows in order, at most ``size`` at a time (None: 256)."""
        return (part for rows in self.batches() for part in rows.split(size or DEFAULT_BATCH_SIZE))

    @cached_property
    def first(self) -> Rows:
        """The first 8 rows, for checks of the model that do not need all points.

        They are read once: a streamed loader would otherwise start a new pass for each check.
        """
        return next(iter(self.batches()))[:FIRST_ROWS]

    @cached_property
    def spread(self) -> list[Rows]:
        """Up to 64 rows at equal distances, from the first to the last, in parts of at most 8; read in one pass."""
        wanted = spread_places(len(self))
        parts: list[Rows] = []
        for rows in self.batches():
            chosen = wanted[(wanted >= rows.start) & (wanted < rows.start + len(rows))] - rows.start
            if len(chosen):
                parts.extend(rows.take(chosen.tolist()).split(FIRST_ROWS))
        return parts

    def check_matched(self, argument: str) -> None:
        """Raise if the rows come in an unknown order; ``argument`` has one entry per row."""
        if not self.ordered:
            raise GEHValueError(
                f"{argument} has one entry per row, but the loader picks its rows by a sampler of its own, or by "
                "several workers of an IterableDataset, so that they cannot be matched; pass a loader without a "
                "sampler and with num_workers=0, or a tensor."
            )


class InMemoryPoints(Points):
    """Points whose inputs are held in memory, as a single batch.

    >>> import torch
    >>> from geh_explain.data.forward_args import ForwardArgs
    >>> points = InMemoryPoints(Rows((torch.zeros(600, 3),), ForwardArgs.of(None, (), 600)))
    >>> [len(rows) for rows in points.split(None)]
    [256, 256, 88]
    """

    def __init__(
        self,
        rows: Rows,
        columns: list[str] | None = None,
        ordered: bool = True,
        code_names: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._rows = rows
        self.columns = columns
        self.ordered = ordered
        self.code_names = code_names or {}

    def __len__(self) -> int:
        return len(self._rows)

    def batches(self) -> Iterator[Rows]:
        """Yield the rows in batches, in their order."""
        yield self._rows

    def without_frame(self) -> InMemoryPoints:
        """Return the points for a model that is called with tensors, in the precision of the columns."""
        rows = self._rows
        if rows.frame is None:
            return self
        inputs = tuple(x.to(rows.frame.precision) for x in rows.inputs)
        return InMemoryPoints(replace(rows, inputs=inputs, frame=None), self.columns, self.ordered, self.code_names)

    def digest(self) -> str:
        """Return a hash of the rows."""
        rows = self._rows
        return digest(*rows.inputs) if rows.frame is None else digest(*rows.inputs, rows.frame.digest())


class DerivedPoints(Points):
    """Points made of the rows of other ``points``; subclasses define :meth:`batches`, and say what they change."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self.columns = points.columns
        self.ordered = points.ordered
        self.code_names = points.code_names
        self.streamed = points.streamed

    def __len__(self) -> int:
        return len(self._points)

    def digest(self) -> str:
        """Return a hash of the rows."""
        return self._points.digest()
