"""Archives ``.npz``: writing them, and checks before they are unpacked, which bound the memory that reading takes."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np


def write_archive(file: IO[bytes], arrays: Mapping[str, Any], *, compress: bool = False) -> None:
    """Write arrays as ``numpy.savez`` does.

    That of NumPy 1 leaves its archive open where writing fails, which then complains when it is deleted.

    >>> import io
    >>> file = io.BytesIO()
    >>> write_archive(file, {"scores": np.arange(3)})
    >>> np.load(io.BytesIO(file.getvalue()))["scores"]
    array([0, 1, 2])
    """
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def check_size(file: IO[bytes], max_bytes: int, max_expansion: int) -> dict[str, int]:
    """Return the unpacked sizes of the members of an archive, or raise ``ValueError`` if they are too large.

    The sizes are those that the directory of the archive states; ``zipfile`` never unpacks more than stated.

    Parameters
    ----------
    file
        The archive; it is at its start afterwards.
    max_bytes, max_expansion
        An archive may unpack to ``max_bytes``, or to ``max_expansion`` times its own size, whichever is larger.
    """
    with zipfile.ZipFile(file) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    if expands_too_much(sum(sizes.values()), os.fstat(file.fileno()).st_size, max_bytes, max_expansion):
        raise ValueError(f"it unpacks to {sum(sizes.values()) / 1e9:.1f} GB, far more than its own size")
    file.seek(0)
    return sizes


def expands_too_much(unpacked: int, packed: int, max_bytes: int, max_expansion: int) -> bool:
    """Return whether ``unpacked`` bytes are too many for a file of ``packed`` bytes, see :func:`check_size`."""
    return unpacked > max(max_bytes, max_expansion * packed)


def check_headers(file: IO[bytes]) -> None:
    """Raise ``ValueError`` unless every array of an archive is as large as its header says, and holds plain numbers.

    NumPy allocates what a header promises before it reads. The file is at its start afterwards.
    """
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as member:
                major, _ = np.lib.format.read_magic(member)
                read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(member)
                if dtype.hasobject or math.prod(shape) * dtype.itemsize != entry.file_size - member.tell():
                    raise ValueError(f"its array {entry.filename!r} does not have the size that it states")
    file.seek(0)
