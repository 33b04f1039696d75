"""What one unit is: a set of directions in the space of the inputs or of a layer's output.

A unit set is a linear map from shifts ``t`` of shape (n, D), one number per row and unit, to a tensor
of the layer's shape that is added to the layer's output. The Hessian in ``t`` at 0 is B^T H B, with
the units' directions as the columns of B; engines see ``t`` only.

To write one, subclass :class:`Units` and say how many units a shape has and what a shift adds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from geh_explain._types import Shape


class Units(ABC):
    """A set of directions. ``shape`` is always the shape of one row, without the batch dimension.

    >>> import torch, geh_explain as geh
    >>> class Halves(geh.units.Units):  # the first and the second half of the features
    ...     def count(self, shape):
    ...         return 2
    ...     def shift(self, t, shape):
    ...         return t.repeat_interleave(shape[0] // 2, dim=1)
    >>> one = geh.posterior.PointEstimate()
    >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 3], units=Halves(), posterior=one)
    >>> float(explainer.explain(torch.randn(20, 4), groups=1, progress=False).geh.mean[0, 1].round(4))
    1.0
    """

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Units:
        """Return this unit set made definite for one layer (``module`` is None at the inputs)."""
        return self

    @abstractmethod
    def count(self, shape: Shape) -> int:
        """Return the number of units D."""

    @abstractmethod
    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        """Map shifts (n, D) to what is added to the layer, ``(n, *shape)`` or broadcastable to it."""

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        """Return one name per unit; ``columns`` are the names of the inputs' columns, if they have any."""
        return [f"{prefix}{i}" if prefix == "x" else f"{prefix}[{i}]" for i in range(self.count(shape))]

    def values(self, activations: Tensor) -> Tensor:
        """Read the units' values (n, D) off a layer's output: the mean over each unit's members.

        These are the least-squares coordinates (B^T B)^-1 B^T a for units that do not overlap.
        """
        shape = tuple(activations.shape[1:])
        with torch.enable_grad():
            t = activations.new_zeros(len(activations), self.count(shape), requires_grad=True)
            moved = self.shift(t, shape).expand_as(activations)
            (sums,) = torch.autograd.grad(moved, t, activations.detach(), retain_graph=True)
            # B maps a vector of ones to the weight of each coordinate, so B^T B 1 is the squared norm.
            (norms,) = torch.autograd.grad(moved, t, self.shift(torch.ones_like(t), shape).expand_as(activations))
        return sums / norms.clamp_min(torch.finfo(norms.dtype).tiny)

    def members(self, activations: Tensor) -> Tensor:
        """Read the numbers that each unit moves off a layer's output, (n, D, m).

        Unless a unit set knows better, m is all of the layer, and what a unit does not move is -inf.
        """
        shape = tuple(activations.shape[1:])
        t = torch.eye(self.count(shape), device=activations.device, dtype=activations.dtype)
        moved = self.shift(t, shape).expand(len(t), *shape).flatten(1) != 0
        return activations.flatten(1)[:, None].masked_fill(~moved, -math.inf)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
