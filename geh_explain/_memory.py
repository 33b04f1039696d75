"""How much memory may be used, and how many rows fit into it."""

from __future__ import annotations

import ctypes
import numbers
import os
from contextlib import suppress
from typing import Any

import torch

from geh_explain.errors import GEHValueError

#: Bytes one chunk of work may take: enough to keep the cores busy, little beside a model's own needs.
CHUNK_BYTES = 512 * 2**20


def free_bytes(device: torch.device) -> int:
    """Return the free memory of ``device`` in bytes (2 GB where the system does not tell)."""
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
        return 2 * 2**30


def budget_bytes(memory: Any) -> int:
    """Return how many bytes ``memory`` (in GB) allows; None allows half of what is free."""
    if memory is None:
        return free_bytes(torch.device("cpu")) // 2
    if isinstance(memory, bool) or not isinstance(memory, numbers.Real) or not 0 < float(memory) < float("inf"):
        raise GEHValueError(f"memory={memory!r} must be a positive number of GB, or None for half of what is free.")
    return int(float(memory) * 1e9)


def chunk_bytes(device: torch.device, memory: int | None = None) -> int:
    """Return the budget of one chunk: a constant where memory is plentiful, so that runs repeat exactly.

    ``memory`` is what the user allows in all, in bytes.
    """
    return min(CHUNK_BYTES, (free_bytes(device) if memory is None else memory) // 4)


def reuse_heap() -> None:
    """Let the C library keep freed memory for reuse, up to 62 MB, as its own heuristic allows.

    By default it gives every large block back at once, and fresh pages cost more than what is computed in them. It
    learns better from the first large block that is freed.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def trim_heap() -> None:
    """Give freed memory back to the system; kept for long, it falls into pieces too small to be used again."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
