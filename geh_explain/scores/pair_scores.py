"""One measure of all pairs: its posterior draws, or their moments where the draws would fill the memory."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from geh_explain._types import Floats
from geh_explain.errors import GEHValueError
from geh_explain.scores.measures import matrix
from geh_explain.scores.moments import Moments
from geh_explain.statistics.intervals import gaussian_interval, quantile_interval


class Scores:
    """One measure of all pairs: its posterior draws, and what follows from them.

    ``draws`` (K, P) holds one row per draw; pairs are in row-major order i < j. Matrices (D, D) are
    symmetric with a zero diagonal. Where draws were not kept there are their moments only.
    """

    def __init__(self, draws: Floats | Moments, units: int) -> None:
        self._draws, self._units = draws, units

    @property
    def draws(self) -> Floats:
        """All posterior draws (K, P)."""
        if isinstance(self._draws, Moments):
            raise GEHValueError(
                f"draws: the {self.count} draws of {self._units} units did not fit into memory, and only their mean "
                "and standard deviation were kept; explain fewer units (units=Subset([...])), or allow more memory=."
            )
        return self._draws

    @property
    def count(self) -> int:
        """The number of posterior draws."""
        return self._draws.count if isinstance(self._draws, Moments) else len(self._draws)

    @cached_property
    def mean(self) -> Floats:
        """Posterior mean (D, D)."""
        return matrix(self.pair_mean(), self._units)

    @cached_property
    def std(self) -> Floats:
        """Posterior standard deviation (D, D); NaN where there is a single draw."""
        return matrix(self.pair_std(), self._units)

    def interval(self, level: float = 0.95, kind: str = "gaussian") -> tuple[Floats, Floats]:
        """Return the ends (low, high), each (D, D), of the credible intervals.

        ``kind`` is "gaussian" (mean -+ 2 standard deviations for 95 %, as in the paper) or "quantile".
        """
        low, high = self.pair_interval(level, kind)
        return matrix(low, self._units), matrix(high, self._units)

    def pair_mean(self) -> Floats:
        """Return the posterior mean (P,)."""
        return np.asarray(self._draws.mean if isinstance(self._draws, Moments) else self._draws.mean(axis=0))

    def pair_std(self) -> Floats:
        """Return the posterior standard deviation (P,)."""
        if isinstance(self._draws, Moments):
            return self._draws.std
        if self.count < 2:
            return np.full(self._draws.shape[1], np.nan)
        return np.asarray(self._draws.std(axis=0, ddof=1))

    def pair_interval(self, level: float = 0.95, kind: str = "gaussian") -> tuple[Floats, Floats]:
        """Return the ends (low, high), each (P,), of the credible intervals."""
        if kind not in ("gaussian", "quantile"):
            raise GEHValueError(f"kind={kind!r} is unknown; use 'gaussian' or 'quantile'.")
        if self.count < 2:
            raise GEHValueError(
                f"an interval needs at least 2 posterior draws, and this result has {self.count}; explain with "
                "draws=100 and a posterior (MCDropout, Ensemble, WeightSamples, Stochastic)."
            )
        if kind == "quantile":
            return quantile_interval(self.draws, level)
        return gaussian_interval(self.pair_mean(), self.pair_std(), level)

    def __repr__(self) -> str:
        return f"Scores(draws={self.count}, units={self._units})"
