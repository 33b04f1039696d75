"""Saving and loading of results.

A file is an ``.npz`` archive of arrays and one JSON text, ``about``, with names and the record of the run. Nothing in
it is executed: arrays are read without pickle. A file may come from anywhere, so :func:`read_result` checks every part
before it is used, and limits the memory that unpacking takes.

Members of the archive, with K draws, M groups, P pairs, D units and N points:

``about``
    JSON text as bytes: ``format``, ``names``, ``group_names``, ``settings`` and ``group_info``, the descriptions or
    exemplars of the groups, see ``group_files``.
``labels``
    Group of each point (N,).
``signed``, ``absolute``, ``noise``, ``slopes``
    The arrays of :class:`~geh_explain.scores.draws.Draws`, the last two only where there are any.
``count``, ``geh_mean``, ``geh_squares``, ...
    Instead of them, K and the moments of :class:`~geh_explain.scores.draws.DrawMoments`, if draws were not kept.
``evidence_slope``, ``evidence_slope_se``, ``evidence_p_value``
    The arrays of :class:`~geh_explain.scores.evidence.Evidence`, if there is any; see ``evidence_files``.
``point_errors``
    Standard errors (M, P) of group means over the choice of points, where there are any; NaN where not known.
``pair_first``, ``pair_second``
    Indices (P,) of the units of each pair, if not all pairs were computed; such files have format 2.
``cluster_covariance``, ``cluster_counts``, ``cluster_total``
    The parts of :class:`~geh_explain.scores.cluster_spread.ClusterErrors`, (M, M, P), (M,) and a number, where points
    have clusters.
``sample_weight``, ``weight_moments``
    Case weights (N,), and sums (M, P) beside ``point_errors``, where there are any; such files have format 3, and
    labels of -1 for points of weight 0.
``cell_edges``, ``cell_thirds``, ``cell_sizes``, ``cell_unit_sizes``
    The parts of :class:`~geh_explain.scores.pair_cells.PairCells`, where each pair has groups of its own; such files
    have format 5.
``level_signed``, ``level_absolute``, ...
    Differences between levels of categories, see ``level_files``; such files have format 4.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain._validation import check_output_file, check_path
from geh_explain.errors import GEHValueError
from geh_explain.groups.group_info import GroupInfo
from geh_explain.results.error_arrays import check_point_errors, check_weights, is_finite, parse_clusters
from geh_explain.results.evidence_files import (
    EVIDENCE_ARRAYS,
    TRUE_SCORE_ARRAYS,
    evidence_to_arrays,
    evidence_to_json,
    parse_evidence,
)
from geh_explain.results.group_files import check_names, group_info_to_json, parse_group_info
from geh_explain.results.level_files import PREFIX, levels_to_json, parse_contrasts
from geh_explain.results.pair_cell_files import CELL_ARRAYS, cells_to_arrays, parse_cells
from geh_explain.run.record import RunRecord
from geh_explain.scores.draws import MEASURES, DrawMoments, Draws, LevelDraws
from geh_explain.scores.evidence import Evidence
from geh_explain.scores.moments import Moments
from geh_explain.scores.pair_cells import PairCells
from geh_explain.storage.archives import check_size, expands_too_much, write_archive
from geh_explain.storage.whole import write_whole
from geh_explain.units.pair_set import PairSet

#: Arrays of evidence.
_EVIDENCE = (*EVIDENCE_ARRAYS, *TRUE_SCORE_ARRAYS)
_FORMAT = "geh_explain.Interactions/1"
#: Format of files whose results do not have all pairs; versions that know all pairs only refuse it.
_PARTIAL_FORMAT = "geh_explain.Interactions/2"
#: Format of files with case weights; versions without weights refuse it.
_WEIGHTED_FORMAT = "geh_explain.Interactions/3"
#: Format of files of results with categories, of all pairs or some of them, with case weights or without.
_LEVEL_FORMAT = "geh_explain.Interactions/4"
#: Format of files of results whose pairs have groups of their own, of all pairs or some of them.
_PAIRWISE_FORMAT = "geh_explain.Interactions/5"
_FORMATS = (_FORMAT, _PARTIAL_FORMAT, _WEIGHTED_FORMAT, _LEVEL_FORMAT, _PAIRWISE_FORMAT)
#: Arrays of a file that does not have all pairs.
_PAIR_ARRAYS = ("pair_first", "pair_second")
#: Arrays of a file that holds all draws.
_DRAW_ARRAYS = ("signed", "absolute", "noise", "slopes")
#: Arrays of a file that holds moments: for each quantity its mean and its sum of squared deviations.
_MOMENT_PARTS = ("mean", "squares")
_MOMENT_ARRAYS = ("count", *(f"{name}_{part}" for name in (*MEASURES, "signed") for part in _MOMENT_PARTS))
_SLOPE_MOMENTS = tuple(f"slopes_{part}" for part in _MOMENT_PARTS)
#: Arrays of errors over points, the second one where they have case weights.
_ERROR_ARRAYS = ("point_errors", "weight_moments")
#: Arrays of errors over clusters of points.
_CLUSTER_ARRAYS = ("cluster_covariance", "cluster_counts", "cluster_total")
#: A file may unpack to this many bytes, or to this many times its own size, whichever is larger.
_MAX_BYTES = 2**28
_MAX_EXPANSION = 20
#: Maximum number of bytes of the JSON text.
_MAX_TEXT_BYTES = 2**26
#: Maximum nesting of lists and dicts in settings, far below Python's recursion limit.
_MAX_NESTING = 50


@dataclass(frozen=True)
class StoredResult:
    """The parts of a result that a file holds; they are the arguments of :class:`geh_explain.Interactions`."""

    draws: Draws | DrawMoments
    labels: NDArray[np.int64]
    names: list[str]
    group_names: list[str]
    settings: dict[str, Any]
    evidence: Evidence | None = None
    pairs: PairSet | None = None
    group_info: GroupInfo = field(default_factory=GroupInfo)
    sample_weight: Floats | None = None
    pair_cells: PairCells | None = None

    @property
    def format(self) -> str:
        """Format of the file."""
        if self.pair_cells is not None:
            return _PAIRWISE_FORMAT
        if self.draws.levels is not None:
            return _LEVEL_FORMAT
        if self.sample_weight is not None:
            return _WEIGHTED_FORMAT
        return _FORMAT if self.partial_pairs is None else _PARTIAL_FORMAT

    @property
    def partial_pairs(self) -> PairSet | None:
        """The pairs if these are not all pairs of the units, else None."""
        return None if self.pairs is None or self.pairs.complete else self.pairs


def write_result(stored: StoredResult, path: str | os.PathLike[str]) -> Path:
    """Write a result to a file, and return its path, with ``.npz`` appended if it is missing.

    A former file is replaced at the end, or stays as it was. Raises ``GEHError`` if the file cannot be written, as in a
    folder that does not exist or on a full disk.
    """
    path = check_path("path", path, "a file")
    # A path without a name, such as "." or "/", is a folder too.
    if path.suffix != ".npz" and path.name and not os.path.isdir(path):
        path = path.with_name(f"{path.name}.npz")
    path = check_output_file("path", path)
    about = {
        "format": stored.format,
        "names": stored.names,
        "group_names": stored.group_names,
        "settings": stored.settings,
        "evidence": evidence_to_json(stored.evidence),
        "group_info": group_info_to_json(stored.group_info),
        "categories": levels_to_json(stored.draws.levels),
    }
    text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    arrays = {"about": text, "labels": stored.labels, **_to_arrays(stored.draws)}
    arrays |= evidence_to_arrays(stored.evidence) | cells_to_arrays(stored.pair_cells)
    if stored.partial_pairs is not None:
        arrays |= dict(zip(_PAIR_ARRAYS, stored.partial_pairs.ends, strict=True))
    if stored.draws.levels is not None:
        arrays |= {PREFIX + name: array for name, array in _to_arrays(stored.draws.levels.draws).items()}
    arrays |= {} if stored.sample_weight is None else {"sample_weight": stored.sample_weight}
    size = sum(array.nbytes for array in arrays.values())
    with write_whole(path, size) as file:
        write_archive(file, arrays, compress=True)
        if expands_too_much(size, file.seek(0, os.SEEK_END), _MAX_BYTES, _MAX_EXPANSION):
            # Scores that are mostly 0 compress so well that reading would refuse the file as a decompression bomb.
            file.seek(0)
            file.truncate()
            write_archive(file, arrays)
    return path


def read_result(path: str | os.PathLike[str]) -> StoredResult:
    """Return what a file holds; raises ``GEHValueError`` if it is missing, damaged or inconsistent."""
    if not isinstance(path, (str, os.PathLike)) or not _is_file(path):
        raise GEHValueError(f"path={path!r} is not a file.")
    try:
        with open(path, "rb") as file:
            sizes = check_size(file, _MAX_BYTES, _MAX_EXPANSION)
            if sizes.get("about.npy", 0) > _MAX_TEXT_BYTES:
                raise ValueError("its settings are too long")
            with np.load(file, allow_pickle=False) as archive:
                of_draws = (*_ERROR_ARRAYS, *_DRAW_ARRAYS, *_MOMENT_ARRAYS, *_SLOPE_MOMENTS, *_CLUSTER_ARRAYS)
                of_levels = (PREFIX + name for name in of_draws)
                names = (
                    "labels",
                    "about",
                    "sample_weight",
                    *of_draws,
                    *_EVIDENCE,
                    *_PAIR_ARRAYS,
                    *of_levels,
                    *CELL_ARRAYS,
                )
                arrays = {name: archive[name] for name in names if name in archive}
        about = json.loads(arrays.pop("about").tobytes().decode())
        return _parse(about, **arrays)
    except Exception as error:  # zip, zlib, numpy and JSON raise various exceptions on damaged data
        raise GEHValueError(
            f"path={str(path)!r} is not an intact file of saved interactions ({error}); save the result again."
        ) from error


def _is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names a file; paths that the operating system rejects do not."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long, or not valid text
        return False


def _to_arrays(draws: Draws | DrawMoments) -> dict[str, Any]:
    """Return the arrays that a file holds of draws or moments, by name."""
    errors: dict[str, Any] = {name: value for name in _ERROR_ARRAYS if (value := getattr(draws, name)) is not None}
    if (clusters := draws.cluster_errors) is not None:
        values = (clusters.covariance, clusters.counts, np.array(clusters.total))
        errors |= dict(zip(_CLUSTER_ARRAYS, values, strict=True))
    if isinstance(draws, Draws):
        return errors | {name: value for name in _DRAW_ARRAYS if (value := getattr(draws, name)) is not None}
    moments = {name: getattr(draws, name) for name in (*MEASURES, "signed")}
    if draws.slopes.count:
        moments["slopes"] = draws.slopes
    return errors | {
        "count": np.array(draws.geh.count),
        **{f"{name}_mean": values.mean for name, values in moments.items()},
        **{f"{name}_squares": values.squares for name, values in moments.items()},
    }


def _parse(about: Any, labels: Any, **arrays: Any) -> StoredResult:
    """Return the parts of a file, after checking that they are valid and belong together."""
    if not isinstance(about, dict) or about.get("format") not in _FORMATS:
        raise ValueError(f"its format is not {_FORMAT!r}")
    names, group_names = about["names"], about["group_names"]
    check_names(names, group_names)
    settings = about["settings"]
    _check_settings(settings)
    of_pairs = [arrays.pop(name) for name in _PAIR_ARRAYS if name in arrays]
    sample_weight = arrays.pop("sample_weight", None)
    weighted = sample_weight is not None
    if weighted != (about["format"] == _WEIGHTED_FORMAT) and about["format"] != _LEVEL_FORMAT:
        raise ValueError("its weights do not fit its format")
    if (about["format"] == _PARTIAL_FORMAT) != bool(of_pairs) and about["format"] in _FORMATS[:2]:
        raise ValueError("its pairs do not fit its format")
    pairs = _parse_pairs(of_pairs, len(names)) if of_pairs else PairSet.all(len(names))
    of_cells = {name: arrays.pop(name) for name in CELL_ARRAYS if name in arrays}
    of_evidence = {name: arrays.pop(name) for name in _EVIDENCE if name in arrays}
    evidence = parse_evidence(about.get("evidence"), of_evidence, len(pairs))
    of_levels = {name.removeprefix(PREFIX): arrays.pop(name) for name in list(arrays) if name.startswith(PREFIX)}
    contrasts = parse_contrasts(about.get("categories"), pairs, of_levels)
    if (about["format"] == _LEVEL_FORMAT) != (contrasts is not None) or (contrasts is None and of_levels):
        raise ValueError("its categories do not fit its format")
    draws = _parse_all_draws(len(group_names), (pairs.n_units, len(pairs)), arrays)
    if contrasts is not None:
        level_draws = _parse_all_draws(len(group_names), (pairs.n_units, contrasts.n_contrasts), of_levels)
        if _summary(level_draws) != _summary(draws):
            raise ValueError("its differences between levels do not fit")
        draws = replace(draws, levels=LevelDraws(contrasts, level_draws))
    if labels.ndim != 1 or len(labels) < 1 or labels.dtype.kind != "i":
        raise ValueError("its labels are malformed")
    if labels.min() < (-1 if weighted else 0) or labels.max() >= len(group_names):
        raise ValueError("its labels name unknown groups")
    if draws.weight_moments is not None and not weighted:
        raise ValueError("its weights do not fit its format")
    if weighted:
        check_weights(sample_weight, labels)
    if (about["format"] == _PAIRWISE_FORMAT) != bool(of_cells):
        raise ValueError("its groups of pairs do not fit its format")
    group_info = parse_group_info(about.get("group_info"), len(group_names), len(labels))
    parts = draws, labels, names, group_names, settings, evidence, pairs, group_info, sample_weight
    return StoredResult(*parts, parse_cells(of_cells, pairs, labels, group_names))


def _parse_all_draws(groups: int, sizes: tuple[int, int], arrays: dict[str, Any]) -> Draws | DrawMoments:
    """Return draws or moments with their errors over points; ``sizes`` are the numbers of units and of pairs."""
    point_errors, moments = (arrays.pop(name, None) for name in _ERROR_ARRAYS)
    of_clusters = [arrays.pop(name) for name in _CLUSTER_ARRAYS if name in arrays]
    parse_draws = _parse_draws if "signed" in arrays else _parse_moments
    draws = replace(parse_draws(groups, sizes, **arrays), point_errors=point_errors, weight_moments=moments)
    shape = groups, sizes[1]
    if point_errors is not None:
        check_point_errors(point_errors, shape)
    if moments is not None and (point_errors is None or moments.shape != shape or not is_finite(moments)):
        raise ValueError("its errors of weighted points do not fit")
    if of_clusters:
        draws = replace(draws, cluster_errors=parse_clusters(of_clusters, point_errors, shape))
    return draws


def _summary(draws: Draws | DrawMoments) -> tuple[bool, int, bool]:
    """Return whether all draws were kept, their number, and whether errors are those of weighted points."""
    n_draws = len(draws.signed) if isinstance(draws, Draws) else draws.geh.count
    return isinstance(draws, Draws), n_draws, draws.weight_moments is not None


def _check_settings(settings: Any) -> None:
    """Raise unless settings are a dict whose values have the types of the fields of a record.

    Keys may be missing, as in files of earlier versions; other keys are entries of the user's own.
    """
    if not isinstance(settings, dict):
        raise ValueError("its settings are malformed")
    types = get_type_hints(RunRecord)
    for key, value in settings.items():
        if _is_nested_deeper(value, _MAX_NESTING) or not _has_type(value, types.get(key, Any)):
            raise ValueError(f"its settings are malformed: {key}")
    if settings.get("eah_points") is not None and settings["eah_points"] < 1:
        raise ValueError("its settings are malformed: eah_points")
    json.dumps(settings, ensure_ascii=False).encode()  # raises if there is half of a surrogate pair


def _is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and dicts are nested more than ``levels`` deep."""
    entries = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(entries, list):
        return False
    return levels == 0 or any(_is_nested_deeper(entry, levels - 1) for entry in entries)


