"""Checks of the numbers and paths that users pass.

Each function returns the checked value, or raises an error whose message has the name of the argument, the value and
what is accepted: :class:`~geh_explain.errors.GEHTypeError` if the value is not of the right kind,
:class:`~geh_explain.errors.GEHValueError` if it is out of range. Booleans are never accepted as numbers.
"""

from __future__ import annotations

import math
import numbers
import os
import tempfile
from pathlib import Path
from typing import Any

from geh_explain.errors import GEHTypeError, GEHValueError


def check_int(name: str, value: Any, minimum: int) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``minimum``.

    Parameters
    ----------
    name
        Name of the argument, for the error message.
    value
        What the user passed. NumPy integers are accepted, floats are not, not even ``2.0``.
    minimum
        The smallest accepted value.

    Examples
    --------
    >>> check_int("draws", 100, 1)
    100
    >>> check_int("draws", 0, 1)
    Traceback (most recent call last):
        ...
    geh_explain.errors.GEHValueError: draws=0 must be at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise GEHTypeError(f"{name}={value!r} must be a whole number of at least {minimum}.")
    if value < minimum:
        raise GEHValueError(f"{name}={value} must be at least {minimum}.")
    return int(value)


def check_positive(name: str, value: Any, expected: str = "a positive number") -> float:
    """Return ``value`` as a float if it is positive and finite.

    ``expected`` ends the error message and may add a unit or an alternative.

    >>> check_positive("step", 1)
    1.0
    >>> check_positive("step", -1, "a positive number of standard deviations")
    Traceback (most recent call last):
        ...
    geh_explain.errors.GEHValueError: step=-1 must be a positive number of standard deviations.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise GEHTypeError(f"{name}={value!r} must be {expected}.")
    # NaN fails both comparisons, so it is refused as well.
    if not 0 < float(value) < math.inf:
        raise GEHValueError(f"{name}={value!r} must be {expected}.")
    return float(value)


def check_fraction(name: str, value: Any, example: float) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1; ``example`` is a usual value.

    >>> check_fraction("level", 95, 0.95)
    Traceback (most recent call last):
        ...
    geh_explain.errors.GEHValueError: level=95 must lie between 0 and 1, for instance 0.95.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise GEHTypeError(f"{name}={value!r} must be a number between 0 and 1, for instance {example}.")
    if not 0 < float(value) < 1:
        raise GEHValueError(f"{name}={value!r} must lie between 0 and 1, for instance {example}.")
    return float(value)


def check_level(level: Any) -> float:
    """Return the confidence or credible level ``level`` as a float if it lies in (0, 1)."""
    return check_fraction("level", level, 0.95)


def check_rate(rate: Any) -> float:
    """Return the false discovery rate ``fdr`` as a float if it lies in (0, 1)."""
    return check_fraction("fdr", rate, 0.05)


def check_path(name: str, path: Any, expected: str) -> Path:
    """Return ``path`` as a Path if it is text or a path, and not empty; ``expected`` ends the error message."""
    if not isinstance(path, (str, os.PathLike)):
        raise GEHTypeError(f"{name}={path!r} is no path; give {expected}.")
    if not os.fspath(path) or "\0" in str(path):
        raise GEHValueError(f"{name}={path!r} names no file; give {expected}.")
    return Path(path)


def check_folder(name: str, path: Any) -> Path:
    """Return ``path`` as a folder in which files can be written; it is made if it does not exist.

    Raises
    ------
    GEHTypeError
        If ``path`` is not a path.
    GEHValueError
        If it is empty, or a file, or no file can be written there.
    """
    folder = check_path(name, path, "a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _try_to_write(folder)
    except FileExistsError as error:
        raise GEHValueError(f"{name}={str(path)!r} is a file; give a folder.") from error
    except OSError as error:
        raise GEHValueError(
            f"{name}={str(path)!r} cannot be written to ({_reason(error)}); give another folder."
        ) from error
    return folder


def check_output_file(name: str, path: Any, *suffixes: str) -> Path:
    """Return ``path`` as a file that can be written; ``suffixes`` are the endings that it may have, if any are given.

    Raises
    ------
    GEHTypeError
        If ``path`` is not a path.
    GEHValueError
        If it is empty or a folder, has another ending, or its folder does not exist or cannot be written to.
    """
    file = check_path(name, path, "a file")
    if suffixes and file.suffix.lower() not in suffixes:
        raise GEHValueError(f"{name}={str(path)!r} must end in {suffixes[0]}.")
    try:
        if file.is_dir():
            raise GEHValueError(f"{name}={str(path)!r} is a folder; give a file.")
        if not file.parent.is_dir():
            raise GEHValueError(f"{name}={str(path)!r}: there is no folder {str(file.parent)!r}; make it first.")
        _try_to_write(file.parent)
        # Also finds names that are too long, and files that are write-protected.
        if file.exists() and not os.access(file, os.W_OK):
            raise PermissionError("the file is write-protected")
    except OSError as error:
        raise GEHValueError(f"{name}={str(path)!r} cannot be written ({_reason(error)}); give another file.") from error
    return file


def _try_to_write(folder: Path) -> None:
    """Raise OSError if no file can be made in ``folder``; permissions alone do not tell for some file systems."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def _reason(error: OSError) -> str:
    """Return what the system says about an error, without the name of a file."""
    return error.strerror or str(error)
