"""Interactions the way Captum works: construct once with a forward function, then call ``attribute``.

>>> import torch
>>> from geh_explain.captum import InputHessian
>>> InputHessian(lambda x: x[:, 0] * x[:, 1] + x[:, 2]).attribute(torch.rand(2, 3))[0].round(decimals=4).tolist()
[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import torch
from captum.attr import GradientAttribution, LayerAttribution
from torch import Tensor, nn

from geh_explain.data.targets import Target
from geh_explain.engines import Engine
from geh_explain.errors import GEHTypeError
from geh_explain.explainer import GEHExplainer
from geh_explain.model.layers import Layer
from geh_explain.model.outputs import Output
from geh_explain.posterior import PointEstimate, Posterior
from geh_explain.results.interactions import Interactions
from geh_explain.units.base import Units

__all__ = ["GroupExpectedHessian", "InputHessian", "LayerHessian"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _as_in_captum(attribute: _Method) -> _Method:
    """Let NoiseTunnel find the method below its wrapper, where it looks."""

    @wraps(attribute)
    def called(*arguments: Any, **options: Any) -> Any:
        return attribute(*arguments, **options)

    return called  # type: ignore[return-value]


class InputHessian(GradientAttribution):  # type: ignore[misc]
    """Interactions of all pairs of input features, for each example.

    ``units``, ``output``, ``smooth`` and ``engine`` are those of :class:`~geh_explain.GEHExplainer`. Dropout is off, as
    in eval mode; :class:`GroupExpectedHessian` knows about uncertainty.

    >>> import torch
    >>> from geh_explain.captum import InputHessian
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> InputHessian(net).attribute(torch.randn(5, 3), target=1).shape
    torch.Size([5, 3, 3])
    """

    def __init__(
        self,
        forward_func: Callable[..., Any],
        *,
        units: Units | None = None,
        output: Output = "raw",
        smooth: str | float | None = "auto",
        engine: str | Engine = "auto",
    ) -> None:
        super().__init__(forward_func)
        self._explainer = _explainer(
            forward_func, None, units=units, output=output, smooth=smooth, engine=engine, posterior=PointEstimate()
        )

    @_as_in_captum
    def attribute(self, inputs: Any, target: Target = None, additional_forward_args: Any = None) -> Any:
        """Return d2 output / dx_i dx_j of each example (N, D, D), with a zero diagonal.

        D counts the features of an example, or the ``units``. A tuple of inputs gives a tuple, as in Captum: of each
        input the rows (N, its own features, D), against the features of all inputs one after the other.
        """
        interactions = _local(self._explainer, inputs, target, additional_forward_args)
        if not isinstance(inputs, tuple):
            return interactions
        if self._explainer._setup.units is not None:
            return (interactions,)
        return torch.split(interactions, [each[0].numel() for each in inputs], dim=1)

    @property
    def multiplies_by_inputs(self) -> bool:
        """False: these are derivatives."""
        return False


class LayerHessian(LayerAttribution, GradientAttribution):  # type: ignore[misc]
    """Interactions of all pairs of units of a layer, for each example.

    ``layer`` is a module, its dotted name, or a :class:`~geh_explain.Layer` for one of several outputs or calls. Units
    are neurons, or whole channels of a feature map; ``units`` says otherwise.

    >>> import torch
    >>> from geh_explain.captum import LayerHessian
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4), torch.nn.Sigmoid())
    >>> LayerHessian(net, net[1]).attribute(torch.randn(5, 3), target=0).shape
    torch.Size([5, 4, 4])
    """

    def __init__(
        self,
        forward_func: Callable[..., Any],
        layer: str | nn.Module | Layer,
        *,
        units: Units | None = None,
        output: Output = "raw",
        smooth: str | float | None = "auto",
        engine: str | Engine = "auto",
    ) -> None:
        super().__init__(forward_func, layer)
        self._explainer = _explainer(
            forward_func, layer, units=units, output=output, smooth=smooth, engine=engine, posterior=PointEstimate()
        )

    @_as_in_captum
    def attribute(self, inputs: Any, target: Target = None, additional_forward_args: Any = None) -> Tensor:
        """Return the interactions of the layer's units in each example (N, D, D), with a zero diagonal."""
        return _local(self._explainer, inputs, target, additional_forward_args)

    @property
    def multiplies_by_inputs(self) -> bool:
        """False: these are derivatives."""
        return False


