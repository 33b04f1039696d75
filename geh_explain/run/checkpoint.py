"""Draws that are kept as they come, so that a run can be killed at any time and taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHValueError, warn

_ABOUT = "run.json"
_PARTS = ("signed", "absolute", "variance", "slopes")


class Checkpoint:
    """A folder with the sums of the draws that are done, a file for each, and a description of the run they are of."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if not isinstance(folder, (str, os.PathLike)):
            raise GEHValueError(f"checkpoint={folder!r} is no path; give a folder.")
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise GEHValueError(f"checkpoint={str(folder)!r} is a file; give a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._about = self._read_about()

    def _read_about(self) -> dict[str, Any]:
        path = self.folder / _ABOUT
        if not path.exists():
            return {}
        try:
            about = json.loads(path.read_text(encoding="utf8"))
            assert isinstance(about, dict)
            return about
        except (OSError, ValueError, RecursionError, AssertionError) as error:
            raise GEHValueError(
                f"checkpoint={str(self.folder)!r}: {_ABOUT} in it cannot be read ({error}); give another folder."
            ) from error

    def budget(self, mine: int) -> int:
        """Return the bytes that the run began with: how rows are cut depends on them, and the last digits on that."""
        known = self._about.get("budget", mine)
        return known if isinstance(known, int) else mine

    def claim(self, about: Mapping[str, Any], budget: int) -> None:
        """Refuse a folder that belongs to another run; ``about`` describes this one."""
        if not self._about:
            self._about = {**about, "budget": budget}
            with _whole(self.folder / _ABOUT) as file:
                file.write(json.dumps(self._about, indent=1).encode())
            return
        differ = [
            f"{key} ({self._about.get(key)} there, {value} here)"
            for key, value in about.items()
            if self._about.get(key) != value
        ]
        if differ:
            raise GEHValueError(
                f"checkpoint={str(self.folder)!r} belongs to another run, with another {', '.join(differ)}; give "
                "another folder, or remove this one."
            )

    def keep(self, start: int, sums: GroupSums) -> None:
        """Keep the sums of the draws from number ``start`` on; a kill leaves all of them, or none."""
        arrays = {name: part.numpy() for name in _PARTS if (part := getattr(sums, name)) is not None}
        with _whole(self._path(start)) as file:
            np.savez(file, skipped=np.array(sums.skipped), **arrays)

    def find(self, start: int, units: int, most: int) -> GroupSums | None:
        """Return what was kept of the draws from number ``start`` on, if anything was; of ``most`` draws at most."""
        path = self._path(start)
        if not path.exists():
            return None
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: torch.from_numpy(stored[name][:most]) for name in _PARTS if name in stored}
                sums = GroupSums(**arrays, skipped=int(stored["skipped"]))
            if sums.signed.shape[2:] != (units * (units - 1) // 2,) or sums.signed.dtype != torch.double:
                raise ValueError("its arrays do not fit")
            return sums
        except Exception as error:  # zip, zlib and numpy each have several kinds for damaged data
            warn(f"checkpoint: {path.name} is damaged ({error}); its draws are computed again.")
            return None

    def _path(self, start: int) -> Path:
        return self.folder / f"draw_{start:06d}.npz"


@contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that will be there whole, or not at all."""
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