def _has_type(value: Any, expected: Any) -> bool:
    """Return whether a JSON value has the type of an annotation, such as ``str | None`` or ``list[int]``.

    A bool is not an int, and an int is a float.
    """
    origin, arguments = get_origin(expected), get_args(expected)
    if expected is Any:
        return True
    if origin in (Union, UnionType):
        return any(_has_type(value, alternative) for alternative in arguments)
    if origin is list:
        return isinstance(value, list) and all(_has_type(entry, arguments[0]) for entry in value)
    if origin is not None:
        return isinstance(value, origin)
    return type(value) is expected or (expected is float and type(value) is int)


def _parse_draws(
    groups: int, sizes: tuple[int, int], signed: Any, absolute: Any, noise: Any = None, slopes: Any = None
) -> Draws:
    """Return the draws of a file, after checking shapes, types and ranges of its arrays."""
    units, pairs = sizes
    fits = signed.ndim == 3 and signed.shape[1:] == (groups, pairs) and absolute.shape == (len(signed), pairs)
    if not fits or len(signed) < 1:
        raise ValueError("its arrays do not fit together")
    if signed.dtype != np.float64 or absolute.dtype != np.float64:
        raise ValueError("its arrays have other types than saved ones")
    if not (is_finite(signed) and is_finite(absolute) and (absolute >= 0).all()):
        raise ValueError("its scores are not finite, or negative where they cannot be")
    if noise is not None and (noise.shape != signed.shape or not is_finite(noise) or not (noise >= 0).all()):
        raise ValueError("its standard errors do not fit")
    if slopes is not None and (slopes.shape != (len(signed), groups, units) or not is_finite(slopes)):
        raise ValueError("its main effects do not fit")
    return Draws(signed, absolute, noise, slopes)


