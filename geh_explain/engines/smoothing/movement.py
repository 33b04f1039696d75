"""How far the inputs of kinked calls move while the units shift by one step.

A shift t = size sqrt(2 / D) (s_1 e_1, ..., s_D e_D) with random signs e moves an entry z by dz with ::

    E[dz^2] = 2 size^2 mean over units i of (s_i dz / du_i)^2,

the squared bandwidth of :class:`~geh_explain.engines.smoothing.sharpness.Step`. Signs differ from row to row, so that
the mean over 64 rows is close to the expectation. For up to 64 units the signs are rows of a Hadamard matrix, whose
columns are orthogonal: the mean is then exact where all rows have the same derivatives. The movements are those of the
original network, between t and -t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.rows import Rows
from geh_explain.engines.smoothing.pooling import pool_windows
from geh_explain.engines.smoothing.view import KinkedCallView
from geh_explain.model.cut import Cut

#: Functions that compare two tensors: their difference is what meets the kink.
_COMPARISONS = ("maximum", "minimum", "fmax", "fmin", "max", "min")
#: Rows times shifts whose mean is taken, at least; the order of a Hadamard matrix.
_SAMPLES = 64


def entering_values(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Return a copy of what meets the kink of a call: its input, or the difference of the two tensors it compares."""
    x = args[0] if args else kwargs["input"]
    other = (args[1] if len(args) > 1 else kwargs.get("other")) if name in _COMPARISONS else None
    # A copy, as the call may be in place.
    return plain_values(x - other if isinstance(other, Tensor) else x).clone()


def plain_values(x: Tensor) -> Tensor:
    """Return the values of a tensor, also of one inside the model's own ``vmap`` or ``grad``."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x.detach()


class _FirstDimensions(KinkedCallView):
    """Records the length of the first dimension of what enters each kinked call, and changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    def handle_kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one kinked call, unchanged."""
        entering = entering_values(name, args, kwargs)
        self.lengths.append(len(entering) if entering.ndim else 0)
        return func(*args, **kwargs)


def rows_come_first(cut: Cut, rows: Rows) -> list[bool]:
    """Return for each kinked call whether the first dimension of what enters it is that of the rows.

    It has as many entries as rows for two numbers of rows. Positions of a sequence, say, may be as many as the rows.
    """
    lengths = []
    for some in (rows[:1], rows[:2] if len(rows) > 1 else rows.repeat(2)):
        view = _FirstDimensions()
        with cut.viewed(view):
            cut.all_outputs(some, cut.zeros(some))
        lengths.append(view.lengths)
    return [one == 1 and two == 2 for one, two in zip(*lengths, strict=False)]


class KinkMovements(KinkedCallView):
    """Sums the squared movements of what enters each kinked call, and changes nothing.

    Forward passes come in pairs, with the units shifted by t and by -t.

    Parameters
    ----------
    n_calls
        Number of kinked calls of a forward pass.
    rows_first
        Whether the first dimension of what enters is that of the rows, for the calls for which it is known.
    """

    def __init__(self, n_calls: int, rows_first: Sequence[bool] = ()) -> None:
        super().__init__()
        self._rows_first = tuple(rows_first)
        self._n_rows = 0
        self._before: list[Tensor] = []
        self._is_second = False
        #: Sum over rows of squared movements of each call: for each entry of a row, or one number; and their count.
        self._squares: list[Tensor | None] = [None] * n_calls
        self._counts = [0] * n_calls
        #: Dtype of what enters each call.
        self.dtypes: dict[int, torch.dtype] = {}

    def measure(self, cut: Cut, rows: Rows, shifts: Tensor) -> None:
        """Add the movements of ``rows`` between the shifts t (n, D) and -t."""
        self._n_rows, self._before = len(rows), []
        with cut.viewed(self):
            for t, self._is_second in ((shifts, False), (-shifts, True)):
                cut.all_outputs(rows, t)
        self._before = []

    def handle_kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one kinked call, unchanged, and add its movement in the second pass of a pair."""
        entering = entering_values(name, args, kwargs)
        out = func(*args, **kwargs)
        number = self.n_calls - 1
        if not self._is_second:
            self._before.append(entering)
        # Rows that take another path may make other calls than were surveyed.
        elif number < min(len(self._before), len(self._squares)) and entering.shape == self._before[number].shape:
            # In double precision, as squares of small or large numbers have no value in others.
            self.dtypes[number] = entering.dtype
            half = (self._before[number].double() - entering.double()) / 2
            self._add(number, _squared_movement(name, half.nan_to_num(0.0, 0.0, 0.0), out, args, kwargs))
        return out

    def _add(self, number: int, squares: Tensor) -> None:
        """Add squared movements: (n, ...) of each entry, else their mean."""
        rows_first = number < len(self._rows_first) and self._rows_first[number]
        by_entry = rows_first and squares.ndim > 1 and len(squares) == self._n_rows
        total = squares.sum(dim=0) if by_entry else self._n_rows * squares.mean()
        before = self._squares[number]
        if before is not None and before.shape != total.shape:
            # Rows of different sizes have no common entries.
            before, total = before.mean(), total.mean()
        self._squares[number] = total if before is None else before + total
        self._counts[number] += self._n_rows

    def squared_bandwidth(self, number: int) -> Tensor | None:
        """Return the mean squared movement of a call: per entry ``(1, *shape)``, or one number; None if it is 0.

        It is in double precision; ``dtypes`` has that of what enters.
        """
        total = self._squares[number]
        if total is None or not bool((total > 0).any()):
            return None
        mean = total / self._counts[number]
        return mean[None] if mean.ndim else mean


