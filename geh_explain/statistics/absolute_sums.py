"""Confidence intervals of sums of absolute means.

GEH is f = sum_m |phi_m| with the shares phi_m = (n_m / N) * (mean interaction of group m), m = 1..M. The estimates of
the shares are approximately normal, phi' = phi + e with covariance V of e. Their absolute values are not: near 0 noise
moves them up. The interval rests on two inequalities, with s the signs of phi::

    f' - f >= s e                                                          for all phi
    f' - f <= sum over A of s_m e_m + sum over the others of |e_m|         if the signs of the groups A are known

Groups with |phi'_m| > 3 sqrt(V_mm) are in A. With t the quantile (1 + level) / 2 of Student's distribution and
w = t sqrt(s V s) ::

    low  = f' - q,    high = f' + w + w^2 / (2 max(f', w)),

where q is the same quantile of the right side of the second inequality, by its first three cumulants (Cornish and
Fisher). The last term of ``high`` is that of an interval of log f: means of positive numbers are skewed to the right.
If all shares are clear of 0, this is the usual interval f' -+ t sqrt(s V s), apart from that term; if all are 0,
``low`` is 0 with the probability (1 + level) / 2. Between the two the interval is too wide rather than too short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain._validation import check_level

#: Shares further from 0 than this many standard errors have a known sign.
_KNOWN_SIGN = 3.0
#: Mean, variance and third cumulant of |e| for a standard normal e.
_MEAN, _VARIANCE = float(np.sqrt(2 / np.pi)), 1 - 2 / np.pi
_THIRD = (4 / np.pi - 1) * _MEAN


class ShareCovariance(Protocol):
    """Covariance of the errors e (M,) of the shares of each of P pairs."""

    @property
    def variance(self) -> Floats:
        """Variances (M, P)."""

    def quadratic(self, signs: Floats) -> Floats:
        """Return the variance (P,) of sum_m signs_m e_m; ``signs`` is (M, P)."""

    def cross(self, signs: Floats) -> Floats:
        """Return the covariances (M, P) of sum_l signs_l e_l with each e_m."""

    def of_absolute(self, used: NDArray[np.bool_]) -> Floats:
        """Return the variance (P,) of the sum of |e_m| over the ``used`` (M, P) groups, for normal e."""


@dataclass(frozen=True)
class IndependentPoints:
    """Covariance for independent points: a diagonal minus a product.

    With local interactions h of N points, the share of group m is the mean over all points of h where the point is in
    the group, and 0 elsewhere. So ::

        V_ml = [ (m == l) Q_m - N phi_m phi_l ] / (N (N - 1)),    Q_m = sum over group m of h^2.

    It contains the randomness of the group sizes. ``squares`` (M, P) are the Q_m, ``shares`` (M, P) the phi_m.
    """

    squares: Floats
    shares: Floats
    n_points: int

    @property
    def variance(self) -> Floats:
        """Variances (M, P)."""
        scale = max(self.n_points - 1, 1)
        return np.asarray(np.maximum(self.squares / self.n_points - self.shares**2, 0) / scale)

    def quadratic(self, signs: Floats) -> Floats:
        """Return the variance (P,) of sum_m signs_m e_m."""
        total = (signs**2 * self.squares).sum(axis=0) / self.n_points - (signs * self.shares).sum(axis=0) ** 2
        return np.asarray(np.maximum(total, 0) / max(self.n_points - 1, 1))

    def cross(self, signs: Floats) -> Floats:
        """Return the covariances (M, P) of sum_l signs_l e_l with each e_m."""
        total = (signs * self.shares).sum(axis=0)
        return np.asarray((signs * self.squares / self.n_points - total * self.shares) / max(self.n_points - 1, 1))

    def of_absolute(self, used: NDArray[np.bool_]) -> Floats:
        """Return the variance (P,) of the sum of |e_m|; correlations, of the order 1 / N, are left out."""
        return np.asarray(_VARIANCE * (self.variance * used).sum(axis=0))


@dataclass(frozen=True)
class WeightedPoints:
    """Covariance for independent points with case weights: a diagonal plus products.

    With weights w of N points, W = sum w, the share of group m is phi_m = sum over group m of w h / W. By linearisation
    of this ratio ::

        V_ml = N / (N - 1) / W^2 [ (m == l) Q_m - phi_m A_l - A_m phi_l + phi_m phi_l sum w^2 ],
        Q_m = sum over group m of w^2 h^2,    A_m = sum over group m of w^2 h.

    For equal weights this is :class:`IndependentPoints`. ``squares`` (M, P) are the Q_m, ``cross_sums`` the A_m,
    ``shares`` (M, P) the phi_m, and ``weights`` (N,) the w.
    """

    squares: Floats
    cross_sums: Floats
    shares: Floats
    weights: Floats

    @property
    def scale(self) -> float:
        """N / (N - 1) / W^2."""
        count = len(self.weights)
        return count / max(count - 1, 1) / float(self.weights.sum()) ** 2

    @property
    def _squared_weights(self) -> float:
        return float((self.weights**2).sum())

    @property
    def variance(self) -> Floats:
        """Variances (M, P)."""
        total = self.squares - 2 * self.shares * self.cross_sums + self.shares**2 * self._squared_weights
        return np.asarray(np.maximum(total, 0) * self.scale)

    def quadratic(self, signs: Floats) -> Floats:
        """Return the variance (P,) of sum_m signs_m e_m."""
        share, cross = (signs * self.shares).sum(axis=0), (signs * self.cross_sums).sum(axis=0)
        total = (signs**2 * self.squares).sum(axis=0) - 2 * share * cross + share**2 * self._squared_weights
        return np.asarray(np.maximum(total, 0) * self.scale)

    def cross(self, signs: Floats) -> Floats:
        """Return the covariances (M, P) of sum_l signs_l e_l with each e_m."""
        share, cross = (signs * self.shares).sum(axis=0), (signs * self.cross_sums).sum(axis=0)
        total = signs * self.squares - self.shares * (cross - share * self._squared_weights) - self.cross_sums * share
        return np.asarray(total * self.scale)

    def of_absolute(self, used: NDArray[np.bool_]) -> Floats:
        """Return the variance (P,) of the sum of |e_m|; correlations, of the order 1 / N, are left out."""
        return np.asarray(_VARIANCE * (self.variance * used).sum(axis=0))


@dataclass(frozen=True)
class GivenCovariance:
    """Covariance given as an array ``values`` (M, M, P)."""

    values: Floats

    @property
    def variance(self) -> Floats:
        """Variances (M, P)."""
        return np.asarray(np.einsum("mmp->mp", self.values))

    def quadratic(self, signs: Floats) -> Floats:
        """Return the variance (P,) of sum_m signs_m e_m."""
        return np.asarray(np.maximum(np.einsum("mp,mlp,lp->p", signs, self.values, signs, optimize=True), 0))

    def cross(self, signs: Floats) -> Floats:
        """Return the covariances (M, P) of sum_l signs_l e_l with each e_m."""
        return np.asarray(np.einsum("mlp,lp->mp", self.values, signs))

    def of_absolute(self, used: NDArray[np.bool_]) -> Floats:
        """Return the variance (P,) of the sum of |e_m|.

        cov(|e_m|, |e_l|) = (2 / pi) sd_m sd_l (r arcsin r + sqrt(1 - r^2) - 1) for the correlation r.
        """
        total = np.zeros(self.values.shape[2])
        std = np.sqrt(self.variance) * used
        for row, sd in zip(self.values, std, strict=True):
            product = sd * std
            ratio = np.clip(np.divide(row, product, out=np.zeros_like(row), where=product > 0), -1, 1)
            total += (product * (ratio * np.arcsin(ratio) + np.sqrt(1 - ratio**2) - 1)).sum(axis=0)
        return np.asarray(2 / np.pi * total)


def distances(
    shares: Floats, covariance: ShareCovariance, score: Floats, freedom: Floats | float, level: float
) -> tuple[Floats, Floats]:
    """Return the distances (P,) of both ends of the interval from the score: q and high - f', see the module.

    Parameters
    ----------
    shares
        Estimated shares (M, P).
    covariance
        Covariance of their errors.
    score
        Estimate (P,) of the score f'.
    freedom
        Degrees of freedom of the covariance, a number or (P,).
    level
        Confidence level in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> covariance = GivenCovariance(np.full((1, 1, 2), 0.01))  # standard error 0.1
    >>> shares = np.array([[5.0, 0.0]])  # one clear of 0, one equal to 0
    >>> [d.round(2).tolist() for d in distances(shares, covariance, shares[0], 1e9, 0.95)]
    [[0.2, 0.23], [0.2, 0.29]]
    """
    from scipy.special import ndtr, stdtrit

    check_level(level)
    quantile = stdtrit(freedom, (1 + level) / 2)
    known = np.abs(shares) > stdtrit(freedom, ndtr(_KNOWN_SIGN)) * np.sqrt(covariance.variance)
    # A share of exactly 0 has no sign; any sign gives a variance that holds.
    signs = np.where(shares < 0, -1.0, 1.0)
    down = _upper_quantile(signs, known, covariance, quantile)
    return down, skewed(score, quantile * np.sqrt(covariance.quadratic(signs)))


def _upper_quantile(
    signs: Floats, known: NDArray[np.bool_], covariance: ShareCovariance, quantile: Floats | float
) -> Floats:
    """Return the quantile (P,) of a + b: a = sum of s_m e_m over ``known`` groups, b = sum of |e_m| over the others.

    It is that of a normal or Student's distribution where it is ``quantile``, corrected for the third cumulant.
    At 95 % it is within 5 % of the quantile of normal errors, also where they are correlated.
    """
    std = np.sqrt(covariance.variance) * ~known
    absolute = covariance.of_absolute(~known)
    spread = np.sqrt(covariance.quadratic(signs * known) + absolute)
    # Exact for errors that are independent, and for such of correlation 1; the ratio is 1 for the former.
    independent = _VARIANCE * (std**2).sum(axis=0)
    ratio = np.divide(absolute, independent, out=np.ones_like(absolute), where=independent > 0)
    third = _THIRD * (std**3).sum(axis=0) * ratio**2
    # Where a is large, correlated errors are, too: the cumulant of (a, a, |e|) is E|z| cov(a, e)^2 / sd.
    cross = np.divide(covariance.cross(signs * known) ** 2, std, out=np.zeros_like(std), where=std > 0)
    third += 3 * _MEAN * cross.sum(axis=0)
    skewness = np.divide(third, spread**3, out=np.zeros_like(third), where=spread > 0)
    return np.asarray(_MEAN * std.sum(axis=0) + spread * (quantile + (quantile**2 - 1) / 6 * skewness))


def skewed(score: Floats, half_width: Floats) -> Floats:
    """Return w + w^2 / (2 max(f', w)), the upper distance of a positive score with the half-width w.

    >>> import numpy as np
    >>> skewed(np.array([1.0, 0.1]), np.array([0.2, 0.2])).round(3).tolist()
    [0.22, 0.3]
    """
    largest = np.maximum(score, half_width)
    ratio = np.divide(half_width, largest, out=np.zeros_like(half_width), where=largest > 0)
    return np.asarray(half_width * (1 + ratio / 2))
