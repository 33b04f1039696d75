"""Activations of units as a differentiable function of inputs, before the activation function if there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHError
from geh_explain.interpret.responses import reduce_activations
from geh_explain.model.cut import Cut

#: Elementwise functions that are flat, or nearly flat, on at least one side of a threshold.
_ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "prelu", "rrelu", "elu", "celu", "selu", "threshold"),
    *("gelu", "silu", "mish", "softplus", "logsigmoid", "sigmoid", "tanh", "softsign"),
    *("hardtanh", "hardsigmoid", "hardswish"),
)

#: Images with fewer pixels are too small for the layout of memory to matter.
_MIN_PIXELS = 64 * 64


class UnitValues:
    """Activations (n, D) of all units for inputs ``(n, *shape)``, differentiable in the inputs.

    The part of the model above the layer does not run.

    Parameters
    ----------
    cut
        The model cut at the layer of the units.
    reduce
        ``"max"`` or ``"mean"`` over the numbers that belong to one unit.
    preactivation
        If the layer ends in an activation function, return the values before it: a ReLU has no gradient where it
        is 0, so ascent could not start there.
    template
        A tensor of the shape, dtype and device of one input, on which the model is tried.
    """

    def __init__(self, cut: Cut, reduce: str, preactivation: bool, template: Tensor) -> None:
        self._cut = cut
        self._reduce = reduce
        self._layout = torch.contiguous_format
        self._is_recorded = False
        trial = template.expand(2, *template.shape)
        with torch.no_grad():
            # Recording copies the inputs of all activation functions; it is left out where the layer ends in none.
            self._is_recorded = preactivation and self._ends_in_activation(trial)
            if self._runs_channels_last(trial):
                self._layout = torch.channels_last

    def __call__(self, inputs: Tensor) -> Tensor:
        inputs = inputs.contiguous(memory_format=self._layout)
        return reduce_activations(self._cut, self._layer_output(inputs), self._reduce).values

    def _layer_output(self, inputs: Tensor) -> Tensor:
        if not self._is_recorded:
            return self._cut.activations_with_grad(as_rows(inputs))
        with PreactivationRecorder() as recorder:
            activations = self._cut.activations_with_grad(as_rows(inputs))
        before: Tensor = recorder.preactivation(activations)
        return before

    def _ends_in_activation(self, trial: Tensor) -> bool:
        with PreactivationRecorder() as recorder:
            activations = self._cut.activations_with_grad(as_rows(trial))
        return recorder.preactivation(activations) is not activations

    def _runs_channels_last(self, trial: Tensor) -> bool:
        """Whether the model takes large images in the layout in which convolutions on CPUs are up to twice as fast."""
        if trial.ndim != 4 or trial.shape[1] == 1 or trial[0, 0].numel() < _MIN_PIXELS:
            return False
        try:
            output = self._layer_output(trial.contiguous(memory_format=torch.channels_last))
        except (GEHError, RuntimeError):
            # Models that call ``view`` on feature maps need contiguous ones.
            return False
        return torch.allclose(output, self._layer_output(trial), rtol=1e-3, atol=1e-5)


def as_rows(inputs: Tensor) -> Rows:
    """Return inputs ``(n, *shape)`` as rows of a model without further arguments and without a target."""
    return Rows((inputs,), ForwardArgs.of(None, (), len(inputs)))


class PreactivationRecorder(TorchFunctionMode):
    """Context that records input and output of all activation functions in a forward pass.

    It intercepts torch functions rather than modules, so that functional activations (``F.relu``, ``torch.relu_``) are
    recorded too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._records: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # In-place variants end in an underscore: relu_ is an activation like relu.
        name = getattr(func, "__name__", "").strip("_")
        if name not in _ACTIVATIONS or not args or not isinstance(args[0], Tensor):
            return func(*args, **(kwargs or {}))
        # An in-place activation overwrites its input, so a copy is recorded.
        before = args[0].clone()
        after = func(*args, **(kwargs or {}))
        self._records.append((after, before))
        return after

    def preactivation(self, output: Tensor) -> Tensor:
        """Return the input of the activation function that returned ``output``, or ``output`` if none did."""
        return next((before for after, before in reversed(self._records) if after is output), output)
