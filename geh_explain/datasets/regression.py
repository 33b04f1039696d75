"""Tables with a target, as all loaders of tables return them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

#: Ranges to which the paper scales features and target.
_FEATURE_RANGE = (0.5, 1.5)
_TARGET_RANGE = (0.0, 1.0)
#: Shares of the rows after which the paper's split cuts: 70 % training, 20 % validation, 10 % test.
_SPLIT = (0.7, 0.9)


@dataclass(frozen=True)
class Regression:
    """A table for regression.

    Attributes
    ----------
    X : DataFrame
        Features (n, D) with names.
    y : Series
        Target (n,).

    Examples
    --------
    >>> import pandas as pd
    >>> table = Regression(pd.DataFrame({"a": [1.0, 2.0, 3.0]}), pd.Series([5.0, 7.0, 6.0]))
    >>> table.scaled().X["a"].tolist(), table.scaled().y.tolist()
    ([0.5, 1.0, 1.5], [0.0, 1.0, 0.5])
    """

    X: pd.DataFrame
    y: pd.Series[float]

    def __len__(self) -> int:
        return len(self.y)

    def scaled(self) -> Regression:
        """Return the table scaled as in the paper: every feature to (0.5, 1.5), the target to (0, 1)."""
        return Regression(_scale(self.X, *_FEATURE_RANGE), _scale(self.y, *_TARGET_RANGE))

    def split(self, seed: int = 0) -> tuple[Regression, Regression, Regression]:
        """Return random 70 % of the rows for training, 20 % for validation and 10 % for testing, as in the paper."""
        order = np.random.default_rng(seed).permutation(len(self))
        cuts = [round(share * len(self)) for share in _SPLIT]
        train, validation, test = (Regression(self.X.iloc[rows], self.y.iloc[rows]) for rows in np.split(order, cuts))
        return train, validation, test


def _scale(values: Any, low: float, high: float) -> Any:
    """Return the columns of a DataFrame, or a Series, scaled linearly to (low, high)."""
    return low + (high - low) * (values - values.min()) / (values.max() - values.min())
