"""The points to explain: anything a user has, read as batches of rows, the same on every pass."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError
from geh_explain.memory import free_bytes

#: A loader is kept in memory if its rows take less than this share of what is free.
KEEP_SHARE = 0.25


@dataclass(frozen=True)
class Rows:
    """Some consecutive rows: what the model is called with, and which output is asked of each."""

    inputs: tuple[Tensor, ...]
    extra: tuple[Any, ...]
    target: Any
    start: int

    def __len__(self) -> int:
        return len(self.inputs[0])

    def __getitem__(self, rows: slice) -> Rows:
        """Return a part of these rows, with everything that belongs to a row cut alike."""
        count = len(self)
        return Rows(
            inputs=tuple(x[rows] for x in self.inputs),
            extra=tuple(_cut(value, rows, count) for value in self.extra),
            target=_cut(self.target, rows, count),
            start=self.start + rows.indices(count)[0],
        )

    def split(self, size: int) -> Iterator[Rows]:
        """Yield these rows in pieces of at most ``size``."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


def _cut(value: Any, rows: slice, count: int) -> Any:
    """Cut what has one entry per row; leave everything else whole (as Captum does)."""
    if isinstance(value, (Tensor, np.ndarray)):
        return value[rows] if value.ndim and len(value) == count else value
    return value[rows] if isinstance(value, list) and len(value) == count else value


@dataclass(frozen=True)
class Reader:
    """Turns what a user passes into tensors that the model takes.

    ``floating`` says that derivatives with respect to the inputs are wanted; floating-point tensors are
    brought to ``dtype``, all of them to ``device``.
    """

    floating: bool = True
    device: torch.device | None = None
    dtype: torch.dtype | None = None

    def gather(self, inputs: Any, target: Any = None, additional_forward_args: Any = None) -> Points:
        """Read ``inputs`` of any supported kind."""
        extra = self._extra(additional_forward_args)
        if isinstance(inputs, (Dataset, DataLoader)):
            loader = inputs if isinstance(inputs, DataLoader) else DataLoader(inputs, batch_size=256)
            points = self._from_loader(loader, extra, target)
        else:
            columns = [str(name) for name in inputs.columns] if _is_frame(inputs) else None
            points = Points(Rows(self.tensors(inputs), extra, target, 0), columns)
        if len(points) == 0:
            raise GEHValueError("inputs are empty: there is no row to explain.")
        return points

    def tensors(self, inputs: Any, start: int = 0) -> tuple[Tensor, ...]:
        """Convert and check the inputs of one batch, whose first row has the number ``start``."""
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        if not given:
            raise GEHValueError("inputs=() is empty; pass at least one tensor.")
        tensors = tuple(self._tensor(value, start) for value in given)
        if len({len(x) for x in tensors}) > 1:
            raise GEHValueError(
                f"inputs: the tensors of the tuple have {[len(x) for x in tensors]} rows; they must agree."
            )
        return tensors

    def _extra(self, args: Any) -> tuple[Any, ...]:
        if args is None:
            return ()
        given = args if isinstance(args, tuple) else (args,)
        return tuple(value.to(self.device) if isinstance(value, Tensor) else value for value in given)

    def _tensor(self, value: Any, start: int) -> Tensor:
        columns = None
        if _is_frame(value):
            value, columns = _from_frame(value), list(value.columns)
        elif isinstance(value, np.ndarray):
            if value.dtype.kind not in "fiub":
                raise GEHTypeError(f"inputs: an array of dtype {value.dtype} is not numbers; convert it to float32.")
            value = torch.as_tensor(value)
        if not isinstance(value, Tensor):
            raise GEHTypeError(
                f"inputs: a {type(value).__name__} is not understood; pass a tensor, ndarray, DataFrame, tuple of "
                "tensors, Dataset or DataLoader."
            )
        if value.ndim == 0:
            raise GEHValueError("inputs: a tensor without dimensions has no rows; the first dimension is the rows.")
        if self.floating and not value.is_floating_point():
            raise GEHTypeError(
                f"inputs have dtype {value.dtype}, which has no derivatives; pass floating-point numbers "
                "(inputs.float()), or, if these are token ids or categories, explain the embedding: "
                "layer='<name of the embedding>'."
            )
        if value.is_floating_point():
            _check_finite(value, start, columns)
        # Inference tensors cannot enter autograd; a copy made outside inference mode can.
        tensor: Tensor = value.clone() if value.is_inference() else value.detach()
        return tensor.to(device=self.device, dtype=self.dtype if value.is_floating_point() else None)

    def _from_loader(self, loader: Any, extra: tuple[Any, ...], target: Any) -> Points:
        kept: list[tuple[Tensor, ...]] = []
        room = KEEP_SHARE * free_bytes(self.device or torch.device("cpu"))
        for batch in self.read(loader):
            kept.append(batch)
            room -= sum(x.nbytes for x in batch)
            if room < 0:
                kept.clear()
                return StreamedPoints(self, loader, extra, target)
        if not kept:
            raise GEHValueError("inputs: the loader is empty; there is no row to explain.")
        return Points(Rows(tuple(torch.cat(parts) for parts in zip(*kept, strict=True)), extra, target, 0))

    def read(self, loader: Any) -> Iterator[tuple[Tensor, ...]]:
        """Yield a loader's inputs; a shuffling one gives the same order on every pass.

        Samplers, workers and augmentations draw from the global generators, so setting those at the
        start of a pass repeats it. The borrowing of the model restores them.
        """
        generator = getattr(loader, "generator", None)
        state = None if generator is None else generator.get_state()
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        start = 0
        try:
            for batch in loader:
                inputs = self.tensors(_inputs_of(batch), start)
                start += len(inputs[0])
                yield inputs
        finally:
            if generator is not None:
                generator.set_state(state)


