"""What a run leaves: all posterior draws, or their moments where the draws do not fit into memory.

K is the number of draws, M of groups, P of pairs and D of units.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain.scores.cluster_spread import ClusterErrors
from geh_explain.scores.measures import aeh, geh
from geh_explain.scores.moments import Moments
from geh_explain.units.contrasts import Contrasts

#: Names of the measures, the default first.
MEASURES = ("geh", "aeh", "eah")
#: The measures that follow from sums over groups.
_FORMULAS = {"geh": geh, "aeh": aeh}


@dataclass(frozen=True)
class Draws:
    """All posterior draws of a run. Everything else in a result is computed from them.

    Attributes
    ----------
    signed
        Mean local interaction (K, M, P) of each draw, group and pair.
    absolute
        Mean absolute local interaction (K, P) of each draw and pair: EAH.
    noise
        Standard errors (K, M, P) of ``signed`` where the engine estimates it with noise (Stein's), else None. AEH and
        GEH are corrected for them.
    slopes
        Mean first derivative (K, M, D) of each draw, group and unit; None where the engine computes none.
    point_errors
        Standard errors (M, P) of group means over the choice of points, see :class:`PointSpread`; None where they were
        not measured.
    cluster_errors
        Covariance of the groups' shares, where points come in clusters; else None.
    weight_moments
        Sums E (M, P) of :class:`WeightedPointSpread`, with which ``point_errors`` of weighted points give the
        covariance of the groups' shares; None without case weights.
    levels
        Draws of the differences between levels of categories, from which the scores of their pairs are computed; None
        without categories. ``signed`` and errors of such pairs are described in :mod:`~geh_explain.scores.level_draws`.
    """

    signed: Floats
    absolute: Floats
    noise: Floats | None = None
    slopes: Floats | None = None
    point_errors: Floats | None = None
    cluster_errors: ClusterErrors | None = None
    weight_moments: Floats | None = None
    levels: LevelDraws | None = None

    def scores(self, measure: str, sizes: Floats | NDArray[np.int64]) -> Floats:
        """Return the draws (K, P) of a measure.

        ``sizes`` (M,) are the groups' numbers of points or sums of weights; (M, P) if each pair has groups of its own.
        """
        if measure == "eah":
            return self.absolute
        # The formulas take sums over groups, draws hold means.
        weights = sizes.reshape(len(sizes), -1)
        variance = 0.0 if self.noise is None else (self.noise * weights) ** 2
        scores = _FORMULAS[measure](self.signed * weights, float(sizes.sum() / weights.shape[1]), variance)
        if self.levels is not None and isinstance(self.levels.draws, Draws):
            contrasts = self.levels.contrasts
            scores[:, contrasts.category_pairs] = contrasts.average(self.levels.draws.scores(measure, sizes))
        return scores

    def signed_moments(self) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation over draws of ``signed``, both (M, P); NaN for a single draw."""
        mean = self.signed.mean(axis=0)
        return mean, self.signed.std(axis=0, ddof=1) if len(self.signed) > 1 else np.full_like(mean, np.nan)


@dataclass(frozen=True)
class DrawMoments:
    """Running moments over draws, kept where the draws themselves do not fit into memory.

    ``geh``, ``aeh`` and ``eah`` are moments of scores (P,), ``signed`` of group means (M, P) and ``slopes`` of mean
    first derivatives (M, D). ``slopes`` stays empty where the engine computes none. ``point_errors`` (M, P),
    ``cluster_errors`` and ``weight_moments`` are those of :class:`Draws`; they are no moments, and set at the end.
    ``levels`` holds moments of the differences between levels of categories.
    """

    geh: Moments = field(default_factory=Moments)
    aeh: Moments = field(default_factory=Moments)
    eah: Moments = field(default_factory=Moments)
    signed: Moments = field(default_factory=Moments)
    slopes: Moments = field(default_factory=Moments)
    point_errors: Floats | None = None
    cluster_errors: ClusterErrors | None = None
    weight_moments: Floats | None = None
    levels: LevelDraws | None = None

    def add(self, draws: Draws, sizes: Floats | NDArray[np.int64]) -> None:
        """Update with one or more draws; ``sizes`` (M,) are as in :meth:`Draws.scores`."""
        for measure in MEASURES:
            for scores in draws.scores(measure, sizes):
                getattr(self, measure).add(scores)
        for signed in draws.signed:
            self.signed.add(signed)
        for slopes in () if draws.slopes is None else draws.slopes:
            self.slopes.add(slopes)
        if self.levels is not None and draws.levels is not None:
            self.levels.add(draws.levels, sizes)

    def signed_moments(self) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation over draws of the group means, both (M, P)."""
        return self.signed.mean, self.signed.std


@dataclass(frozen=True)
class LevelDraws:
    """Draws, or their moments, of the Q differences between levels of categories that a result's pairs are made of.

    In ``draws`` these take the place of the P pairs.
    """

    contrasts: Contrasts
    draws: Draws | DrawMoments

    def add(self, further: LevelDraws, sizes: Floats | NDArray[np.int64]) -> None:
        """Update moments with one or more draws."""
        assert isinstance(self.draws, DrawMoments)
        assert isinstance(further.draws, Draws)
        self.draws.add(further.draws, sizes)
