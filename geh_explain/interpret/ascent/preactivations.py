"""Activations of units as a differentiable function of inputs, optionally before the activation function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.rows import Rows
from geh_explain.interpret.responses import reduce_activations
from geh_explain.model.cut import Cut

#: Elementwise functions that are flat, or nearly flat, on at least one side of a threshold.
_ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "prelu", "rrelu", "elu", "celu", "selu", "threshold"),
    *("gelu", "silu", "mish", "softplus", "logsigmoid", "sigmoid", "tanh", "softsign"),
    *("hardtanh", "hardsigmoid", "hardswish"),
)


def unit_values(cut: Cut, inputs: Tensor, reduce: str, preactivation: bool) -> Tensor:
    """Return the units' activations (n, D), differentiable in the inputs.

    Parameters
    ----------
    cut
        The model cut at the layer of the units.
    inputs
        Inputs ``(n, *shape)``.
    reduce
        ``"max"`` or ``"mean"`` over the numbers that belong to one unit.
    preactivation
        If the layer ends in an activation function, return the values before it: a ReLU has no gradient where it
        is 0, so ascent could not start there.
    """
    if not preactivation:
        return reduce_activations(cut, cut.activations_with_grad(as_rows(inputs)), reduce).values
    with PreactivationRecorder() as recorder:
        activations = cut.activations_with_grad(as_rows(inputs))
    return reduce_activations(cut, recorder.preactivation(activations), reduce).values


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
