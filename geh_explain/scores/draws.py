"""What a run leaves behind: all its draws, or their moments where the draws would fill the memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain.scores.measures import aeh, geh
from geh_explain.scores.moments import Moments

MEASURES = ("geh", "aeh", "eah")
_FORMULAS = {"geh": geh, "aeh": aeh}


@dataclass(frozen=True)
class Draws:
    """All that was computed: everything in a result follows from it.

    ``signed`` (K, M, P) holds the mean local interaction of each draw, group and pair; ``absolute`` (K, P)
    the mean absolute one. ``noise`` (K, M, P) holds the standard errors of ``signed`` where the engine estimates it
    (Stein's), else None; scores are corrected for it. ``slopes`` (K, M, D) holds the mean first derivative of each
    draw, group and unit, None where the engine knows none.
    """

    signed: Floats
    absolute: Floats
    noise: Floats | None = None
    slopes: Floats | None = None

    def scores(self, measure: str, sizes: NDArray[np.int64]) -> Floats:
        """Return the draws (K, P) of a measure."""
        if measure == "eah":
            return self.absolute
        weights = sizes[:, None]
        variance = 0.0 if self.noise is None else (self.noise * weights) ** 2
        return _FORMULAS[measure](self.signed * weights, int(sizes.sum()), variance)


@dataclass(frozen=True)
class DrawMoments:
    """What is left of the draws where they do not fit into memory: means and standard deviations over them.

    They are those of the three measures (P,), of the signed group means (M, P) and of the slopes (M, D).
    """

    geh: Moments = field(default_factory=Moments)
    aeh: Moments = field(default_factory=Moments)
    eah: Moments = field(default_factory=Moments)
    signed: Moments = field(default_factory=Moments)
    slopes: Moments = field(default_factory=Moments)

    def add(self, draws: Draws, sizes: NDArray[np.int64]) -> None:
        """See one more draw, or several."""
        for measure in MEASURES:
            for scores in draws.scores(measure, sizes):
                getattr(self, measure).add(scores)
        for signed in draws.signed:
            self.signed.add(signed)
        for slopes in () if draws.slopes is None else draws.slopes:
            self.slopes.add(slopes)
