"""Evidence from held-out labels: what a test of every pair leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain.statistics.intervals import std_multiplier


@dataclass(frozen=True)
class TrueScoreEstimates:
    """Estimates of the GEH of the true function, for P pairs; NaN where there are none.

    ``signed`` is the part of the truth that has the network's sign in each group, with standard error ``signed_se``; it
    is at most the true GEH. ``size`` and ``size_std`` are mean and standard deviation of the GEH over functions that
    the labels allow.
    """

    signed: Floats
    signed_se: Floats
    size: Floats
    size_std: Floats

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Return the ends (P,) of intervals for the true GEH.

        >>> import numpy as np
        >>> estimates = TrueScoreEstimates(*(np.array([value]) for value in (3.0, 0.5, 3.1, 0.4)))
        >>> [end.round(2).tolist() for end in estimates.interval(0.95)]
        [[2.0], [4.0]]
        """
        z = std_multiplier(level)
        low = np.maximum(self.signed - z * self.signed_se, 0)
        return low, np.maximum(self.signed + z * self.signed_se, self.size + z * self.size_std)


@dataclass(frozen=True)
class Evidence:
    """Outcome of the held-out test of P pairs, in row-major order i < j.

    The slope of a pair is the share of the network's interaction that the labels confirm: 1 if the labels contain the
    interaction at the network's size, 0 if they do not contain it.

    Attributes
    ----------
    slope, slope_se
        Slope (P,) and its standard error (P,). NaN where the network has no interaction to test, or for pairs that
        were not tested.
    p_value
        One-sided p-value (P,) of the hypothesis that there is no interaction. 1 where the network has none, NaN for
        pairs that were not tested.
    n_rows
        Number of held-out rows.
    link
        ``"identity"`` for labels that the output predicts, ``"logit"`` for classes whose log-odds it predicts.
    true_scores
        Estimates of the scores of the true function; None where there are none, as for classes.
    """

    slope: Floats
    slope_se: Floats
    p_value: Floats
    n_rows: int
    link: str = "identity"
    true_scores: TrueScoreEstimates | None = None

    @property
    def tested(self) -> NDArray[np.bool_]:
        """Which pairs (P,) were tested."""
        return np.asarray(~np.isnan(self.p_value))

    @property
    def shrinkage(self) -> Floats:
        """Factor (P,) in [0, 1] by which a score is multiplied to give the supported score: 1 - p.

        This is about the probability that the labels contain an interaction with the network's sign. On simulated data
        it ranks pairs better, and is closer to the true scores, than the clipped slope and other shrinkage factors. 0
        where the network has no interaction to test; NaN for pairs that were not tested.
        """
        return 1 - self.p_value
