"""Locations of data files, and verification of their contents."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from geh_explain.errors import GEHValueError

#: Environment variable with the folder of data files, used where the argument ``folder`` is None.
DATA_VARIABLE = "GEH_EXPLAIN_DATA"


def data_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder of data files: the argument, else that of the environment variable, else None.

    Raises
    ------
    GEHValueError
        If it is not an existing folder.
    """
    location = folder or os.environ.get(DATA_VARIABLE)
    if not location:
        return None
    path = Path(location)
    if not path.is_dir():
        source = f"folder={str(folder)!r}" if folder else f"the environment variable {DATA_VARIABLE}={location!r}"
        raise GEHValueError(f"{source} is not a folder; give an existing one.")
    return path


def cache_folder() -> Path:
    """Return the folder for downloads: ``geh_explain`` in ``XDG_CACHE_HOME``, or in ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "geh_explain"


def find_file(folder: Path, subfolders: Iterable[str], name: str) -> Path | None:
    """Return the path of a file in the first of these subfolders that has it; None if none has."""
    candidates = (folder / subfolder / name for subfolder in subfolders)
    return next((path for path in candidates if path.is_file()), None)


def missing_file_error(
    folder: str | os.PathLike[str], title: str, name: str, subfolders: Iterable[str]
) -> GEHValueError:
    """Return the error for a data set that is not in the folder that the user gave."""
    places = ", ".join(subfolder for subfolder in subfolders if subfolder)
    return GEHValueError(
        f"folder={str(folder)!r} does not hold {title}: there is no {name} in it, nor in {places} below it."
    )


def read_verified(path: Path, digest: str) -> bytes:
    """Return the contents of a file.

    Raises
    ------
    GEHValueError
        If their SHA-256 digest is not ``digest``, in hexadecimal: the file is damaged, or of another version.
    """
    contents = path.read_bytes()
    actual = hashlib.sha256(contents).hexdigest()
    if actual != digest:
        raise GEHValueError(
            f"{path} is not the expected file: its SHA-256 digest is {actual} instead of {digest}. Delete it, and get "
            "it again."
        )
    return contents
