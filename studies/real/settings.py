"""The three data sets, how each is analysed, and what the paper found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from geh_explain._types import Floats
from geh_explain.datasets import Regression, bike_sharing, california_housing, energy_efficiency


@dataclass(frozen=True)
class Setting:
    """One data set: network and groups as in the paper, the pair that injected interactions are of, and its numbers.

    ``temperature`` is by how much the prior counts, chosen on permuted targets of other seeds; ``fpr`` are the paper's
    false positive rates of AEH, GEH and EAH; ``top`` its three strongest pairs.
    """

    title: str
    load: Callable[..., Regression]
    hidden: tuple[int, ...]
    groups: int
    epochs: int
    patience: int
    lr: float
    temperature: float
    injected: tuple[str, str]
    shown: tuple[str, str]
    fpr: tuple[float, float, float]
    top: tuple[tuple[str, str, float], ...]


SETTINGS = {
    "housing": Setting(
        "California housing",
        california_housing,
        (100, 100, 100),
        10,
        40,
        10,
        3e-3,
        0.3,
        ("total rooms", "households"),
        ("longitude", "latitude"),
        (0.015, 0.097, 1.0),
        (
            ("total rooms", "population", 1.532),
            ("longitude", "latitude", 0.901),
            ("total rooms", "income", 0.531),
        ),
    ),
    "bike": Setting(
        "Bike sharing",
        bike_sharing,
        (100, 100, 100),
        9,
        40,
        10,
        3e-3,
        0.2,
        ("temperature", "windspeed"),
        ("hour", "workingday"),
        (0.017, 0.042, 0.210),
        (
            ("hour", "workingday", 0.337),
            ("temperature", "humidity", 0.183),
            ("hour", "temperature", 0.180),
        ),
    ),
    "energy": Setting(
        "Energy efficiency",
        energy_efficiency,
        (30,),
        15,
        300,
        40,
        1e-2,
        0.2,
        ("orientation", "glazing area"),
        ("wall area", "roof area"),
        (0.013, 0.051, 0.089),
        (
            ("wall area", "roof area", 1.223),
            ("roof area", "height", 0.938),
            ("compactness", "roof area", 0.699),
        ),
    ),
}

#: What is injected, for features between 0.5 and 1.5.
FORMS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "x y": lambda x, y: x * y,
    "exp(x + y)": lambda x, y: np.exp(x + y),
    "x / y": lambda x, y: x / y,
}


@cache
def table(name: str, folder: str | None) -> Regression:
    """Return a data set by its name."""
    return SETTINGS[name].load(folder)


def injected(table: Regression, pair: tuple[str, str], form: str, share: float) -> Floats:
    """Return what to add to the target, so that the pure interaction has ``share`` of the target's spread.

    The pure interaction is what no sum of a function of x and one of y explains, to the third power of each.
    """
    x, y = (table.X[name].to_numpy() for name in pair)
    effect = FORMS[form](x, y)
    alone = np.column_stack([values**power for values in (x, y) for power in (1, 2, 3)] + [np.ones(len(x))])
    pure = effect - alone @ np.linalg.lstsq(alone, effect, rcond=None)[0]
    return np.asarray(share * table.y.std() / pure.std() * effect)
