"""Random points and short calls of ``GEHExplainer``, with the same defaults in all tests.

Options of the explainer (``layer``, ``units``, ``output``, ``smooth``, ``engine``) and of ``explain`` (``groups``,
``scale``, ``batch_size``, ``memory``, ...) may be mixed; progress is off everywhere.
"""

import inspect
import warnings
from typing import Any

import torch
from torch import Tensor

import geh_explain as geh
from geh_explain.posterior import PointEstimate

#: Options of the explainer; all others are options of ``explain``.
_OF_EXPLAINER = set(inspect.signature(geh.GEHExplainer).parameters) - {"model", "posterior"}


def random_points(rows: int, *shape: int, seed: int = 0, dtype: torch.dtype = torch.double) -> Tensor:
    """Return standard normal points (rows, *shape), which depend on the seed and not on the global generator."""
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def uniform_points(rows: int, *shape: int, seed: int = 0, dtype: torch.dtype = torch.double) -> Tensor:
    """Return points (rows, *shape) that are uniform on [0, 1), which depend on the seed only."""
    return torch.rand(rows, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def point_explainer(model: Any, layer: Any = None, **options: Any) -> geh.GEHExplainer:
    """Return an explainer with a point estimate as posterior."""
    return geh.GEHExplainer(model, layer, posterior=PointEstimate(), **options)


def explain_draws(
    model: Any,
    inputs: Any,
    target: Any = None,
    args: Any = None,
    *,
    posterior: Any = None,
    groups: Any = 1,
    draws: int = 4,
    **options: Any,
) -> geh.Interactions:
    """Explain with 4 draws of a posterior and one group; ``args`` are additional arguments of the forward pass."""
    of_explainer = {name: options.pop(name) for name in _OF_EXPLAINER & set(options)}
    explainer = geh.GEHExplainer(model, posterior=posterior, **of_explainer)
    return explainer.explain(inputs, target, args, groups=groups, draws=draws, **({"progress": False} | options))


def explain_point(
    model: Any, inputs: Any, target: Any = None, args: Any = None, *, groups: Any = 1, **options: Any
) -> geh.Interactions:
    """Explain with the model's own weights as the only draw, and one group."""
    return explain_draws(model, inputs, target, args, posterior=PointEstimate(), groups=groups, **options)


def explain_point_quietly(*args: Any, **options: Any) -> geh.Interactions:
    """Return ``explain_point(...)`` without warnings of the package, such as those about strong smoothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        return explain_point(*args, **options)
