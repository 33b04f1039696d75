"""The rows of several processes, each of which reads its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from geh_explain._hashing import digest
from geh_explain._types import Ints
from geh_explain.data.points import InMemoryPoints, Points
from geh_explain.data.rows import Rows


@dataclass(frozen=True)
class Shard:
    """The rows of one rank, and the index of the first row of each rank, with the number of all rows (R + 1,)."""

    points: Points
    bounds: tuple[int, ...]
    rank: int


class SamplePoints(InMemoryPoints):
    """A sample of the rows of all shards, which stands for ``represented`` rows."""

    def __init__(self, rows: Rows, columns: list[str] | None, represented: int) -> None:
        super().__init__(rows, columns)
        self._represented = represented

    @property
    def represented(self) -> int:
        """Number of rows of all shards."""
        return self._represented


class ShardedPoints(Points):
    """The rows of all shards, of which this rank reads its own; their indices are those among all rows.

    Parameters
    ----------
    shard
        The rows of this rank.
    sample
        The sample that the plan was made with, the same on all ranks.
    sampled
        Indices of its rows among all rows.
    hashes
        Hashes of the rows of all ranks.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from geh_explain.data.forward_args import ForwardArgs
    >>> own = InMemoryPoints(Rows((torch.zeros(3, 2),), ForwardArgs.of(None, (), 3)))
    >>> points = ShardedPoints(Shard(own, (0, 5, 8), rank=1), own, np.array([0, 3, 6]), hashes=["", ""])
    >>> len(points), [(rows.start, len(rows)) for rows in points.batches()]
    (8, [(5, 3)])
    """

    streamed = True

    def __init__(self, shard: Shard, sample: Points, sampled: Ints, hashes: list[str]) -> None:
        self.columns = shard.points.columns
        self.ordered = False
        self.sample, self.sampled = sample, sampled
        self._shard = shard
        self._hashes = hashes

    @property
    def first(self) -> Rows:
        """The first rows of the sample: checks of the model must be the same on all ranks."""
        return self.sample.first

    @property
    def spread(self) -> list[Rows]:
        """Rows of the sample at equal distances."""
        return self.sample.spread

    def __len__(self) -> int:
        return self._shard.bounds[-1]

    def batches(self) -> Iterator[Rows]:
        """Yield the rows of this rank."""
        offset = self._shard.bounds[self._shard.rank]
        for rows in self._shard.points.batches():
            yield replace(rows, start=rows.start + offset)

    def digest(self) -> str:
        """Return a hash of the rows of all ranks."""
        return digest(self._hashes)
