"""Memory: how much is free, how much of it a run and one chunk of rows may use, and when the C heap returns it.

The budgets are in bytes. Chunk sizes follow from them, and the order of summation follows from chunk sizes, so budgets
are constants wherever memory is plentiful: the same call then gives bit-identical results on another day.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Any

import torch

from geh_explain._validation import check_positive

#: Upper limit of one chunk of work: large enough to keep the cores busy, small next to the model's own needs.
CHUNK_BYTES = 512 * 2**20
#: Free memory that is assumed where the system does not report it.
_ASSUMED_FREE = 2 * 2**30


def free_bytes(device: torch.device) -> int:
    """Return the free memory of ``device`` in bytes.

    For the CPU this is ``MemAvailable`` of ``/proc/meminfo``, else the number of free pages, else 2 GB where the system
    reports neither.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _ASSUMED_FREE


def budget_bytes(memory: Any) -> int:
    """Return the budget of a run in bytes; ``memory`` is in GB, and None means half of the free memory.

    >>> budget_bytes(1.5)
    1500000000
    """
    if memory is None:
        return free_bytes(torch.device("cpu")) // 2
    return int(check_positive("memory", memory, "a positive number of GB, or None for half of what is free") * 1e9)


def chunk_bytes(device: torch.device, memory: int | None = None) -> int:
    """Return the budget of one chunk of rows in bytes.

    It is :data:`CHUNK_BYTES`, or a quarter of the available memory where that is less. ``memory`` is the budget of the
    whole run in bytes; None takes the free memory of ``device`` instead.
    """
    return min(CHUNK_BYTES, (free_bytes(device) if memory is None else memory) // 4)


def reuse_heap() -> None:
    """Make the C library keep up to 62 MB of freed memory for reuse.

    By default glibc returns every large block to the system at once, and faulting in fresh pages costs more than the
    computation on them. When a block of at most 32 MB is freed, glibc raises two thresholds: blocks of up to that size
    come from the heap from then on, and the heap keeps up to twice that size. Freeing one block of 31 MB does it.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def trim_heap() -> None:
    """Return freed memory to the system.

    Over a long run the freed blocks that :func:`reuse_heap` keeps become fragmented: too small to be used again, but
    still counted as used.
    """
    # C libraries other than glibc have no malloc_trim.
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
