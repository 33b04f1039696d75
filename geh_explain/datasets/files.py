"""Where data files lie, and whether they are what they should be."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from geh_explain.errors import GEHValueError

#: Names the folder with data files, where no argument does.
VARIABLE = "GEH_EXPLAIN_DATA"


def data_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder asked for, by the argument or else by the environment; None where nothing is."""
    asked = folder or os.environ.get(VARIABLE)
    if not asked:
        return None
    path = Path(asked)
    if not path.is_dir():
        name = f"folder={str(folder)!r}" if folder else f"the environment variable {VARIABLE}={asked!r}"
        raise GEHValueError(f"{name} is not a folder.")
    return path


def cache_folder() -> Path:
    """Return where downloads are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "geh_explain"


def checked(path: Path, digest: str) -> bytes:
    """Return the contents of a file whose SHA-256 digest is known."""
    contents = path.read_bytes()
    found = hashlib.sha256(contents).hexdigest()
    if found != digest:
        raise GEHValueError(
            f"{path} is not the file that is meant: its SHA-256 digest is {found}, and {digest} is wanted. Remove it, "
            "and get it again."
        )
    return contents
