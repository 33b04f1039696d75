"""Checkpoint folder: stores each finished draw, so that a killed run resumes bit-identically.

A folder holds ``run.json``, which identifies the run, and one ``draw_NNNNNN.npz`` per draw or block of draws, with the
sums over groups before they are scaled or merged. Files are written to a temporary name and renamed, so that a kill
leaves a complete file or none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from geh_explain._validation import check_folder
from geh_explain.engines.sums import ARRAYS, GroupSums
from geh_explain.errors import GEHValueError, warn

#: Name of the file that identifies the run.
_IDENTITY_FILE = "run.json"


class Checkpoint:
    """A folder with the sums of finished draws, and the identity of the run that they belong to.

    Parameters
    ----------
    folder
        Path of the folder; it is made if it does not exist.

    Raises
    ------
    GEHTypeError
        If ``folder`` is no path.
    GEHValueError
        If it names a file, cannot be written to, or its ``run.json`` cannot be read.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = check_folder("checkpoint", folder)
        self._identity = self._read_identity()

    def _read_identity(self) -> dict[str, Any]:
        """Return the identity of the run in the folder, empty for a new folder."""
        path = self.folder / _IDENTITY_FILE
        if not path.exists():
            return {}
        try:
            identity = json.loads(path.read_text(encoding="utf8"))
            if not isinstance(identity, dict):
                raise ValueError("it holds no JSON object")
            return identity
        except (OSError, ValueError, RecursionError) as error:
            raise GEHValueError(
                f"checkpoint={str(self.folder)!r}: its {_IDENTITY_FILE} cannot be read ({error}); give another folder."
            ) from error

    def budget(self, default: int) -> int:
        """Return the memory budget in bytes with which the run began, ``default`` for a new run.

        The size of chunks depends on the budget, and the last digits of the sums depend on the chunks.
        """
        stored = self._identity.get("budget", default)
        return stored if isinstance(stored, int) else default

    def claim(self, identity: Mapping[str, Any], budget: int) -> None:
        """Store the identity of this run in a new folder, or raise if the folder belongs to another run."""
        if not self._identity:
            self._identity = {**identity, "budget": budget}
            with _write_atomically(self.folder / _IDENTITY_FILE) as file:
                file.write(json.dumps(self._identity, indent=1).encode())
            return
        differ = [
            f"{key} ({self._identity.get(key)} there, {value} here)"
            for key, value in identity.items()
            if self._identity.get(key) != value
        ]
        if differ:
            raise GEHValueError(
                f"checkpoint={str(self.folder)!r} belongs to another run, with another {', '.join(differ)}; give "
                "another folder, or remove this one."
            )

    def store(self, start: int, sums: GroupSums) -> None:
        """Store the sums of the draws from number ``start`` on; a kill leaves all of them, or none."""
        arrays = {name: part.numpy() for name in ARRAYS if (part := getattr(sums, name)) is not None}
        with _write_atomically(self._path(start)) as file:
            np.savez(file, skipped=np.array(sums.skipped), **arrays)

    def load(self, start: int, n_units: int, max_draws: int) -> GroupSums | None:
        """Return the stored sums of the draws from number ``start`` on, of at most ``max_draws`` draws.

        Returns None where nothing was stored, and with a warning where the file is damaged: its draws are then computed
        again.
        """
        path = self._path(start)
        if not path.exists():
            return None
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: torch.from_numpy(stored[name][:max_draws]) for name in ARRAYS if name in stored}
                sums = GroupSums(**arrays, skipped=int(stored["skipped"]))
            if sums.signed.shape[2:] != (n_units * (n_units - 1) // 2,) or sums.signed.dtype != torch.double:
                raise ValueError("its arrays do not fit")
            return sums
        except Exception as error:  # zip, zlib and numpy each have several kinds for damaged data
            warn(f"checkpoint: {path.name} is damaged ({error}); its draws are computed again.")
            return None

    def _path(self, start: int) -> Path:
        return self.folder / f"draw_{start:06d}.npz"


@contextmanager
def _write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``path`` when the context ends without an error."""
    temporary = path.with_suffix(".part")
    with open(temporary, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
