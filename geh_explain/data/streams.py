"""Points that do not fit into memory: every pass reads them anew, and is compared with the first one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
from torch import Tensor

from geh_explain._hashing import digest
from geh_explain._process import cached_property
from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.points import FIRST_ROWS, Points, spread_places
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError, GEHValueError, warn

#: Rows of a stream that does not say how many it has, at most.
MAX_UNCOUNTED_ROWS = 10**9
#: Seconds of a pass over such a stream after which a warning says that it may have no end.
_WARN_SECONDS = 60.0


@dataclass(frozen=True)
class Length:
    """How many rows, or batches, a stream has at most by its own account; None where it does not say."""

    rows: int | None = None
    batches: int | None = None


class EndCheck:
    """Counts the rows of a pass over a stream, which must end.

    Parameters
    ----------
    argument
        Name of the argument, for messages.
    length
        What the stream says of its length.

    Examples
    --------
    >>> check = EndCheck("inputs", Length(rows=4))
    >>> check.add(3)
    >>> check.n_rows
    3
    """

    def __init__(self, argument: str, length: Length) -> None:
        self.n_rows = 0
        self._n_batches = 0
        self._argument = argument
        self._length = length
        self._warn_at: float | None = monotonic() + _WARN_SECONDS

    def add(self, n_rows: int) -> None:
        """Count the rows of the next batch; raise if there are more than there may be, warn once if it takes long."""
        self.n_rows += n_rows
        self._n_batches += 1
        for count, most, noun in (
            (self.n_rows, self._length.rows, "rows"),
            (self._n_batches, self._length.batches, "batches"),
        ):
            if most is not None and count > most:
                raise GEHValueError(
                    f"{self._argument}: the loader gives more than the {most:,} {noun} that its length says; an "
                    "IterableDataset whose workers do not share its rows gives each of them once per worker. Correct "
                    "__len__, or share the rows by torch.utils.data.get_worker_info()."
                )
        if self._length == Length():
            self._check_unknown()

    def _check_unknown(self) -> None:
        """Raise or warn if a stream of unknown length has given many rows."""
        way = "take a part of it, for instance by itertools.islice, or give its dataset a __len__"
        if self.n_rows > MAX_UNCOUNTED_ROWS:
            raise GEHValueError(
                f"{self._argument}: the loader has given more than {MAX_UNCOUNTED_ROWS:,} rows, and does not say how "
                f"many it has; {way}."
            )
        if self._warn_at is not None and monotonic() >= self._warn_at:
            self._warn_at = None
            warn(
                f"{self._argument}: {self.n_rows:,} rows were read so far, and the loader does not say how many it "
                f"has. Reading ends with an error after {MAX_UNCOUNTED_ROWS:,} rows. If it has no end, {way}."
            )


class FirstPass:
    """What the first pass over a stream leaves: number of rows, a hash of 8 bytes per batch, and the first rows.

    >>> import torch
    >>> record = FirstPass("inputs")
    >>> record.count((torch.zeros(3, 2),))
    >>> record.hash((torch.zeros(3, 2),))
    >>> record.n_rows, len(record.hashes)
    (3, 1)
    """

    def __init__(self, argument: str) -> None:
        self.n_rows = 0
        self.hashes = array("Q")
        self.first: tuple[Tensor, ...] = ()
        self._argument = argument

    def count(self, inputs: tuple[Tensor, ...]) -> None:
        """Count the rows of the next batch; raise if they have another shape than those before."""
        if not self.n_rows:
            # Copies: a view would keep the whole batch alive.
            self.first = tuple(x[:FIRST_ROWS].clone() for x in inputs)
        shapes, expected = ([tuple(x.shape[1:]) for x in tensors] for tensors in (inputs, self.first))
        if shapes != expected:
            raise GEHValueError(
                f"{self._argument}: the batch that starts at row {self.n_rows} has rows of shape {_describe(shapes)}, "
                f"the first one has rows of shape {_describe(expected)}; all batches must have the same columns."
            )
        self.n_rows += len(inputs[0])

    def hash(self, inputs: tuple[Tensor, ...]) -> None:
        """Store the hash of the next batch."""
        self.hashes.append(int(digest(*inputs), 16))


def _describe(shapes: list[tuple[int, ...]]) -> str:
    return " and ".join(str(shape) for shape in shapes)


class StreamedPoints(Points):
    """Points of a loader that does not fit into memory, read anew on every pass.

    All draws must be evaluated at the same points, so every pass is compared with the hashes of the first one. Beside
    the batch that is read, 8 bytes per batch are held.

    Parameters
    ----------
    read
        Starts a pass: returns an iterator over the batches, each a tuple of input tensors of shape (n, ...).
    record
        What the first pass has left.
    additional
        Additional forward arguments of the model, positional or by keyword.
    target
        The output to explain, see :func:`geh_explain.data.targets.select`.
    ordered
        Whether the loader yields the rows in the order of its dataset.
    columns
        Names of the columns, None if there are none.

    Raises
    ------
    GEHRuntimeError
        In :meth:`batches`, if a pass yields other batches than the first one did.
    """

    streamed = True

    def __init__(
        self,
        read: Callable[[], Iterator[tuple[Tensor, ...]]],
        record: FirstPass,
        additional: Mapping[str, Any] | tuple[Any, ...],
        target: Any,
        ordered: bool,
        columns: list[str] | None = None,
    ) -> None:
        self.columns = columns
        self.ordered = ordered
        self._read = read
        self._record = record
        self._forward_args = ForwardArgs.of(target, additional, record.n_rows)
        self._spread: list[Rows] | None = None

    def __len__(self) -> int:
        return self._record.n_rows

    @cached_property
    def first(self) -> Rows:
        """The first 8 rows, which the first pass has left."""
        inputs = self._record.first
        return Rows(inputs, self._forward_args[0 : len(inputs[0])])

    @property
    def spread(self) -> list[Rows]:
        """Up to 64 rows at equal distances; the first complete pass collects them for later."""
        if self._spread is None:
            for _ in self.batches():
                pass
        assert self._spread is not None
        return self._spread

    def batches(self) -> Iterator[Rows]:
        """Yield the rows in batches, in their order."""
        start = 0
        hashes = self._record.hashes
        n_batches = 0
        wanted = spread_places(len(self)) if self._spread is None else np.zeros(0, dtype=np.int64)
        spread: list[Rows] = []
        for inputs in self._read():
            n_batches += 1
            if n_batches > len(hashes):
                raise GEHRuntimeError(
                    f"inputs: the loader gave {len(hashes)} batches on its first pass, and gives more on this one; all "
                    "draws need the same points. Pass a loader whose rows stay the same, or a tensor."
                )
            if int(digest(*inputs), 16) != hashes[n_batches - 1]:
                raise GEHRuntimeError(
                    f"inputs: batch {n_batches} of the loader has other rows than on its first pass; all draws need "
                    "the same points. Turn random augmentation off, or pass a tensor."
                )
            stop = start + len(inputs[0])
            rows = Rows(inputs, self._forward_args[start:stop], start)
            chosen = wanted[(wanted >= start) & (wanted < stop)] - start
            if len(chosen):
                spread.extend(rows.take(chosen.tolist()).split(FIRST_ROWS))
            yield rows
            start = stop
        if n_batches < len(hashes):
            raise GEHRuntimeError(
                f"inputs: the loader gave {len(hashes)} batches on its first pass and {n_batches} on this one; "
                "pass a loader that can be read again (its dataset must not be a generator), or a tensor."
            )
        if self._spread is None:
            self._spread = spread

    def digest(self) -> str:
        """Return a hash of the rows."""
        return digest(np.frombuffer(self._record.hashes, dtype=np.uint64))
