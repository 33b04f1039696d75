"""A Laplace approximation of the last linear layer, in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain._validation import check_int, check_positive
from geh_explain.data.reader import Reader
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.model.cut import Cut
from geh_explain.model.layers import LayerRef
from geh_explain.model.outputs import Output
from geh_explain.model.preserve import as_module, device_and_dtype, preserved
from geh_explain.model.view import forward_hook
from geh_explain.posterior.by_draw import MAX_NUMBERS, replace_layers
from geh_explain.posterior.curvature import Curvature
from geh_explain.posterior.draw_fit import DrawFit, KeptRows, measure_draw_fit
from geh_explain.posterior.head import Head, by_row, check_link, find_head
from geh_explain.posterior.head_data import (
    STRUCTURES,
    TASKS,
    ClassificationStatistics,
    RegressionStatistics,
    choose_structure,
    choose_task,
)
from geh_explain.posterior.marginal_likelihood import best_noise, best_precision, determined
from geh_explain.posterior.protocols import seed_of_draw

#: Distance from the mode above which users are warned. Intervals of nominal 95 % have about 62 % there, 83 % at 1.
_MAX_DISTANCE = 2.0
#: Draws that are compared with the network, fewer for heads of many weights.
_COMPARED_DRAWS = 16
_MANY_WEIGHTS = 2**18
#: Rows on which the head is searched.
_PROBE_ROWS = 4


@dataclass(frozen=True)
class FittedLastLayer:
    """The Gaussian N(w0, (H + precision I)^-1) over the weights of a head; :meth:`LastLayerLaplace.fit` returns it.

    Attributes
    ----------
    head
        The layer, with its trained weights w0 of shape (C, F). F counts the bias.
    task
        ``"regression"`` or ``"classification"``.
    curvature
        The Gauss-Newton matrix H.
    precision
        Precision of the prior, the inverse of its variance.
    noise
        Standard deviations (C,) of the noise of a regression, None for a classification.
    determined
        Number of weights that the data determine: sum of l / (l + precision) over the eigenvalues l of H.
    distance
        Distance of w0 from the mode of the head given its features, in posterior standard deviations: the length of a
        Newton step, divided by the root of ``determined``. Draws are about 1 from w0. Large values mean that the
        network was not trained to a minimum on these data.
    draw_fit
        How well draws of a classification fit the data; None for a regression, whose draws fit them by construction.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net, x = torch.nn.Linear(2, 1), torch.randn(50, 2)
    >>> y = net(x).detach() + 0.1 * torch.randn(50, 1)
    >>> fitted = geh.posterior.LastLayerLaplace(x, y, precision=1.0, noise=0.1).fit(net)
    >>> fitted.covariance().shape, fitted.sample(0).shape
    (torch.Size([3, 3]), torch.Size([1, 3]))
    """

    head: Head
    task: str
    curvature: Curvature
    precision: float
    noise: Tensor | None
    determined: float
    distance: float
    draw_fit: DrawFit | None = None

    #: What is below the head is the same in all draws; a draw of a head that is below the layer shows in its output.
    keeps_below: ClassVar[bool] = True

    def sample(self, draw: int, seed: int = 0) -> Tensor:
        """Return the weights (C, F) of draw number ``draw``, in double precision; the bias is the last column."""
        generator = torch.Generator().manual_seed(seed_of_draw(seed, draw))
        z = torch.randn(self.head.weight.shape, generator=generator, dtype=torch.double)
        step = z * (self.curvature.eigenvalues + self.precision).rsqrt()
        return self.head.weight + self.curvature.from_basis(step)

    def covariance(self) -> Tensor:
        """Return the covariance (C F, C F) of the weights, output by output."""
        return self.curvature.covariance(self.precision)

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield ``n`` draws: the model with the weights ``sample(0, seed)``, ``sample(1, seed)``, ..."""
        self._check_model(model)
        for draw in range(n):
            yield self.batched(model, range(draw, draw + 1), seed)

    def batched(self, model: nn.Module, draws: range, seed: int) -> AbstractContextManager[Any]:
        """Return several draws at once, see :class:`~geh_explain.posterior.protocols.BatchedPosterior`."""
        weights = torch.stack([self.sample(draw, seed) for draw in draws])
        context: AbstractContextManager[Any] = replace_layers(model, self.head.layer_draws(weights))
        return context

    def draws_at_once(self, model: nn.Module, fitting: int) -> int:
        """Return how many draws are computed at once, of those that fit into a chunk of rows."""
        return max(1, min(fitting, MAX_NUMBERS // self.head.weight.numel()))

    @property
    def concern(self) -> str | None:
        """What a user should know about the fit, in words; None where nothing is suspicious."""
        if self.draw_fit is not None and self.draw_fit.is_poor:
            fit = self.draw_fit
            return (
                f"LastLayerLaplace: draws of layer {self.head.name!r} do not fit these data: {fit.draws_accuracy:.0%} "
                f"of their predictions are right, cross-entropy {fit.draws:.3g}, and {fit.network_accuracy:.0%} and "
                f"{fit.network:.3g} of the network. A network that is sure of all labels leaves its head undetermined, "
                "and scores of draws say little about it. Pass rows that were not used for training, or a larger "
                f"precision= than {self.precision:.3g}; or take another posterior, such as an ensemble."
            )
        if self.distance <= _MAX_DISTANCE:
            return None
        return (
            f"LastLayerLaplace: the weights of layer {self.head.name!r} are {self.distance:.1f} posterior standard "
            "deviations from the mode of its posterior on these data; draws are about 1 from it. The network was not "
            "trained to a minimum, or on other data, labels or augmentations, or with another precision of the prior "
            "than a given one; the intervals lie around a point that these data do not support. Train its last layer "
            "further, or pass the training data."
        )

    def _check_model(self, model: nn.Module) -> None:
        """Raise if the model has other weights than those around which the Gaussian lies."""
        modules = {name or "(model)": module for name, module in model.named_modules()}
        module: Any = modules.get(self.head.name)
        weight = None if module is None else module.weight.detach().flatten(1).double().cpu()
        trained = self.head.weight[:, :-1] if self.head.has_bias else self.head.weight
        if weight is None or not torch.equal(weight, trained):
            raise GEHValueError(
                f"FittedLastLayer: layer {self.head.name!r} of this model has other weights than the one that was "
                "fitted; fit it to the model that is explained."
            )

    def __repr__(self) -> str:
        noise = ""
        if self.noise is not None:
            noise = f", noise={' '.join(f'{value:.3g}' for value in self.noise[:3].tolist())}"
            noise += " ..." if len(self.noise) > 3 else ""
        n_outputs, n_features = self.head.weight.shape
        return (
            f"LastLayerLaplace({self.head.name!r}: {n_outputs} × {n_features} weights, {self.task}, "
            f"covariance={self.curvature.structure!r}, precision={self.precision:.3g}{noise}, "
            f"distance={self.distance:.2g})"
        )


class LastLayerLaplace:
    """A Gaussian over the weights of the last linear layer, in closed form; for networks without dropout.

    With features h_n of the last layer, z = W h, and L_n the second derivative of the negative log-likelihood of row n
    in z, draws of the weights w of that layer are ::

        w ~ N(w0, (sum_n L_n (x) h_n h_n^T + precision I)^-1),

    around the trained weights w0. L_n = 1 / noise^2 for a regression with Gaussian noise, and diag(p) - p p^T for a
    classification with probabilities p. The prior of a weight has the mean 0 and that of a bias its trained value, so
    that the origin of the labels does not matter. Precision and noise maximise the marginal likelihood of the data. One
    forward pass over the data gives the features. For a linear layer, draws of the weights and of the linearised
    network are the same.

    What it covers: the uncertainty of the head for given features. The layers below are fixed in all draws, as if they
    were known, so that intervals are too narrow where these matter. The noise is that of the given rows, which is too
    small for a network that has overfitted them. It describes a network at a minimum of the loss: where the head is far
    from one on these data, a warning says so.

    Parameters
    ----------
    data
        The training data: a DataLoader or Dataset of (inputs, labels), or the inputs alone.
    labels
        The labels, where ``data`` are the inputs. Floating-point numbers mean regression, whole numbers are classes.
    layer
        Name or module of the head; None finds the linear layer, or 1 x 1 convolution, whose output is the model's
        output, or the logits of its softmax or sigmoid.
    task
        ``"regression"``, ``"classification"`` or ``"auto"``, by the dtype of the labels.
    structure
        Covariance of the weights: ``"full"``; ``"kron"``, a Kronecker product of covariances of features and of
        classes; ``"diag"``, variances only. ``"auto"`` takes the first one that fits: full up to 2,048 weights, or
        5,000 features where outputs are independent (regression, one logit).
    precision
        Precision of the prior of each weight; None: by marginal likelihood.
    noise
        Standard deviation of the noise of a regression; None: by marginal likelihood.
    batch_size
        Rows per forward pass.

    Raises
    ------
    GEHTypeError, GEHValueError
        If arguments are out of range; when the model is explained, also if the labels do not fit the outputs, or the
        model has no linear head.

    See Also
    --------
    Laplace : all layers, fitted by laplace-torch.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> x = torch.randn(200, 3)
    >>> y = x[:, :1] * x[:, 1:2] + 0.1 * torch.randn(200, 1)
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    >>> optimiser = torch.optim.Adam(net.parameters(), 0.02)
    >>> for _ in range(300):
    ...     optimiser.zero_grad()
    ...     (net(x) - y).square().mean().backward()
    ...     _ = optimiser.step()
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.LastLayerLaplace(x, y))
    >>> result = explainer.explain(x, groups=2, draws=30, progress=False)
    >>> bool((result.geh.std[0, 1:] > 0).all())
    True
    >>> geh.posterior.LastLayerLaplace(x, y).fit(net).task
    'regression'
    """

    def __init__(
        self,
        data: Any,
        labels: Any = None,
        *,
        layer: str | nn.Module | None = None,
        task: str = "auto",
        structure: str = "auto",
        precision: float | None = None,
        noise: float | None = None,
        batch_size: int | None = None,
    ) -> None:
        for name, value, known in (("task", task, TASKS), ("structure", structure, STRUCTURES)):
            if value not in known:
                raise GEHValueError(
                    f"LastLayerLaplace: {name}={value!r} is unknown; use {', '.join(map(repr, known))}."
                )
        self.data = data
        self.labels = None if labels is None else _as_tensor(labels)
        self.layer = layer
        self.task = task
        self.structure = structure
        self.precision = None if precision is None else check_positive("LastLayerLaplace: precision", precision)
        self.noise = None if noise is None else check_positive("LastLayerLaplace: noise", noise)
        self.batch_size = None if batch_size is None else check_int("batch_size", batch_size, 1)

    def fit(self, model: nn.Module, output: Output = "raw") -> FittedLastLayer:
        """Return the Gaussian for a model, which is left as it was.

        Parameters
        ----------
        model
            The trained network.
        output
            Key of the output in what the model returns, as in :class:`~geh_explain.GEHExplainer`.

        Warns
        -----
        GEHWarning
            If the head is far from its mode on these data.
        """
        module = as_module(model)
        with preserved(module):
            fitted = self.prepared(module, output)
        if fitted.concern is not None:
            warn(fitted.concern)
        return fitted

    def prepared(self, model: nn.Module, output: Output = "raw") -> FittedLastLayer:
        """Return the Gaussian for a model in eval mode; the explainer calls this once per run."""
        with torch.no_grad():
            statistics = self._collect(model, output)
            statistics.check_fit()
            return self._fit(statistics)

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Fit the Gaussian to the model, and yield ``n`` draws; ``fit(model)`` returns one that is fitted once."""
        yield from self.fit(model).draws(model, n, seed)

    def _collect(self, model: nn.Module, output: Output) -> RegressionStatistics | ClassificationStatistics:
        """Run the model once over the data, and sum up what the Gaussian needs."""
        device, dtype = device_and_dtype(model)
        reader = Reader(floating_only=False, device=device, dtype=dtype, argument="LastLayerLaplace: data")
        batches = reader.labelled(self.data, self.labels, self.batch_size)
        first = next(batches, None)
        if first is None:
            raise GEHValueError("LastLayerLaplace: data are empty; pass labelled rows.")
        rows = first[0]
        key: Output = output if isinstance(output, str) and output != "probability" else "raw"
        cut = Cut(model, LayerRef(), None, key, rows)
        probe = rows[:_PROBE_ROWS] if len(rows) > 1 else rows.repeat(2)
        head = find_head(model, self.layer, lambda: cut.raw_outputs(probe))
        statistics = self._start(head, choose_task(self.task, _as_tensor(first[1])))
        for part, labels in chain([first], batches):
            features, outputs = _run(cut, head, part)
            statistics.add(features, outputs, _as_tensor(labels))
        if self.task == "auto" and isinstance(statistics, RegressionStatistics):
            statistics.check_task()
        return statistics

    def _start(self, head: Head, task: str) -> RegressionStatistics | ClassificationStatistics:
        """Return empty sums for a task."""
        structure = choose_structure(self.structure, task, head)
        if task == "classification" and head.link == "sigmoid" and len(head.weight) > 1:
            raise GEHValueError(
                f"LastLayerLaplace: the model returns the sigmoid of each of the {len(head.weight)} outputs of its "
                "head, for labels that do not exclude each other; a classification has one logit, or a softmax over "
                "classes. Pass a model that returns the logit of one label."
            )
        if task == "classification":
            return ClassificationStatistics(head, structure)
        if head.link != "identity":
            raise GEHValueError(
                f"LastLayerLaplace: the model returns the {head.link} of its head, and labels are numbers of a "
                "regression; pass class indices, or a model that returns the output of its last linear layer."
            )
        return RegressionStatistics(head, structure)

    def _fit(self, statistics: RegressionStatistics | ClassificationStatistics) -> FittedLastLayer:
        """Determine precision and noise, and return the Gaussian."""
        head = statistics.head
        squared_norm = float(head.shrunk.square().sum())
        noise: Tensor | None = None
        gradient = statistics.gradient
        if isinstance(statistics, RegressionStatistics):
            variance = self._noise_variance(statistics, squared_norm)
            noise, gradient = variance.sqrt(), gradient / variance[:, None]
            curvature = statistics.curvature(variance)
        else:
            curvature = statistics.curvature()
        precision = self.precision or best_precision(curvature.eigenvalues, squared_norm)
        n_determined = float(determined(curvature.eigenvalues, precision).sum())
        step = curvature.distance(gradient + precision * head.shrunk, precision)
        distance = (step / max(n_determined, 1e-300)) ** 0.5
        fitted = FittedLastLayer(head, statistics.task, curvature, precision, noise, n_determined, distance)
        return fitted if isinstance(statistics, RegressionStatistics) else _compared(fitted, statistics.kept)

    def _noise_variance(self, statistics: RegressionStatistics, squared_norm: float) -> Tensor:
        """Return the noise variances (C,) of a regression, given or by marginal likelihood."""
        if self.noise is not None:
            return torch.full((statistics.n_outputs,), self.noise**2, dtype=torch.double)
        if not statistics.noise_is_measurable():
            raise GEHValueError(
                "LastLayerLaplace: the network fits these labels exactly, so that their noise cannot be estimated; "
                "pass noise=, its standard deviation, or rows that were not used for training."
            )
        unit = statistics.curvature(torch.ones(statistics.n_outputs, dtype=torch.double)).eigenvalues
        return best_noise(unit, statistics.residuals, statistics.n_rows, squared_norm, self.precision)

    def __repr__(self) -> str:
        return f"LastLayerLaplace({type(self.data).__name__}, structure={self.structure!r})"


def _compared(fitted: FittedLastLayer, rows: KeptRows) -> FittedLastLayer:
    """Return a fit with how well some of its draws fit the rows."""
    head = fitted.head
    count = _COMPARED_DRAWS if head.weight.numel() <= _MANY_WEIGHTS else 2
    changes = [head.slope[:, None] * (fitted.sample(draw) - head.weight) for draw in range(count)]
    return replace(fitted, draw_fit=measure_draw_fit(rows, changes))


def _run(cut: Cut, head: Head, rows: Rows) -> tuple[Tensor, Tensor]:
    """Return the features (n, F) and outputs (n, C) of rows, in double precision on the CPU."""
    found: list[tuple[Tensor, Tensor]] = []
    module = cut.model.get_submodule("" if head.name == "(model)" else head.name)
    with forward_hook(module, lambda module, args, out: found.append((args[0].detach(), out.detach()))):
        outputs = cut.raw_outputs(rows).detach()
    ((features, z),) = found
    check_link(head, module, z, outputs, lambda: cut.raw_outputs(rows))
    return head.features(features), by_row(outputs).double().cpu()


def _as_tensor(labels: Any) -> Tensor:
    """Return labels as a tensor on the CPU."""
    if isinstance(labels, Tensor):
        return labels.detach().cpu()
    values = np.asarray(labels)
    if values.dtype.kind not in "fiub" or values.ndim == 0:
        raise GEHTypeError(
            f"LastLayerLaplace: labels have dtype {values.dtype}; give numbers, or the index of the class of each row."
        )
    return torch.tensor(values)
