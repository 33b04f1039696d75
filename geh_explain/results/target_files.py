"""Results of several targets as a folder: one file per target, and ``targets.json`` with their order and targets."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geh_explain._validation import check_folder, check_path
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.results.interactions import Interactions
from geh_explain.storage.whole import write_whole

_INDEX = "targets.json"
_FORMAT = "geh_explain.InteractionsByTarget/1"
#: Bytes of the index, at most.
_MAX_INDEX_BYTES = 2**26


def write_targets(results: Mapping[Any, Interactions], folder: str | os.PathLike[str]) -> Path:
    """Write results by target to a folder, which is made if it does not exist, and return its path.

    The index is written last: without it the folder holds no results.
    """
    unknown = [target for target in results if not _is_target(target)]
    if unknown:
        raise GEHTypeError(f"target {unknown[0]!r} cannot be saved; targets are numbers, text, or tuples of numbers.")
    path = check_folder("folder", folder)
    index = path / _INDEX
    index.unlink(missing_ok=True)
    entries = []
    for number, (target, result) in enumerate(results.items()):
        result.save(path / f"{number}.npz")
        entries.append({"target": target, "file": f"{number}.npz"})
    with write_whole(index) as file:
        file.write(json.dumps({"format": _FORMAT, "targets": entries}).encode())
    return path


def read_targets(folder: str | os.PathLike[str]) -> dict[Any, Interactions]:
    """Return the results by target of a folder; raises ``GEHValueError`` if it is missing or damaged."""
    path = check_path("folder", folder, "a folder of saved results") / _INDEX
    if not path.is_file():
        raise GEHValueError(f"folder={str(folder)!r} holds no saved results of several targets: it has no {_INDEX}.")
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_INDEX_BYTES + 1)
        about = json.loads(text.decode()) if len(text) <= _MAX_INDEX_BYTES else None
        files = _parse(about)
    except Exception as error:  # JSON raises various exceptions on damaged data
        raise GEHValueError(f"{str(path)!r} is not an intact index ({error}); save the results again.") from error
    return {target: Interactions.load(path.with_name(name)) for target, name in files.items()}


def _parse(about: Any) -> dict[Any, str]:
    """Return the file of each target, after checking the index."""
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT!r}")
    files = {}
    for entry in about["targets"]:
        target = tuple(entry["target"]) if isinstance(entry["target"], list) else entry["target"]
        # Files of this folder only.
        if not _is_target(target) or target in files or not re.fullmatch(r"\d+\.npz", entry["file"]):
            raise ValueError("its targets are malformed")
        files[target] = entry["file"]
    if not files:
        raise ValueError("it has no targets")
    return files


def _is_target(target: Any) -> bool:
    """Return whether JSON gives the same target back."""
    parts = target if isinstance(target, tuple) else (target,)
    kinds = int if isinstance(target, tuple) else (int, str)
    return all(isinstance(part, kinds) and not isinstance(part, bool) for part in parts)