class GroupExpectedHessian(GradientAttribution):  # type: ignore[misc]
    """Global interactions, with their uncertainty: one number for each pair, over all examples.

    Arguments are those of :class:`~geh_explain.GEHExplainer`.

    >>> import torch
    >>> from geh_explain.captum import GroupExpectedHessian
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Dropout(), torch.nn.Linear(8, 2))
    >>> method = GroupExpectedHessian(net)
    >>> mean, std = method.attribute(torch.randn(50, 3), target=1, groups=2, draws=20, return_std=True)
    >>> mean.shape, bool((std[0, 1:] > 0).all())
    (torch.Size([3, 3]), True)
    """

    def __init__(
        self,
        forward_func: Callable[..., Any],
        layer: str | nn.Module | Layer | None = None,
        *,
        units: Units | None = None,
        output: Output = "raw",
        posterior: Posterior | None = None,
        smooth: str | float | None = "auto",
        engine: str | Engine = "auto",
    ) -> None:
        super().__init__(forward_func)
        self.layer = layer
        self._explainer = _explainer(
            forward_func, layer, units=units, output=output, smooth=smooth, engine=engine, posterior=posterior
        )

    @_as_in_captum
    def attribute(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        measure: str = "geh",
        return_std: bool = False,
        **options: Any,
    ) -> Any:
        """Return the posterior mean of a measure (D, D), and with ``return_std`` its standard deviation too.

        ``options`` are those of :meth:`~geh_explain.GEHExplainer.explain`: groups, draws, scale, seed and others.
        """
        scores = self.explain(inputs, target, additional_forward_args, **options).scores(measure)
        mean = torch.as_tensor(scores.mean)
        return (mean, torch.as_tensor(scores.std)) if return_std else mean

    def explain(
        self, inputs: Any, target: Target = None, additional_forward_args: Any = None, **options: Any
    ) -> Interactions:
        """Return everything: intervals, tables, regions, pictures, the page."""
        options = {"progress": False, **options}
        return self._explainer.explain(inputs, target, additional_forward_args, **options)

    @property
    def multiplies_by_inputs(self) -> bool:
        """False: these are derivatives."""
        return False


class _Function(nn.Module):
    """A function that calls a layer somewhere, which is all that Captum asks for."""

    def __init__(self, function: Callable[..., Any], layer: nn.Module) -> None:
        super().__init__()
        self.function, self.layer = function, layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _explainer(forward_func: Any, layer: str | nn.Module | Layer | None, **options: Any) -> GEHExplainer:
    module = layer.layer if isinstance(layer, Layer) else layer
    if isinstance(module, nn.Module) and not isinstance(forward_func, nn.Module) and callable(forward_func):
        forward_func = _Function(forward_func, module)
    return GEHExplainer(forward_func, layer, **options)


def _local(explainer: GEHExplainer, inputs: Any, target: Target, additional_forward_args: Any) -> Tensor:
    """Return the interactions at every point (N, D, D): groups of one point each."""
    first = inputs[0] if isinstance(inputs, tuple) and inputs else inputs
    if not isinstance(first, Tensor):
        raise GEHTypeError(f"inputs is a {type(first).__name__}; give a tensor, or a tuple of tensors, as in Captum.")
    found = explainer.explain(
        inputs,
        target,
        additional_forward_args,
        groups=np.arange(len(first)),
        draws=1,
        progress=False,
        distributed=False,
    )
    count = len(found.names)
    i, j = np.triu_indices(count, 1)
    matrices = torch.zeros(len(first), count, count, dtype=first.dtype, device=first.device)
    matrices[:, i, j] = torch.as_tensor(found.signed[0]).to(matrices)
    return matrices + matrices.mT
