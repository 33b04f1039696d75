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
class Sharpened:
    """The sharpnesses that ``smooth`` sets, all times ``factor``; analyses of an explainer use it."""

    smooth: str | float | Step
    factor: float


#: The argument ``smooth`` of an explainer.
Smooth = str | float | Step | Sharpened | None


def check_smooth(smooth: Any) -> None:
    """Refuse what is neither ``"auto"``, nor None, nor a Step, nor a positive finite number.

    Raises
    ------
    GEHValueError
        For any other value or type.
    """
    number = isinstance(smooth, numbers.Real) and not isinstance(smooth, bool)
    word = smooth is None or isinstance(smooth, (Step, Sharpened)) or (isinstance(smooth, str) and smooth == "auto")
    if not word and not (number and 0 < float(smooth) < sys.float_info.max):
        raise GEHValueError(
            f"smooth={smooth!r} is unknown; use 'auto', None (never), geh_explain.engines.Step(size) for a step of the "
            "units, or a positive number, the beta of the softplus that replaces ReLU."
        )


def step_of(smooth: str | float | Step) -> Step | None:
    """Return the step whose movements set the sharpness; None if ``smooth`` is the sharpness itself.

    >>> step_of("auto"), step_of(Step(1.0)), step_of(7.0)
    (Step(size=0.75), Step(size=1.0), None)
    """
    if isinstance(smooth, Step):
        return smooth
    return Step(_AUTO_SIZE) if isinstance(smooth, str) else None


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
