"""Files of saved interactions: arrays and JSON, never anything that is executed."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from geh_explain.errors import GEHValueError
from geh_explain.scores.draws import MEASURES, DrawMoments, Draws
from geh_explain.scores.moments import Moments

if TYPE_CHECKING:
    from geh_explain.results.interactions import Interactions

_FORMAT = "geh_explain.Interactions/1"
#: The arrays of a file: of all draws, or of their moments.
_DRAW_ARRAYS = ("signed", "absolute", "noise", "slopes")
_PARTS = ("mean", "squares")
_MOMENT_ARRAYS = ("count", *(f"{name}_{part}" for name in (*MEASURES, "signed") for part in _PARTS))
_SLOPE_MOMENTS = tuple(f"slopes_{part}" for part in _PARTS)
#: A file unpacks to at most so many bytes, or so many times its own size; its words to so many bytes.
_MOST_BYTES, _MOST_TIMES, _MOST_WORDS = 2**28, 20, 2**26
#: Scores beyond this have no spread that can be computed.
_LARGEST = 1e150


def write(result: Interactions, draws: Draws | DrawMoments, path: str | os.PathLike[str]) -> Path:
    """Write a result to a ``.npz`` file, and return its path."""
    path = Path(path)
    path = path if path.suffix == ".npz" else path.with_name(path.name + ".npz")
    if not path.parent.is_dir():
        raise GEHValueError(f"path={str(path)!r}: there is no folder {str(path.parent)!r}; make it first.")
    about = {
        "format": _FORMAT,
        "names": result.names,
        "group_names": result.group_names,
        "settings": result.settings,
    }
    text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    arrays = {"about": text, "labels": result.labels, **_arrays(draws)}
    np.savez_compressed(path, **arrays)
    if _too_large(sum(array.nbytes for array in arrays.values()), path.stat().st_size):
        np.savez(path, **arrays)  # mostly zeros, and packed so tightly that it would be refused as a bomb
    return path


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments of a saved result; a damaged file is an error."""
    if not isinstance(path, (str, os.PathLike)) or not _is_file(path):
        raise GEHValueError(f"path={path!r} is not a file.")
    try:
        with open(path, "rb") as file:
            _check_size(file)
            with np.load(file, allow_pickle=False) as stored:
                known = ("labels", "about", *_DRAW_ARRAYS, *_MOMENT_ARRAYS, *_SLOPE_MOMENTS)
                arrays = {name: stored[name] for name in known if name in stored}
        about = json.loads(arrays.pop("about").tobytes().decode())
        return _checked(about, **arrays)
    except Exception as error:  # zip, zlib, numpy and JSON each have several kinds for damaged data
        raise GEHValueError(
            f"path={str(path)!r} is not an intact file of saved interactions ({error}); save the result again."
        ) from error


def _is_file(path: str | os.PathLike[str]) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a name that is too long, or no text
        return False


def _check_size(file: IO[bytes]) -> None:
    """Refuse a small file that would fill the memory, by what its directory says: no more than that is unpacked."""
    with zipfile.ZipFile(file) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    if _too_large(sum(sizes.values()), os.fstat(file.fileno()).st_size):
        raise ValueError(f"it unpacks to {sum(sizes.values()) / 1e9:.1f} GB, far more than its own size")
    if sizes.get("about.npy", 0) > _MOST_WORDS:
        raise ValueError("its settings are too long")
    file.seek(0)


def _too_large(unpacked: int, packed: int) -> bool:
    return unpacked > max(_MOST_BYTES, _MOST_TIMES * packed)


def _arrays(draws: Draws | DrawMoments) -> dict[str, Any]:
    """Return the arrays of a file."""
    if isinstance(draws, Draws):
        return {name: value for name in _DRAW_ARRAYS if (value := getattr(draws, name)) is not None}
    moments = {name: getattr(draws, name) for name in (*MEASURES, "signed")}
    if draws.slopes.count:
        moments["slopes"] = draws.slopes
    return {
        "count": np.array(draws.geh.count),
        **{f"{name}_mean": each.mean for name, each in moments.items()},
        **{f"{name}_squares": each.squares for name, each in moments.items()},
    }


