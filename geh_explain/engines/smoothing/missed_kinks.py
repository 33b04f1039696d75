"""Kinks and jumps that smoothing does not know, found by slopes that jump.

A comparison, a sorted order or a rounded value decides which branch of a function acts. Where the decision changes, the
slope of the network jumps, and no second derivative shows it. On a line x + s v, -1 <= s <= 1, an interval is halved
again and again, and the half is kept in which the slopes g change most. The change in a smooth network shrinks with the
interval; a jump stays as large as it is.

Only some of the units move, together as far as two units by half a standard deviation, and the slopes of the others are
compared: a kink in one unit alone is no interaction, and does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.engines.smoothing.movement import plain_values
from geh_explain.engines.smoothing.sharpness import Step
from geh_explain.model.autograd_graph import custom_functions
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import limited_std
from geh_explain.model.view import View

#: Functions of floating-point numbers with kinks or jumps, or with them for some arguments, that return no integers.
# fmt: off
_KINKED = frozenset((
    "aminmax", "median", "nanmedian", "quantile", "nanquantile", "msort", "norm", "vector_norm", "matrix_norm",
    "cdist", "pdist", "pairwise_distance", "dist", "renorm", "l1_loss", "hinge_embedding_loss", "margin_ranking_loss",
    "triplet_margin_loss", "multi_margin_loss", "cosine_embedding_loss", "round", "floor", "ceil", "trunc", "fix",
    "frac", "sign", "sgn", "heaviside", "fmod", "remainder", "floor_divide", "copysign", "atan2", "angle",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "fractional_max_pool2d", "fractional_max_pool3d", "scatter_reduce",
    "index_reduce", "segment_reduce", "embedding_bag", "grid_sample", "nan_to_num", "logit",
    "fake_quantize_per_tensor_affine",
))
# fmt: on
#: Functions that return integers which do not depend on the values that they are given.
_WITHOUT_VALUES = frozenset(("empty_like", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"))
#: Names of comparisons in torch.
_COMPARISONS = frozenset(("gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "greater_equal", "less_equal"))
#: Lines along which slopes are compared, at least.
_SAMPLES = 64
#: How often an interval is halved, and in how many of the last times a jump hardly shrinks.
_HALVINGS = 14
_LAST_HALVINGS = 4
_JUMP_KEEPS = 0.9
#: Rounding of slopes, in eps of the largest one.
_ROUNDING_EPS = 1000
#: Smallest jump that is reported, relative to the change of a unit's slope, in the mean over all lines ...
_MIN_SHARE = 0.01
#: ... if this slope changes by at least this part of what the slope of another unit does.
_MIN_CHANGE = 1e-3


def decision_name(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> str | None:
    """Return the name of a call whose result may jump or bend as floating-point numbers change; None for others.

    That is a call that turns floating-point numbers into integers or truth values (comparisons, ``argmax``, the indices
    of ``sort``), or one of a list.
    """
    name = getattr(func, "__name__", "").strip("_")
    if name in _KINKED:
        return name
    if name in _WITHOUT_VALUES or not any(_is_integer(part) for part in (out if isinstance(out, tuple) else (out,))):
        return None
    given = (*args, *kwargs.values())
    values = [each for part in given for each in (part if isinstance(part, (tuple, list)) else (part,))]
    if not any(isinstance(value, Tensor) and value.is_floating_point() for value in values):
        return None
    return "comparisons" if name in _COMPARISONS else name


def _is_integer(value: Any) -> bool:
    return isinstance(value, Tensor) and not (value.is_floating_point() or value.is_complex())


class _Decisions(View):
    """Records the calls of :func:`decision_name` in a forward pass that another view executes.

    Attributes
    ----------
    found
        Name and results of each such call.
    """

    def __init__(self, inner: View) -> None:
        super().__init__()
        self._inner = inner
        self.found: list[tuple[str, list[Tensor]]] = []

    def begin(self) -> None:
        super().begin()
        self._inner.begin()
        self.found = []

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        out = self._inner.handle(func, args, kwargs)
        name = decision_name(func, args, kwargs, out)
        if name is not None:
            parts = out if isinstance(out, tuple) else (out,)
            self.found.append((name, [plain_values(part).clone() for part in parts if isinstance(part, Tensor)]))
        return out

    def changed(self, other: list[tuple[str, list[Tensor]]]) -> list[str]:
        """Return the names of the calls that may have decided otherwise than in an ``other`` pass."""
        if [name for name, _ in self.found] != [name for name, _ in other]:
            # Another path through the model.
            return list(dict.fromkeys(name for name, _ in self.found + other))
        pairs = zip(self.found, other, strict=True)
        return list(dict.fromkeys(name for (name, after), (_, before) in pairs if _decided_otherwise(after, before)))


def _decided_otherwise(after: list[Tensor], before: list[Tensor]) -> bool:
    """Return whether integers of two results differ; results without integers may always hide a decision."""
    integers = [(a, b) for a, b in zip(after, before, strict=False) if _is_integer(a)]
    return not integers or any(not torch.equal(a, b) for a, b in integers)


@dataclass(frozen=True)
class MissedKinks:
    """Kinks that second derivatives miss.

    Attributes
    ----------
    functions
        Names of the calls that decide otherwise within a step.
    shares
        For each unit (D,), the size of the largest jump of its slope on a line, relative to the change of the slope;
        both are means over lines.
    """

    functions: list[str]
    shares: Floats


def custom_function_names(cut: Cut, rows: Rows) -> list[str]:
    """Return the classes of the model's own ``autograd.Function``s, whose backward pass may decide unseen."""
    t = cut.zeros(rows).requires_grad_()
    names = (name.removesuffix("Backward") for name, _, _ in custom_functions(cut.outputs(rows, t), t))
    return list(dict.fromkeys(names))


