"""Checks of second derivatives at a few points.

The structured engine is compared with double backward (:func:`products_agree`), and double backward itself with
differences of gradients (:func:`contradicts_differences`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.cut import Cut

#: Part of the chunks in which second derivatives are checked, besides the first one: a check takes a few milliseconds,
#: a chunk of a small network ten.
_CHECKED_CHUNKS = 1 / 16
#: Part of the points of a chunk that are checked, at most.
_CHECKED_POINTS = 1 / 8
#: Largest difference of two engines, relative to the size of an entry.
_RELATIVE = 1e-3
#: Rounding of a row of H v, relative to the largest entry of |H| |v| in the row. Without saturation 10 eps were seen.
_ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-9}
#: Rounding of saturated rows, whose H is a difference of larger numbers, relative to the mean of all compared rows:
#: less than this does not matter in a sum over points.
_SATURATED = {torch.float32: 3e-3, torch.float64: 1e-9}
#: First step of the differences, as a part of the spread of the units; each further one is a quarter of it.
_STEP = {torch.float32: 0.05, torch.float64: 1e-3}
_N_STEPS = 3
#: An entry is settled if its differences change by at most this part of themselves from step to step.
_CHANGE = 0.1
#: Double backward contradicts a settled entry if it differs by this part of the larger one ...
_DISAGREEMENT = 0.02
#: ... plus this many times the largest change of the row from step to step, or from side to side ...
_CHANGES = 5
#: ... plus the rounding of gradients, this many eps of the largest entry of the row.
_GRADIENT_EPS = 100
#: An output that changes by at most this many eps of the largest one, where a unit changes by its spread, is flat.
_FLAT_EPS = 1000


def choose_points(rows: Rows, seed: int, max_rows: int, always: bool) -> Ints | None:
    """Return the points of a chunk at which second derivatives are checked, None in most chunks.

    They are random points from equal parts of the chunk, as indices (B, m) of the distinct points in ``rows``: other
    points in each of the B draws that are computed at once, at most ``max_rows`` in all.

    >>> from geh_explain.data.forward_args import ForwardArgs
    >>> rows = Rows((torch.zeros(800, 3),), ForwardArgs.of(None, (), 800)).repeat(2)
    >>> choose_points(rows, seed=0, max_rows=8, always=True) // 100
    array([[0, 2, 4, 6],
           [1, 3, 5, 7]])
    """
    # Not a generator of NumPy, which takes a tenth of a millisecond to make.
    generator = random.Random(seed + rows.start)
    if generator.random() >= _CHECKED_CHUNKS and not always:
        return None
    n_points = len(rows) // rows.repeats
    per_draw = max(1, int(min(max_rows, _CHECKED_POINTS * n_points)) // rows.repeats)
    count = per_draw * rows.repeats
    points = [int(n_points * (part + generator.random()) / count) for part in range(count)]
    return np.array(points).reshape(per_draw, rows.repeats).T


def random_directions(cut: Cut, rows: Rows, seed: int) -> Tensor:
    """Return one random direction per row (n, D) in the space of the units."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(rows), cut.n_units, generator=generator, dtype=torch.double).to(cut.device, cut.dtype)


def products_agree(found: Tensor, expected: Tensor, sizes: Tensor) -> bool:
    """Return whether two products H v (n, D) of Hessians and directions are equal up to rounding, entry by entry.

    ``sizes`` (n, D) are the products ``|H| |v|`` of the absolute values, the scale of the entries before any of them
    cancel.
    """
    largest = sizes.amax(dim=1, keepdim=True)
    rounding = _ROUNDING.get(expected.dtype, 1e-4) * largest + _SATURATED.get(expected.dtype, 3e-3) * largest.mean()
    # Not "any entry is larger", which is false for NaN.
    return bool(((found - expected).abs() <= _RELATIVE * sizes + rounding).all())


