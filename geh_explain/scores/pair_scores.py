"""Scores: one measure of all pairs, with its posterior draws."""

from __future__ import annotations

import numpy as np

from geh_explain._process import cached_property
from geh_explain._types import Floats
from geh_explain.errors import GEHValueError
from geh_explain.scores.moments import Moments, draws_not_kept
from geh_explain.statistics.intervals import gaussian_interval, quantile_interval
from geh_explain.units.pair_set import PairSet


class Scores:
    """One measure (GEH, AEH or EAH) of the pairs of D units, with its uncertainty.

    Arrays come in two forms. ``mean``, ``std`` and ``interval()`` are symmetric matrices (D, D) with zero diagonal, and
    NaN for pairs that were not computed. ``pair_mean``, ``pair_std`` and ``pair_interval()`` are vectors (P,) with one
    entry per pair in row-major order i < j, the order of the columns of ``draws``; P = D (D - 1) / 2 for all pairs.

    Parameters
    ----------
    draws
        Posterior draws (K, P), or their moments where the draws did not fit into memory.
    units
        Number of units D.
    pairs
        The P pairs; None for all pairs of the units.

    Examples
    --------
    >>> import numpy as np
    >>> scores = Scores(np.array([[1.0, 0.0, 2.0], [3.0, 0.0, 2.0]]), units=3)
    >>> scores.n_draws, scores.pair_mean.tolist(), scores.mean[0].tolist()
    (2, [2.0, 0.0, 2.0], [0.0, 2.0, 0.0])
    """

    def __init__(self, draws: Floats | Moments, units: int, pairs: PairSet | None = None) -> None:
        self._draws = draws
        self._units = units
        self._pairs = PairSet.all(units) if pairs is None else pairs

    @property
    def draws(self) -> Floats:
        """All posterior draws (K, P); raises if only their moments were kept."""
        if isinstance(self._draws, Moments):
            raise draws_not_kept("draws", self.n_draws, self._units)
        return self._draws

    @property
    def n_draws(self) -> int:
        """Number of posterior draws K."""
        return self._draws.count if isinstance(self._draws, Moments) else len(self._draws)

    @cached_property
    def mean(self) -> Floats:
        """Posterior mean (D, D)."""
        return self._pairs.matrix(self.pair_mean)

    @cached_property
    def std(self) -> Floats:
        """Posterior standard deviation (D, D); NaN off the diagonal if there is a single draw."""
        return self._pairs.matrix(self.pair_std)

    def interval(self, level: float = 0.95, kind: str = "gaussian") -> tuple[Floats, Floats]:
        """Return the ends (low, high), each (D, D), of the credible intervals; see :meth:`pair_interval`."""
        low, high = self.pair_interval(level, kind)
        return self._pairs.matrix(low), self._pairs.matrix(high)

    @cached_property
    def pair_mean(self) -> Floats:
        """Posterior mean (P,)."""
        return np.asarray(self._draws.mean if isinstance(self._draws, Moments) else self._draws.mean(axis=0))

    @cached_property
    def pair_std(self) -> Floats:
        """Posterior standard deviation (P,), with divisor K - 1; NaN if there is a single draw."""
        if isinstance(self._draws, Moments):
            return self._draws.std
        # NumPy would warn about the division by K - 1 = 0.
        if self.n_draws < 2:
            return np.full(self._draws.shape[1], np.nan)
        return np.asarray(self._draws.std(axis=0, ddof=1))

    def pair_interval(self, level: float = 0.95, kind: str = "gaussian") -> tuple[Floats, Floats]:
        """Return the ends (low, high), each (P,), of the credible intervals.

        Parameters
        ----------
        level
            Credible level in (0, 1).
        kind
            ``"gaussian"``: mean -+ z standard deviations, with z = 2 at 95 % as in the paper. ``"quantile"``: quantiles
            of the draws, for which all draws must have been kept.
        """
        if kind not in ("gaussian", "quantile"):
            raise GEHValueError(f"kind={kind!r} is unknown; use 'gaussian' or 'quantile'.")
        if self.n_draws < 2:
            raise GEHValueError(
                f"an interval needs at least 2 posterior draws, and this result has {self.n_draws}; explain with "
                "draws=100 and a posterior (MCDropout, Ensemble, WeightSamples, Stochastic)."
            )
        if kind == "quantile":
            return quantile_interval(self.draws, level)
        return gaussian_interval(self.pair_mean, self.pair_std, level)

    def __repr__(self) -> str:
        return f"Scores(draws={self.n_draws}, units={self._units})"
