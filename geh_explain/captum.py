"""Interactions with the interface of Captum: construct once with a forward function, then call ``attribute``.

The classes inherit from Captum's own base classes, so that they work inside ``NoiseTunnel`` and wherever Captum expects
an attribution method. Attributions are matrices: one entry per pair of features or units.

>>> import torch
>>> from geh_explain.captum import InputHessian
>>> InputHessian(lambda x: x[:, 0] * x[:, 1] + x[:, 2]).attribute(torch.rand(2, 3))[0].round(decimals=4).tolist()
[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from captum.attr import GradientAttribution, LayerAttribution
from torch import Tensor, nn

from geh_explain.data.targets import Target
from geh_explain.engines import Engine
from geh_explain.engines.smoothing.sharpness import Smooth
from geh_explain.explainer import GEHExplainer
from geh_explain.explainer.attribution import (
    as_in_captum,
    as_inputs,
    first_tensor,
    local_interactions,
    make_explainer,
    refuses_noise_tunnel,
)
from geh_explain.local.example_rows import integrated_rows
from geh_explain.local.expansion import Expansion, expand_rows
from geh_explain.model.layer_wrappers import LayerEntry
from geh_explain.model.layers import Layer
from geh_explain.model.outputs import Output
from geh_explain.posterior import PointEstimate, Posterior
from geh_explain.results.interactions import Interactions
from geh_explain.units.base import Units

__all__ = ["Expansion", "GroupExpectedHessian", "InputHessian", "IntegratedHessian", "LayerHessian"]


class InputHessian(GradientAttribution):  # type: ignore[misc]
    """Interactions of all pairs of input features, for each example: H_ij(x) = d2 f(x) / dx_i dx_j.

    Dropout is off, as in eval mode; :class:`GroupExpectedHessian` gives uncertainty. The Hessian of an example does not
    depend on the others in the batch.

    Parameters
    ----------
    forward_func
        A module, or a function that returns one output or several per example.
    units, output, smooth, engine
        As in :class:`~geh_explain.GEHExplainer`.
    data
        Inputs like those of the training data. They set how sharply kinked functions such as ReLU are smoothed, as in
        :meth:`~geh_explain.GEHExplainer.explain`, and the steps of ``engine="difference"``, which needs them. None:
        each example is smoothed by itself, as :class:`~geh_explain.engines.Radius` without arguments does.

    Examples
    --------
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
        smooth: Smooth = "auto",
        engine: str | Engine = "auto",
        data: Any = None,
    ) -> None:
        super().__init__(forward_func)
        self._data = data
        self._explainer = make_explainer(
            forward_func, None, units=units, output=output, smooth=smooth, engine=engine, posterior=PointEstimate()
        )

    @as_in_captum
    def attribute(self, inputs: Any, target: Target = None, additional_forward_args: Any = None) -> Any:
        """Return the Hessian of each example (N, D, D), with a zero diagonal.

        Parameters
        ----------
        inputs
            Tensor (N, ...), or a tuple of tensors with one row per example.
        target, additional_forward_args
            As in Captum.

        Returns
        -------
        Tensor or tuple of Tensor
            D is the number of features of an example, or of ``units``. For a tuple of inputs a tuple: for each input
            the rows of its own features (N, D_k, D) against the concatenated features of all inputs.
        """
        interactions = local_interactions(self._explainer, inputs, target, additional_forward_args, self._data)
        return as_inputs(interactions, inputs, self._explainer)

    def expand(self, inputs: Any, target: Target = None, additional_forward_args: Any = None) -> Expansion:
        """Return the second-order expansion of the output around each example: value, gradient and Hessian.

        The Hessian has its diagonal here. On networks with kinks such as ReLU the expansion is as good as smoothing
        fits the distance at which it is used: name that distance by ``smooth=geh_explain.engines.Radius(radius)``. The
        expansion is then the quadratic function through f(x) that is closest to the network in mean square within a
        ball of that radius, up to the approximation of :class:`~geh_explain.engines.Radius`; its diagonal accounts for
        the mean change of the output too.

        Parameters
        ----------
        inputs, target, additional_forward_args
            As in :meth:`attribute`. The features of several inputs are concatenated.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> from geh_explain.captum import InputHessian
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> x, shift = torch.randn(5, 3), 0.1 * torch.randn(5, 3)
        >>> found = InputHessian(net, smooth=geh.engines.Radius(0.2)).expand(x, target=1)
        >>> found.gradient.shape, found.hessian.shape
        (torch.Size([5, 3]), torch.Size([5, 3, 3]))
        >>> bool((found.predict(shift) - net(x + shift)[:, 1]).abs().max() < 0.1)
        True
        """
        first_tensor(inputs)
        return expand_rows(self._explainer._setup, inputs, target, additional_forward_args, self._data)

    @property
    def multiplies_by_inputs(self) -> bool:
        """False: these are derivatives."""
        return False