def _squared_movement(name: str, half: Tensor, out: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Return the squared movement of what decides at the kink.

    That is the input of an elementwise function. A maximum over several entries is decided by their differences: twice
    the variance of their movements, as one number.
    """
    if name.startswith("max_pool"):
        dimensions = int(name.removesuffix("_with_indices").removesuffix("d")[-1])
        options = {key: value for key, value in kwargs.items() if key not in ("input", "return_indices", "ceil_mode")}
        like = out[0] if isinstance(out, tuple) else out
        windows = pool_windows(dimensions, half, plain_values(like), (args[1:5], options))
        return _squared_difference(windows, 0)
    if name.startswith("adaptive_max_pool"):
        dimensions = int(name.removesuffix("_with_indices").removesuffix("d")[-1])
        return _squared_difference(half.flatten(-dimensions), -1)
    if name in ("amax", "amin", "max", "min") and not compares_tensors(args, kwargs):
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        return _squared_difference(half, tuple(range(1, half.ndim)) if dim is None or dim == () else dim)
    return half.square()


def _squared_difference(x: Tensor, dims: Any) -> Tensor:
    """Return the mean squared difference of two entries along ``dims``: twice their variance; 0 for a single entry.

    >>> _squared_difference(torch.tensor([[1.0, 4.0]]), 1)
    tensor(9.)
    """
    return 2 * x.var(dim=dims).mean() if x.numel() > x.sum(dim=dims).numel() else x.new_zeros(())


def compares_tensors(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether torch.max or torch.min is called on two tensors."""
    return isinstance(kwargs.get("other"), Tensor) or (len(args) > 1 and isinstance(args[1], Tensor))


def measure_movements(cut: Cut, parts: list[Rows], std: Floats, size: float, n_calls: int) -> KinkMovements:
    """Return the movements of ``n_calls`` kinked calls while the units shift by one step.

    Parameters
    ----------
    cut
        The model as a function of the units' shifts.
    parts
        Some rows, a few at a time.
    std
        Standard deviations (D,) of the units; units with 0 do not move.
    size
        Length of a step, in standard deviations.
    n_calls
        Number of kinked calls of a forward pass.
    """
    n_moving = int((std > 0).sum())
    if not n_moving:
        return KinkMovements(n_calls)
    movements = KinkMovements(n_calls, rows_come_first(cut, parts[0]))
    n_rows = sum(len(rows) for rows in parts)
    n_shifts = -(-_SAMPLES // n_rows)
    scale = size * math.sqrt(2 / n_moving) * std
    signs = _signs_by_row(cut, parts, n_shifts)
    start = 0
    for rows in parts:
        for shift in range(n_shifts):
            t = torch.as_tensor(signs[start : start + len(rows), shift] * scale, dtype=cut.dtype, device=cut.device)
            movements.measure(cut, rows, t)
        start += len(rows)
    return movements


def _signs_by_row(cut: Cut, parts: list[Rows], n_shifts: int) -> Floats:
    """Return signs (n, n_shifts, D) for all rows, which go with the rows whatever their order is."""
    generator = np.random.default_rng(0)
    values = np.concatenate([cut.units.values(cut.activations(rows)).double().cpu().numpy() for rows in parts])
    n_rows, n_units = values.shape
    order = np.argsort(values @ generator.standard_normal(n_units), kind="stable")
    signs = np.empty((n_rows, n_shifts, n_units))
    signs[order] = _sign_vectors(n_rows * n_shifts, n_units, generator).reshape(signs.shape)
    return signs


def _sign_vectors(count: int, n_units: int, generator: np.random.Generator) -> Floats:
    """Return vectors (count, D) of 1 and -1, whose columns are orthogonal for up to 64 units and multiples of 64."""
    if n_units > _SAMPLES:
        return np.asarray(generator.choice([-1.0, 1.0], size=(count, n_units)))
    from scipy.linalg import hadamard

    rows, columns = generator.permutation(_SAMPLES), generator.permutation(_SAMPLES)[:n_units]
    return np.asarray(hadamard(_SAMPLES)[rows][np.arange(count) % _SAMPLES][:, columns].astype(float))
