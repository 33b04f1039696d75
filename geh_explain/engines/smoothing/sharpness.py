"""Sharpness beta of the smooth forms: the argument ``smooth``, and the rules behind it.

The second derivative of a smoothed kink is a logistic density of standard deviation pi / (sqrt(3) beta) in the input z
of the kink. This standard deviation is the bandwidth b of the smoothing.
"""

from __future__ import annotations

import math
import numbers
import sys
from dataclasses import dataclass
from typing import Any

from geh_explain._validation import check_positive
from geh_explain.errors import GEHValueError

#: beta times the bandwidth b.
BETA_TIMES_BANDWIDTH = math.pi / math.sqrt(3)
#: Size of the step of ``"auto"``. At hidden layers of a trained convolutional network scores then agree with mixed
#: differences by half a standard deviation: a kink adds to the interactions of units that move it more than the mean.
_AUTO_SIZE = 0.75
#: ``"auto"``: beta times the standard deviation of what enters the kink is at least this. On shallow ReLU networks with
#: a known interaction this value finds it to a few per cent, and moves the output by about 1 % of its spread.
_MIN_SHARPNESS = 10.0


@dataclass(frozen=True)
class Step:
    """Smooth each kink as far as its input moves while two units change by one step.

    With s_i the standard deviation of unit i over the points, and z the input of a kinked function at one entry of a
    layer, the bandwidth at this entry is ::

        b^2 = 2 size^2 mean over points and units i that vary of (s_i dz / du_i)^2.

    The smoothed Hessian then agrees with mixed differences of the network itself in which units move by ``size``
    standard deviations. The bandwidth follows the network from layer to layer, so that deep networks are smoothed no
    more than shallow ones. A small step shows the finest structure, with more noise; a large one the coarse structure.

    Parameters
    ----------
    size
        Length of a step, in standard deviations of the units; at most twice that of most points counts, if a few are
        far from the others.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    >>> explainer = geh.GEHExplainer(net, smooth=geh.engines.Step(0.25), posterior=geh.posterior.PointEstimate())
    >>> result = explainer.explain(torch.randn(50, 3), groups=1, progress=False)
    >>> result.settings["smooth"]
    'Step(size=0.25)'
    """

    size: float = 0.5

    def __post_init__(self) -> None:
        check_positive("Step: size", self.size, "a positive number of standard deviations")


