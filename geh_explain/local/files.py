"""Saving and loading of accounts.

A file is an ``.npz`` archive of arrays and one JSON text, ``about``. Nothing in it is executed: arrays are read without
pickle, and all parts are checked before they are used. Members, for N accounts of D units and P pairs:

``about``
    JSON text as bytes: ``format``, ``names``, and one entry of ``accounts`` for each of them: method, baseline, place,
    smoothing and warnings.
``prediction``, ``reference``, ``remainder``, ``error``, ``steps``, ``n_draws``, ``n_baselines``
    Numbers (N,).
``row_values``, ``baseline_values``
    Values of the units (N, D).
``main_mean``, ``main_std``, ``main_error``, ``pair_mean``, ``pair_std``, ``pair_error``
    The arrays of :class:`~geh_explain.local.account.Contributions` (N, D) and (N, P); errors over baselines only where
    there are several.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geh_explain._validation import check_output_file, check_path
from geh_explain.errors import GEHValueError
from geh_explain.local.account import Contributions
from geh_explain.model.unit_names import check_unit_names
from geh_explain.storage.archives import check_headers, check_size, write_archive
from geh_explain.storage.whole import write_whole

_FORMAT = "geh_explain.LocalExplanations/1"
#: A file may unpack to this many bytes, or to this many times its own size, whichever is larger.
_MAX_BYTES = 2**28
_MAX_EXPANSION = 20
_NUMBERS = ("prediction", "reference", "remainder", "error")
_COUNTS = ("steps", "n_draws", "n_baselines")
_VALUES = ("row_values", "baseline_values")
_TEXTS = ("method", "baseline", "place")
_KINDS = ("main", "pair")


def write_accounts(accounts: Sequence[Any], path: str | os.PathLike[str]) -> Path:
    """Write accounts of the same units to a file, and return its path, with ``.npz`` appended if it is missing."""
    path = check_path("path", path, "a file")
    if path.suffix != ".npz" and path.name and not os.path.isdir(path):
        path = path.with_name(f"{path.name}.npz")
    path = check_output_file("path", path)
    names = accounts[0].names
    if any(
        account.names != names or (account.n_baselines > 1) != (accounts[0].n_baselines > 1) for account in accounts
    ):
        raise GEHValueError("accounts of different calls do not fit into one file; save each of them by itself.")
    entries = [
        {name: getattr(account, name) for name in (*_TEXTS, "smoothed")} | {"warnings": list(account.warnings)}
        for account in accounts
    ]
    about = json.dumps({"format": _FORMAT, "names": names, "accounts": entries})
    arrays: dict[str, Any] = {
        name: np.array([getattr(account, name) for account in accounts]) for name in (*_NUMBERS, *_COUNTS, *_VALUES)
    }
    for kind in _KINDS:
        effects = [getattr(account, f"{kind}_effects") for account in accounts]
        arrays[f"{kind}_mean"] = np.stack([part.mean for part in effects])
        arrays[f"{kind}_std"] = np.stack([part.draw_std for part in effects])
        if all(part.baseline_error is not None for part in effects):
            arrays[f"{kind}_error"] = np.stack([part.baseline_error for part in effects])
    arrays["about"] = np.frombuffer(about.encode(), dtype=np.uint8)
    with write_whole(path, sum(array.nbytes for array in arrays.values())) as file:
        write_archive(file, arrays)
    return path


def read_accounts(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the attributes of each account of a file; raises ``GEHValueError`` if it is missing or damaged."""
    path = check_path("path", path, "a file")
    if not os.path.isfile(path):
        raise GEHValueError(f"path={str(path)!r} is not a file.")
    try:
        with open(path, "rb") as file:
            check_size(file, _MAX_BYTES, _MAX_EXPANSION)
            check_headers(file)
            with np.load(file, allow_pickle=False) as archive:
                arrays = dict(archive)
        return _parse(json.loads(arrays.pop("about").tobytes().decode()), arrays)
    except Exception as error:  # zip, zlib, numpy and JSON raise various exceptions on damaged data
        raise GEHValueError(
            f"path={str(path)!r} is not an intact file of saved accounts ({error}); save the account again."
        ) from error


def _parse(about: Any, arrays: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the attributes of each account, after checking that they are valid and belong together."""
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT!r}")
    names = about["names"]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("its names are malformed")
    names = check_unit_names(names, len(names), "the file")
    entries = about["accounts"]
    n_units = len(names)
    sizes = {"main": n_units, "pair": n_units * (n_units - 1) // 2}
    shapes: dict[str, tuple[int, ...]] = {name: (len(entries),) for name in (*_NUMBERS, *_COUNTS)}
    shapes |= {name: (len(entries), n_units) for name in _VALUES}
    shapes |= {f"{kind}_{part}": (len(entries), sizes[kind]) for kind in _KINDS for part in ("mean", "std", "error")}
    optional = {f"{kind}_error" for kind in _KINDS}
    if not entries or not shapes.keys() - optional <= arrays.keys() <= shapes.keys():
        raise ValueError("parts are missing, or unknown")
    for name, array in arrays.items():
        if array.shape != shapes[name] or array.dtype != (np.int64 if name in _COUNTS else np.float64):
            raise ValueError(f"its {name} are malformed")
    if not all(np.isfinite(arrays[name]).all() for name in (*_NUMBERS, *(f"{kind}_mean" for kind in _KINDS))):
        raise ValueError("its numbers are not finite")
    return [_account(names, entry, number, arrays) for number, entry in enumerate(entries)]


def _account(names: list[str], entry: Any, number: int, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of account ``number``; ``entry`` is its part of the JSON text."""
    texts = [*(entry[name] for name in _TEXTS), *entry["warnings"]]
    if not all(isinstance(text, str) for text in texts) or min(arrays[name][number] for name in _COUNTS[1:]) < 1:
        raise ValueError(f"its account {number} is malformed")
    counts = [int(arrays[name][number]) for name in _COUNTS]
    effects = {}
    for kind in _KINDS:
        errors = arrays.get(f"{kind}_error")
        parts = arrays[f"{kind}_mean"][number], arrays[f"{kind}_std"][number]
        effects[f"{kind}_effects"] = Contributions(*parts, None if errors is None else errors[number], *counts[1:])
    return {
        "names": list(names),
        "steps": counts[0],
        "smoothed": _smoothed(entry["smoothed"]),
        "warnings": tuple(entry["warnings"]),
        **{name: entry[name] for name in _TEXTS},
        **{name: float(arrays[name][number]) for name in _NUMBERS},
        **{name: arrays[name][number] for name in _VALUES},
        **effects,
    }


def _smoothed(given: Any) -> dict[str, Any] | None:
    """Return what was smoothed, with checked types."""
    if given is None:
        return None
    step = given["step"]
    low, high = map(float, given["beta"])
    return {
        "functions": [str(name) for name in given["functions"]],
        "step": None if step is None else float(step),
        "beta": [low, high],
        "change": float(given["change"]),
    }
