"""Evidence from held-out labels: what a test of every pair leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.statistics.intervals import std_multiplier
from geh_explain.statistics.slopes import expected_share

#: Expected share of an interaction that labels contain, for pairs that were not tested: any share is as likely.
_NOT_TESTED = 0.5


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
    interaction at the network's size, 0 if they do not contain it. An interaction whose sign depends on a third unit
    has two parts; their slopes are weighted by what both contribute to the score.

    Attributes
    ----------
    slope, slope_se
        Slope (P,) and its standard error (P,). NaN where the network has no interaction to test, or for pairs that
        were not tested.
    p_value
        One-sided p-value (P,) of the hypothesis that there is no interaction. 1 where the network has none, or effects
        of other units do the same at all rows. NaN for pairs that were not tested, because others were stronger, or
        because their interaction can hardly be told from effects of other units.
    n_rows
        Number of held-out rows.
    link
        ``"identity"`` for labels that the output predicts, ``"logit"`` for classes whose log-odds it predicts.
    true_scores
        Estimates of the scores of the true function; None where there are none, as for classes.
    names
        Names of the D units; empty if they are not known. Files do not store them, as results have names.
    warnings
        What the test warned of. A result keeps them among its own warnings, and so do its files.
    """

    slope: Floats
    slope_se: Floats
    p_value: Floats
    n_rows: int
    link: str = "identity"
    true_scores: TrueScoreEstimates | None = None
    names: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Convert arrays to double precision, and raise GEHValueError unless the numbers are possible.

        P-values are in [0, 1] or NaN. Slopes are finite with errors that are not negative, or both are NaN, for pairs
        that were not tested or whose p-value is 1.
        """
        for name in ("slope", "slope_se", "p_value"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        object.__setattr__(self, "n_rows", int(self.n_rows))
        shapes = {values.shape for values in (self.slope, self.slope_se, self.p_value)}
        if len(shapes) > 1 or self.slope.ndim != 1:
            raise GEHValueError(f"evidence has arrays of shapes {sorted(shapes)}; give one entry per pair in each.")
        undefined, untested = np.isnan(self.slope), ~self.tested
        if (undefined != np.isnan(self.slope_se)).any() or (undefined < untested).any():
            raise GEHValueError("evidence has slopes without errors, or of pairs that were not tested.")
        if np.isinf(self.slope).any() or np.isinf(self.slope_se).any() or (self.slope_se < 0).any():
            raise GEHValueError("evidence has slopes or errors that are infinite, or errors below 0.")
        if (self.p_value < 0).any() or (self.p_value > 1).any():
            raise GEHValueError("evidence has p-values that are not between 0 and 1.")
        if (self.p_value[undefined & ~untested] != 1).any():
            raise GEHValueError("evidence has p-values below 1 without slopes.")
        if self.true_scores is not None:
            _check_estimates(self.true_scores)

    @property
    def tested(self) -> NDArray[np.bool_]:
        """Which pairs (P,) were tested."""
        return np.asarray(~np.isnan(self.p_value))

    @property
    def shrinkage(self) -> Floats:
        """Factor (P,) in [0, 1] by which a score is multiplied to give the supported score.

        It is the expected share of the interaction that the labels contain, see
        :func:`~geh_explain.statistics.slopes.expected_share`: about the slope where labels tell much, near 1/2 where
        they tell little. 1/2 for pairs that were not tested. 0 where the network has no interaction to test, or
        effects of other units do the same.
        """
        expected = expected_share(self.slope, self.slope_se)
        return np.where(np.isnan(self.slope), np.where(self.tested, 0.0, _NOT_TESTED), expected)


def check_evidence(evidence: Evidence | None, pairs: int, names: list[str]) -> Evidence | None:
    """Return ``evidence``, or raise unless it is None or holds one entry for each of P = ``pairs`` pairs.

    Units with the same ``names`` in another order are refused, as pairs are matched by position.
    """
    if evidence is None:
        return None
    if not isinstance(evidence, Evidence):
        raise GEHTypeError(f"evidence is a {type(evidence).__name__}; give what result.evidence holds, or None.")
    if len(evidence.p_value) != pairs:
        raise GEHValueError(f"evidence is about {len(evidence.p_value)} pairs; this result has {pairs}.")
    if list(evidence.names) != names and sorted(evidence.names) == sorted(names):
        raise GEHValueError(
            f"evidence is about the units {list(evidence.names[:5])}, and this result about {names[:5]}; pairs are "
            "matched by position, so test and explain units in the same order."
        )
    return evidence


def _check_estimates(estimates: TrueScoreEstimates) -> None:
    """Raise GEHValueError unless estimates are finite, or all of a pair are NaN, and errors are not negative."""
    arrays = np.stack([estimates.signed, estimates.signed_se, estimates.size, estimates.size_std])
    if (np.isnan(arrays).any(axis=0) != np.isnan(arrays).all(axis=0)).any() or np.isinf(arrays).any():
        raise GEHValueError("evidence has estimates of true scores that are not finite.")
    if (arrays[1:] < 0).any():
        raise GEHValueError("evidence has estimates of true scores with errors below 0.")