def find_missed_kinks(cut: Cut, points: Points, view: View, custom: list[str]) -> MissedKinks | None:
    """Return the kinks that second derivatives miss at up to 64 points, or None if they hardly matter.

    Parameters
    ----------
    cut, points
        The model as a function of the units' shifts, and all points.
    view
        Smooths the kinks that have a smooth form, as far as a step is long.
    custom
        Names of functions that may have kinks and that no view shows.
    """
    steps, lines = _lines(cut, points.spread)
    functions: dict[str, None] = {}
    jumps, changes = np.zeros(cut.n_units), np.zeros(cut.n_units)
    try:
        with cut.viewed(decisions := _Decisions(view)):
            changed = [[*_changed_decisions(cut, rows, line, decisions), *custom] for rows, line in lines]
            for names, (rows, line) in zip(changed if any(changed) else (), lines, strict=False):
                jump, change = _largest_jumps(cut, rows, line, _HALVINGS if names else 0)
                jumps += (jump.abs() * steps).sum(dim=0).double().cpu().numpy()
                changes += (change.abs() * steps).sum(dim=0).double().cpu().numpy()
                if bool(jump.any()):
                    functions |= dict.fromkeys(names)
    except RuntimeError:
        # The model is not defined at shifted units.
        return None
    # Jumps in opposite directions may leave no change at the ends.
    changes = np.maximum(changes, jumps)
    shares = np.divide(jumps, changes, out=np.zeros_like(jumps), where=changes > _MIN_CHANGE * changes.max(initial=0.0))
    return MissedKinks(list(functions), shares) if shares.max(initial=0.0) > _MIN_SHARE else None


def _lines(cut: Cut, parts: list[Rows]) -> tuple[Tensor, list[tuple[Rows, Tensor]]]:
    """Return the steps (D,) of the units, and half lines v (n, D) for each part of the rows, at least 64 in all.

    A random half of the units moves, with random signs. As in :mod:`~geh_explain.engines.smoothing.movement`, all of
    them together move as far as two units by a step.
    """
    values = np.concatenate([cut.units.values(cut.activations(rows)).double().cpu().numpy() for rows in parts])
    std = limited_std(values.std(axis=0), values)
    steps = std * Step().size * math.sqrt(min(1.0, 4 / max(1, int((std > 0).sum()))))
    generator = np.random.default_rng(0)
    lines: list[tuple[Rows, Tensor]] = []
    for _ in range(-(-_SAMPLES // len(values))):
        signs = generator.choice([-1.0, 1.0], size=values.shape) * (generator.random(values.shape) < 0.5)
        all_lines = torch.as_tensor(signs * steps).to(cut.device, cut.dtype)
        lines.extend(zip(parts, torch.split(all_lines, [len(rows) for rows in parts]), strict=True))
    return torch.as_tensor(steps).to(cut.device, cut.dtype), lines


def _changed_decisions(cut: Cut, rows: Rows, line: Tensor, decisions: _Decisions) -> list[str]:
    """Return the names of the calls that decide otherwise at the two ends of the lines."""
    with torch.no_grad():
        cut.outputs(rows, -line)
        before = decisions.found
        cut.outputs(rows, line)
    return decisions.changed(before)


def _largest_jumps(cut: Cut, rows: Rows, line: Tensor, halvings: int) -> tuple[Tensor, Tensor]:
    """Return the largest jump (n, D) of the slopes on each line, and how they change from end to end.

    A jump is 0 where there is none, where a unit moves, and for all rows without ``halvings``.
    """
    still = line == 0
    low, high = -torch.ones_like(line[:, :1]), torch.ones_like(line[:, :1])
    slopes_low, slopes_high = (_slopes(cut, rows, end * line) * still for end in (low, high))
    change = slopes_high - slopes_low
    largest = torch.maximum(slopes_low.abs(), slopes_high.abs()).amax(dim=1)
    sizes = []
    for _ in range(halvings):
        middle = (low + high) / 2
        slopes = _slopes(cut, rows, middle * line) * still
        left = _size(slopes - slopes_low) > _size(slopes_high - slopes)
        low, high = torch.where(left, low, middle), torch.where(left, middle, high)
        slopes_low, slopes_high = torch.where(left, slopes_low, slopes), torch.where(left, slopes, slopes_high)
        sizes.append(_size(slopes_high - slopes_low))
    if not halvings:
        return torch.zeros_like(change), change
    rounding = _ROUNDING_EPS * torch.finfo(line.dtype).eps * largest[:, None]
    is_jump = (sizes[-1] > _JUMP_KEEPS * sizes[-1 - _LAST_HALVINGS]) & (sizes[-1] > rounding)
    return torch.where(is_jump, slopes_high - slopes_low, 0.0), change


def _size(change: Tensor) -> Tensor:
    """Return the size (n, 1) of a change (n, D) of slopes."""
    return change.abs().sum(dim=1, keepdim=True)


def _slopes(cut: Cut, rows: Rows, shifts: Tensor) -> Tensor:
    """Return the gradient (n, D) at shifts (n, D) of the units; 0 where nothing depends on them."""
    t = shifts.clone().requires_grad_()
    values = cut.outputs(rows, t)
    found = torch.autograd.grad(values.sum(), t, allow_unused=True)[0] if values.requires_grad else None
    return torch.zeros_like(t) if found is None else found
