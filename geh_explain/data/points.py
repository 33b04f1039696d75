"""TODO."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError, GEHValueError


class Points:
    """All points to explain. ``batches()`` may be called any number of times and repeats itself."""

    def __init__(self, rows: Rows, columns: list[str] | None = None, ordered: bool = True) -> None:
        self._rows = rows
        self.columns = columns
        self.ordered = ordered

    def __len__(self) -> int:
        return len(self._rows)

    def batches(self) -> Iterator[Rows]:
        """Yield the rows, in order, in pieces as they are stored."""
        yield self._rows

    def check_matched(self, argument: str) -> None:
        """Refuse an argument with one entry per row where nobody knows the order of the rows."""
        if not self.ordered:
            raise GEHValueError(
                f"{argument} has one entry per row, but the loader picks its rows by a sampler of its own, so that "
                "they cannot be matched; pass a loader without a sampler, or a tensor."
            )

    def pieces(self, size: int | None) -> Iterator[Rows]:
        """Yield the rows, in order, at most ``size`` (by default 256) at a time."""
        return (piece for rows in self.batches() for piece in rows.split(size or 256))

    @property
    def first(self) -> Rows:
        """The first few rows, for looking at the model."""
        return next(iter(self.batches()))[:8]


class StreamedPoints(Points):
    """Points of a loader too large to keep: read anew on every pass, and checked to be the same."""

    def __init__(
        self,
        read: Callable[[], Iterator[tuple[Tensor, ...]]],
        extra: Mapping[str, Any] | tuple[Any, ...],
        target: Any,
        ordered: bool,
    ) -> None:
        self.columns = None
        self._read = read
        self._prints = [_fingerprint(inputs) for inputs in read()]
        self._count = sum(size for size, _ in self._prints)
        self._beside = ForwardArgs.of(target, extra, self._count)
        self.ordered = ordered

    def __len__(self) -> int:
        return self._count

    def batches(self) -> Iterator[Rows]:
        start = number = 0
        for number, inputs in enumerate(self._read(), start=1):
            if number > len(self._prints) or _fingerprint(inputs) != self._prints[number - 1]:
                raise GEHRuntimeError(
                    f"inputs: batch {number} of the loader has other rows than on its first pass; every draw must "
                    "see the same points. Turn random augmentation off, or pass a tensor."
                )
            stop = start + len(inputs[0])
            yield Rows(inputs, self._beside[start:stop], start)
            start = stop
        if number < len(self._prints):
            raise GEHRuntimeError(
                f"inputs: the loader gave {len(self._prints)} batches on its first pass and {number} on this one; pass "
                "a loader that can be read again (its dataset must not be a generator), or a tensor."
            )


def _fingerprint(inputs: tuple[Tensor, ...]) -> tuple[int, ...]:
    raw = (x.cpu().contiguous().reshape(-1).view(torch.uint8).numpy() for x in inputs)
    return len(inputs[0]), *(zlib.crc32(part.data) for part in raw)