class LayerHessian(LayerAttribution, GradientAttribution):  # type: ignore[misc]
    """Interactions of all pairs of units of a layer, for each example.

    Parameters
    ----------
    forward_func
        The model, or a function that calls ``layer``.
    layer
        A module, its dotted name, or a :class:`~geh_explain.Layer` for one of several outputs or calls.
    units, output, smooth, engine
        As in :class:`~geh_explain.GEHExplainer`; units are neurons, or channels of feature maps, by default.
    data
        As in :class:`InputHessian`.

    Examples
    --------
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
        smooth: Smooth = "auto",
        engine: str | Engine = "auto",
        data: Any = None,
    ) -> None:
        super().__init__(forward_func, layer)
        self._data = data
        self._options: dict[str, Any] = {"units": units, "output": output, "smooth": smooth, "engine": engine}
        self._explainer = make_explainer(forward_func, layer, posterior=PointEstimate(), **self._options)

    @as_in_captum
    def attribute(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        attribute_to_layer_input: bool = False,
    ) -> Tensor:
        """Return the interactions of the layer's units in each example (N, D, D), with a zero diagonal.

        Parameters
        ----------
        inputs, target, additional_forward_args
            As in :meth:`InputHessian.attribute`.
        attribute_to_layer_input
            Whether the units are those of the layer's input, its first argument, instead of its output.
        """
        explainer = self._at(attribute_to_layer_input)
        return local_interactions(explainer, inputs, target, additional_forward_args, self._data)

    def expand(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        attribute_to_layer_input: bool = False,
    ) -> Expansion:
        """Return the second-order expansion of the output in the layer's units around each example.

        As :meth:`InputHessian.expand`; the arguments are those of :meth:`attribute`.
        """
        first_tensor(inputs)
        explainer = self._at(attribute_to_layer_input)
        return expand_rows(explainer._setup, inputs, target, additional_forward_args, self._data)

    def _at(self, attribute_to_layer_input: bool) -> GEHExplainer:
        """Return the explainer of the units of the layer's output, or of its input."""
        explainer = self._explainer
        if attribute_to_layer_input:
            module = explainer._setup.layer_ref.module
            assert module is not None
            entered = LayerEntry(explainer.model, module)
            explainer = GEHExplainer(entered, entered.entry, posterior=PointEstimate(), **self._options)
        return explainer

    @property
    def multiplies_by_inputs(self) -> bool:
        """False: these are derivatives."""
        return False


class IntegratedHessian(GradientAttribution):  # type: ignore[misc]
    """Main effects and pairs that lead from a baseline to each example, by integrated Hessians.

    The path from the baseline b to the example x is b + s (x - b); see :class:`~geh_explain.LocalExplanation`::

        Gamma_ij = (x_i - b_i) (x_j - b_j) int_0^1 -s ln(s) H_ij(s) ds,    i != j,
        Gamma_ii = (x_i - b_i) int_0^1 -ln(s) g_i(s) ds  +  (x_i - b_i)^2 int_0^1 -s ln(s) H_ii(s) ds.

    The matrix of an example sums to f(x) - f(b), its rows to integrated gradients. Dropout is off, as in eval mode.

    Parameters
    ----------
    forward_func
        A module, or a function that returns one output or several per example.
    units, output, smooth
        As in :class:`~geh_explain.GEHExplainer`.
    data
        Inputs like those of the training data, which set how sharply kinked functions are smoothed. None: the sharpness
        follows from the path of each example alone.

    Examples
    --------
    >>> import torch
    >>> from geh_explain.captum import IntegratedHessian
    >>> x = torch.tensor([[1.0, 3.0, 2.0]])
    >>> IntegratedHessian(lambda x: 4 * x[:, 0] * x[:, 1] + x[:, 2]).attribute(x)[0].round(decimals=4).tolist()
    [[3.0, 3.0, 0.0], [3.0, 3.0, 0.0], [0.0, 0.0, 2.0]]
    """

    def __init__(
        self,
        forward_func: Callable[..., Any],
        *,
        units: Units | None = None,
        output: Output = "raw",
        smooth: Smooth = "auto",
        data: Any = None,
    ) -> None:
        super().__init__(forward_func)
        self._data = data
        self._explainer = make_explainer(
            forward_func, None, units=units, output=output, smooth=smooth, posterior=PointEstimate()
        )

    @as_in_captum
    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Target = None,
        additional_forward_args: Any = None,
        n_steps: int | None = None,
    ) -> Any:
        """Return Gamma of each example (N, D, D), main effects on the diagonal.

        Parameters
        ----------
        inputs
            Tensor (N, ...), or a tuple of tensors with one row per example.
        baselines
            As in Captum: None for zeros, a number, a tensor with one row for all examples or one for each, or a tuple
            of these for a tuple of inputs.
        target, additional_forward_args
            As in Captum.
        n_steps
            Nodes of the Gauss rule on the path; None doubles them until two rules agree.

        Returns
        -------
        Tensor or tuple of Tensor
            As in :meth:`InputHessian.attribute`.
        """
        first = first_tensor(inputs)
        matrices = integrated_rows(
            self._explainer._setup, inputs, baselines, (target, additional_forward_args), self._data, n_steps
        )
        return as_inputs(torch.as_tensor(matrices).to(first), inputs, self._explainer)

    @property
    def multiplies_by_inputs(self) -> bool:
        """True: contributions to a difference of outputs."""
        return True


class GroupExpectedHessian(GradientAttribution):  # type: ignore[misc]
    """Global interactions with their uncertainty: one number for each pair, over all examples.

    Parameters
    ----------
    forward_func
        The model, or a function.
    layer, units, output, posterior, smooth, engine
        As in :class:`~geh_explain.GEHExplainer`.

    Examples
    --------
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
        smooth: Smooth = "auto",
        engine: str | Engine = "auto",
    ) -> None:
        super().__init__(forward_func)
        self.layer = layer
        self._explainer = make_explainer(
            forward_func, layer, units=units, output=output, smooth=smooth, engine=engine, posterior=posterior
        )

    @refuses_noise_tunnel
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
        """Return the complete result, with intervals, tables, plots and the report."""
        options = {"progress": False, **options}
        return self._explainer.explain(inputs, target, additional_forward_args, **options)

    @property
    def multiplies_by_inputs(self) -> bool:
        """False: these are derivatives."""
        return False