def _parse_moments(groups: int, sizes: tuple[int, int], count: Any, **arrays: Any) -> DrawMoments:
    """Return the moments of a file, after checking shapes, types and ranges of its arrays."""
    units, pairs = sizes
    slopes = [arrays.pop(name) for name in _SLOPE_MOMENTS if name in arrays]
    if slopes and (len(slopes) != 2 or any(part.shape != (groups, units) or not is_finite(part) for part in slopes)):
        raise ValueError("its main effects do not fit")
    if slopes and not (slopes[1] >= 0).all():
        raise ValueError("its main effects do not fit")
    if count.shape != () or count.dtype != np.int64 or count < 1 or set(arrays) != set(_MOMENT_ARRAYS) - {"count"}:
        raise ValueError("its arrays do not fit together")
    for name, array in arrays.items():
        if array.shape != ((groups, pairs) if name.startswith("signed") else (pairs,)) or array.dtype != np.float64:
            raise ValueError("its arrays do not fit together")
        if not is_finite(array) or (name != "signed_mean" and not (array >= 0).all()):
            raise ValueError("its scores are not finite, or negative where they cannot be")
    geh, aeh, eah, signed = (
        Moments(int(count), arrays[f"{name}_mean"], arrays[f"{name}_squares"]) for name in (*MEASURES, "signed")
    )
    return DrawMoments(geh, aeh, eah, signed, Moments(int(count), *slopes) if slopes else Moments())


def _parse_pairs(ends: list[Any], units: int) -> PairSet:
    """Return the pairs of a file, after checking that they are distinct pairs i < j in row-major order, not all."""
    if len(ends) != 2 or any(array.ndim != 1 or array.dtype != np.int64 for array in ends):
        raise ValueError("its pairs are malformed")
    first, second = ends
    if len(first) != len(second) or not 0 < len(first) < units * (units - 1) // 2:
        raise ValueError("its pairs are malformed")
    if (first < 0).any() or (second >= units).any() or (first >= second).any():
        raise ValueError("its pairs are no pairs of its units")
    if (np.diff(first * units + second) <= 0).any():
        raise ValueError("its pairs are repeated, or not in order")
    return PairSet(units, (first, second))
