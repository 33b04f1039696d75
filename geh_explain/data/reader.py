"""The points to explain: anything a user has, read as batches of rows, the same on every pass."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from geh_explain._memory import free_bytes
from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.loaders import in_order, is_ordered
from geh_explain.data.points import Points, StreamedPoints
from geh_explain.data.rows import Rows
from geh_explain.data.targets import check_target
from geh_explain.errors import GEHTypeError, GEHValueError

#: A loader is kept in memory if its rows take less than this share of what is free.
KEEP_SHARE = 0.25


@dataclass(frozen=True)
class Reader:
    """Turns what a user passes into tensors that the model takes.

    ``floating`` says that derivatives with respect to the inputs are wanted; floating-point tensors are
    brought to ``dtype``, all of them to ``device``. ``argument`` is what the user calls them, ``budget`` how many bytes
    are allowed in all.
    """

    floating: bool = True
    device: torch.device | None = None
    dtype: torch.dtype | None = None
    argument: str = "inputs"
    budget: int | None = None

    def gather(self, inputs: Any, target: Any = None, additional_forward_args: Any = None) -> Points:
        """Read ``inputs`` of any supported kind."""
        target = _usable(target.to_numpy() if hasattr(target, "to_numpy") else target, None)
        extra = self._extra(additional_forward_args)
        if isinstance(inputs, (Dataset, DataLoader)):
            loader = in_order(inputs) if isinstance(inputs, DataLoader) else DataLoader(inputs, batch_size=256)
            points = self._from_loader(loader, extra, target)
        else:
            columns = [str(name) for name in inputs.columns] if _is_frame(inputs) else None
            names = tuple(inputs) if isinstance(inputs, Mapping) else ()
            tensors = self.tensors(tuple(inputs.values()) if isinstance(inputs, Mapping) else inputs)
            points = Points(Rows(tensors, ForwardArgs.of(target, extra, len(tensors[0])), names=names), columns)
        check_target(target, len(points))
        beside = points.first.beside
        for name, each in zip(("target", *("additional_forward_args",) * len(extra)), beside.per_row, strict=True):
            if each:
                points.check_matched(name)
        return points

    def tensors(self, inputs: Any, start: int = 0) -> tuple[Tensor, ...]:
        """Convert and check the inputs of one batch, whose first row has the number ``start``."""
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        if not given:
            raise GEHValueError(f"{self.argument}=() is empty; pass at least one tensor.")
        tensors = tuple(self._tensor(value, start) for value in given)
        if len({len(x) for x in tensors}) > 1:
            raise GEHValueError(
                f"{self.argument}: the tensors of the tuple have {[len(x) for x in tensors]} rows; they must agree."
            )
        return tensors

    def _extra(self, args: Any) -> Mapping[str, Any] | tuple[Any, ...]:
        if args is None:
            return ()
        if isinstance(args, Mapping):
            return {str(name): _usable(value, self.device) for name, value in args.items()}
        given = args if isinstance(args, tuple) else (args,)
        return tuple(_usable(value, self.device) for value in given)

    def _tensor(self, value: Any, start: int) -> Tensor:
        columns = None
        if _is_frame(value):
            value, columns = _from_frame(value, self.argument), list(value.columns)
        elif isinstance(value, np.ndarray):
            value = _from_array(value, self.argument)
        if not isinstance(value, Tensor):
            raise GEHTypeError(
                f"{self.argument}: a {type(value).__name__} is not understood; pass a tensor, ndarray, DataFrame, "
                "tuple of tensors, dict of tensors, Dataset or DataLoader."
            )
        if value.ndim == 0:
            raise GEHValueError(
                f"{self.argument}: a tensor without dimensions has no rows; the first dimension is the rows."
            )
        if len(value) == 0:
            raise GEHValueError(f"{self.argument} are empty: there is no row to explain.")
        if self.floating and not value.is_floating_point():
            raise GEHTypeError(
                f"inputs have dtype {value.dtype}, which has no derivatives; pass floating-point numbers "
                "(inputs.float()), or, if these are token ids or categories, explain the embedding: "
                "layer='<name of the embedding>'."
            )
        if value.is_meta:
            raise GEHValueError(f"{self.argument} are on the meta device and have no values; pass tensors that have.")
        if value.is_floating_point():
            _check_finite(value, start, columns, self.argument)
        tensor: Tensor = _usable(value.detach(), self.device)
        return tensor.to(dtype=self.dtype if value.is_floating_point() else None)

    def _from_loader(self, loader: Any, extra: Mapping[str, Any] | tuple[Any, ...], target: Any) -> Points:
        kept: list[tuple[Tensor, ...]] = []
        free = free_bytes(self.device or torch.device("cpu"))
        room = KEEP_SHARE * (free if self.budget is None else min(free, self.budget))
        # Closed before the next pass starts, which begins where this one found the loader's generator.
        with closing(self.read(loader)) as batches:
            for batch in batches:
                kept.append(batch)
                room -= sum(x.nbytes for x in batch)
                if room < 0:
                    kept.clear()
                    break
        if room < 0:
            return StreamedPoints(partial(self.read, loader), extra, target, is_ordered(loader))
        if not kept:
            raise GEHValueError(f"{self.argument}: the loader is empty; there is no row to explain.")
        tensors = tuple(torch.cat(parts) for parts in zip(*kept, strict=True))
        return Points(Rows(tensors, ForwardArgs.of(target, extra, len(tensors[0]))), ordered=is_ordered(loader))

    def stream(self, inputs: Any, size: int | None) -> Iterator[Rows]:
        """Yield the rows of ``inputs`` of any supported kind, in one pass and at most ``size`` (256) at a time."""
        if not isinstance(inputs, (Dataset, DataLoader)):
            yield from self.gather(inputs).pieces(size)
            return
        loader = in_order(inputs) if isinstance(inputs, DataLoader) else DataLoader(inputs, batch_size=size or 256)
        start = 0
        for tensors in self.read(loader):
            yield from Rows(tensors, ForwardArgs.of(None, (), len(tensors[0])), start).split(size or 256)
            start += len(tensors[0])

    def read(self, loader: Any) -> Generator[tuple[Tensor, ...], None, None]:
        """Yield a loader's inputs, the same on every pass.

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
                inputs = self.tensors(_inputs_of(batch, self.argument), start)
                start += len(inputs[0])
                yield inputs
        finally:
            if generator is not None:
                generator.set_state(state)


