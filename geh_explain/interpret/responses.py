"""How strongly the units of a layer respond to inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from geh_explain.data.rows import Rows
from geh_explain.errors import GEHError, GEHRuntimeError, GEHTypeError, GEHValueError, warn
from geh_explain.model.cut import Cut
from geh_explain.model.layers import Layer, find_layer
from geh_explain.units.base import Units
from geh_explain.units.channels import Channels
from geh_explain.units.subset import Subset

#: Functions of each number on its own that grow, and hide how far below their threshold a number is.
_ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "prelu", "rrelu", "elu", "celu", "selu", "threshold"),
    *("gelu", "silu", "mish", "softplus", "logsigmoid", "sigmoid", "tanh", "softsign"),
    *("hardtanh", "hardsigmoid", "hardswish"),
)


@dataclass(frozen=True)
class Responses:
    """What units answer to rows: ``values`` (n, U), and where in their maps (n, U, r), if they are channels."""

    values: Tensor
    places: Tensor | None


def choose_units(units: Any) -> Units | None:
    """Return the unit set that a number, several numbers, a unit set or None (all units) stands for."""
    if units is None or isinstance(units, Units):
        return units
    if isinstance(units, Tensor) and not units.ndim:
        units = units.item()
    if isinstance(units, (int, np.integer)) and not isinstance(units, bool):
        return Subset([int(units)])
    if isinstance(units, (str, Layer)) or not isinstance(units, Iterable):
        raise GEHTypeError(
            f"units={units!r} is not understood; give the number of a unit, a list of numbers, a unit set such as "
            "geh_explain.units.Channels(), or None for all units."
        )
    return Subset(units)  # type: ignore[arg-type]


def cut_at(model: nn.Module, layer: Any, units: Units | None, rows: Rows, argument: str) -> Cut:
    """Cut the model at a layer; ``argument`` is what the user calls the rows on which it is tried."""
    if layer is None:
        raise GEHTypeError("layer=None: what an input responds to is itself; name a hidden layer, such as 'fc2'.")
    try:
        return Cut(model, find_layer(model, layer), units, "raw", rows)
    except GEHError:
        raise
    except Exception as error:
        shapes = ", ".join(str(tuple(x.shape[1:])) for x in rows.inputs)
        raise GEHValueError(
            f"{argument}: the model does not take rows of shape {shapes} ({error}); give them as the model was trained."
        ) from error


def respond(cut: Cut, rows: Rows, reduce: str) -> Responses:
    """Return what the units answer; ``reduce`` ("max" or "mean") is taken over the numbers that one unit moves."""
    return reduced(cut, cut.activations(rows), reduce)


def reduced(cut: Cut, activations: Tensor, reduce: str) -> Responses:
    """Return the units' values in what a layer puts out."""
    members = cut.units.members(activations)
    if members.shape[2] == 1:
        return Responses(members[:, :, 0], None)
    if reduce == "mean":
        inside = torch.isfinite(members)
        return Responses(members.masked_fill(~inside, 0).sum(dim=2) / inside.sum(dim=2), None)
    values, flat = members.max(dim=2)
    shape = map_shape(cut)
    if shape is None:
        return Responses(values, None)
    steps = torch.tensor([math.prod(shape[i + 1 :]) for i in range(len(shape))], device=flat.device)
    sizes = torch.tensor(shape, device=flat.device)
    return Responses(values, flat[..., None] // steps % sizes)


def map_shape(cut: Cut) -> tuple[int, ...] | None:
    """Return the shape of the maps that units are, None if they are no channels."""
    units: Units | None = cut.units
    while isinstance(units, Subset):
        units = units.of
    if not isinstance(units, Channels):
        return None
    axis = units.axis(cut.shape)
    return cut.shape[:axis] + cut.shape[axis + 1 :]


def check_reduce(reduce: str) -> None:
    """Refuse an unknown word."""
    if reduce not in ("max", "mean"):
        raise GEHValueError(f"reduce={reduce!r} is unknown; use 'max' or 'mean'.")


def refuse_not_finite(values: Tensor, rows: Rows, what: str) -> None:
    """Refuse values (n, ...) that are NaN or infinite."""
    if bool(torch.isfinite(values.sum())):  # quicker than asking every number
        return
    bad = ~torch.isfinite(values).reshape(len(values), -1).all(dim=1)
    if bool(bad.any()):
        row = rows.index_of(int(bad.nonzero()[0]))
        raise GEHRuntimeError(f"{what} is NaN or infinite at candidate {row}; look at it there, or leave it out.")


def report_dead(dead: NDArray[np.bool_], names: Sequence[str], what: str) -> None:
    """Say which units nothing changes; if that is all of them, there is nothing to show."""
    if not dead.any():
        return
    named = [name for name, each in zip(names, dead, strict=True) if each]
    words = f"units: {', '.join(named[:8])}{' and others' if len(named) > 8 else ''} {what} (dead, or cut off)"
    if dead.all():
        raise GEHValueError(words + "; choose other units, or the layer before its activation function.")
    warn(words + "; what is shown for them means nothing.")


class BeforeActivation(TorchFunctionMode):
    """Remembers what entered the activation functions of a forward pass.

    A ReLU that is off has no gradient, and all inputs below its threshold look the same to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._entered: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "").strip("_")
        if name not in _ACTIVATIONS or not args or not isinstance(args[0], Tensor):
            return func(*args, **(kwargs or {}))
        before = args[0].clone()  # what is changed in place is lost otherwise
        after = func(*args, **(kwargs or {}))
        self._entered.append((after, before))
        return after

    def of(self, value: Tensor) -> Tensor:
        """Return what entered the activation that put out ``value``, or ``value`` if none did."""
        return next((before for after, before in reversed(self._entered) if after is value), value)