def _checked(about: Any, labels: Any, **arrays: Any) -> dict[str, Any]:
    """Check that the parts of a file belong together, and return them as arguments."""
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT!r}")
    names, group_names, settings = about["names"], about["group_names"], about["settings"]
    if not (isinstance(names, list) and isinstance(group_names, list) and isinstance(settings, dict)):
        raise ValueError("its names or settings are malformed")
    if not all(isinstance(name, str) for name in (*names, *group_names)) or len(set(names)) < len(names):
        raise ValueError("its names are not text, or not all different")
    if len(names) < 2:
        raise ValueError("it has no pair of units")
    "".join((*names, *group_names)).encode()  # half of a surrogate pair is no text
    points, warnings = settings.get("eah_points", 1), settings.get("warnings", [])
    if isinstance(points, bool) or not isinstance(points, int) or not isinstance(warnings, list):
        raise ValueError("its settings are malformed")
    groups = len(group_names)
    checked = _checked_draws if "signed" in arrays else _checked_moments
    draws = checked(groups, len(names), **arrays)
    if labels.ndim != 1 or len(labels) < 1 or labels.dtype != np.int64:
        raise ValueError("its labels are malformed")
    if labels.min() < 0 or labels.max() >= groups:
        raise ValueError("its labels name unknown groups")
    return {"draws": draws, "labels": labels} | {key: about[key] for key in ("names", "group_names", "settings")}


def _checked_draws(groups: int, units: int, signed: Any, absolute: Any, noise: Any = None, slopes: Any = None) -> Draws:
    pairs = units * (units - 1) // 2
    fits = signed.ndim == 3 and signed.shape[1:] == (groups, pairs) and absolute.shape == (len(signed), pairs)
    if not fits or len(signed) < 1:
        raise ValueError("its arrays do not fit together")
    if signed.dtype != np.float64 or absolute.dtype != np.float64:
        raise ValueError("its arrays have other types than saved ones")
    if not (_finite(signed) and _finite(absolute) and (absolute >= 0).all()):
        raise ValueError("its scores are not finite, or negative where they cannot be")
    if noise is not None and (noise.shape != signed.shape or not _finite(noise) or not (noise >= 0).all()):
        raise ValueError("its standard errors do not fit")
    if slopes is not None and (slopes.shape != (len(signed), groups, units) or not _finite(slopes)):
        raise ValueError("its main effects do not fit")
    return Draws(signed, absolute, noise, slopes)


def _checked_moments(groups: int, units: int, count: Any, **arrays: Any) -> DrawMoments:
    pairs = units * (units - 1) // 2
    slopes = [arrays.pop(name) for name in _SLOPE_MOMENTS if name in arrays]
    if slopes and (len(slopes) != 2 or any(each.shape != (groups, units) or not _finite(each) for each in slopes)):
        raise ValueError("its main effects do not fit")
    if slopes and not (slopes[1] >= 0).all():
        raise ValueError("its main effects do not fit")
    if count.shape != () or count.dtype != np.int64 or count < 1 or set(arrays) != set(_MOMENT_ARRAYS) - {"count"}:
        raise ValueError("its arrays do not fit together")
    for name, array in arrays.items():
        if array.shape != ((groups, pairs) if name.startswith("signed") else (pairs,)) or array.dtype != np.float64:
            raise ValueError("its arrays do not fit together")
        if not _finite(array) or (not name == "signed_mean" and not (array >= 0).all()):
            raise ValueError("its scores are not finite, or negative where they cannot be")
    parts = {
        name: Moments(int(count), arrays[f"{name}_mean"], arrays[f"{name}_squares"]) for name in (*MEASURES, "signed")
    }
    return DrawMoments(**parts, slopes=Moments(int(count), *slopes) if slopes else Moments())


def _finite(array: Any) -> bool:
    return bool(array.dtype == np.float64 and (np.abs(array) < _LARGEST).all())
