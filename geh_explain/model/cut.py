"""The model as a function of shifts of the units of one layer."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain._process import SafeContext, safe_contextmanager
from geh_explain.data.rows import Rows
from geh_explain.data.targets import select
from geh_explain.errors import GEHRuntimeError, GEHTypeError
from geh_explain.model.below import Below, NotReplayable, tensors_of
from geh_explain.model.call_errors import CALL_ERRORS, not_reached
from geh_explain.model.calling import call_model
from geh_explain.model.input_tensors import join_inputs, shift_inputs
from geh_explain.model.layers import LayerRef
from geh_explain.model.outputs import Output, read_output
from geh_explain.model.replay import Replay, forward_start, is_transformed
from geh_explain.model.unit_names import check_unit_names
from geh_explain.model.view import View, forward_hook
from geh_explain.units.base import Units
from geh_explain.units.channels import Channels
from geh_explain.units.default import default_units
from geh_explain.units.layout import layout_reference
from geh_explain.units.subset import Subset, columns_of_numbers


class _LayerReached(BaseException):
    """Ends a forward pass at the layer. Not an Exception, so that no ``except Exception`` in a model catches it."""


class Cut:
    """The model as a function of shifts of the units of one layer, one number per row.

    Let a(x) of shape ``(n, *shape)`` be the output of the layer for n rows x, g the part of the model above the layer,
    followed by ``output`` and the choice of the target, and B the linear map of the units from shifts (n, D) to
    ``(n, *shape)``. The cut is the function::

        f(x, t) = g(a(x) + B t),    t of shape (n, D),  f of shape (n,).

    The local interaction of the units i and j at a row is d2 f / dt_i dt_j at t = 0; computing it is the task of an
    engine. f of a row depends on that row of x and t only, so the gradient of the sum over rows holds the gradients of
    all rows. At the inputs a(x) = x; several input tensors are flattened and concatenated to one.

    An engine uses :meth:`outputs`, :meth:`zeros`, :meth:`activations`, :meth:`viewed` and the attributes.

    Parameters
    ----------
    model
        The model, in eval mode, see :func:`~geh_explain.model.preserve.preserved`.
    layer_ref
        The layer, or the inputs.
    units
        The units; None for features, neurons or channels, depending on the layer.
    output
        ``"raw"``, ``"probability"``, the key of a tensor in the model's output, or a callable.
    rows
        A few rows, from which shapes are read by running the model up to the layer.
    columns
        Names of the columns of the inputs, if they have any.

    Attributes
    ----------
    n_units
        Number of units D.
    shape
        Shape of one row of the layer's output, without the batch dimension.
    units
        The units, bound to the layer: ``units.shift(t, shape)`` is B t, ``units.values(a)`` the values (n, D).
    device, dtype
        Those of the layer's output, and of the shifts.
    view
        Intercepts the torch calls above the layer, see :meth:`viewed`.
    model, layer_ref, output
        As passed.
    layout
        The module from which the position of the layer's channels is read; None where no module determines it.
    layout_is_guessed
        Whether the units are channels whose dimension is guessed from the rank of the layer's output.
    calls
        How many times the last forward pass called the layer.
    frame
        Columns and dtypes of the data frame as which the model is called, None where it is called with tensors.
    known_layers
        Whether all networks that the posterior draws have torch's own layers, see
        :mod:`~geh_explain.model.known_layers`: they treat rows one by one, and always in the same way.
    known_smooth
        Whether they also are known to have no kinks.
    layers
        What these networks have in common if all of them have the same smooth layers in the same order and the units
        are single inputs; else None. Equal for networks that differ in their weights only.
    below
        What happens below the layer, if rows hold what it passes on and that holds in this draw; else None.

    Examples
    --------
    An engine that computes the first row of each local Hessian by double backward, enough for two units:

    >>> import torch, geh_explain as geh
    >>> class FirstRow(geh.engines.EngineRun):
    ...     def chunk_rows(self, rows):
    ...         return 100
    ...     def add(self, sums, rows, labels):
    ...         t = self.cut.zeros(rows).requires_grad_()  # (n, 2)
    ...         value = self.cut.outputs(rows, t)  # (n,)
    ...         (slopes,) = torch.autograd.grad(value.sum(), t, create_graph=True)
    ...         (hessian_row,) = torch.autograd.grad(slopes[:, 0].sum(), t)
    ...         sums.add(0, hessian_row[:, 1:], sums.one_hot(labels, self.cut.device))
    >>> class TwoUnits(geh.engines.Engine):
    ...     name = "two units"
    ...     def start(self, cut, limits):
    ...         return FirstRow(self, cut, limits)
    >>> point = geh.posterior.PointEstimate()
    >>> explainer = geh.GEHExplainer(lambda x: 3 * x[:, 0] * x[:, 1], engine=TwoUnits(), posterior=point)
    >>> explainer.explain(torch.randn(20, 2), groups=1, progress=False).geh.mean.tolist()
    [[0.0, 3.0], [3.0, 0.0]]
    """

    def __init__(
        self,
        model: nn.Module,
        layer_ref: LayerRef,
        units: Units | None,
        output: Output,
        rows: Rows,
        columns: list[str] | None = None,
    ) -> None:
        self.model = model
        self.layer_ref = layer_ref
        self.output = output
        self.below: Below | None = None
        self.known_layers, self.known_smooth = False, False
        self.layers: Hashable | None = None
        activations = self.activations(rows)
        if layer_ref.module is not None and len(rows) > 1:
            # A dimension of tokens may happen to be as long as the batch, but not for one row as well.
            self.activations(rows[:1])
        self.shape = tuple(activations.shape[1:])
        self.device = activations.device
        self.dtype = activations.dtype
        self.layout = layout_reference(model, layer_ref.module, self.shape)
        self.layout_is_guessed = (
            len(self.shape) > 1 and layer_ref.module is not None and self.layout is None and _needs_layout(units)
        )
        like = self.layout or layer_ref.module
        self.frame = rows.frame if layer_ref.module is None else None
        default = default_units(self.shape, layer_ref.module) if self.frame is None else columns_of_numbers(self.frame)
        self.units = (units or default).bind(self.shape, like, columns)
        self.n_units = self.units.count(self.shape)
        self._columns = columns
        # Changed by viewed() only, for the time of a context.
        self.view = View()
        self.calls = 0

    @property
    def layer(self) -> nn.Module | None:
        """The layer's module, None at the inputs."""
        return self.layer_ref.module

    @property
    def name(self) -> str:
        """The layer's name, empty at the inputs."""
        return self.layer_ref.name

    @property
    def place(self) -> str:
        """Position of the cut for messages: ``"the inputs"`` or ``"layer 'conv2'"``."""
        return self.layer_ref.place

    def unit_names(self, names: Any = None) -> list[str]:
        """Return one distinct name per unit: ``names``, else the inputs' columns, else numbers at the layer."""
        if names is None:
            names = self.units.names(self.shape, self.name or "x", self._columns)
        return check_unit_names(names, self.n_units, self.place)

    # For engines.

    def zeros(self, rows: Rows) -> Tensor:
        """Return shifts (n, D) of 0, where second derivatives are taken."""
        return torch.zeros(len(rows), self.n_units, device=self.device, dtype=self.dtype)

    def outputs(self, rows: Rows, t: Tensor | None = None) -> Tensor:
        """Return the explained number of each row (n,), with the units shifted by ``t`` (n, D).

        Without ``t`` the model runs unchanged. With it, ``view`` intercepts the torch calls above the layer, and the
        result is differentiable in ``t`` if ``t`` requires gradients. The part below the layer runs without gradients.

        Raises
        ------
        GEHRuntimeError
            If an output is NaN or infinite.
        """
        return self.selected(self.all_outputs(rows, t), rows)

    @torch.no_grad()
    def activations(self, rows: Rows) -> Tensor:
        """Return the layer's output ``(n, *shape)`` without gradients; the part above the layer does not run."""
        if self.below is not None and rows.below:
            return self.below.layer_output(rows.below)
        return self.activations_with_grad(rows)

    @safe_contextmanager
    def viewed(self, view: View) -> Iterator[None]:
        """Let ``view`` intercept the torch calls above the layer within the context."""
        before = self.view
        self.view = view
        try:
            yield
        finally:
            self.view = before

    # For everything else.

    def activations_with_grad(self, rows: Rows) -> Tensor:
        """Return the layer's output ``(n, *shape)``, differentiable in inputs that require gradients.

        Raises
        ------
        GEHRuntimeError
            If the forward pass does not call the layer, or not as often as ``Layer(call=...)`` says.
        """
        if self.layer is None:
            return join_inputs(rows.inputs)
        captured: list[Tensor] = []
        calls = 0

        def stop(module: nn.Module, args: Any, out: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > (self.layer_ref.call or 0):
                captured.append(self._layer_tensor(out, rows))
                raise _LayerReached

        try:
            with forward_hook(self.layer, stop):
                self._call(rows)
        except _LayerReached:
            return captured[0]
        raise GEHRuntimeError(not_reached(self.model, self.layer_ref, calls))

    def selected(self, outputs: Tensor, rows: Rows) -> Tensor:
        """Return the explained number of each row (n,) out of all ``outputs`` (n, ...); it must be finite."""
        value = select(outputs, rows.target)
        if not bool(torch.isfinite(value).all()):
            row = rows.index_of(int((~torch.isfinite(value)).nonzero()[0]))
            raise GEHRuntimeError(
                f"the model's output is NaN or infinite (the first time at row {row} of the inputs); check "
                "model(inputs) there, and leave such rows out."
            )
        return rows.weigh(value)

    def all_outputs(self, rows: Rows, t: Tensor | None = None) -> Tensor:
        """Return all outputs of each row (n, ...), from which the target selects one; ``t`` as in :meth:`outputs`."""
        if t is None:
            return read_output(self._call(rows), self.output, len(rows))
        return self._shifted_outputs(rows, t)[0]

    def raw_outputs(self, rows: Rows) -> Tensor:
        """Return the outputs (n, ...) of the unchanged model before ``output`` makes probabilities of them."""
        return read_output(self._call(rows), "raw" if self.output == "probability" else self.output, len(rows))

    def traced_outputs(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the layer's output ``(n, *shape)`` and all outputs (n, ...) of one forward pass, without gradients.

        ``view`` intercepts the torch calls above the layer.
        """
        outputs, activations = self._shifted_outputs(rows, self.zeros(rows), keep_activations=True)
        return self.activations(rows) if activations is None else activations, outputs

    @torch.no_grad()
    def replaces_shared_memory(self, rows: Rows) -> bool:
        """Return whether the outputs change where the layer's output is replaced by an equal tensor.

        They do if the output shares memory with a tensor that the model changes in place elsewhere.
        """
        return self.layer is not None and not torch.equal(
            self.all_outputs(rows), self.all_outputs(rows, self.zeros(rows))
        )

    # The forward pass.

    def _shifted_outputs(
        self, rows: Rows, t: Tensor, *, keep_activations: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Return all outputs (n, ...) with the units shifted by ``t``, and the layer's output before the shift.

        The latter is that of the layer's first call; it is None at the inputs, or without ``keep_activations``.
        """
        view = self.view
        view.prepare(rows)
        view.begin()
        with SafeContext(view), torch.set_grad_enabled(t.requires_grad):
            activations = None
            if self.layer is None:
                shifted = self._shifted_inputs(rows.inputs, t)
                view.enter(rows.inputs, shifted)
                raw = self._call(rows, shifted)
            else:
                raw, activations = self._run_with_hook(self.layer, rows, t, keep_activations)
            return read_output(raw, self.output, len(rows)), activations

    def _call(self, rows: Rows, inputs: tuple[Tensor, ...] | None = None) -> Any:
        """Call the model on copies of the rows, or on other inputs of theirs."""
        return call_model(self.model, rows, inputs)

    def _shifted_inputs(self, inputs: tuple[Tensor, ...], t: Tensor) -> tuple[Tensor, ...]:
        """Return the inputs with the units shifted by ``t`` (n, D); the units span all of them side by side."""
        return shift_inputs(inputs, self.units.shift(t, self.shape))

    def _run_with_hook(
        self, layer: nn.Module, rows: Rows, t: Tensor, keep_activations: bool
    ) -> tuple[Any, Tensor | None]:
        """Run the model with a hook that shifts the output of ``layer`` in each call that :class:`Layer` chooses.

        Gradients are off until the first of these calls, which builds no graph for the part below.
        """
        view = self.view
        calls = 0
        first: Tensor | None = None
        replay = self._replay(rows)

        def enter(module: nn.Module, args: Any, out: Any) -> Any:
            nonlocal calls, first
            calls += 1
            if self.layer_ref.call is not None and calls != self.layer_ref.call + 1:
                return None
            activations = self._layer_tensor(out, rows)
            if tuple(activations.shape[1:]) != self.shape:
                raise GEHRuntimeError(
                    f"layer={self.name!r} returns {self.shape} and {tuple(activations.shape[1:])} per row in its "
                    f"calls; choose one of them, layer=Layer({self.name!r}, call=0)."
                )
            # The rest of the forward pass is above the cut; no_grad() around the call restores the mode after it.
            torch.set_grad_enabled(t.requires_grad)
            if replay is not None:
                replay.above = True
            view.pause()
            if keep_activations and first is None:
                # A copy: the model may change the tensor in place further above.
                first = activations.clone()
            shifted = activations + self.units.shift(t, self.shape)
            view.enter((activations,), (shifted,))
            return self.layer_ref.replaced(out, shifted)

        try:
            with forward_hook(layer, enter), torch.no_grad():
                if replay is not None:
                    raw = self._replayed(replay, rows)
                    if raw is not None:
                        return raw, first
                    calls, first, replay = 0, None, None
                    view.begin()
                    torch.set_grad_enabled(False)
                return self._call(rows), first
        finally:
            self.calls = calls

    def _replayed(self, replay: Replay, rows: Rows) -> Any:
        """Return the model's output with the part below the layer left out; None, and stop doing so, if that fails."""
        try:
            with forward_start(self.model, replay), SafeContext(replay):
                raw = self._call(rows)
            if not replay.failed and not any(tensor.is_meta for tensor in tensors_of(raw)):
                return raw
        except (NotReplayable, *CALL_ERRORS):
            pass  # also errors of code that is not seen, such as that of TorchScript, for values that were not kept
        self.below = None
        return None

    def _replay(self, rows: Rows) -> Replay | None:
        """Return the context in which the part below the layer is left out; None where it has to run."""
        if self.below is None or not rows.below or is_transformed():
            return None
        return Replay(self.below, rows.below, len(rows))

    def _layer_tensor(self, out: Any, rows: Rows) -> Tensor:
        """Return the tensor in the layer's output, which must be floating-point with one row per row."""
        tensor = self.layer_ref.tensor(out)
        if not tensor.is_floating_point():
            raise GEHTypeError(
                f"layer={self.name!r} returns {tensor.dtype}, which has no derivatives here; take another."
            )
        if tensor.ndim < 2 or len(tensor) != len(rows):
            raise GEHRuntimeError(
                f"layer={self.name!r} returns shape {tuple(tensor.shape)} for {len(rows)} rows; the first dimension "
                "must be the rows of the batch (batch_first=True in recurrent and attention layers; inputs[None] for a "
                "single image)."
            )
        return tensor


def _needs_layout(units: Units | None) -> bool:
    """Return whether ``units`` leave open which dimension of a layer holds its channels."""
    if isinstance(units, Subset):
        return _needs_layout(units.of)
    return units is None or (isinstance(units, Channels) and units.dim is None)
