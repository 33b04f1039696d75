"""Targets without interactions: what a permutation test refits to.

=====================  ============================================================================
``PermutedTarget``     the target in another order: independent of all inputs
``PermutedResiduals``  fitted values of a main-effect model plus its residuals in another order
``DrawnClasses``       classes drawn with the probabilities of a main-effect model
=====================  ============================================================================

Each is a function of the number of a permutation, 1, 2, ..., and of the seed alone. Targets have the type, the shape,
the dtype and the index of the original.
"""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from geh_explain._hashing import digest
from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHError, GEHRuntimeError, GEHTypeError, GEHValueError
from geh_explain.inference.main_effects import additive_probabilities, additive_residuals, flat_features
from geh_explain.inference.rows import reorder_rows, replace_values, to_array

#: Integers with at most this many distinct values are classes.
MAX_CLASSES = 20
#: Draws of classes, until every class is present.
_ATTEMPTS = 1000


class NullTarget(Protocol):
    """A function of a permutation's number that returns a target without interactions."""

    @property
    def y(self) -> Any:
        """The target as it is."""

    @property
    def words(self) -> str:
        """How targets are made, such as ``"residuals permuted"``."""

    def __call__(self, number: int) -> Any:
        """Return the target of one permutation."""


@dataclass(frozen=True, eq=False)
class PermutedTarget:
    """The target in another order. The hypothesis is that it is independent of all inputs."""

    y: Any
    seed: int
    words: str = "target permuted"

    def __call__(self, number: int) -> Any:
        """Return the target in the order of permutation ``number``."""
        return reorder_rows(self.y, _order(self.seed, number, len(self.y)))


@dataclass(frozen=True, eq=False)
class PermutedResiduals:
    """Fitted values (n, K) of a main-effect model plus its residuals (n, K) in another order.

    The hypothesis is that the target is a sum of main effects and exchangeable noise. Residuals of several targets
    stay together.
    """

    y: Any
    seed: int
    fitted: Floats
    residuals: Floats
    words: str = "residuals permuted"

    def __call__(self, number: int) -> Any:
        """Return the target of permutation ``number``."""
        order = _order(self.seed, number, len(self.fitted))
        return replace_values(self.y, self.fitted + self.residuals[order])


@dataclass(frozen=True, eq=False)
class DrawnClasses:
    """Classes drawn with the probabilities (n, C) of a main-effect model: a parametric bootstrap.

    The hypothesis is that log-odds of classes are sums of main effects. ``examples`` (C,) are rows of ``y``, one of
    each class. Draws in which a class is missing are repeated.
    """

    y: Any
    seed: int
    probabilities: Floats
    examples: Ints
    words: str = "classes drawn"

    def __call__(self, number: int) -> Any:
        """Return the target of draw ``number``."""
        rng = np.random.default_rng([self.seed, number])
        bounds = self.probabilities.cumsum(axis=1)[:, :-1]
        for _ in range(_ATTEMPTS):
            codes = (rng.random(len(bounds))[:, None] > bounds).sum(axis=1)
            if len(np.unique(codes)) == len(self.examples):
                return reorder_rows(self.y, self.examples[codes])
        raise GEHRuntimeError(
            f"null='main': a class was missing in each of {_ATTEMPTS} draws of the target; merge rare classes, or use "
            "null='y'."
        )


def make_null(null: str, main: Any, X: Any, y: Any, seed: int) -> NullTarget:
    """Return the targets of a permutation test, with a main-effect model fitted to ``X`` and ``y`` if one is needed.

    Parameters
    ----------
    null
        ``"main"`` or ``"y"``.
    main
        Estimator of the main effects in the manner of scikit-learn; None for the additive model of this package.
    X, y, seed
        As in :func:`geh_explain.inference.permutation_test`.
    """
    if null not in ("main", "y"):
        raise GEHValueError(f"null={null!r} is unknown; use 'main' or 'y'.")
    if null == "y":
        if main is not None:
            raise GEHValueError(f"main={main!r} is not used with null='y'; use null='main'.")
        return PermutedTarget(y, seed)
    if main is not None and not (hasattr(main, "fit") and hasattr(main, "predict")):
        raise GEHTypeError(f"main={main!r} has no fit() and predict(); give an estimator, or None.")
    classes = hasattr(main, "predict_proba") if main is not None else holds_classes(y)
    try:
        return _drawn_classes(main, X, y, seed) if classes else _permuted_residuals(main, X, y, seed)
    except GEHError:
        raise
    except Exception as error:
        raise GEHRuntimeError(
            f"null='main': the main-effect model failed with {type(error).__name__}: {error}; give another one as "
            "main=, or use null='y'."
        ) from error


