"""Borrow a model: find the layer, cut there, and hand the model back untouched."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError
from geh_explain.outputs import Output, read, select
from geh_explain.points import Rows
from geh_explain.units import Units, default_units


class CallableModel(nn.Module):
    """A plain callable with the manners of a module, so that the rest of the house sees modules only."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def as_module(model: Any) -> nn.Module:
    """Return ``model`` if it is a module, else a module that calls it."""
    if isinstance(model, nn.Module):
        return model
    owner = getattr(model, "__self__", None)
    if isinstance(owner, nn.Module) and getattr(model, "__name__", "") in ("forward", "__call__"):
        return owner
    if callable(model) and not isinstance(model, type):
        return CallableModel(model)
    raise GEHTypeError(
        f"model={model!r} is neither a torch.nn.Module nor a callable; pass the trained network"
        + (" (an instance, not the class)." if isinstance(model, type) else ".")
    )


def find_layer(model: nn.Module, layer: str | nn.Module | None) -> tuple[str, nn.Module | None]:
    """Return the dotted name and the module of ``layer``; ("", None) stands for the inputs."""
    if layer is None:
        return "", None
    if isinstance(model, CallableModel):
        raise GEHTypeError(
            f"layer={layer!r} needs a torch.nn.Module, but model is a plain callable, which has no layers; pass the "
            "module itself and put what the callable does into output=."
        )
    modules = dict(model.named_modules())
    if isinstance(layer, nn.Module):
        for name, module in modules.items():
            if module is layer:
                return name or "(model)", module
        raise GEHValueError(
            f"layer={type(layer).__name__}(...) is not part of the model; pass one of its own modules or a dotted name."
        )
    if not isinstance(layer, str):
        raise GEHTypeError(f"layer={layer!r} is a {type(layer).__name__}; pass a dotted name or a module.")
    if layer in modules and layer:
        return layer, modules[layer]
    names = [name for name in modules if name]
    close = difflib.get_close_matches(layer, names, n=3, cutoff=0.5) or names[:8]
    raise GEHValueError(
        f"layer={layer!r} is not in the model; "
        + (f"did you mean {' or '.join(map(repr, close))}?" if close else "it has no named layers.")
        + " dict(model.named_modules()) lists them all."
    )


