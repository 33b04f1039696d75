"""The files of single draws in a checkpoint folder: written whole, and checked entirely before they are used.

A file is an uncompressed ``.npz`` archive with the arrays of :class:`~geh_explain.engines.sums.GroupSums`, and

``skipped``
    As in ``GroupSums``.
``outputs``
    Outputs and derivatives (B, m) of the model at points spread over the data, in each draw, to the bit: a network is
    identified by what it computes, beside its parameters and attributes (see ``fingerprint``).
``stamp``
    Hash of the run, the number of the first draw and all of the above.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._hashing import digest
from geh_explain.engines.sums import ARRAYS, GroupSums
from geh_explain.storage.archives import check_headers, check_size, write_archive
from geh_explain.storage.whole import write_whole

#: Arrays that cannot be negative.
_NOT_NEGATIVE = ("absolute", "variance", "squares", "counts")
#: Sums of squared weights differ by this part, depending on the order of the points.
_ROUNDING = 1e-6
#: Arrays that are there in all draws of a run or in none.
_OPTIONAL = ("variance", "slopes")


@dataclass(frozen=True)
class StoredDraws:
    """The sums of B draws, and the outputs and derivatives (B, m) of the model in each of them."""

    sums: GroupSums
    outputs: Tensor

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def optional(self) -> set[str]:
        """Names of the arrays that a run has in all draws or in none."""
        return {name for name in _OPTIONAL if getattr(self.sums, name) is not None}


@dataclass(frozen=True)
class DrawSizes:
    """Sizes that the sums of draws must have.

    Attributes
    ----------
    points, groups, units, pairs
        Numbers of points N, groups M, units D and pairs P.
    squared
        How many draws, from the first one of the file on, have sums of squares, or of cells.
    cells
        Number of cells C, 0 where points have no clusters.
    counted
        Sum of the squared case weights of all points; None for their number.
    """

    points: int
    groups: int
    units: int
    pairs: int
    squared: int
    cells: int = 0
    counted: float | None = None


def write_draws(path: Path, draws: StoredDraws, run: str, start: int) -> None:
    """Write the draws from number ``start`` on of the run with the hash ``run``; an error leaves the former file."""
    arrays = {**_arrays(draws.sums), "outputs": draws.outputs, "skipped": torch.tensor(draws.sums.skipped)}
    parts: dict[str, Any] = {name: part.numpy() for name, part in arrays.items()}
    stamp = np.frombuffer(_stamp(run, start, parts).encode(), dtype=np.uint8)
    with write_whole(path, sum(part.nbytes for part in parts.values())) as file:
        write_archive(file, {"stamp": stamp, **parts})


def read_draws(path: Path, run: str, start: int, sizes: DrawSizes) -> StoredDraws:
    """Return the draws of a file.

    Raises
    ------
    ValueError
        If the file is of another run or draw, or its arrays do not have these ``sizes`` or hold impossible numbers.
        Other exceptions come from damaged archives.
    """
    if not path.is_file():
        raise ValueError("it is not a file")
    with open(path, "rb") as file:
        # The archive is not compressed, so that it never unpacks to more than its size.
        check_size(file, max_bytes=0, max_expansion=1)
        check_headers(file)
        with np.load(file, allow_pickle=False) as archive:
            parts = {name: archive[name] for name in archive.files}
    stamp = parts.pop("stamp").tobytes().decode()
    skipped, outputs = parts.pop("skipped"), parts.pop("outputs")
    unknown = set(parts) - set(ARRAYS)
    if unknown:
        raise ValueError(f"it has arrays {sorted(unknown)}")
    _check_outputs(outputs)
    _check_arrays(parts, len(outputs), sizes)
    if skipped.shape != () or skipped.dtype != np.int64 or not 0 <= skipped < sizes.points:
        raise ValueError("its number of points is impossible")
    if stamp != _stamp(run, start, {**parts, "outputs": outputs, "skipped": skipped}):
        raise ValueError("it belongs to another run or another draw, or was changed")
    sums = GroupSums(**{name: torch.from_numpy(part) for name, part in parts.items()}, skipped=int(skipped))
    return StoredDraws(sums, torch.from_numpy(outputs))


def _check_outputs(outputs: Any) -> None:
    """Raise unless outputs are finite numbers (B, n) of at least one draw."""
    if outputs.ndim != 2 or not outputs.size:
        raise ValueError("it has no draws")
    if outputs.dtype != np.float64 or not np.isfinite(outputs).all():
        raise ValueError("its outputs are no finite numbers")


def _check_arrays(parts: dict[str, Any], draws: int, sizes: DrawSizes) -> None:
    """Raise unless the arrays of B = ``draws`` draws have the right shapes and possible values."""
    groups, units, pairs = sizes.groups, sizes.units, sizes.pairs
    squared = min(draws, sizes.squared)
    shapes = {"signed": (draws, groups, pairs), "absolute": (draws, pairs)}
    if squared and sizes.cells:
        shapes["cells"] = (squared, sizes.cells, pairs)
    elif squared:
        shapes |= {"squares": (squared, groups, pairs), "counts": (squared, groups)}
    if not set(shapes) <= set(parts):
        raise ValueError(f"it lacks {sorted(set(shapes) - set(parts))}")
    shapes |= {"variance": (draws, groups, pairs), "slopes": (draws, groups, units)}
    shapes |= {"visited": (squared, groups, pairs)} if "squares" in shapes else {}
    for name, part in parts.items():
        if part.shape != shapes.get(name) or part.dtype != np.float64:
            raise ValueError(f"its array {name!r} does not fit")
        if not np.isfinite(part).all() or (name in _NOT_NEGATIVE and (part < 0).any()):
            raise ValueError(f"its array {name!r} is not finite, or negative where it cannot be")
    most = sizes.points if sizes.counted is None else sizes.counted * (1 + _ROUNDING)
    if "counts" in parts and (parts["counts"].sum(axis=1) > most).any():
        raise ValueError("it counts more points than there are")


def _arrays(sums: GroupSums) -> dict[str, Tensor]:
    """Return the arrays that sums have, by name."""
    return {name: part for name in ARRAYS if (part := getattr(sums, name)) is not None}


def _stamp(run: str, start: int, parts: dict[str, Any]) -> str:
    """Return the hash of a run, the number of a draw, and its arrays in the order of their names."""
    return digest(run, start, dict(sorted(parts.items())))
