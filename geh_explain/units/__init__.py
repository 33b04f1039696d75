"""Unit sets: what one unit of the inputs or of a layer is.

A unit set is a linear map from shifts ``t`` (n, D), one number per row and unit, to a tensor of the layer's shape that
is added to the layer's output. The Hessian in ``t`` at 0 is B^T H B, with the directions of the units as the columns of
B. Engines see only ``t``.

To define a unit set, subclass :class:`Units` and implement ``count`` and ``shift``.
"""

from geh_explain.units.base import Units
from geh_explain.units.channels import Channels
from geh_explain.units.feature_groups import FeatureGroups
from geh_explain.units.heads import Heads
from geh_explain.units.neurons import Neurons
from geh_explain.units.patches import Patches
from geh_explain.units.subset import Subset
from geh_explain.units.tokens import Tokens

__all__ = ["Channels", "FeatureGroups", "Heads", "Neurons", "Patches", "Subset", "Tokens", "Units"]
