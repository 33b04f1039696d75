"""Several targets of one call: all outputs of the model, or some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from geh_explain.data.points import DerivedPoints, Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHTypeError, GEHValueError

#: The word for all outputs.
ALL = "all"
#: What ``targets`` takes, for error messages.
_WANTED = "give a list of outputs, such as targets=[0, 3, 7], or names and outputs, targets={'cat': 3, 'dog': 5}"

#: A target of all rows, and its name in a result.
SingleTarget = int | tuple[int, ...]


@dataclass(frozen=True)
class TargetChoice:
    """The targets that a call asks for.

    Attributes
    ----------
    targets
        The outputs by name, in order, such as ``{3: 3, 5: 5}`` or ``{"cat": 3, "dog": 5}``; None for all outputs.

    Examples
    --------
    >>> TargetChoice.of(None, [0, 3]).targets, TargetChoice.of("all", None).targets, TargetChoice.of(2, None)
    ({0: 0, 3: 3}, None, None)
    """

    targets: dict[Any, SingleTarget] | None

    @classmethod
    def of(cls, target: Any, targets: Any, *, labels: bool = False) -> TargetChoice | None:
        """Return what the arguments ``target`` and ``targets`` ask for; None for a single target.

        ``labels``: the classes of the model have labels, so that a text may be one of them.
        """
        if targets is None:
            if isinstance(target, str) and target != ALL and not labels:
                raise GEHTypeError(f"target={target!r} is unknown; give an int, a tuple, one per row, or 'all'.")
            return cls(None) if isinstance(target, str) and target == ALL else None
        if target is not None:
            raise GEHValueError(f"target={target!r} and targets={targets!r} are both given; give one of them.")
        if isinstance(targets, str) and targets == ALL:
            return cls(None)
        return cls(_by_name(targets))

    def resolve(self, outputs: Tensor) -> dict[Any, SingleTarget]:
        """Return the targets by name, out of all ``outputs`` (n, ...) of a few rows."""
        shape = tuple(outputs.shape[1:])
        if self.targets is not None:
            # Negative numbers count from the end.
            given = self.targets.values()
            places = {t + shape[0] if isinstance(t, int) and t < 0 and shape else t for t in given}
            if len(places) < len(self.targets):
                raise GEHValueError(f"targets={list(given)} has an output twice; {_WANTED}.")
            return self.targets
        if len(shape) != 1 or shape[0] < 2:
            way = "leave target=None" if outputs[0].numel() == 1 else "give some of them, targets=[(0, 0), (0, 1)]"
            raise GEHValueError(
                f"target='all' is for a model with several outputs per row, (rows, classes); one row of the output has "
                f"shape {shape}: {way}."
            )
        return {number: number for number in range(shape[0])}


def _by_name(targets: Any) -> dict[Any, SingleTarget]:
    """Return the targets of a list or mapping by name."""
    if isinstance(targets, (Tensor, np.ndarray)) and targets.ndim == 1:
        targets = targets.tolist()
    if not isinstance(targets, (Mapping, Sequence, range)) or isinstance(targets, (str, bytes)):
        raise GEHTypeError(f"targets={targets!r}: {_WANTED}, or target='all'.")
    if not len(targets):
        raise GEHValueError(f"targets={targets!r} is empty; {_WANTED}.")
    entries = list(targets.items()) if isinstance(targets, Mapping) else [(entry, entry) for entry in targets]
    found: dict[Any, SingleTarget] = {}
    for name, target in entries:
        output = _as_target(target)
        key = output if not isinstance(targets, Mapping) else name
        if not isinstance(key, (str, int, tuple)) or key in found or output in found.values():
            raise GEHValueError(f"targets has the entry {name!r} twice, or a name that is no text; {_WANTED}.")
        found[key] = output
    return found


def _as_target(target: Any) -> SingleTarget:
    """Return one target as an int or a tuple of ints."""
    numbers = target if isinstance(target, tuple) else (target,)
    if not numbers or any(isinstance(k, bool) or not isinstance(k, (int, np.integer)) for k in numbers):
        raise GEHTypeError(f"targets has the entry {target!r}, which is no output of the model; {_WANTED}.")
    return tuple(int(k) for k in target) if isinstance(target, tuple) else int(target)


class TargetedPoints(DerivedPoints):
    """Points with another target, the same for all rows."""

    def __init__(self, points: Points, target: SingleTarget) -> None:
        super().__init__(points)
        self._target = target

    def batches(self) -> Iterator[Rows]:
        """Yield the rows, with the other target."""
        for rows in self._points.batches():
            yield rows.with_target(self._target)
