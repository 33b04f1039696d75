"""The ten functions of Tsang, Cheng and Liu (2018), as published and as Diamond uses them, and their truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from geh_explain._types import Bools, Floats

#: Features that the functions have; more columns than these are irrelevant.
FEATURES = 10
#: Points at which differences decide whether a pair interacts.
_POINTS = 4_000
#: Differences up to this share of the largest value are rounding errors.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class Function:
    """A function of ten features, and what its authors say of its interactions.

    Attributes
    ----------
    name
        F1 to F10.
    formula
        The function in words of numpy, with features x1 to x10.
    compute
        Maps the ten columns (10, n) to values (n,).
    listed
        Sets of features, from 1, that the authors list as interactions. A pair counts as true if one of them holds it.
    low, high
        Ends of the uniform distributions of the ten features.
    """

    name: str
    formula: str
    compute: Callable[[Floats], Any]
    listed: tuple[tuple[int, ...], ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __call__(self, x: Floats) -> Floats:
        """Return the values (n,) at rows (n, D), D >= 10, in double precision."""
        return np.asarray(self.compute(np.asarray(x, dtype=float)[:, :FEATURES].T))

    def draw(self, rows: int, generator: np.random.Generator, irrelevant: int = 0) -> Floats:
        """Draw rows (n, 10 + irrelevant); irrelevant columns are uniform over (0, 1)."""
        x = generator.uniform(self.low, self.high, (rows, FEATURES))
        return np.hstack([x, generator.uniform(size=(rows, irrelevant))])

    def listed_pairs(self, columns: int = FEATURES) -> Bools:
        """Return which pairs (P,) of the columns the authors list."""
        pairs = {pair for features in self.listed for pair in combinations(features, 2)}
        first, second = np.triu_indices(columns, 1)
        return np.array([(i + 1, j + 1) in pairs for i, j in zip(first.tolist(), second.tolist(), strict=True)])

    def true_pairs(self, columns: int = FEATURES) -> Bools:
        """Return which pairs (P,) of the columns interact: some mixed difference within the domain is not 0."""
        first, second = np.triu_indices(columns, 1)
        strength = mixed_differences(self)
        return np.array(
            [j < FEATURES and strength[i, j] > _ROUNDING for i, j in zip(first.tolist(), second.tolist(), strict=True)]
        )


@cache
def mixed_differences(function: Function) -> Floats:
    """Return the largest mixed difference (10, 10) of each pair over random points, over the largest value.

    With x and z two independent points of the domain, the difference of the pair i, j is
    f(x; i <- z_i, j <- z_j) - f(x; i <- z_i) - f(x; j <- z_j) + f(x). It is 0 everywhere exactly if f is a sum of a
    function without x_i and one without x_j.
    """
    generator = np.random.default_rng(0)
    x, z = (function.draw(_POINTS, generator) for _ in range(2))
    base = function(x)

    def moved(*features: int) -> Floats:
        rows = x.copy()
        rows[:, features] = z[:, features]
        return function(rows)

    single = [moved(feature) for feature in range(FEATURES)]
    largest = np.zeros((FEATURES, FEATURES))
    for i, j in combinations(range(FEATURES), 2):
        difference = moved(i, j) - single[i] - single[j] + base
        largest[i, j] = largest[j, i] = np.abs(difference).max()
    return np.asarray(largest / np.abs(base).max())


def _f1(x: Floats) -> Any:
    x1, x2, x3, x4, x5, _, x7, x8, x9, x10 = x
    first = np.pi ** (x1 * x2) * np.sqrt(2 * x3) - np.arcsin(x4) + np.log(x3 + x5)
    return first - x9 / x10 * np.sqrt(x7 / x8) - x2 * x7


def _f2(x: Floats) -> Any:
    x1, x2, x3, x4, x5, _, x7, x8, x9, x10 = x
    first = np.pi ** (x1 * x2) * np.sqrt(2 * abs(x3)) - np.arcsin(0.5 * x4) + np.log(abs(x3 + x5) + 1)
    return first + x9 / (1 + abs(x10)) * np.sqrt(abs(x7) / (1 + abs(x8))) - x2 * x7


def _f3(x: Floats) -> Any:
    x1, x2, x3, x4, x5, _, x7, x8, x9, x10 = x
    first = np.exp(abs(x1 - x2)) + abs(x2 * x3) - (x3**2) ** abs(x4)
    return first + np.log(x4**2 + x5**2 + x7**2 + x8**2) + x9 + 1 / (1 + x10**2)


def _f4(x: Floats) -> Any:
    return _f3(x) + (x[0] * x[3]) ** 2


def _f5(x: Floats) -> Any:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 = x
    return 1 / (1 + x1**2 + x2**2 + x3**2) + np.sqrt(np.exp(x4 + x5)) + abs(x6 + x7) + x8 * x9 * x10


def _f6(x: Floats) -> Any:
    x1, x2, x3, x4, x5, x6, _, x8, x9, x10 = x
    first = np.exp(abs(x1 * x2) + 1) - np.exp(abs(x3 + x4) + 1)
    return first + np.cos(x5 + x6 - x8) + np.sqrt(x8**2 + x9**2 + x10**2)


def _f7(x: Floats) -> Any:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, _ = x
    first = (np.arctan(x1) + np.arctan(x2)) ** 2 + np.maximum(x3 * x4 + x6, 0)
    return first - 1 / (1 + (x4 * x5 * x6 * x7 * x8) ** 2) + (abs(x7) / (1 + abs(x9))) ** 5 + x.sum(axis=0)


def _f8(x: Floats) -> Any:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 = x
    first = x1 * x2 + 2 ** (x3 + x5 + x6) + 2 ** (x3 + x4 + x5 + x7)
    return first + np.sin(x7 * np.sin(x8 + x9)) + np.arccos(0.9 * x10)


def _f9(x: Floats) -> Any:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 = x
    first = np.tanh(x1 * x2 + x3 * x4) * np.sqrt(abs(x5)) + np.exp(x5 + x6)
    return first + np.log((x6 * x7 * x8) ** 2 + 1) + x9 * x10 + 1 / (1 + abs(x10))


def _f10(x: Floats) -> Any:
    x1, x2, x3, x4, x5, _, x7, _, x9, _ = x
    return np.sinh(x1 + x2) + np.arccos(np.tanh(x3 + x5 + x7)) + np.cos(x4 + x5) + 1 / np.cos(x7 * x9)


def _diamond_f1(x: Floats) -> Any:
    x1, x2, x3, x4, x5, _, x7, x8, x9, x10 = x
    first = np.pi ** (x1 * x2) * np.sqrt(2 * x3) - np.arcsin(x4) + np.log(1 + x3 + x5)
    return first - x9 / (1 + x10) * np.sqrt(x7 / (1 + x8)) - x2 * x7


def _diamond_f2(x: Floats) -> Any:
    x1, x2, x3, x4, x5, _, x7, x8, x9, x10 = x
    first = np.pi ** (x1 * x2) * np.sqrt(2 * abs(x3)) - np.arcsin(0.5 * x4) + np.log(abs(x3 + x5) + 1)
    return first - x9 / (1 + abs(x10)) * np.sqrt(abs(x7) / (1 + abs(x8))) - x2 * x7


def _diamond_f5(x: Floats) -> Any:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 = x
    return 1 / (1 + x1**2 + x2**2 + x3**2) + np.sqrt(abs(x4 + x5)) + abs(x6 + x7) + x8 * x9 * x10


def _diamond_f7(x: Floats) -> Any:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, _ = x
    first = (np.arctan(x1) + np.arctan(x2)) ** 2 + np.maximum(x3 * x4 + x6, 0)
    return first - (1 + x4 * x5 * x6 * x7 * x8) ** -2.0 + (abs(x7) / (1 + abs(x9))) ** 5 + x.sum(axis=0)


_FORMULAS = {
    "F1": "pi ** (x1 * x2) * sqrt(2 * x3) - arcsin(x4) + log(x3 + x5) - x9 / x10 * sqrt(x7 / x8) - x2 * x7",
    "F2": "pi ** (x1 * x2) * sqrt(2 * abs(x3)) - arcsin(0.5 * x4) + log(abs(x3 + x5) + 1) "
    "+ x9 / (1 + abs(x10)) * sqrt(abs(x7) / (1 + abs(x8))) - x2 * x7",
    "F3": "exp(abs(x1 - x2)) + abs(x2 * x3) - (x3**2) ** abs(x4) + log(x4**2 + x5**2 + x7**2 + x8**2) + x9 "
    "+ 1 / (1 + x10**2)",
    "F4": "exp(abs(x1 - x2)) + abs(x2 * x3) - (x3**2) ** abs(x4) + (x1 * x4) ** 2 "
    "+ log(x4**2 + x5**2 + x7**2 + x8**2) + x9 + 1 / (1 + x10**2)",
    "F5": "1 / (1 + x1**2 + x2**2 + x3**2) + sqrt(exp(x4 + x5)) + abs(x6 + x7) + x8 * x9 * x10",
    "F6": "exp(abs(x1 * x2) + 1) - exp(abs(x3 + x4) + 1) + cos(x5 + x6 - x8) + sqrt(x8**2 + x9**2 + x10**2)",
    "F7": "(arctan(x1) + arctan(x2)) ** 2 + maximum(x3 * x4 + x6, 0) - 1 / (1 + (x4 * x5 * x6 * x7 * x8) ** 2) "
    "+ (abs(x7) / (1 + abs(x9))) ** 5 + x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9 + x10",
    "F8": "x1 * x2 + 2 ** (x3 + x5 + x6) + 2 ** (x3 + x4 + x5 + x7) + sin(x7 * sin(x8 + x9)) + arccos(0.9 * x10)",
    "F9": "tanh(x1 * x2 + x3 * x4) * sqrt(abs(x5)) + exp(x5 + x6) + log((x6 * x7 * x8) ** 2 + 1) + x9 * x10 "
    "+ 1 / (1 + abs(x10))",
    "F10": "sinh(x1 + x2) + arccos(tanh(x3 + x5 + x7)) + cos(x4 + x5) + 1 / cos(x7 * x9)",
}
_LISTED: dict[str, tuple[tuple[int, ...], ...]] = {
    "F1": ((1, 2, 3), (3, 5), (7, 8, 9, 10), (2, 7)),
    "F2": ((1, 2, 3), (3, 5), (7, 8, 9, 10), (2, 7)),
    "F3": ((1, 2), (2, 3), (3, 4), (4, 5, 7, 8)),
    "F4": ((1, 2), (2, 3), (3, 4), (1, 4), (4, 5, 7, 8)),
    "F5": ((1, 2, 3), (4, 5), (6, 7), (8, 9, 10)),
    "F6": ((1, 2), (3, 4), (5, 6, 8), (8, 9, 10)),
    "F7": ((1, 2), (3, 4, 6), (4, 5, 6, 7, 8), (7, 9)),
    "F8": ((1, 2), (3, 5, 6), (3, 4, 5, 7), (7, 8, 9)),
    "F9": ((1, 2, 3, 4, 5), (5, 6), (6, 7, 8), (9, 10)),
    "F10": ((1, 2), (3, 5, 7), (4, 5), (7, 9)),
}
_COMPUTE: dict[str, Callable[[Floats], Any]] = dict(
    zip(_LISTED, (_f1, _f2, _f3, _f4, _f5, _f6, _f7, _f8, _f9, _f10), strict=True)
)
#: Ends of the distributions of F1: features 4, 5, 8 and 10 stay away from 0.
_F1_LOW = (0.0, 0.0, 0.0, 0.6, 0.6, 0.0, 0.0, 0.6, 0.0, 0.6)
_ZEROS, _ONES = (0.0,) * FEATURES, (1.0,) * FEATURES

#: The functions as published: uniform over (-1, 1), F1 over (0, 1) and (0.6, 1).
NID = {
    name: Function(
        name, _FORMULAS[name], _COMPUTE[name], _LISTED[name], _F1_LOW if name == "F1" else (-1.0,) * FEATURES, _ONES
    )
    for name in _LISTED
}
#: Functions that Diamond changed.
_DIAMOND_FORMULAS = {
    "F1": "pi ** (x1 * x2) * sqrt(2 * x3) - arcsin(x4) + log(1 + x3 + x5) - x9 / (1 + x10) * sqrt(x7 / (1 + x8)) "
    "- x2 * x7",
    "F2": "pi ** (x1 * x2) * sqrt(2 * abs(x3)) - arcsin(0.5 * x4) + log(abs(x3 + x5) + 1) "
    "- x9 / (1 + abs(x10)) * sqrt(abs(x7) / (1 + abs(x8))) - x2 * x7",
    "F5": "1 / (1 + x1**2 + x2**2 + x3**2) + sqrt(abs(x4 + x5)) + abs(x6 + x7) + x8 * x9 * x10",
    "F7": "(arctan(x1) + arctan(x2)) ** 2 + maximum(x3 * x4 + x6, 0) - (1 + x4 * x5 * x6 * x7 * x8) ** -2.0 "
    "+ (abs(x7) / (1 + abs(x9))) ** 5 + x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9 + x10",
}
_DIAMOND_COMPUTE = {"F1": _diamond_f1, "F2": _diamond_f2, "F5": _diamond_f5, "F7": _diamond_f7}
#: The functions of Diamond: all features uniform over (0, 1).
DIAMOND = {
    name: Function(
        name,
        _DIAMOND_FORMULAS.get(name, _FORMULAS[name]),
        _DIAMOND_COMPUTE.get(name, _COMPUTE[name]),
        _LISTED[name],
        _ZEROS,
        _ONES,
    )
    for name in _LISTED
}
