"""Simulated data: seven neighbouring pairs of eight features interact, with known second derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int
from geh_explain.datasets.regression import Regression
from geh_explain.errors import GEHValueError

FEATURES = 8
#: The interacting pairs, counted from 0, and the form of each effect.
PAIRS: dict[tuple[int, int], str] = {
    (0, 1): "3.3 x1 x2",
    (1, 2): "22 x2^2 x3",
    (2, 3): "exp(x3 + x4)",
    (3, 4): "2 sin(pi x4) x5",
    (4, 5): "1.9 x5 / x6",
    (5, 6): "cos(pi x7) (3 + 2.5 x6)",
    (6, 7): "2.15 x7 x8^2",
}
NAMES = [f"x{number}" for number in range(1, FEATURES + 1)]
#: Features with the distribution U(-0.5, 0.5); the others have U(0.5, 1.5).
_CENTRED = [1, 3, 6]
#: First and second feature (P,) of all pairs i < j.
FIRST, SECOND = np.triu_indices(FEATURES, 1)
#: Whether each of these pairs interacts (P,).
TRUTH = np.array([(i, j) in PAIRS for i, j in zip(FIRST.tolist(), SECOND.tolist(), strict=True)])


@dataclass(frozen=True)
class Data:
    """One simulated data set.

    Attributes
    ----------
    x, y : ndarray
        Inputs (n, 8) and noisy targets (n,) for training.
    x_test : ndarray
        Inputs (m, 8) of the same distribution, to explain.
    signal_to_noise : float
        Ratio of the variances of signal and noise; 0 for a target of noise alone.
    """

    x: Floats
    y: Floats
    x_test: Floats
    signal_to_noise: float


def inputs(rows: int, rng: np.random.Generator) -> Floats:
    """Draw inputs (rows, 8): x2, x4 and x7 from U(-0.5, 0.5), the others from U(0.5, 1.5), all independent."""
    x = rng.uniform(0.5, 1.5, (rows, FEATURES))
    x[:, _CENTRED] -= 1
    return x


def effects(x: Floats) -> dict[tuple[int, int], Floats]:
    """Return the effect (n,) of each interacting pair at inputs (n, 8); the signal is their sum.

    >>> effects(np.ones((1, 8)))[0, 1]
    array([3.3])
    """
    x1, x2, x3, x4, x5, x6, x7, x8 = x.T
    values = [
        3.3 * x1 * x2,
        22 * x2**2 * x3,
        np.exp(x3 + x4),
        2 * np.sin(np.pi * x4) * x5,
        1.9 * x5 / x6,
        np.cos(np.pi * x7) * (3 + 2.5 * x6),
        2.15 * x7 * x8**2,
    ]
    return dict(zip(PAIRS, values, strict=True))


def hessians(x: Floats) -> Floats:
    """Return the true local interactions (n, P) of all pairs: mixed second derivatives of the signal."""
    x1, x2, x3, x4, _, x6, x7, x8 = x.T
    # Each pair occurs in one effect only, so that its derivative is that of the effect.
    local = {
        (0, 1): np.full_like(x1, 3.3),
        (1, 2): 44 * x2,
        (2, 3): np.exp(x3 + x4),
        (3, 4): 2 * np.pi * np.cos(np.pi * x4),
        (4, 5): -1.9 / x6**2,
        (5, 6): -2.5 * np.pi * np.sin(np.pi * x7),
        (6, 7): 4.3 * x8,
    }
    zero = np.zeros(len(x))
    return np.stack([local.get((i, j), zero) for i, j in zip(FIRST.tolist(), SECOND.tolist(), strict=True)], axis=1)


def true_scores(x: Floats, labels: Ints) -> dict[str, Floats]:
    """Return the true scores (P,) of all pairs.

    Parameters
    ----------
    x
        Points (n, 8).
    labels
        Group of each point (n,).

    Returns
    -------
    dict
        ``"aeh"``, ``"geh"`` and ``"eah"`` of the true local interactions.
    """
    local = hessians(x)
    group_sums = [local[labels == group].sum(axis=0) for group in np.unique(labels)]
    return {
        "aeh": np.abs(local.mean(axis=0)),
        "geh": np.abs(group_sums).sum(axis=0) / len(x),
        "eah": np.abs(local).mean(axis=0),
    }


def simulated(rows: int = 25_000, *, signal_to_noise: float = 1.0, seed: int = 0) -> Regression:
    """Draw a table of eight features whose seven neighbouring pairs interact, each with an effect of another form.

    Parameters
    ----------
    rows
        Number of rows, at least 2.
    signal_to_noise
        Ratio of the variances of signal and Gaussian noise; 0 for a target of noise alone.
    seed
        Decides on inputs and noise.

    Raises
    ------
    GEHValueError
        If ``rows`` is below 2, or ``signal_to_noise`` or ``seed`` is negative.

    Examples
    --------
    >>> table = simulated(100)
    >>> table.X.shape, list(table.X.columns[:2])
    ((100, 8), ['x1', 'x2'])
    """
    import pandas as pd

    if not signal_to_noise >= 0:
        raise GEHValueError(f"signal_to_noise={signal_to_noise!r} must be at least 0.")
    data = simulate(signal_to_noise, check_int("rows", rows, 2), 1, check_int("seed", seed, 0))
    return Regression(pd.DataFrame(data.x, columns=NAMES), pd.Series(data.y, name="y"))


def simulate(signal_to_noise: float, rows: int, test_rows: int, seed: int) -> Data:
    """Draw one data set with ``rows`` training and ``test_rows`` test inputs; arguments are not checked."""
    rng = np.random.default_rng(seed)
    x, x_test = inputs(rows, rng), inputs(test_rows, rng)
    signal = sum(effects(x).values(), start=np.zeros(rows))
    noise = rng.standard_normal(rows) * signal.std()
    # A ratio of 0 keeps the noise and drops the signal, so that the target has a finite variance.
    y = noise if signal_to_noise == 0 else signal + noise / np.sqrt(signal_to_noise)
    return Data(x, y, x_test, signal_to_noise)
