"""Reading of ``inputs`` of any supported kind as points that are the same on every pass."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from geh_explain._memory import free_bytes
from geh_explain._process import OwnGenerators
from geh_explain.data.blocks import BlockSource, block_source
from geh_explain.data.conversion import (
    array_to_tensor,
    check_finite,
    encode_categories,
    frame_to_tensor,
    image_conversion,
    is_frame,
    suggest_conversion,
    to_device,
)
from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.frames import FrameLayout, is_pandas
from geh_explain.data.loaders import declared_length, in_order, is_ordered
from geh_explain.data.points import DEFAULT_BATCH_SIZE, InMemoryPoints, Points
from geh_explain.data.rows import Rows
from geh_explain.data.streams import EndCheck, FirstPass, StreamedPoints
from geh_explain.data.targets import check_target
from geh_explain.errors import GEHTypeError, GEHValueError

#: The rows of a loader are kept in memory if they take less than this share of the free memory.
KEEP_SHARE = 0.25
#: Marks the end of a pass; a batch may be anything else.
_END = object()

#: Additional forward arguments of the model, by keyword or positional.
ForwardValues = Mapping[str, Any] | tuple[Any, ...]


@dataclass(frozen=True)
class Stream:
    """Batches of inputs that can be read again, and what is known of them.

    ``read`` starts a pass, ``ordered`` says whether rows come in the order of the data, ``columns`` are names, and
    ``keeps`` says whether the rows may be kept in memory.
    """

    read: Callable[[], Generator[tuple[Tensor, ...], None, None]]
    ordered: bool = True
    columns: list[str] | None = None
    keeps: bool = True


@dataclass(frozen=True)
class Reader:
    """Turns what a user passes into tensors that the model can be called with.

    Attributes
    ----------
    floating_only
        Whether inputs must be floating point, because derivatives with respect to them are taken.
    device
        Device to which all tensors are moved; None leaves them where they are.
    dtype
        Precision to which floating-point inputs are converted; None keeps theirs.
    argument
        Name of the argument, for error messages.
    budget
        Memory of the whole run in bytes; None for all that is free.
    keeps_frames
        Whether the layout of a data frame is kept, for models that may be called with frames. Its columns then need not
        be numbers.
    coded
        Names of columns of a data frame that may be categories of pandas, which are read as their codes.

    Examples
    --------
    >>> points = Reader(dtype=torch.float32).read(np.eye(3), target=[0, 1, 0])
    >>> len(points), points.first.inputs[0].dtype, points.first[1:].target
    (3, torch.float32, [1, 0])
    """

    floating_only: bool = True
    device: torch.device | None = None
    dtype: torch.dtype | None = None
    argument: str = "inputs"
    budget: int | None = None
    keeps_frames: bool = False
    coded: tuple[str, ...] = ()

    def read(self, inputs: Any, target: Any = None, additional_forward_args: Any = None) -> Points:
        """Return ``inputs`` as points, in memory where they fit.

        Parameters
        ----------
        inputs
            Tensor, array or data frame with one row per point; tuple or dict of these; dataset or loader of tensors, or
            of tuples whose first entry is the inputs; memory-mapped array, Dask array or Arrow data set.
        target
            The output to explain, by the rules of :func:`geh_explain.data.targets.select`.
        additional_forward_args
            Further arguments of the model: one value, a tuple of positional ones, or a dict of keyword ones.

        Raises
        ------
        GEHTypeError, GEHValueError
            If the inputs are of an unsupported kind, are empty, or have NaN or infinite values; or if an argument has
            one entry per row and the order of a loader's rows is unknown.
        """
        # The target stays on its device; it is moved to that of the outputs when it selects among them.
        target = to_device(target.to_numpy() if hasattr(target, "to_numpy") else target, None)
        additional = self._additional(additional_forward_args)
        if isinstance(inputs, (Dataset, DataLoader)):
            points = self._from_loader(_as_loader(inputs, DEFAULT_BATCH_SIZE), additional, target)
        elif (source := block_source(inputs, self.argument)) is not None:
            points = self._from_blocks(source, additional, target)
        else:
            columns = [str(name) for name in inputs.columns] if is_frame(inputs) else None
            input_names = tuple(inputs) if isinstance(inputs, Mapping) else ()
            layout, code_names = None, {}
            if self.keeps_frames and is_pandas(inputs):
                inputs, layout = FrameLayout.read(inputs, self.argument)
                code_names = layout.code_names()
            elif is_frame(inputs) and self.coded:
                inputs, code_names = encode_categories(inputs, self.coded, self.argument)
            values = tuple(inputs.values()) if isinstance(inputs, Mapping) else inputs
            tensors = self._tensors(values, columns=columns if layout else None)
            forward_args = ForwardArgs.of(target, additional, len(tensors[0]))
            rows = Rows(tensors, forward_args, input_names=input_names, argument=self.argument, frame=layout)
            points = InMemoryPoints(rows, columns, code_names=code_names)
        check_target(target, len(points))
        arguments = ("target", *("additional_forward_args",) * len(additional))
        for argument, per_row in zip(arguments, points.first.forward_args.per_row, strict=True):
            if per_row:
                points.check_matched(argument)
        return points

    def stream(self, inputs: Any, size: int | None) -> Iterator[Rows]:
        """Yield the rows of ``inputs`` in a single pass, at most ``size`` at a time (None: 256).

        Unlike :meth:`read`, this never keeps the rows of a loader.
        """
        size = size or DEFAULT_BATCH_SIZE
        if not isinstance(inputs, (Dataset, DataLoader)):
            yield from self.read(inputs).split(size)
            return
        start = 0
        for tensors in self._read_loader(_as_loader(inputs, size)):
            yield from Rows(tensors, ForwardArgs.of(None, (), len(tensors[0])), start).split(size)
            start += len(tensors[0])

    def _from_loader(self, loader: DataLoader[Any], additional: ForwardValues, target: Any) -> Points:
        """Return the rows of a loader as points."""
        return self._keep_or_stream(Stream(partial(self._read_loader, loader), is_ordered(loader)), additional, target)

    def _from_blocks(self, source: BlockSource, additional: ForwardValues, target: Any) -> Points:
        """Return the rows of data that are read block by block as points."""
        read = partial(self._read_blocks, source)
        return self._keep_or_stream(Stream(read, columns=source.columns, keeps=source.keeps), additional, target)

    def _keep_or_stream(self, stream: Stream, additional: ForwardValues, target: Any) -> Points:
        """Keep the rows of a stream in memory, or read them anew on every pass if they exceed :data:`KEEP_SHARE`."""
        batches: list[tuple[Tensor, ...]] = []
        free = free_bytes(self.device or torch.device("cpu"))
        bytes_left = KEEP_SHARE * (free if self.budget is None else min(free, self.budget)) if stream.keeps else -1.0
        record = FirstPass(self.argument)
        # The pass is closed before the next one starts, so that it restores the loader's generator first.
        with closing(stream.read()) as first_pass:
            for batch in first_pass:
                record.count(batch)
                batches.append(batch)
                bytes_left -= sum(x.nbytes for x in batch)
                if bytes_left < 0:
                    # From here on batches are hashed instead of kept.
                    for kept in batches:
                        record.hash(kept)
                    batches.clear()
        if record.n_rows == 0:
            raise GEHValueError(f"{self.argument}: the loader is empty; there is no row to explain.")
        if bytes_left < 0:
            return StreamedPoints(stream.read, record, additional, target, stream.ordered, stream.columns)
        tensors = tuple(torch.cat(parts) for parts in zip(*batches, strict=True))
        forward_args = ForwardArgs.of(target, additional, len(tensors[0]))
        return InMemoryPoints(Rows(tensors, forward_args, argument=self.argument), stream.columns, stream.ordered)

    def _read_blocks(self, source: BlockSource) -> Generator[tuple[Tensor, ...], None, None]:
        """Yield the inputs of each block."""
        start = 0
        for block in source.read():
            tensors = self._tensors(block, start, source.columns)
            start += len(tensors[0])
            yield tensors

    def labelled(self, data: Any, labels: Any, size: int | None) -> Iterator[tuple[Rows, Any]]:
        """Yield rows with their labels in a single pass, at most ``size`` rows at a time (None: 256).

        Parameters
        ----------
        data
            Inputs as in :meth:`read`, or a loader or dataset of (inputs, labels).
        labels
            One label per row; None for a loader or dataset, whose batches hold them.
        size
            Rows at a time; batches of a loader that are smaller stay as they are.
        """
        size = size or DEFAULT_BATCH_SIZE
        if labels is not None:
            points = self.read(data)
            if len(labels) != len(points):
                raise GEHValueError(f"{self.argument}: {len(labels)} labels for {len(points)} rows; give one per row.")
            for rows in points.split(size):
                yield rows, labels[rows.start : rows.start + len(rows)]
            return
        if not isinstance(data, (Dataset, DataLoader)):
            raise GEHTypeError(
                f"{self.argument}: a {type(data).__name__} without labels; pass the labels as second argument, or a "
                "Dataset or DataLoader of (inputs, labels)."
            )
        start = 0
        loader: Any = data if isinstance(data, DataLoader) else DataLoader(data, batch_size=size)
        for tensors, batch in self._read_batches(loader):
            found = _labels_of(batch, self.argument)
            if len(found) != len(tensors[0]):
                raise GEHValueError(
                    f"{self.argument}: a batch has {len(tensors[0])} rows and {len(found)} labels; give one per row."
                )
            rows = Rows(tensors, ForwardArgs.of(None, (), len(tensors[0])), start, argument=self.argument)
            for part in rows.split(size):
                yield part, found[part.start - start : part.start - start + len(part)]
            start += len(rows)

    def _read_loader(self, loader: Any) -> Generator[tuple[Tensor, ...], None, None]:
        """Yield the inputs of each batch of a loader, the same on every pass."""
        with closing(self._read_batches(loader)) as batches:
            for inputs, _ in batches:
                yield inputs

    def _read_batches(self, loader: Any) -> Generator[tuple[tuple[Tensor, ...], Any], None, None]:
        """Yield the inputs of each batch of a loader and the batch itself, the same on every pass.

        Samplers, workers and augmentations draw from the global generators, which have states of their own for each
        pass. The loader's own generator is restored at the end.
        """
        generator = getattr(loader, "generator", None)
        state = None if generator is None else generator.get_state()
        generators = OwnGenerators(seed=0)
        check = EndCheck(self.argument, declared_length(loader))
        try:
            with generators.active():
                batches = iter(loader)
            while True:
                with generators.active():
                    batch = next(batches, _END)
                if batch is _END:
                    break
                found = _inputs_of(batch, self.argument)
                if _is_empty(found):
                    check.add(0)
                    continue  # a batch of which a collate function or a filter has left nothing
                inputs = self._tensors(found, check.n_rows)
                check.add(len(inputs[0]))
                yield inputs, batch
        finally:
            if generator is not None:
                generator.set_state(state)

    def _additional(self, args: Any) -> Mapping[str, Any] | tuple[Any, ...]:
        """Return the additional forward arguments as a tuple or mapping, with tensors on the device."""
        if args is None:
            return ()
        if isinstance(args, Mapping):
            return {str(name): to_device(value, self.device) for name, value in args.items()}
        values = args if isinstance(args, tuple) else (args,)
        return tuple(to_device(value, self.device) for value in values)

    def _tensors(self, inputs: Any, start: int = 0, columns: list[str] | None = None) -> tuple[Tensor, ...]:
        """Convert and check the inputs of one batch; ``start`` is the index of its first row among all points.

        ``columns`` are the names of the columns, if they are known already.
        """
        values = inputs if isinstance(inputs, tuple) else (inputs,)
        if not values:
            raise GEHValueError(f"{self.argument}=() is empty; pass at least one tensor.")
        tensors = tuple(self._tensor(value, start, columns) for value in values)
        if len({len(x) for x in tensors}) > 1:
            raise GEHValueError(
                f"{self.argument}: the tensors of the tuple have {[len(x) for x in tensors]} rows; they must agree."
            )
        if self.floating_only and len(tensors) > 1 and any(x.ndim < 2 for x in tensors):
            raise GEHValueError(
                f"{self.argument}: a tensor of the tuple has one number per row; give it as a column, x[:, None], or "
                "as additional_forward_args, and leave labels out."
            )
        return tensors

    def _tensor(self, value: Any, start: int, columns: list[str] | None) -> Tensor:
        """Convert one input to a tensor (n, ...) on the device and in the precision of the model."""
        if is_frame(value):
            columns = list(value.columns)
            value = frame_to_tensor(value, self.argument)
        elif isinstance(value, np.ndarray):
            value = array_to_tensor(value, self.argument)
        if not isinstance(value, Tensor):
            raise GEHTypeError(
                f"{self.argument}: a {type(value).__name__} is not supported{suggest_conversion(value)}; pass a "
                "tensor, ndarray, DataFrame, tuple of tensors, dict of tensors, Dataset or DataLoader, Dask array or "
                "Arrow data set."
            )
        self._check_tensor(value)
        if value.is_floating_point():
            check_finite(value, start, columns, self.argument)
        tensor: Tensor = to_device(value.detach(), self.device)
        # Integer inputs, such as token ids, keep their dtype.
        return tensor.to(dtype=self.dtype if value.is_floating_point() else None)

    def _check_tensor(self, value: Tensor) -> None:
        """Raise if a tensor has no rows, no values, or no derivatives where they are needed."""
        if value.is_nested or value.layout != torch.strided:
            kind, dense = ("nested", "to_padded_tensor(0.0)") if value.is_nested else ("sparse", "to_dense()")
            raise GEHTypeError(
                f"{self.argument}: a {kind} tensor ({value.layout}) is not supported; pass a dense one, "
                f"{self.argument}.{dense}."
            )
        if value.ndim == 0:
            raise GEHValueError(
                f"{self.argument}: a tensor without dimensions has no rows; the first dimension is the rows."
            )
        if len(value) == 0:
            raise GEHValueError(f"{self.argument} are empty: there is no row to explain.")
        if value.is_complex():
            raise GEHTypeError(
                f"{self.argument} have dtype {value.dtype}; pass real numbers (torch.view_as_real), and build the "
                "complex ones inside the model."
            )
        if self.floating_only and value.dtype == torch.uint8 and value.ndim > 2:
            raise GEHTypeError(
                f"{self.argument} have dtype {value.dtype}, which has no derivatives; {image_conversion(value)}"
            )
        if self.floating_only and not value.is_floating_point():
            raise GEHTypeError(
                f"{self.argument} have dtype {value.dtype}, which has no derivatives; pass floating-point numbers "
                f"({self.argument}.float()), or, if these are token ids or categories, explain the embedding: "
                "layer='<name of the embedding>'."
            )
        if value.is_meta:
            raise GEHValueError(f"{self.argument} are on the meta device and have no values; pass tensors that have.")


def _as_loader(inputs: Dataset[Any] | DataLoader[Any], batch_size: int) -> DataLoader[Any]:
    """Return a loader that yields the rows in the order of the dataset where that is possible."""
    return in_order(inputs) if isinstance(inputs, DataLoader) else DataLoader(inputs, batch_size=batch_size)


def _inputs_of(batch: Any, argument: str) -> Any:
    """Return the inputs of a batch: all of it, or the first entry of (inputs, labels, ...)."""
    if isinstance(batch, (tuple, list)):
        if not batch:
            raise GEHValueError(f"{argument}: the loader gave an empty batch.")
        # The default collation of torch turns a tuple of inputs into a list.
        return tuple(batch[0]) if isinstance(batch[0], (tuple, list)) else batch[0]
    return batch


def _is_empty(inputs: Any) -> bool:
    """Return whether the inputs of a batch are tensors or arrays without rows."""
    values = inputs if isinstance(inputs, tuple) else (inputs,)
    return bool(values) and all(isinstance(x, (Tensor, np.ndarray)) and x.ndim and not len(x) for x in values)


def _labels_of(batch: Any, argument: str) -> Any:
    """Return the labels of a batch (inputs, labels, ...)."""
    if isinstance(batch, (tuple, list)) and len(batch) > 1 and isinstance(batch[1], (Tensor, np.ndarray)):
        return batch[1]
    raise GEHTypeError(
        f"{argument}: the loader's batches have no labels; each must be (inputs, labels) with a tensor of labels."
    )
