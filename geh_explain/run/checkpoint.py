"""Checkpoint folder: stores each finished draw, so that a killed run resumes bit-identically.

A folder holds ``run.json``, which identifies the run, and one ``draw_NNNNNN.npz`` per draw or block of draws, with the
sums over groups before they are scaled or merged. One process uses it at a time, and holds the lock of ``run.lock``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geh_explain._hashing import digest
from geh_explain._validation import check_folder
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHValueError, warn
from geh_explain.run.stored_draws import DrawSizes, StoredDraws, read_draws, write_draws
from geh_explain.storage.lock import FileLock
from geh_explain.storage.whole import write_whole

#: Name of the file that identifies the run, and of the one that is locked.
_IDENTITY_FILE = "run.json"
_LOCK_FILE = "run.lock"
#: Maximum number of bytes of the former.
_MAX_IDENTITY_BYTES = 2**20
#: Maximum memory budget in bytes, more than any machine has.
_MAX_BUDGET = 2**50


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
        If it names a file, or cannot be written to.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = check_folder("checkpoint", folder)
        self._identity: dict[str, Any] = {}
        #: Names of optional arrays of the draws, once one is known.
        self._optional: set[str] | None = None

    def lock(self) -> FileLock:
        """Return a context in which no other process uses the folder; it raises where one does."""
        return FileLock(self.folder / _LOCK_FILE, f"checkpoint={str(self.folder)!r}")

    def budget(self, default: int) -> int:
        """Return the memory budget in bytes with which the run began, ``default`` for a new run.

        The size of chunks depends on the budget, and the last digits of the sums depend on the chunks.
        """
        self._identity = self._read_identity()
        return int(self._identity.get("budget", default))

    def _read_identity(self) -> dict[str, Any]:
        """Return the identity of the run in the folder, empty for a new folder."""
        path = self.folder / _IDENTITY_FILE
        if not os.path.lexists(path):
            return {}
        try:
            if not path.is_file() or path.stat().st_size > _MAX_IDENTITY_BYTES:
                raise ValueError("it is no file, or far too long")
            identity = json.loads(path.read_text(encoding="utf8"))
            if not isinstance(identity, dict):
                raise ValueError("it holds no JSON object")
            budget = identity.get("budget")
            if type(budget) is not int or not 0 < budget < _MAX_BUDGET:
                raise ValueError(f"its budget {budget!r} is no number of bytes")
            return identity
        except (OSError, ValueError, RecursionError) as error:
            raise GEHValueError(
                f"checkpoint={str(self.folder)!r}: its {_IDENTITY_FILE} cannot be read ({error}); give another folder."
            ) from error

    def claim(self, identity: Mapping[str, Any], budget: int) -> None:
        """Store the identity of this run in a new folder, or raise if the folder belongs to another run."""
        self._identity = self._read_identity()
        if not self._identity:
            self._identity = {**identity, "budget": budget}
            with write_whole(self.folder / _IDENTITY_FILE) as file:
                file.write(json.dumps(self._identity, indent=1).encode())
            return
        # As JSON, for which 1 and true are different.
        differ = [
            f"{key} ({self._identity.get(key)} there, {value} here)"
            for key, value in identity.items()
            if json.dumps(self._identity.get(key)) != json.dumps(value)
        ]
        if differ:
            self._refuse(f"another {', '.join(differ)}")

    def _refuse(self, difference: str) -> None:
        """Raise that the folder belongs to another run, which has ``difference``."""
        raise GEHValueError(
            f"checkpoint={str(self.folder)!r} belongs to another run, with {difference}; give another folder, or "
            "remove this one."
        )

    def store(self, start: int, sums: GroupSums, outputs: Tensor) -> None:
        """Store the sums of the draws from number ``start`` on; a kill leaves all of them, or none.

        ``outputs`` (B, m) identify the model in each draw, see ``fingerprint``.
        """
        draws = StoredDraws(sums, outputs)
        self._optional = draws.optional
        write_draws(self._path(start), draws, self._run, start)

    def load(
        self, start: int, sizes: DrawSizes, outputs_of: Callable[[int], Tensor], max_block: int | None
    ) -> GroupSums | None:
        """Return the stored sums of the draws from number ``start`` on.

        Returns None where nothing was stored, and with a warning where the file is damaged: its draws are then computed
        again.

        Parameters
        ----------
        start
            The first draw.
        sizes
            Numbers of points, groups and units of the run.
        outputs_of
            Returns the outputs and derivatives (B, m) of the model in B draws from number ``start`` on.
        max_block
            How many draws can be evaluated at once; None for any number.

        Raises
        ------
        GEHValueError
            If these are not those of the network that computed the draws.
        """
        path = self._path(start)
        if not os.path.lexists(path):
            return None
        try:
            draws = read_draws(path, self._run, start, sizes)
            if self._optional not in (None, draws.optional):
                raise ValueError("its arrays are not those of other draws")
            if max_block is not None and len(draws) > max_block:
                raise ValueError("it holds several draws, and this run computes one at a time")
        except Exception as error:  # zip, zlib and numpy each have several kinds for damaged data
            warn(f"checkpoint: {path.name} is damaged ({error}); its draws are computed again.")
            return None
        if not torch.equal(outputs_of(len(draws)), draws.outputs):
            self._refuse(
                f"other outputs or derivatives of the model in draw {start} (another network, or another kind of "
                "processor: they are compared to the last bit)"
            )
        self._optional = draws.optional
        return draws.sums

    def discard(self) -> None:
        """Remove all stored draws, which a check found to be wrong."""
        self._optional = None
        for path in self.folder.glob("draw_*.npz"):
            path.unlink()

    @property
    def _run(self) -> str:
        """Hash of the identity, as JSON, which subclasses of text come back from as text."""
        return digest(json.dumps(self._identity, sort_keys=True))

    def _path(self, start: int) -> Path:
        return self.folder / f"draw_{start:06d}.npz"
