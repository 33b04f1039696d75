"""Data outside of memory that are read block by block: memory-mapped files, Arrow data sets, Dask arrays.

They are recognised by their interface, so that neither pyarrow nor dask is imported.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain.data.conversion import array_to_tensor
from geh_explain.errors import GEHTypeError, GEHValueError

#: Bytes of one block.
_BLOCK_BYTES = 2**22
#: Smaller memory-mapped arrays are read into memory as other arrays are.
_MIN_MAPPED_BYTES = 2**26


@dataclass(frozen=True)
class BlockSource:
    """Data that are read block by block, and can be read again.

    Attributes
    ----------
    read
        Starts a pass: returns an iterator over arrays (n, ...) of consecutive rows.
    columns
        Names of the columns, None if there are none.
    keeps
        Whether the rows may be kept in memory where they fit. Rows of a memory-mapped file are read anew: the system
        keeps its pages as long as there is room.
    """

    read: Callable[[], Iterator[Any]]
    columns: list[str] | None = None
    keeps: bool = True


def block_source(inputs: Any, argument: str) -> BlockSource | None:
    """Return how to read ``inputs`` block by block; None for data of any other kind.

    >>> block_source(np.zeros((3, 2)), "inputs") is None
    True
    """
    if isinstance(inputs, np.memmap) and inputs.ndim and inputs.nbytes > _MIN_MAPPED_BYTES:
        return BlockSource(lambda: _mapped_blocks(inputs), keeps=False)
    if all(hasattr(inputs, name) for name in ("to_batches", "count_rows", "schema")):
        columns = _arrow_columns(inputs, argument)
        return BlockSource(lambda: _arrow_blocks(inputs, columns, argument), columns)
    if all(hasattr(inputs, name) for name in ("dask", "numblocks", "blocks")):
        return BlockSource(lambda: _dask_blocks(inputs, argument))
    return None


def _rows_per_block(bytes_per_row: int) -> int:
    return max(1, _BLOCK_BYTES // max(1, bytes_per_row))


def _mapped_blocks(inputs: np.memmap[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield copies of the rows of a memory-mapped array, and give the pages that were read back to the system."""
    size = _rows_per_block(inputs.nbytes // len(inputs))
    # Pages of a private mapping (mode "c") hold changes that are nowhere else.
    mapping = getattr(inputs, "_mmap", None) if inputs.mode in ("r", "r+") else None
    for start in range(0, len(inputs), size):
        yield np.array(inputs[start : start + size])
        if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED)


def _arrow_columns(inputs: Any, argument: str) -> list[str]:
    """Return the names of the columns of an Arrow data set; raise if there are none, or two of the same name."""
    columns = [str(name) for name in inputs.schema.names]
    twice = sorted(name for name, count in Counter(columns).items() if count > 1)
    if not columns or twice:
        found = f"several columns with the names {twice}" if twice else "no columns"
        raise GEHValueError(f"{argument}: the data set has {found}; give each of its columns a name of its own.")
    return columns


def _arrow_blocks(inputs: Any, columns: list[str], argument: str) -> Iterator[Any]:
    """Yield the rows of an Arrow data set, such as a folder of Parquet files; nulls become NaN."""
    for batch in inputs.to_batches(batch_size=_rows_per_block(8 * len(columns))):
        if not batch.num_rows:
            continue  # a file, or part of it, without rows that match
        parts = [np.asarray(batch.column(place).to_numpy(zero_copy_only=False)) for place in range(len(columns))]
        wrong = [name for name, part in zip(columns, parts, strict=True) if part.dtype.kind not in "fiub"]
        if wrong:
            raise GEHTypeError(
                f"{argument}: the columns {wrong} are not numbers; leave them out, by dataset.replace_schema(schema) "
                "with the other fields, or encode them as they were encoded for the model."
            )
        yield array_to_tensor(np.column_stack([part.astype(np.float64, copy=False) for part in parts]), argument)


def _dask_blocks(inputs: Any, argument: str) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the blocks of rows of a Dask array, each computed when it is asked for."""
    if not inputs.ndim:
        raise GEHValueError(f"{argument}: a Dask array without dimensions has no rows; the first one is the rows.")
    whole = inputs.rechunk(dict.fromkeys(range(1, inputs.ndim), -1)) if inputs.ndim > 1 else inputs
    for place in range(whole.numblocks[0]):
        block = np.asarray(whole.blocks[place].compute())
        if len(block):
            yield block
