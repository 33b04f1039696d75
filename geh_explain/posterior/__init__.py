"""Where the uncertainty comes from: draws of whole functions.

A posterior of your own is a class with one method, see :class:`~geh_explain.posterior.Posterior`.
"""

from geh_explain.posterior.dropout import MCDropout
from geh_explain.posterior.ensemble import Ensemble
from geh_explain.posterior.mean_field import MeanField
from geh_explain.posterior.point import PointEstimate
from geh_explain.posterior.protocols import Posterior
from geh_explain.posterior.stochastic import Stochastic
from geh_explain.posterior.weights import WeightSamples

__all__ = ["Ensemble", "MCDropout", "MeanField", "PointEstimate", "Posterior", "Stochastic", "WeightSamples"]
