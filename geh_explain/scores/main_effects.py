"""What each unit does by itself: expected gradients, from the same draws as the interactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from geh_explain.errors import GEHValueError
from geh_explain.scores.moments import Moments

if TYPE_CHECKING:
    import pandas as pd
from geh_explain._types import Floats
from geh_explain._validation import check_level
from geh_explain.statistics.intervals import gaussian_interval


class MainEffects:
    """The mean first derivative of the output by each unit, with its uncertainty.

    It is signed: ``mean`` and ``std`` (D,) are over draws, of the mean over all points. ``strength`` (D,) is to main
    effects what GEH is to interactions: the size of the mean gradient in each region, averaged over regions, so that
    opposite regions do not cancel. Slopes (K, M, D) are given by draw and group, or as moments where draws did not fit.

    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(lambda x: 3 * x[:, 0] + x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    >>> x = torch.cartesian_prod(torch.tensor([-1.0, 1.0]), torch.linspace(-1, 1, 11))
    >>> result = explainer.explain(x, groups=x[:, 0] > 0, progress=False)
    >>> result.main.mean.round(3).tolist(), result.main.strength.round(3).tolist()
    ([3.0, 0.0], [3.0, 1.0])
    """

    def __init__(self, slopes: Floats | Moments, sizes: NDArray[np.int64], names: list[str]) -> None:
        self._slopes, self.names = slopes, names
        self._shares = sizes / sizes.sum()

    @property
    def count(self) -> int:
        """The number of posterior draws."""
        return self._slopes.count if isinstance(self._slopes, Moments) else len(self._slopes)

    @property
    def draws(self) -> Floats:
        """The mean gradient of each draw (K, D)."""
        if isinstance(self._slopes, Moments):
            raise GEHValueError(
                "draws: they did not fit into memory, and only means and standard deviations were kept; explain fewer "
                "units (units=Subset([...])), or allow more memory=."
            )
        return np.asarray(np.einsum("kmd,m->kd", self._slopes, self._shares))

    @property
    def mean(self) -> Floats:
        """Posterior mean (D,), signed."""
        slopes = self._slopes.mean if isinstance(self._slopes, Moments) else self._slopes.mean(axis=0)
        return np.asarray(self._shares @ slopes)

    @property
    def std(self) -> Floats:
        """Posterior standard deviation (D,); NaN where there is a single draw."""
        if isinstance(self._slopes, Moments):
            # Regions vary together at most: the sum of their spreads bounds that of the mean.
            return np.asarray(self._shares @ self._slopes.std)
        if self.count < 2:
            return np.full(len(self.names), np.nan)
        return np.asarray(self.draws.std(axis=0, ddof=1))

    @property
    def strength(self) -> Floats:
        """The size of each main effect (D,), in which opposite regions do not cancel."""
        slopes = self._slopes.mean if isinstance(self._slopes, Moments) else self._slopes.mean(axis=0)
        return np.asarray(self._shares @ np.abs(slopes))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends (low, high), each (D,), of the Gaussian credible intervals."""
        if self.count < 2:
            raise GEHValueError("an interval needs at least 2 posterior draws, and this result has 1.")
        return gaussian_interval(self.mean, self.std, level)

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """Return a line for each unit, the strongest first: strength, and the signed mean with its interval."""
        import pandas as pd

        check_level(level)
        low, high = self.interval(level) if self.count > 1 else (np.full(len(self.names), np.nan),) * 2
        columns = {"strength": self.strength, "mean": self.mean, "std": self.std, "low": low, "high": high}
        found = pd.DataFrame({"unit": self.names, **columns})
        return found.sort_values("strength", ascending=False, kind="stable", ignore_index=True)

    def __repr__(self) -> str:
        return f"MainEffects({len(self.names)} units, {self.count} draws)\n{self.table().head(8).to_string()}"
