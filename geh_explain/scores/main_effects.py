"""Main effects: mean gradients of the output with respect to each unit, from the same draws as the interactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain._validation import check_level
from geh_explain.errors import GEHValueError
from geh_explain.scores.moments import Moments, draws_not_kept
from geh_explain.statistics.intervals import gaussian_interval

if TYPE_CHECKING:
    import pandas as pd


class MainEffects:
    """Main effect of each unit: the expected gradient, with its uncertainty.

    With g_kmd the mean first derivative of the output with respect to unit d over the points of group m in draw k ::

        mean_d     = mean_k sum_m (n_m / N) g_kmd            signed; groups of opposite sign cancel
        strength_d = sum_m (n_m / N) | mean_k g_kmd |        groups do not cancel, as in GEH

    Parameters
    ----------
    slopes
        g (K, M, D), or its moments (M, D) where the draws did not fit into memory.
    sizes
        Number of points n_m of each group (M,), or the sum of their case weights; (M, D) for groups of each unit's own.
    names
        Names of the D units.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(lambda x: 3 * x[:, 0] + x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    >>> x = torch.cartesian_prod(torch.tensor([-1.0, 1.0]), torch.linspace(-1, 1, 11))
    >>> result = explainer.explain(x, groups=x[:, 0] > 0, progress=False)
    >>> result.main.mean.round(3).tolist(), result.main.strength.round(3).tolist()
    ([3.0, 0.0], [3.0, 1.0])
    """

    def __init__(self, slopes: Floats | Moments, sizes: Floats | NDArray[np.int64], names: list[str]) -> None:
        self.names = names
        self._slopes = slopes
        #: Shares (M, 1) of the groups, or (M, D) where each unit has groups of its own.
        self._shares = (sizes / sizes.sum(axis=0)).reshape(len(sizes), -1)

    @property
    def n_draws(self) -> int:
        """Number of posterior draws K."""
        return self._slopes.count if isinstance(self._slopes, Moments) else len(self._slopes)

    @property
    def draws(self) -> Floats:
        """Mean gradient (K, D) of each draw over all points; raises if only moments were kept."""
        if isinstance(self._slopes, Moments):
            raise draws_not_kept("draws", self.n_draws, len(self.names))
        return np.asarray((self._slopes * self._shares).sum(axis=1))

    @property
    def mean(self) -> Floats:
        """Posterior mean (D,), signed."""
        return np.asarray((self._shares * self._group_means).sum(axis=0))

    @property
    def std(self) -> Floats:
        """Posterior standard deviation (D,) of ``mean``; NaN if there is a single draw.

        Where only moments were kept it is an upper bound, as covariances between groups are unknown.
        """
        if isinstance(self._slopes, Moments):
            # The standard deviation of a sum is at most the sum of the standard deviations.
            return np.asarray((self._shares * self._slopes.std).sum(axis=0))
        if self.n_draws < 2:
            return np.full(len(self.names), np.nan)
        return np.asarray(self.draws.std(axis=0, ddof=1))

    @property
    def strength(self) -> Floats:
        """Size of each main effect (D,), in which groups of opposite sign do not cancel."""
        return np.asarray((self._shares * np.abs(self._group_means)).sum(axis=0))

    @property
    def _group_means(self) -> Floats:
        """Mean over draws (M, D) of the slopes."""
        return self._slopes.mean if isinstance(self._slopes, Moments) else np.asarray(self._slopes.mean(axis=0))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends (low, high), each (D,), of the Gaussian credible intervals of ``mean``."""
        if self.n_draws < 2:
            raise GEHValueError(
                "an interval needs at least 2 posterior draws, and this result has 1; explain with draws=100 and a "
                "posterior."
            )
        return gaussian_interval(self.mean, self.std, level)

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """Return one row per unit, the strongest first: unit, strength, mean, std, low, high.

        With a single draw the columns std, low and high are NaN.
        """
        import pandas as pd

        check_level(level)
        low, high = self.interval(level) if self.n_draws > 1 else (np.full(len(self.names), np.nan),) * 2
        columns = {"strength": self.strength, "mean": self.mean, "std": self.std, "low": low, "high": high}
        table = pd.DataFrame({"unit": self.names, **columns})
        return table.sort_values("strength", ascending=False, kind="stable", ignore_index=True)

    def __repr__(self) -> str:
        return f"MainEffects({len(self.names)} units, {self.n_draws} draws)\n{self.table().head(8).to_string()}"