class Points:
    """All points to explain. ``batches()`` may be called any number of times and repeats itself."""

    def __init__(self, rows: Rows, columns: list[str] | None = None) -> None:
        self._rows = rows
        self.columns = columns

    def __len__(self) -> int:
        return len(self._rows)

    def batches(self) -> Iterator[Rows]:
        """Yield the rows, in order, in pieces as they are stored."""
        yield self._rows

    @property
    def first(self) -> Rows:
        """The first few rows, for looking at the model."""
        return next(iter(self.batches()))[:8]


class StreamedPoints(Points):
    """Points of a loader too large to keep: read anew on every pass, and checked to be the same."""

    def __init__(self, reader: Reader, loader: Any, extra: tuple[Any, ...], target: Any) -> None:
        self.columns = None
        self._reader, self._loader, self._extra, self._target = reader, loader, extra, target
        self._prints = [_fingerprint(inputs) for inputs in reader.read(loader)]
        self._count = sum(size for size, _ in self._prints)

    def __len__(self) -> int:
        return self._count

    def batches(self) -> Iterator[Rows]:
        start = number = 0
        for number, inputs in enumerate(self._reader.read(self._loader), start=1):
            if number > len(self._prints) or _fingerprint(inputs) != self._prints[number - 1]:
                raise GEHRuntimeError(
                    f"inputs: batch {number} of the loader has other rows than on its first pass; every draw must "
                    "see the same points. Turn random augmentation off, or pass a tensor."
                )
            rows = slice(start, start + len(inputs[0]))
            extra = tuple(_cut(value, rows, self._count) for value in self._extra)
            yield Rows(inputs, extra, _cut(self._target, rows, self._count), start)
            start = rows.stop
        if number < len(self._prints):
            raise GEHRuntimeError(
                f"inputs: the loader gave {len(self._prints)} batches on its first pass and {number} on this one; pass "
                "a loader that can be read again (its dataset must not be a generator), or a tensor."
            )


def _fingerprint(inputs: tuple[Tensor, ...]) -> tuple[int, float]:
    return len(inputs[0]), float(sum(x.double().sum() for x in inputs))


def _inputs_of(batch: Any) -> Any:
    """Return the inputs of a batch: all of it, or the first entry of (inputs, labels, ...)."""
    if isinstance(batch, (tuple, list)):
        if not batch:
            raise GEHValueError("inputs: the loader gave an empty batch.")
        return tuple(batch[0]) if isinstance(batch[0], (tuple, list)) else batch[0]
    return batch


def _is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def _from_frame(frame: Any) -> Tensor:
    kinds = [getattr(dtype, "kind", "O") for dtype in frame.dtypes]
    wrong = [str(name) for name, kind in zip(frame.columns, kinds, strict=True) if kind not in "fiub"]
    if wrong:
        raise GEHTypeError(
            f"inputs: the columns {wrong} are not numbers; encode them as they were encoded for the model "
            "(for instance with pandas.get_dummies)."
        )
    return torch.as_tensor(np.ascontiguousarray(frame.to_numpy(dtype=np.float64, na_value=np.nan)))


def _check_finite(x: Tensor, start: int, columns: list[str] | None) -> None:
    bad = ~torch.isfinite(x).reshape(len(x), -1)
    if bool(bad.any()):
        row, column = (int(i) for i in bad.nonzero()[0])
        name = repr(columns[column]) if columns is not None else str(column)
        raise GEHValueError(
            f"inputs: {int(bad.any(dim=1).sum())} of {len(x)} rows have NaN or infinite values (the first is row "
            f"{start + row}, column {name}); remove or impute them."
        )
