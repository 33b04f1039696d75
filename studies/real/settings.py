"""The three data sets, the settings of their analyses, and the paper's results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from geh_explain._types import Floats
from geh_explain.datasets import Regression, bike_sharing, california_housing, energy_efficiency


@dataclass(frozen=True)
class Setting:
    """Analysis of one data set, and the paper's results.

    Parameters
    ----------
    title
        Name on the page.
    load
        Loader: ``load(folder)``.
    hidden, groups
        Hidden layers of the network and number of groups, as in the paper.
    epochs, patience, lr
        Arguments of :func:`geh_explain.bnn.fit`.
    temperature
        Weight of the prior, chosen on permuted targets of smaller seeds.
    injected
        Pair of features whose interaction is injected.
    shown
        Pair of features whose surface is drawn.
    fpr
        The paper's false positive rates of AEH, GEH and EAH.
    top
        The paper's three strongest pairs with their scores.
    few_test_rows
        Whether test rows are too few for the held-out test, so that it also uses the rows of early stopping.
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
    few_test_rows: bool = False


SETTINGS = {
    "housing": Setting(
        title="California housing",
        load=california_housing,
        hidden=(100, 100, 100),
        groups=10,
        epochs=40,
        patience=10,
        lr=3e-3,
        temperature=0.3,
        injected=("total rooms", "households"),
        shown=("longitude", "latitude"),
        fpr=(0.015, 0.097, 1.0),
        top=(
            ("total rooms", "population", 1.532),
            ("longitude", "latitude", 0.901),
            ("total rooms", "income", 0.531),
        ),
    ),
    "bike": Setting(
        title="Bike sharing",
        load=bike_sharing,
        hidden=(100, 100, 100),
        groups=9,
        epochs=40,
        patience=10,
        lr=3e-3,
        temperature=0.2,
        injected=("temperature", "windspeed"),
        shown=("hour", "workingday"),
        fpr=(0.017, 0.042, 0.210),
        top=(
            ("hour", "workingday", 0.337),
            ("temperature", "humidity", 0.183),
            ("hour", "temperature", 0.180),
        ),
    ),
    "energy": Setting(
        title="Energy efficiency",
        load=energy_efficiency,
        hidden=(30,),
        groups=15,
        epochs=300,
        patience=40,
        lr=1e-2,
        temperature=0.2,
        injected=("orientation", "glazing area"),
        shown=("wall area", "roof area"),
        fpr=(0.013, 0.051, 0.089),
        top=(
            ("wall area", "roof area", 1.223),
            ("roof area", "height", 0.938),
            ("compactness", "roof area", 0.699),
        ),
        few_test_rows=True,
    ),
}

#: Forms of the injected interaction, for features between 0.5 and 1.5.
FORMS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "x y": lambda x, y: x * y,
    "exp(x + y)": lambda x, y: np.exp(x + y),
    "x / y": lambda x, y: x / y,
}


@cache
def load_table(name: str, folder: str | None) -> Regression:
    """Return a data set by its name; each process reads it once."""
    return SETTINGS[name].load(folder)


def injected_effect(table: Regression, pair: tuple[str, str], form: str, share: float) -> Floats:
    """Return the effect (n,) to add to the target: c * form(x, y) of two features x and y.

    The factor c is such that the pure interaction has ``share`` times the target's standard deviation. The pure
    interaction is the residual of the effect after least squares on x, x^2, x^3, y, y^2, y^3 and a constant.
    """
    x, y = (table.X[name].to_numpy() for name in pair)
    effect = FORMS[form](x, y)
    main_effects = np.column_stack([values**power for values in (x, y) for power in (1, 2, 3)] + [np.ones(len(x))])
    pure = effect - main_effects @ np.linalg.lstsq(main_effects, effect, rcond=None)[0]
    return np.asarray(share * table.y.std() / pure.std() * effect)
