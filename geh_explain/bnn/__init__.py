"""Bayesian networks to explain, for those who have none yet: layers, a network for tables, and fitting."""

from geh_explain.bnn.concrete import ConcreteDropout
from geh_explain.bnn.convert import to_concrete
from geh_explain.bnn.ensemble import fit_ensemble
from geh_explain.bnn.history import History
from geh_explain.bnn.hybrid import HybridNet
from geh_explain.bnn.mean_field import MeanField
from geh_explain.bnn.training import fit

__all__ = ["ConcreteDropout", "History", "HybridNet", "MeanField", "fit", "fit_ensemble", "to_concrete"]
