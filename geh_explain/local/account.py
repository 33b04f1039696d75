"""Mean and spread of an account over draws of the posterior and over baselines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geh_explain._types import Floats
from geh_explain.local.integrated_hessians import PathAccount
from geh_explain.statistics.intervals import mean_half_width


@dataclass(frozen=True)
class Contributions:
    """Contributions of one kind: their means, and how these spread.

    Attributes
    ----------
    mean
        Mean (C,) over draws and baselines.
    draw_std
        Standard deviation (C,) over draws of the mean over baselines; NaN for one draw.
    baseline_error
        Standard error (C,) of the mean over baselines; None for one baseline.
    n_draws, n_baselines
        Number of draws K and of baselines R.
    """

    mean: Floats
    draw_std: Floats
    baseline_error: Floats | None
    n_draws: int
    n_baselines: int

    @property
    def std(self) -> Floats:
        """Standard deviation (C,) of both sources together; NaN where there is neither."""
        if self.baseline_error is None:
            return self.draw_std
        return np.hypot(np.nan_to_num(self.draw_std), self.baseline_error)

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Return the ends (C,) of the intervals at ``level``; NaN where there is neither draws nor baselines."""
        errors = None if self.baseline_error is None else self.baseline_error[None]
        half = mean_half_width(
            np.nan_to_num(self.draw_std)[None], self.n_draws, errors, np.array([self.n_baselines]), level
        )[0]
        return self.mean - half, self.mean + half


class AccountMoments:
    """Moments of accounts, added draw by draw, by Welford's update.

    An account of a draw is one vector per baseline (R, C): main effects, effects of pairs, then prediction, reference
    and remainder. Draws themselves are not kept.
    """

    def __init__(self, n_units: int) -> None:
        self.n_units = n_units
        self.n_draws = 0
        self._by_baseline: Floats = np.zeros((0, 0))
        self._mean: Floats = np.zeros(0)
        self._squares: Floats = np.zeros(0)

    def add(self, account: PathAccount, prediction: Floats, reference: Floats) -> None:
        """Add the account of a draw, with prediction and reference (R,) for each baseline."""
        remainder = prediction - reference - account.sums
        ends = np.stack([prediction, reference, remainder], axis=1)
        rows = np.concatenate([account.main, account.pairs, ends], axis=1)
        mean = rows.mean(axis=0)
        if not self.n_draws:
            self._by_baseline, self._mean, self._squares = np.zeros_like(rows), np.zeros_like(mean), np.zeros_like(mean)
        self.n_draws += 1
        self._by_baseline += (rows - self._by_baseline) / self.n_draws
        delta = mean - self._mean
        self._mean = self._mean + delta / self.n_draws
        self._squares = self._squares + delta * (mean - self._mean)

    @property
    def ends(self) -> tuple[float, float, float]:
        """Means of prediction, reference and remainder."""
        prediction, reference, remainder = self._mean[-3:]
        return float(prediction), float(reference), float(remainder)

    @property
    def main(self) -> Contributions:
        """Main effects, C = D."""
        return self._part(slice(0, self.n_units))

    @property
    def pairs(self) -> Contributions:
        """Effects of pairs, C = P."""
        return self._part(slice(self.n_units, len(self._mean) - 3))

    def _part(self, part: slice) -> Contributions:
        """Return the contributions of some entries: mean, spread over draws, and error over baselines."""
        mean = self._mean[part]
        n_baselines = len(self._by_baseline)
        std = np.sqrt(self._squares[part] / (self.n_draws - 1)) if self.n_draws > 1 else np.full_like(mean, np.nan)
        error = None
        if n_baselines > 1:
            error = self._by_baseline[:, part].std(axis=0, ddof=1) / np.sqrt(n_baselines)
        return Contributions(mean, std, error, self.n_draws, n_baselines)
