"""Bayesian networks to explain: layers with learned uncertainty, a network for tables, and training.

``HybridNet`` and ``fit`` train a network for a table in two lines. ``ConcreteDropout`` and ``MeanField`` make the
layers of any other network Bayesian, ``to_concrete`` converts one with plain dropout, and ``fit_ensemble`` trains a
bootstrap ensemble.
"""

from geh_explain.bnn.concrete import ConcreteDropout
from geh_explain.bnn.convert import to_concrete
from geh_explain.bnn.ensemble import fit_ensemble
from geh_explain.bnn.history import History
from geh_explain.bnn.hybrid import HybridNet
from geh_explain.bnn.mean_field import MeanField
from geh_explain.bnn.training import fit

__all__ = ["ConcreteDropout", "History", "HybridNet", "MeanField", "fit", "fit_ensemble", "to_concrete"]
