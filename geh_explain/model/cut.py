"""The model seen from one layer: one number per row, as a function of the units' shifts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain.data.rows import Rows
from geh_explain.data.targets import select
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError
from geh_explain.model.layers import LayerRef
from geh_explain.model.outputs import Output, read_output
from geh_explain.model.view import View
from geh_explain.units.base import Units
from geh_explain.units.channels import Channels
from geh_explain.units.default import default_units
from geh_explain.units.layout import layout_reference
from geh_explain.units.subset import Subset


def _guesses_layout(units: Units | None) -> bool:
    """Tell whether ``units`` leave it open which dimension of a layer holds its channels."""
    if isinstance(units, Subset):
        return _guesses_layout(units.of)
    return units is None or (isinstance(units, Channels) and units.dim is None)


def _is_text(name: str) -> bool:
    """Tell whether a name can be written to a file."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


class _Reached(BaseException):
    """Ends a forward pass at the layer. Not an Exception, so that no model swallows it."""


class Cut:
    """A borrowed model seen from one layer: one number per row, as a function of the units' shifts.

    At the inputs several input tensors count as one, flattened and side by side.
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
        seen = self.activations(rows)
        if layer_ref.module is not None and len(rows) > 1:
            self.activations(rows[:1])  # a dimension of tokens may be as long as the batch, but never as it shrinks
        self.shape = tuple(seen.shape[1:])
        self.device, self.dtype = seen.device, seen.dtype
        self.layout = layout_reference(model, layer_ref.module, self.shape)
        #: Whether nothing told which dimension of the layer holds its channels.
        self.guessed = (
            len(self.shape) > 1 and layer_ref.module is not None and self.layout is None and _guesses_layout(units)
        )
        like = self.layout or layer_ref.module
        self.units = (units or default_units(self.shape, layer_ref.module)).bind(self.shape, like, columns)
        self.n_units = self.units.count(self.shape)
        self._columns = columns
        #: Answers the torch calls above the cut; set it with :meth:`viewed`.
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
        """Where the cut is, in words."""
        return self.layer_ref.place

    def unit_names(self, names: Any = None) -> list[str]:
        """Return one name per unit: those given, else the inputs' columns or numbers at the layer."""
        if names is None:
            given = self.units.names(self.shape, self.name or "x", self._columns)
        elif isinstance(names, str) or not isinstance(names, Iterable):
            raise GEHTypeError(f"names={names!r} is not a list; give one name for each of the {self.n_units} units.")
        else:
            given = [str(name) for name in names]
        if len(given) != self.n_units:
            raise GEHValueError(
                f"names has {len(given)} entries for {self.n_units} units of {self.place}; give one for each."
            )
        twice = sorted(name for name, count in Counter(given).items() if count > 1)
        if twice:
            raise GEHValueError(f"names: {twice[:5]} are there twice; pass names= that tell units apart.")
        broken = [name for name in given if not _is_text(name)]
        if broken:
            raise GEHValueError(f"names: {broken[:5]} hold half of a surrogate pair, which is no text.")
        return given

    def zeros(self, rows: Rows) -> Tensor:
        """Return the shifts (n, D) at which the Hessian is taken."""
        return torch.zeros(len(rows), self.n_units, device=self.device, dtype=self.dtype)

    @contextmanager
    def viewed(self, view: View) -> Iterator[None]:
        """Let ``view`` answer the torch calls above the cut within the context."""
        before = self.view
        self.view = view
        try:
            yield
        finally:
            self.view = before

    @torch.no_grad()
    def activations(self, rows: Rows) -> Tensor:
        """Return what the layer puts out (n, *shape), without gradients and without the upper half."""
        return self.reached(rows)

    def reached(self, rows: Rows) -> Tensor:
        """Return the same, with gradients where the inputs want them."""
        if self.layer is None:
            inputs = rows.inputs
            return inputs[0] if len(inputs) == 1 else torch.cat([x.flatten(1) for x in inputs], dim=1)
        found: list[Tensor] = []
        calls = 0

        def stop(module: nn.Module, args: Any, out: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > (self.layer_ref.call or 0):
                found.append(self._tensor(out, rows))
                raise _Reached

        handle = self.layer.register_forward_hook(stop)
        try:
            self._call(rows)
        except _Reached:
            return found[0]
        finally:
            handle.remove()
        if calls:
            raise GEHRuntimeError(
                f"layer={self.name!r}, call={self.layer_ref.call}: it is called {calls} time(s) in a forward; take 0 to "
                f"{calls - 1}."
            )
        parent = self.name.rpartition(".")[0]
        if parent and isinstance(self.model.get_submodule(parent), nn.MultiheadAttention):
            raise GEHRuntimeError(
                f"layer={self.name!r} was never reached: nn.MultiheadAttention uses its weights without calling it; "
                f"take layer={parent!r}, whose output is the same."
            )
        raise GEHRuntimeError(
            f"layer={self.name!r} was never reached in the model's forward; choose a layer that these inputs pass "
            "through (auxiliary heads and unused modules are skipped in eval mode)."
        )

    def outputs(self, rows: Rows, t: Tensor | None = None) -> Tensor:
        """Return the explained number of each row (n,), with the units shifted by ``t`` (n, D).

        Without ``t`` this is the plain model. With it, the part above the layer is seen through ``view``, if
        there is one, and is differentiable if ``t`` is; the part below never is.
        """
        return self.selected(self.all_outputs(rows, t), rows)

    def selected(self, outputs: Tensor, rows: Rows) -> Tensor:
        """Return the explained number of each row (n,) out of all ``outputs`` (n, ...); it must be finite."""
        value = select(outputs, rows.target)
        if not bool(torch.isfinite(value).all()):
            row = rows.index_of(int((~torch.isfinite(value)).nonzero()[0]))
            raise GEHRuntimeError(
                f"the model's output is NaN or infinite (the first time at row {row} of the inputs); look at "
                "model(inputs) there, and leave such rows out."
            )
        return value

    def traced_outputs(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the layer's output (n, *shape) and all outputs (n, ...) of one forward pass, without gradients.

        The part above the layer is seen through ``view``.
        """
        if self.layer is None:
            return self.activations(rows), self.all_outputs(rows, self.zeros(rows))
        trace: list[Tensor] = []
        outputs = self.all_outputs(rows, self.zeros(rows), trace)
        return trace[0], outputs

    def all_outputs(self, rows: Rows, t: Tensor | None = None, trace: list[Tensor] | None = None) -> Tensor:
        """Return all outputs of each row (n, ...), from which the target selects one.

        ``trace`` collects what the layer outputs in each of its calls, before the shift.
        """
        if t is None:
            return read_output(self._call(rows), self.output, len(rows))
        view = self.view
        view.begin()
        with view, torch.set_grad_enabled(t.requires_grad):
            if self.layer is None:
                shifted = self._shifted(rows.inputs, t)
                view.enter(rows.inputs, shifted)
                raw = self._call(rows, shifted)
            else:
                raw = self._run_above(rows, t, trace)
            return read_output(raw, self.output, len(rows))

    def _call(self, rows: Rows, inputs: tuple[Tensor, ...] | None = None) -> Any:
        """Call the model on copies: one that works in place must not change the user's data."""
        given = inputs or tuple(x.clone() for x in rows.inputs)
        extra = tuple(value.clone() if isinstance(value, Tensor) else value for value in rows.additional_forward_args)
        names = rows.input_names
        positional = (*(() if names else given), *extra[: len(extra) - len(rows.forward_args.keywords)])
        keywords = dict(
            zip(rows.forward_args.keywords, extra[len(extra) - len(rows.forward_args.keywords) :], strict=True)
        )
        try:
            return self.model(*positional, **dict(zip(names, given, strict=True) if names else ()), **keywords)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise GEHRuntimeError(
                "model: it mixes rows: a batch normalisation computes over the batch. Put the networks inside a "
                "callable into eval mode, and give BatchNorm running statistics."
            ) from error

    def _shifted(self, inputs: tuple[Tensor, ...], t: Tensor) -> tuple[Tensor, ...]:
        shift = self.units.shift(t, self.shape)
        if len(inputs) == 1:
            return (inputs[0] + shift,)
        parts = torch.split(shift, [x[0].numel() for x in inputs], dim=1)
        return tuple(x + part.reshape(x.shape) for x, part in zip(inputs, parts, strict=True))

    def _run_above(self, rows: Rows, t: Tensor, trace: list[Tensor] | None) -> Any:
        assert self.layer is not None
        view = self.view
        calls = 0

        def enter(module: nn.Module, args: Any, out: Any) -> Any:
            nonlocal calls
            calls += 1
            if self.layer_ref.call is not None and calls != self.layer_ref.call + 1:
                return None
            activations = self._tensor(out, rows)
            if tuple(activations.shape[1:]) != self.shape:
                raise GEHRuntimeError(
                    f"layer={self.name!r} puts out {self.shape} and {tuple(activations.shape[1:])} per row in its "
                    f"calls; choose one of them, layer=Layer({self.name!r}, call=0)."
                )
            torch.set_grad_enabled(t.requires_grad)
            view.live = False
            if trace is not None:
                trace.append(activations)
            shifted = activations + self.units.shift(t, self.shape)
            view.enter((activations,), (shifted,))
            return self.layer_ref.replaced(out, shifted)

        handle = self.layer.register_forward_hook(enter)
        try:
            with torch.no_grad():
                return self._call(rows)
        finally:
            handle.remove()
            self.calls = calls

    def _tensor(self, out: Any, rows: Rows) -> Tensor:
        """Check that the layer puts out a floating-point tensor with a row per row."""
        tensor = self.layer_ref.tensor(out)
        if not tensor.is_floating_point():
            raise GEHTypeError(f"layer={self.name!r} puts out {tensor.dtype}, which has no derivatives; take another.")
        if tensor.ndim < 2 or len(tensor) != len(rows):
            raise GEHRuntimeError(
                f"layer={self.name!r} puts out shape {tuple(tensor.shape)} for {len(rows)} rows; the first dimension "
                "must be the rows of the batch (batch_first=True in recurrent and attention layers)."
            )
        return tensor

    def check_rows(self, rows: Rows) -> None:
        """Refuse a model that is random or mixes rows: then a row has no Hessian of its own."""
        with torch.no_grad():
            first, again, alone = self.outputs(rows), self.outputs(rows), self.outputs(rows[:1])
            backwards = self.outputs(rows.flip()).flip(0)
        room = 1e-3 * first.abs() + 1e-5 * first.abs().max() + 10 * torch.finfo(first.dtype).eps
        if bool(((first - again).abs() > room).any()):
            raise GEHRuntimeError(
                "model: the same rows gave different outputs twice, so it is not one function; put the networks inside "
                "a callable into eval mode, or pass posterior=geh_explain.posterior.Stochastic()."
            )
        for others, how in ((alone, "alone"), (backwards, "in a batch in reverse order")):
            apart = (first[: len(others)] - others).abs() > room[: len(others)]
            if bool(apart.any()):
                row = int(apart.nonzero()[0])
                raise GEHRuntimeError(
                    f"model: it mixes rows: row {row} gives {float(first[row]):.6g} in a batch of {len(rows)} and "
                    f"{float(others[row]):.6g} {how}, so it has no Hessian of its own. Remove what computes over the "
                    "batch (batch statistics, softmax or sum over dimension 0, noise per row)."
                )