def _usable(value: Any, device: torch.device | None) -> Any:
    """Bring a tensor to ``device``; a copy made outside inference mode can enter autograd, the original cannot."""
    if not isinstance(value, Tensor):
        return value
    return (value.clone() if value.is_inference() else value).to(device)


def _from_array(array: np.ndarray[Any, Any], argument: str) -> Tensor:
    if array.dtype.kind not in "fiub":
        raise GEHTypeError(f"{argument}: an array of dtype {array.dtype} is not numbers; convert it to float32.")
    # What torch does not take, or only with a warning: foreign byte order, long doubles, negative strides, read-only.
    kind = np.float64 if array.dtype.kind == "f" and array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    return torch.as_tensor(np.require(array.astype(kind, copy=False), requirements=["C", "W"]))


def _inputs_of(batch: Any, argument: str) -> Any:
    """Return the inputs of a batch: all of it, or the first entry of (inputs, labels, ...)."""
    if isinstance(batch, (tuple, list)):
        if not batch:
            raise GEHValueError(f"{argument}: the loader gave an empty batch.")
        return tuple(batch[0]) if isinstance(batch[0], (tuple, list)) else batch[0]
    return batch


def _is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def _from_frame(frame: Any, argument: str) -> Tensor:
    kinds = [getattr(dtype, "kind", "O") for dtype in frame.dtypes]
    wrong = [str(name) for name, kind in zip(frame.columns, kinds, strict=True) if kind not in "fiub"]
    if wrong:
        raise GEHTypeError(
            f"{argument}: the columns {wrong} are not numbers; encode them as they were encoded for the model "
            "(for instance with pandas.get_dummies)."
        )
    return _from_array(frame.to_numpy(dtype=np.float64, na_value=np.nan), argument)


def _check_finite(x: Tensor, start: int, columns: list[str] | None, argument: str) -> None:
    if bool(torch.isfinite(x.sum())):  # quicker than asking every number
        return
    bad = ~torch.isfinite(x).reshape(len(x), -1)
    if bool(bad.any()):
        row, column = (int(i) for i in bad.nonzero()[0])
        name = repr(columns[column]) if columns is not None else str(column)
        raise GEHValueError(
            f"{argument}: {int(bad.any(dim=1).sum())} of {len(x)} rows have NaN or infinite values (the first is row "
            f"{start + row}, column {name}); remove or impute them."
        )