def device_and_dtype(model: nn.Module) -> tuple[torch.device | None, torch.dtype | None]:
    """Return where the model's first floating-point parameter or buffer lives, and its precision."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.is_inference() for tensor in tensors):
        raise GEHRuntimeError(
            "model: some of its parameters or buffers were made under torch.inference_mode() and can never be "
            "differentiated; build or load the model outside of it."
        )
    return next(((tensor.device, tensor.dtype) for tensor in tensors if tensor.is_floating_point()), (None, None))


@contextmanager
def borrow(model: nn.Module) -> Iterator[None]:
    """Hold the model in eval mode, and give it and the global generators back as they were.

    Inside, gradients are on, whatever the caller's mode, and attention uses kernels that have second
    derivatives.
    """
    modes = [(module, module.training) for module in model.modules()]
    wants_grad = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    tables = [(module, dict(module._buffers)) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    generators = _generator_states()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        for module, _ in modes:
            module.training = False
        with torch.inference_mode(False), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for module, training in modes:
            module.training = training
        for parameter, requires_grad in wants_grad:
            if parameter.requires_grad != requires_grad:
                parameter.requires_grad_(requires_grad)
        for module, table in tables:
            module._buffers.clear()
            module._buffers.update(table)
        with torch.no_grad():
            for buffer, value in buffers:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
        _restore_generators(generators)


def _generator_states() -> tuple[Any, ...]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    return torch.get_rng_state(), cuda, np.random.get_state(), random.getstate()


def _restore_generators(states: tuple[Any, ...]) -> None:
    cpu, cuda, of_numpy, of_python = states
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
    np.random.set_state(of_numpy)
    random.setstate(of_python)


class View(TorchFunctionMode):
    """Sees every torch call above the cut, and may answer it in torch's place."""

    def __init__(self) -> None:
        super().__init__()
        self.live = False

    def begin(self) -> None:
        """Start a forward pass, below the cut."""
        self.live = False

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Answer one call."""
        return func(*args, **kwargs)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.handle(func, args, kwargs or {}) if self.live else func(*args, **(kwargs or {}))


class _Reached(BaseException):
    """Ends a forward pass at the layer. Not an Exception, so that no model swallows it."""


class Cut:
    """A borrowed model seen from one layer: one number per row, as a function of the units' shifts.

    At the inputs (``layer`` None) several input tensors count as one, flattened and side by side.
    """

    def __init__(
        self,
        model: nn.Module,
        layer: tuple[str, nn.Module | None],
        units: Units | None,
        output: Output,
        rows: Rows,
        columns: list[str] | None = None,
    ) -> None:
        self.model, self.output = model, output
        self.name, self.layer = layer
        seen = self.activations(rows)
        self.shape = tuple(seen.shape[1:])
        self.device, self.dtype = seen.device, seen.dtype
        self.units = (units or default_units(self.shape, self.layer)).bind(self.shape, self.layer, columns)
        self.count = self.units.count(self.shape)
        self.view: View | None = None

    @property
    def place(self) -> str:
        """Where the cut is, in words."""
        return "the inputs" if self.layer is None else f"layer {self.name!r}"

    def zeros(self, rows: Rows) -> Tensor:
        """Return the shifts (n, D) at which the Hessian is taken."""
        return torch.zeros(len(rows), self.count, device=self.device, dtype=self.dtype)

    def activations(self, rows: Rows) -> Tensor:
        """Return what the layer puts out (n, *shape), without gradients and without the upper half."""
        if self.layer is None:
            inputs = rows.inputs
            return inputs[0] if len(inputs) == 1 else torch.cat([x.flatten(1) for x in inputs], dim=1)
        found: list[Tensor] = []

        def stop(module: nn.Module, args: Any, out: Any) -> None:
            found.append(self._tensor(out, rows))
            raise _Reached

        handle = self.layer.register_forward_hook(stop)
        try:
            with torch.no_grad():
                self._call(rows)
        except _Reached:
            return found[0]
        finally:
            handle.remove()
        raise GEHRuntimeError(
            f"layer={self.name!r} was never reached in the model's forward; choose a layer that these inputs pass "
            "through (auxiliary heads and unused modules are skipped in eval mode)."
        )

    def outputs(self, rows: Rows, t: Tensor | None = None) -> Tensor:
        """Return the explained number of each row (n,), with the units shifted by ``t`` (n, D).

        Without ``t`` this is the plain model. With it, the part above the layer is seen through ``view``, if
        there is one, and is differentiable if ``t`` is; the part below never is.
        """
        value = select(self.all_outputs(rows, t), rows.target)
        if not bool(torch.isfinite(value).all()):
            row = rows.start + int((~torch.isfinite(value)).nonzero()[0])
            raise GEHRuntimeError(
                f"the model's output is NaN or infinite (the first time at row {row} of the inputs); look at "
                "model(inputs) there, and leave such rows out."
            )
        return value

    def all_outputs(self, rows: Rows, t: Tensor | None = None) -> Tensor:
        """Return all outputs of each row (n, ...), from which the target selects one."""
        if t is None:
            return read(self._call(rows), self.output, len(rows))
        view = self.view or View()
        view.begin()
        with view, torch.set_grad_enabled(t.requires_grad):
            if self.layer is None:
                view.live = True
                raw = self._call(rows, self._shifted(rows.inputs, t))
            else:
                raw = self._run_above(rows, t, view)
            return read(raw, self.output, len(rows))

    def _call(self, rows: Rows, inputs: tuple[Tensor, ...] | None = None) -> Any:
        """Call the model on copies: one that works in place must not change the user's data."""
        extra = (value.clone() if isinstance(value, Tensor) else value for value in rows.extra)
        return self.model(*(inputs or (x.clone() for x in rows.inputs)), *extra)

    def _shifted(self, inputs: tuple[Tensor, ...], t: Tensor) -> tuple[Tensor, ...]:
        shift = self.units.shift(t, self.shape)
        if len(inputs) == 1:
            return (inputs[0] + shift,)
        parts = torch.split(shift, [x[0].numel() for x in inputs], dim=1)
        return tuple(x + part.reshape(x.shape) for x, part in zip(inputs, parts, strict=True))

    def _run_above(self, rows: Rows, t: Tensor, view: View) -> Any:
        assert self.layer is not None

        def enter(module: nn.Module, args: Any, out: Any) -> Tensor:
            activations = self._tensor(out, rows)
            torch.set_grad_enabled(t.requires_grad)
            view.live = True
            return activations + self.units.shift(t, self.shape)

        handle = self.layer.register_forward_hook(enter)
        try:
            with torch.no_grad():
                return self._call(rows)
        finally:
            handle.remove()

    def _tensor(self, out: Any, rows: Rows) -> Tensor:
        """Check that the layer's output is one floating-point tensor with a row per row."""
        if not isinstance(out, Tensor):
            raise GEHTypeError(
                f"layer={self.name!r} puts out a {type(out).__name__}, not one tensor; choose a layer inside or after "
                "it that does."
            )
        if not out.is_floating_point():
            raise GEHTypeError(f"layer={self.name!r} puts out {out.dtype}, which has no derivatives; choose another.")
        if out.ndim < 2 or len(out) != len(rows):
            raise GEHRuntimeError(
                f"layer={self.name!r} puts out shape {tuple(out.shape)} for {len(rows)} rows; the first dimension must "
                "be the rows of the batch (batch_first=True in recurrent and attention layers)."
            )
        return out

    def check_rows(self, rows: Rows) -> None:
        """Refuse a model that is random or mixes rows: then a row has no Hessian of its own."""
        with torch.no_grad():
            first, again, alone = self.outputs(rows), self.outputs(rows), self.outputs(rows[:1])
            backwards = self.outputs(rows.backwards()).flip(0)
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
