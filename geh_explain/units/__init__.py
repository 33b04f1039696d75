"""Unit sets: what one unit of the inputs or of a layer is.

A unit set is a linear map B from shifts ``t`` of shape (n, D), one number per row and unit, to a tensor of the layer's
shape that is added to the layer's output a::

    f(t) = g(a + B t),    d2 f / dt_i dt_j at t = 0  =  (B^T H B)_ij,

where g is the part of the model above the layer, H its Hessian in a, and column i of B the direction of unit i.
Engines differentiate in ``t`` only, so they work for every unit set.

To define a unit set, subclass :class:`Units` and implement ``count`` and ``shift``.

:class:`Categorical` is the exception: its categories have levels instead of directions, and interactions of a category
are differences between its levels (``contrasts``). ``category_columns`` finds the levels in the data, ``dummies``
recognises categories in a data frame.

A :class:`PairSet` holds the pairs of units that a result is about.

Reading order: ``base``, ``neurons``, ``layout``, ``channels``, ``default``, then the others in any order.
"""

from geh_explain.units.base import Units
from geh_explain.units.categorical import Categorical
from geh_explain.units.channels import Channels
from geh_explain.units.feature_groups import FeatureGroups
from geh_explain.units.heads import Heads
from geh_explain.units.neurons import Neurons
from geh_explain.units.pair_set import PairSet
from geh_explain.units.patches import Patches
from geh_explain.units.subset import Subset
from geh_explain.units.tokens import Tokens

__all__ = [
    "Categorical",
    "Channels",
    "FeatureGroups",
    "Heads",
    "Neurons",
    "PairSet",
    "Patches",
    "Subset",
    "Tokens",
    "Units",
]
