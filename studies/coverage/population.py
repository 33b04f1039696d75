"""A population with known scores: a function of ten features, their distribution, and fixed regions.

The features x0..x7, z and w are standard normal and independent. The function is ::

    f(x) = c_1 x0 x1 (1 + z / 2) + c_2 x2 x3 z + c_3 x4 x5 exp(0.6 z) + c_4 x6 x7 (0.2 + w)

with sizes c, all 1 without draws. Regions are intervals of z, so that the mean of the local interaction of each product
over a region is known in closed form. Pairs such as (x0, z) have an interaction c_1 x1 / 2 whose mean is 0 in every
region.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor, nn

from geh_explain._types import Floats, Ints
from geh_explain.units import PairSet

#: Number of features.
FEATURES = 10
#: Kinds of pairs with an interaction, in the order of the sizes c, and that of pairs without.
KINDS = ("same sign", "sign changes", "skewed", "weak")
NONE = "none"
#: Ends of the regions on the axis of z, by their number.
_ENDS = {
    1: (),
    4: (-0.7, 0.0, 0.7),
    10: (-1.2816, -0.8416, -0.5244, -0.2533, 0.0, 0.2533, 0.5244, 0.8416, 1.2816),
}
#: Spread of the logarithmic slope of the skewed pair, and mean of the weak one.
_SLOPE, _WEAK = 0.6, 0.2
#: Standard deviation of the sizes over draws.
SIZE_STD = 0.3

_ALL = PairSet.all(FEATURES)
#: Indices of the pairs of each kind.
PAIRS: dict[str, list[int]] = {
    **{kind: [_ALL.index(2 * k, 2 * k + 1)] for k, kind in enumerate(KINDS)},
    NONE: [_ALL.index(i, 9 if i > 5 else 8) for i in range(8)],
}


class KnownFunction(nn.Module):
    """The function f, with the sizes c (4,) as parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = nn.Parameter(torch.ones(4, dtype=torch.double))

    def forward(self, x: Tensor) -> Tensor:
        """Return f (n, 1) of rows x (n, 10)."""
        z, w = x[:, 8], x[:, 9]
        factors = torch.stack([1 + z / 2, z, torch.exp(_SLOPE * z), _WEAK + w], dim=1)
        return (self.sizes * x[:, 0:8:2] * x[:, 1:8:2] * factors).sum(dim=1, keepdim=True)


def regions(x: Floats, number: int) -> Ints:
    """Return the region (n,) of each row of x (n, 10)."""
    return np.digitize(x[:, 8], _ENDS[number])


def true_geh(number: int, sizes: Floats) -> dict[str, float]:
    """Return the GEH of the population for each kind of pair, with ``number`` regions and the sizes c (4,).

    The share of a region (a, b) is the integral over it of the local interaction times the normal density; that of z is
    density(a) - density(b), that of exp(s z) is exp(s^2 / 2) (Phi(b - s) - Phi(a - s)).
    """
    ends = np.array([-np.inf, *_ENDS[number], np.inf])
    density = np.exp(-(ends**2) / 2) / np.sqrt(2 * np.pi)
    mass, mean = np.diff(ndtr(ends)), -np.diff(density)
    shares = {
        "same sign": mass + mean / 2,
        "sign changes": mean,
        "skewed": np.exp(_SLOPE**2 / 2) * np.diff(ndtr(ends - _SLOPE)),
        "weak": _WEAK * mass,
    }
    scores = {kind: float(abs(size) * np.abs(shares[kind]).sum()) for kind, size in zip(KINDS, sizes, strict=True)}
    return {**scores, NONE: 0.0}


def true_eah() -> dict[str, float]:
    """Return the EAH of the population for each kind of pair with an interaction, with sizes 1."""
    return {
        "same sign": _mean_absolute(1.0, 0.5),
        "sign changes": _mean_absolute(0.0, 1.0),
        "skewed": float(np.exp(_SLOPE**2 / 2)),
        "weak": _mean_absolute(_WEAK, 1.0),
    }


def _mean_absolute(mean: float, std: float) -> float:
    """Return E|x| of a normal x.

    >>> round(_mean_absolute(0.0, 1.0), 4)
    0.7979
    """
    ratio = mean / std
    return float(std * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2) + mean * (1 - 2 * ndtr(-ratio)))


def draw_points(n_points: int, rng: np.random.Generator) -> Floats:
    """Return independent points (n, 10)."""
    return rng.standard_normal((n_points, FEATURES))


def draw_clusters(n_clusters: int, correlation: float, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Return points (n, 10) and their clusters (n,).

    Features of two points of one cluster have this correlation. The number of points of a cluster is 1 plus a negative
    binomial number, with mean 9 and standard deviation 7.1.
    """
    sizes = 1 + rng.negative_binomial(1.5, 1.5 / 9.5, size=n_clusters)
    clusters = np.repeat(np.arange(n_clusters), sizes)
    shared = rng.standard_normal((n_clusters, FEATURES))[clusters]
    own = rng.standard_normal((len(clusters), FEATURES))
    return np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own, clusters
