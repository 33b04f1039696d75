"""The contract of a unit set."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from geh_explain._types import Shape


class Units(ABC):
    """A set of D directions in the space of a layer's output, the columns of a matrix B.

    ``shape`` is always the shape of one row of the layer's output, without the batch dimension. Subclasses implement
    :meth:`count` and :meth:`shift`; the other methods follow from these, and may be overridden for speed or for better
    names.

    Examples
    --------
    The first and the second half of four features as two units: B has the columns (1, 1, 0, 0) and (0, 0, 1, 1).

    >>> import torch, geh_explain as geh
    >>> class Halves(geh.units.Units):
    ...     def count(self, shape):
    ...         return 2
    ...     def shift(self, t, shape):
    ...         return t.repeat_interleave(shape[0] // 2, dim=1)
    >>> Halves().shift(torch.eye(2), (4,))
    tensor([[1., 1., 0., 0.],
            [0., 0., 1., 1.]])
    >>> point = geh.posterior.PointEstimate()
    >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 3], units=Halves(), posterior=point)
    >>> float(explainer.explain(torch.randn(20, 4), groups=1, progress=False).geh.mean[0, 1].round(4))
    1.0
    """

    #: Whether some units are categories, which have the values of rows and none between them. Accounts of single
    #: predictions then switch units instead of moving them, by the numbers that :meth:`members` returns.
    has_levels = False

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Units:
        """Return this unit set with its open choices made for one layer, or raise if it does not fit.

        Parameters
        ----------
        shape
            Shape of one row of the layer's output.
        module
            The layer, or the layer that shows its layout (see :mod:`geh_explain.units.layout`); None at the inputs.
        columns
            Names of the inputs' columns, if they have any.
        """
        return self

    @abstractmethod
    def count(self, shape: Shape) -> int:
        """Return the number of units D."""

    @abstractmethod
    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        """Return B t: map shifts ``t`` (n, D) to a tensor ``(n, *shape)``, or one that broadcasts to it.

        The map must be linear and differentiable. ``shift(torch.eye(D), shape)`` are the directions of all units.
        """

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        """Return one name per unit; ``prefix`` is the layer's name, or "x" at the inputs."""
        return [f"{prefix}{i}" if prefix == "x" else f"{prefix}[{i}]" for i in range(self.count(shape))]

    def values(self, activations: Tensor) -> Tensor:
        """Return the units' values (n, D) in a layer's output (n, ``*shape``): the means over each unit's members.

        These are the least-squares coordinates (B^T B)^-1 B^T a for units that do not overlap. B^T is applied by
        automatic differentiation of :meth:`shift`, so B is never formed.
        """
        shape = tuple(activations.shape[1:])
        with torch.enable_grad():
            t = activations.new_zeros(len(activations), self.count(shape), requires_grad=True)
            shifted = self.shift(t, shape).expand_as(activations)
            (sums,) = torch.autograd.grad(shifted, t, activations.detach(), retain_graph=True)
            # B maps a vector of ones to the weight of each coordinate, so B^T B 1 is the squared norm.
            (norms,) = torch.autograd.grad(shifted, t, self.shift(torch.ones_like(t), shape).expand_as(activations))
        # A unit without members has norm 0; its value is 0.
        return sums / norms.clamp_min(torch.finfo(norms.dtype).tiny)

    def members(self, activations: Tensor) -> Tensor:
        """Return the numbers in a layer's output that each unit shifts, (n, D, m), for maxima over them.

        By default m is the size of the whole layer, and numbers that a unit does not shift are -inf.
        """
        shape = tuple(activations.shape[1:])
        # Row k shifts unit k only, so the result is nonzero at its members.
        t = torch.eye(self.count(shape), device=activations.device, dtype=activations.dtype)
        is_member = self.shift(t, shape).expand(len(t), *shape).flatten(1) != 0
        return activations.flatten(1)[:, None].masked_fill(~is_member, -math.inf)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