def describe_main(main: Any) -> str:
    """Return the type of a main-effect model and a hash of its settings, for the fingerprint of a checkpoint."""
    return "" if main is None else f"{type(main).__qualname__} {digest(main)}"


def holds_classes(y: Any) -> bool:
    """Return whether a target holds classes rather than numbers.

    Classes are words, booleans, pandas categories, integers with at most 20 distinct values, and floats with two.
    Several columns of numbers are not classes.

    >>> holds_classes(["yes", "no"]), holds_classes(np.array([0.0, 1.0, 1.0])), holds_classes(np.arange(100))
    (True, True, False)
    """
    if hasattr(getattr(y, "dtype", None), "categories"):
        return True
    values = _flat_target(y)
    if values.dtype.kind in "bOUST":
        return True
    if values.dtype.kind not in "iuf":
        raise GEHTypeError(f"y has values of type {values.dtype}; give numbers or classes.")
    max_classes = 2 if values.dtype.kind == "f" else MAX_CLASSES
    return values.ndim == 1 and len(np.unique(values)) <= max_classes


def class_codes(y: Any) -> tuple[Ints, Ints]:
    """Return the class of each row as 0 ... C - 1, and the first row of each class.

    >>> codes, examples = class_codes(["b", "a", "b"])
    >>> codes.tolist(), examples.tolist()
    ([1, 0, 1], [1, 0])
    """
    values = _flat_target(y)
    if values.dtype.kind == "O":
        values = values.astype(str)
    _, examples, codes = np.unique(values, return_index=True, return_inverse=True)
    return codes.reshape(-1).astype(np.int64), examples.astype(np.int64)


def _flat_target(y: Any) -> NDArray[Any]:
    """Return a target as an array, (n,) if it has one column; numbers stored as objects become floats."""
    values = to_array(y)
    if values.dtype.kind == "O":
        # Nullable columns of pandas become arrays of objects.
        with contextlib.suppress(TypeError, ValueError):
            values = values.astype(float) if not isinstance(values.flat[0], (bool, str)) else values
    return values.reshape(len(values)) if values.size == len(values) else values


def _permuted_residuals(main: Any, X: Any, y: Any, seed: int) -> PermutedResiduals:
    """Fit a regression to the main effects; its residuals are to be permuted."""
    try:
        values = _flat_target(y).astype(float)
    except (TypeError, ValueError):
        raise GEHTypeError(
            f"y does not hold numbers, and main={main!r} predicts numbers; give a classifier with predict_proba()."
        ) from None
    if not np.isfinite(values).all():
        raise GEHValueError("y has missing or infinite values; remove these rows.")
    columns = values.reshape(len(values), -1)
    if columns.shape[1] > 1 and len(np.unique(columns)) <= 2:
        raise GEHValueError(
            f"y has shape {values.shape} with two distinct values; give classes as one column of labels, or use "
            "null='y'."
        )
    if main is None:
        fitted, residuals = additive_residuals(X, columns)
    else:
        features = flat_features(X)
        fitted = np.asarray(copy.deepcopy(main).fit(features, values).predict(features)).reshape(columns.shape)
        residuals = columns - fitted
    return PermutedResiduals(y, seed, fitted, residuals)


def _drawn_classes(main: Any, X: Any, y: Any, seed: int) -> DrawnClasses:
    """Fit a classifier to the main effects; classes are to be drawn with its probabilities."""
    codes, examples = class_codes(y)
    if len(examples) < 2:
        raise GEHValueError("y has a single value in all rows; there is nothing to test.")
    if main is None:
        probabilities = additive_probabilities(X, codes)
    else:
        features = flat_features(X)
        probabilities = np.asarray(copy.deepcopy(main).fit(features, codes).predict_proba(features))
    return DrawnClasses(y, seed, probabilities, examples)


def _order(seed: int, number: int, n_rows: int) -> Ints:
    """Return a permutation: row i of the new target is row ``order[i]``."""
    return np.random.default_rng([seed, number]).permutation(n_rows)
