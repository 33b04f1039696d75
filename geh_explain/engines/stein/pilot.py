"""The number of samples, and whether a control variate pays, from a few samples at some of the points."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats, Ints
from geh_explain.engines.stein.control import ControlHessians

#: Samples per point of the pilot.
PILOT_SAMPLES = 4
#: Samples per point that are chosen, at least and at most, and those of all points together, at most.
MIN_SAMPLES = 4
MAX_SAMPLES = 4096
MAX_TOTAL = 100_000
#: Numbers of control variates of all points that are held at once.
_MAX_NUMBERS = 10**7


def samples_for(error: float, noise: float, signal: float, n_points: int) -> int:
    """Return the number of samples per point at which the relative error of group sums is ``error``, within limits.

    The sums over groups of N points have the variance N noise / S for S samples per point.

    Parameters
    ----------
    error
        The relative error: norm of the noise over the norm of the sums.
    noise
        Variance of a sample of a point, summed over pairs.
    signal
        Squared norm of the sums over groups; 0 if it is not known to be more.
    n_points
        Number N of points.

    Examples
    --------
    >>> samples_for(0.5, noise=10.0, signal=100.0, n_points=20), samples_for(0.5, 10.0, 0.0, 1000)
    (8, 100)
    """
    most = max(MIN_SAMPLES, min(MAX_SAMPLES, MAX_TOTAL // n_points))
    needed = n_points * noise / (error**2 * signal) if signal > 0 else math.inf
    return max(MIN_SAMPLES, math.ceil(min(needed, most)))


class Pilot:
    """A few samples at some points, and the squared norms over pairs that follow from them.

    With <., .> the sum over pairs of units, products of samples L and L' are unbiased estimates: of |H|^2 for two
    samples of one point, of <H, H'> for those of two points. All of them follow from products of vectors::

        <L, L'> = ((w w') (v v') + (w v') (v w')) / 2 - sum over i of w_i v_i w'_i v'_i.

    Parameters
    ----------
    factors
        What the units are multiplied by in the result (D,).
    labels
        Groups (N,) of all points.

    Examples
    --------
    >>> pilot = Pilot(np.ones(2), labels=np.array([0]))
    >>> d = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])  # two samples of one point, with H = ((0, 2), (2, 0))
    >>> pilot.add(d, d, 2 * d.flip(2))
    >>> pilot.n_points
    1
    """

    def __init__(self, factors: Floats, labels: Ints) -> None:
        self._factors = torch.as_tensor(factors)
        self._labels = labels
        #: Shifts and samples d, w and v (k, n, D) of some points at a time.
        self._samples: list[tuple[Tensor, Tensor, Tensor]] = []
        #: For samples with a control variate C: w, v and C d (n k, D).
        self._controlled: list[tuple[Tensor, Tensor, Tensor]] = []
        #: Matrices of some points whose products are those of C, diagonals of C, and the numbers of these points.
        self._matrices: list[Tensor] = []
        self._diagonals: list[Tensor] = []
        self._places: list[int] = []

    @property
    def n_points(self) -> int:
        """Number of points whose samples were added."""
        return sum(d.shape[1] for d, _, _ in self._samples)

    def add(self, d: Tensor, w: Tensor, v: Tensor) -> None:
        """Add shifts and samples (k, n, D) of further points, those of :attr:`Points.spread` in order."""
        self._samples.append((d, w, v))

    def add_control(self, part: int, control: ControlHessians | None) -> None:
        """Add the control variate of the points that were added as number ``part``; None for 0."""
        d, w, v = self._samples[part]
        linear = torch.zeros_like(v) if control is None else control.times(d)
        of_w, of_v, of_linear = (self._by_point(values) for values in (w, v, linear))
        self._controlled.append((of_w, of_v, of_linear))
        start = sum(d.shape[1] for d, _, _ in self._samples[:part])
        if control is None:
            return
        fitting = max(2, _MAX_NUMBERS // control.hessians[0].numel()) - len(self._places)
        if fitting > 0:
            matrices, diagonals = control.of_points(slice(fitting)).isometric(self._factors)
            self._matrices.append(matrices.flatten(1).double().cpu())
            self._diagonals.append(diagonals.double().cpu())
            self._places += range(start, start + len(matrices))

    def _by_point(self, values: Tensor) -> Tensor:
        """Return values (k, n, D) as (n k, D), multiplied by the factors of the units."""
        return values.transpose(0, 1).flatten(0, 1).double().cpu() * self._factors

    def energies(self) -> tuple[float, float]:
        """Return the variance of a sample of a point, summed over pairs, and the squared norm of sums over groups.

        The first one is a mean over points. The second one is 0 if the samples show no interactions.
        """
        w, v = (torch.cat([self._by_point(samples[part]) for samples in self._samples]) for part in (1, 2))
        products = _inner_products(w, v)
        point = np.arange(self.n_points).repeat(PILOT_SAMPLES)
        signal, of_point = self._signal(products, point)
        return max(float(products.diagonal().mean()) - max(of_point, 0.0), 0.0), signal

    def _signal(self, products: Tensor, points: Ints) -> tuple[float, float]:
        """Return the squared norm of sums over groups, and that of one point, from ``products`` of estimates (K, K).

        ``points`` (K,) are the numbers of the points of the estimates. Products of an estimate with itself count if
        they are without noise, where each point has one estimate.
        """
        labels = self._labels
        index = np.unique(np.linspace(0, len(labels) - 1, self.n_points).astype(int))
        point, group = torch.as_tensor(points), torch.as_tensor(labels[index][points])
        same_point, same_group = (x[:, None] == x[None] for x in (point, group))
        itself = torch.eye(len(point), dtype=torch.bool)
        of_point = _mean(products[same_point if len(np.unique(points)) == len(points) else same_point & ~itself])
        of_group = _mean(products[same_group & ~same_point])
        sizes = np.bincount(labels).astype(float)
        signal = len(labels) * of_point + float((sizes * (sizes - 1)).sum()) * max(of_group, 0.0)
        return max(signal, 0.0), of_point

    @property
    def factor(self) -> float:
        """The multiple of the control variate that is nearest to the samples, by least squares; 0 without any."""
        explained = sum(float((v * linear).sum()) for _, v, linear in self._controlled)
        squared = sum(float(linear.square().sum()) for _, _, linear in self._controlled)
        return explained / squared if squared > 0 else 0.0

    def controlled_energies(self) -> tuple[float, float]:
        """Return the variance of a sample less the control variate, and the squared norm of sums of the latter.

        It is far less noisy than that of samples. Without a control variate the variance is infinite.
        """
        factor = self.factor
        if factor == 0:
            return math.inf, 0.0
        found = [_squared_norms(w, v - factor * linear) for w, v, linear in self._controlled]
        matrices, diagonals = torch.cat(self._matrices), torch.cat(self._diagonals)
        products = factor**2 * (matrices @ matrices.T - diagonals @ diagonals.T)
        signal, _ = self._signal(products, np.array(self._places))
        return float(torch.cat(found).mean()), signal


def _mean(values: Tensor) -> float:
    return float(values.mean()) if values.numel() else 0.0


def _inner_products(w: Tensor, v: Tensor) -> Tensor:
    """Return <L, L'> (K, K) of all samples."""
    ww, vv, wv, p = w @ w.T, v @ v.T, w @ v.T, w * v
    return (ww * vv + wv * wv.T) / 2 - p @ p.T


def _squared_norms(w: Tensor, v: Tensor) -> Tensor:
    """Return <L, L> (K,) of each sample."""
    p = w * v
    return (w.square().sum(1) * v.square().sum(1) + p.sum(1) ** 2) / 2 - p.square().sum(1)
