"""Simulated data: seven neighbouring pairs of eight features interact, with known second derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain._validation import check_int
from geh_explain.datasets.tables import Regression
from geh_explain.errors import GEHValueError

FEATURES = 8
#: The interacting pairs, 0-based, and how each interacts.
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
#: Features around 0; the others are around 1, all with a spread of 1.
_CENTRED = [1, 3, 6]
#: All pairs i < j, and which of them interact.
FIRST, SECOND = np.triu_indices(FEATURES, 1)
TRUTH = np.array([(i, j) in PAIRS for i, j in zip(FIRST.tolist(), SECOND.tolist(), strict=True)])


@dataclass(frozen=True)
class Data:
    """Inputs and noisy targets, to train on and to explain."""

    x: Floats
    y: Floats
    x_test: Floats
    signal_to_noise: float


def inputs(rows: int, rng: np.random.Generator) -> Floats:
    """Draw inputs (rows, 8)."""
    x = rng.uniform(0.5, 1.5, (rows, FEATURES))
    x[:, _CENTRED] -= 1
    return x


def effects(x: Floats) -> dict[tuple[int, int], Floats]:
    """Return the effect (n,) of each interacting pair."""
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
    """Return the true local interactions (n, P) of all pairs."""
    x1, x2, x3, x4, _, x6, x7, x8 = x.T
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


def true_scores(x: Floats, labels: NDArray[np.int64]) -> dict[str, Floats]:
    """Return the true AEH, GEH and EAH (P,) of all pairs at these points and groups."""
    local = hessians(x)
    groups = [local[labels == group].sum(axis=0) for group in np.unique(labels)]
    return {
        "aeh": np.abs(local.mean(axis=0)),
        "geh": np.abs(groups).sum(axis=0) / len(x),
        "eah": np.abs(local).mean(axis=0),
    }


def simulated(rows: int = 25_000, *, signal_to_noise: float = 1.0, seed: int = 0) -> Regression:
    """Draw eight features of which the seven neighbouring pairs interact, each in a way of its own, and noise.

    ``signal_to_noise`` is the ratio of variances, 0 for a target of noise alone.

    >>> table = simulated(100)
    >>> table.X.shape, list(table.X.columns[:2])
    ((100, 8), ['x1', 'x2'])
    """
    import pandas as pd

    if not signal_to_noise >= 0:
        raise GEHValueError(f"signal_to_noise={signal_to_noise!r} must be at least 0.")
    drawn = simulate(signal_to_noise, check_int("rows", rows, 2), 1, check_int("seed", seed, 0))
    return Regression(pd.DataFrame(drawn.x, columns=NAMES), pd.Series(drawn.y, name="y"))


def simulate(signal_to_noise: float, rows: int, test_rows: int, seed: int) -> Data:
    """Draw one data set; ``signal_to_noise`` is the ratio of variances, 0 for a target of noise alone."""
    rng = np.random.default_rng(seed)
    x, x_test = inputs(rows, rng), inputs(test_rows, rng)
    signal = sum(effects(x).values())
    assert isinstance(signal, np.ndarray)
    noise = rng.standard_normal(rows) * signal.std()
    y = noise if signal_to_noise == 0 else signal + noise / np.sqrt(signal_to_noise)
    return Data(x, y, x_test, signal_to_noise)