@dataclass(frozen=True)
class Radius:
    """Smooth each kink of each row as far as its input moves within a ball around the row.

    With z the input of a kinked function at one entry of a layer, u the D units, and x a row, ReLU is replaced by its
    mean over a normal distribution of z with bandwidth b(x) as standard deviation::

        z Phi(z / b) + b phi(z / b),    b(x) = sigma ||dz / du||    at the row itself,

    Phi and phi the standard normal distribution and density. Other kinked functions of one number, ELU and CELU are
    replaced by their mean over the same distribution, and maxima over several entries by a log-sum-exp of about the
    same curvature. Functions whose curvature does not jump, such as tanh and GELU, stay as they are. ``sigma`` is the
    standard deviation of a unit in a ball of the given
    ``radius``, of D dimensions::

        sigma = radius / sqrt(D + 2).

    The gradient and the Hessian of the network smoothed in this way are close to the means over such a ball of those of
    the network itself, SmoothGrad and SmoothHess, without sampling. A row is smoothed the same whatever the other rows
    are. Bandwidths are computed in each row and draw by a forward pass of up to 64 directions.

    Parameters
    ----------
    radius
        Radius of the ball, in the units' own measure: all units together move so far.
    sigma
        Standard deviation of each unit, in its own measure, instead of a radius. With neither of them each row sets
        its own sigma, 0.6 / sqrt(K) of the median of ``|z| / ||dz / du||`` over the K entries of the first kinked
        function: of the row's distance to the kinks. Entries exactly at their kink do not set it.

    Examples
    --------
    One ReLU at its kink, whose bandwidth is 0.5 / sqrt(2 + 2) times the length 5 of (3, 4):

    >>> import torch, geh_explain as geh
    >>> model = lambda x: torch.relu(3 * x[:, 0] + 4 * x[:, 1])
    >>> explainer = geh.GEHExplainer(model, smooth=geh.engines.Radius(0.5), posterior=geh.posterior.PointEstimate())
    >>> score = explainer.explain(torch.zeros(10, 2), groups=1, progress=False).geh.pair_mean[0]
    >>> round(float(score), 4), round(3 * 4 * 0.39894 / 1.25, 4)
    (3.8298, 3.8298)
    """

    radius: float | None = None
    sigma: float | None = None

    def __post_init__(self) -> None:
        if self.radius is not None and self.sigma is not None:
            raise GEHValueError(
                f"Radius: radius={self.radius!r} and sigma={self.sigma!r}; give one of them, the radius of a ball or "
                "the standard deviation of each unit, or none."
            )
        for name, value in (("radius", self.radius), ("sigma", self.sigma)):
            if value is not None:
                check_positive(f"Radius: {name}", value, "a positive number, in the measure of the units")

    def __repr__(self) -> str:
        given = "" if self.radius is None else repr(self.radius)
        return f"Radius({given})" if self.sigma is None else f"Radius(sigma={self.sigma!r})"

    def deviation(self, n_units: int) -> float | None:
        """Return sigma for ``n_units`` units; None where each row sets it.

        >>> Radius(2.0).deviation(2), Radius(sigma=0.1).deviation(2)
        (1.0, 0.1)
        """
        if self.sigma is not None:
            return self.sigma
        return None if self.radius is None else self.radius / math.sqrt(n_units + 2)


@dataclass(frozen=True)
class Sharpened:
    """The sharpnesses that ``smooth`` sets, all times ``factor``; analyses of an explainer use it."""

    smooth: str | float | Step | Radius
    factor: float


#: The argument ``smooth`` of an explainer.
Smooth = str | float | Step | Radius | Sharpened | None


def check_smooth(smooth: Any) -> None:
    """Refuse what is neither ``"auto"``, nor None, nor a Step or Radius, nor a positive finite number.

    Raises
    ------
    GEHValueError
        For any other value or type.
    """
    number = isinstance(smooth, numbers.Real) and not isinstance(smooth, bool)
    word = smooth is None or isinstance(smooth, (Step, Radius, Sharpened))
    word = word or (isinstance(smooth, str) and smooth == "auto")
    if not word and not (number and 0 < float(smooth) < sys.float_info.max):
        raise GEHValueError(
            f"smooth={smooth!r} is unknown; use 'auto', None (never), geh_explain.engines.Step(size) for a step of the "
            "units, geh_explain.engines.Radius(radius) for a ball around each row, or a positive number, the beta of "
            "the softplus that replaces ReLU."
        )


def step_of(smooth: str | float | Step) -> Step | None:
    """Return the step whose movements set the sharpness; None if ``smooth`` is the sharpness itself.

    >>> step_of("auto"), step_of(Step(1.0)), step_of(7.0)
    (Step(size=0.75), Step(size=1.0), None)
    """
    if isinstance(smooth, Step):
        return smooth
    return Step(_AUTO_SIZE) if isinstance(smooth, str) else None


def is_by_row(smooth: Smooth) -> bool:
    """Return whether each row sets its own sharpness, so that no other rows are needed."""
    return isinstance(smooth.smooth if isinstance(smooth, Sharpened) else smooth, Radius)


def min_beta(smooth: str | float | Step, std: float) -> float:
    """Return the smallest sharpness of one kinked call.

    Parameters
    ----------
    smooth
        ``"auto"`` for 10 / ``std``; a step or a number sets no bound.
    std
        Standard deviation of what enters the call, over rows and positions.
    """
    return _MIN_SHARPNESS / std if isinstance(smooth, str) and std > 0 else 0.0