def contradicts_differences(cut: Cut, rows: Rows, seed: int, product: Callable[[Rows, Tensor], Tensor | None]) -> bool:
    """Return whether double backward contradicts central differences of gradients in a row.

    With g the gradient and v a direction, H v is compared with (g(e v) - g(-e v)) / 2e for three steps e. These have
    errors of their own: curvature of g for large e, rounding for small e, both where functions are kinked. So an entry
    counts only if the differences of all steps agree with each other, and much better than with double backward.

    Parameters
    ----------
    cut, rows
        The model as a function of the units' shifts, and a few rows.
    seed
        Seed of the directions.
    product
        Returns the products H v (n, D) by double backward for n rows and directions v (n, D).
    """
    scale = _unit_scale(cut, rows)
    directions = random_directions(cut, rows, seed) * scale
    steps = torch.tensor([_STEP.get(cut.dtype, 0.05) / 4**k for k in range(_N_STEPS)]).to(directions)
    shifts = torch.cat([steps, -steps, steps.new_zeros(1)])[:, None, None] * directions
    try:
        outputs, gradients, eps = _gradients(cut, rows.repeat(len(shifts)), shifts.flatten(0, 1))
    except GEHRuntimeError:
        # The model is not defined at the shifted units.
        return False
    gradients = gradients.reshape(shifts.shape) * scale
    above, below = gradients[:_N_STEPS], gradients[_N_STEPS:-1]
    differences = (above - below) / (2 * steps[:, None, None])
    products = product(rows, directions)
    if products is None:
        return False
    expected = products * scale
    gaps = (differences - expected).abs()
    sizes = differences.abs()
    changes = (differences[1:] - differences[:-1]).abs().amax(dim=0)
    # Second derivatives may jump, as that of ELU at 0: then the differences to both sides are not equal.
    jumps = (above[-1] - 2 * gradients[-1] + below[-1]).abs() / (2 * steps[-1])
    slopes = gradients.abs().amax(dim=(0, 2))[:, None]
    rounding = _GRADIENT_EPS * eps * slopes / steps[:, None, None]
    # Entries whose differences hardly change from step to step, and are not rounding, as in rows with a flat output.
    settled = (changes <= _CHANGE * sizes) & (sizes > rounding) & (slopes > _FLAT_EPS * eps * outputs.abs().max())
    noise = rounding + _CHANGES * torch.maximum(changes, jumps).amax(dim=1, keepdim=True)
    contradicts = gaps > _DISAGREEMENT * torch.maximum(sizes, expected.abs()) + noise
    return bool((settled & contradicts).all(dim=0).any())


def _gradients(cut: Cut, rows: Rows, t: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return the outputs (n,) at shifts ``t`` (n, D), their gradients (n, D), and the eps of the coarsest precision.

    A model may compute in a lower precision than that of its units.
    """
    value = cut.outputs(rows, t.requires_grad_())
    gradient = torch.autograd.grad(value.sum(), t, allow_unused=True)[0] if value.requires_grad else None
    dtypes = {entry.dtype for node in graph_nodes(value) for entry in node._input_metadata}
    eps = max(torch.finfo(dtype).eps for dtype in (t.dtype, *dtypes) if dtype.is_floating_point)
    return value.detach(), torch.zeros_like(t) if gradient is None else gradient, eps


def graph_nodes(value: Tensor) -> Iterator[Any]:
    """Yield all nodes of the autograd graph that leads to ``value``."""
    waiting, visited = [value.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in visited:
            visited.add(node)
            yield node
            waiting += [child for child, _ in node.next_functions]


def _unit_scale(cut: Cut, rows: Rows) -> Tensor:
    """Return the standard deviation (D,) of the units over rows; their size where they are constant, 1 where 0."""
    values = cut.units.values(cut.activations(rows)).to(cut.dtype)
    spread = values.std(dim=0, correction=0)
    size = values.abs().amax(dim=0)
    spread = torch.where(spread > 1e-6 * size, spread, size)
    return torch.where(spread > 0, spread, torch.ones_like(spread))
