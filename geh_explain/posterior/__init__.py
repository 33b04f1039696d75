"""Posteriors: distributions over functions, from which the uncertainty of the scores comes.

Each class has a method ``draws(model, n, seed)`` that yields context managers. Inside one of them the model is a
single fixed function: one draw. Any object with that method can be passed as ``posterior=``; the contract is
:class:`~geh_explain.posterior.Posterior`.

- :class:`MCDropout`: dropout masks, one set per draw, shared by all rows.
- :class:`Ensemble`: independently trained networks, one per draw; for interactions of inputs only.
- :class:`WeightSamples`: state dicts from any sampler (SGLD, HMC, Pyro) or training.
- :class:`SWAG`: a Gaussian fitted to checkpoints along the path of SGD.
- :class:`LastLayerLaplace`: a Laplace approximation of the last linear layer, in closed form.
- :class:`Laplace`: a Laplace approximation fitted by laplace-torch.
- :class:`MeanField`: independent Gaussian weights, learned by :class:`geh_explain.bnn.MeanField` layers.
- :class:`Stochastic`: a model whose forward pass samples its own weights.
- :class:`PointEstimate`: the model itself, without uncertainty.
"""

from geh_explain.posterior.dropout import MCDropout
from geh_explain.posterior.ensemble import Ensemble
from geh_explain.posterior.laplace import Laplace
from geh_explain.posterior.last_layer import FittedLastLayer, LastLayerLaplace
from geh_explain.posterior.mean_field import MeanField
from geh_explain.posterior.point import PointEstimate
from geh_explain.posterior.protocols import Posterior
from geh_explain.posterior.stochastic import Stochastic
from geh_explain.posterior.swag import SWAG
from geh_explain.posterior.weights import WeightSamples

__all__ = [
    "SWAG",
    "Ensemble",
    "FittedLastLayer",
    "Laplace",
    "LastLayerLaplace",
    "MCDropout",
    "MeanField",
    "PointEstimate",
    "Posterior",
    "Stochastic",
    "WeightSamples",
]
