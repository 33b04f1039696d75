"""The check of functions with a backward pass of their own: subclasses of ``torch.autograd.Function``.

Such a function may hide its second derivative from autograd, by ``detach()`` or ``.data`` in its backward pass. Its
part of a Hessian may be small, or in a few rows only, so that it is examined by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geh_explain.data.rows import Rows
from geh_explain.engines.gradient_differences import Line, coarsest_eps, unit_scale
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.autograd_graph import custom_functions
from geh_explain.model.cut import Cut

#: Rows of a chunk that are examined alone, at most, for each class of functions.
_MAX_ALONE = 8
#: Fewer rows are not divided further where some of them take another path through the model.
_MIN_ROWS = 8


class _OtherPath(Exception):
    """Rows take another path through the model once their units are shifted."""


def hides_derivative(cut: Cut, rows: Rows, seed: int, scale: Tensor | None = None) -> bool:
    """Return whether a function with a backward pass of its own hides a part of its derivative from autograd.

    The backward pass of a function returns the gradient at its inputs. A random projection of it, for each class of
    functions, is differentiated by autograd and by differences: for each row where the gradient has one entry per row,
    and then again for that row alone; else for the sum over all rows.

    Parameters
    ----------
    cut, rows
        The model as a function of the units' shifts, and rows to examine.
    seed
        Seed of projections and directions.
    scale
        Spread (D,) of the units; None for that over ``rows``.
    """
    scale = unit_scale(cut, rows) if scale is None else scale
    alone: set[int] = set()
    try:
        for contradicted in _contradictions(cut, rows, seed, scale):
            if len(contradicted) == 1 and bool(contradicted):
                return True
            # The first dimension may be another one that is as long as the batch, but not for one row as well.
            alone.update(contradicted.nonzero().flatten()[:_MAX_ALONE].tolist())
    except _OtherPath:
        parts = rows.split(-(-len(rows) // 4)) if len(rows) > _MIN_ROWS else ()
        return any(hides_derivative(cut, part, seed, scale) for part in parts)
    return any(hides_derivative(cut, rows.take([row]), seed + row, scale) for row in sorted(alone) if len(rows) > 1)


def _contradictions(cut: Cut, rows: Rows, seed: int, scale: Tensor) -> Iterator[Tensor]:
    """Yield for each class of functions in which rows (n,), or whether in their sum (1,), a derivative seems hidden.

    Raises
    ------
    _OtherPath
        If other functions are called, or for other rows, once the units are shifted.
    """
    line = Line.of(cut, rows, seed, scale)
    t = cut.zeros(rows).requires_grad_()
    gradients, eps = _function_gradients(cut, rows, t, keep_graph=True)
    projections = {name: _Projection.of(tensors, len(rows), seed) for name, tensors in gradients.items() if tensors}
    passes = []
    for shift in line.shifts[:-1]:
        try:
            shifted, _ = _function_gradients(cut, rows, shift.requires_grad_())
        except GEHRuntimeError:
            # The model is not defined at the shifted units.
            return
        passes.append({name: projection.apply(shifted[name]) for name, projection in projections.items()})
    for name, projection in projections.items():
        at_zero = projection.apply(gradients[name])
        values, sizes = (torch.stack(items) for items in zip(*(found[name] for found in passes), at_zero, strict=True))
        slope = _slope(at_zero[0], t, line.directions)
        expected = slope if projection.groups == len(rows) else slope.sum(dim=0, keepdim=True)
        yield line.contradicted(values.detach()[:, :, None], expected[:, None], sizes.amax(dim=0), eps)


def _slope(values: Tensor, t: Tensor, directions: Tensor) -> Tensor:
    """Return the derivative (n,) of the sum of ``values`` along the direction of each row, by autograd."""
    if not values.requires_grad:
        return directions.new_zeros(len(directions))
    (gradient,) = torch.autograd.grad(values.sum(), t, retain_graph=True, allow_unused=True)
    return directions.new_zeros(len(directions)) if gradient is None else (gradient * directions).sum(dim=1)


def _function_gradients(
    cut: Cut, rows: Rows, t: Tensor, keep_graph: bool = False
) -> tuple[dict[str, list[Tensor]], float]:
    """Return the gradients at the inputs of all custom functions, by the name of the class, and the eps of the model.

    ``keep_graph`` allows to differentiate them in ``t`` (n, D).
    """
    value = cut.outputs(rows, t)
    gradients: defaultdict[str, list[Tensor]] = defaultdict(list)
    handles = []
    for name, node, inputs in custom_functions(value, t):

        def store(found: Sequence[Any], _: Any, into: list[Tensor] = gradients[name], inputs: Any = inputs) -> None:
            into.extend(found[number] for number in inputs if found[number] is not None and found[number].numel())

        handles.append(node.register_hook(store))
    if handles:
        torch.autograd.grad(value.sum(), t, create_graph=keep_graph)
    for handle in handles:
        handle.remove()
    return gradients, coarsest_eps(t, value)


@dataclass(frozen=True)
class _Projection:
    """A random projection of the gradients of one class of functions, to one number per row, or to one for all rows.

    Attributes
    ----------
    weights
        One tensor of the shape of each gradient. They make functions whose gradients differ in size count alike.
    groups
        The number of rows n if all gradients have one entry per row, else 1.
    """

    weights: list[Tensor]
    groups: int

    @classmethod
    def of(cls, gradients: Sequence[Tensor], n_rows: int, seed: int) -> _Projection:
        """Return a projection for gradients of these shapes and sizes."""
        generator = torch.Generator().manual_seed(seed)
        weights = []
        for gradient in gradients:
            largest = float(gradient.detach().abs().max())
            noise = torch.randn(gradient.shape, generator=generator, dtype=torch.double)
            weights.append((noise / (largest or 1.0)).to(gradient))
        by_row = all(gradient.ndim > 0 and len(gradient) == n_rows for gradient in gradients)
        return cls(weights, n_rows if by_row else 1)

    def apply(self, gradients: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the projections (groups,), and the sizes of what they add up.

        Raises
        ------
        _OtherPath
            For gradients of other shapes.
        """
        if [gradient.shape for gradient in gradients] != [weight.shape for weight in self.weights]:
            raise _OtherPath
        terms = [
            (weight * gradient).reshape(self.groups, -1)
            for weight, gradient in zip(self.weights, gradients, strict=True)
        ]
        joined = torch.cat(terms, dim=1)
        return joined.sum(dim=1), joined.detach().square().sum(dim=1).sqrt()
