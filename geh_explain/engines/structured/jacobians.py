"""Jacobians of an intermediate tensor with respect to the units: D directions, in cheap forms where there are any.

A Jacobian of a tensor ``(n, *shape)`` is a tensor ``(D, n, *shape)``: direction i is the derivative with respect to the
shift t_i. It is ``(D, 1, *shape)`` where all rows share it, as after linear maps only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class DiagonalJacobian:
    """The Jacobian of a tensor whose entries are the units themselves, each times a factor.

    Attributes
    ----------
    scale
        Factors (n, D), or (1, D) where all rows share them.
    shape
        Shape of one row of the tensor; it has D entries.
    """

    scale: Tensor
    shape: tuple[int, ...]

    def to_tensor(self) -> Tensor:
        """Return the Jacobian as a tensor ``(D, n or 1, *shape)``."""
        return torch.diag_embed(self.scale).transpose(0, 1).reshape(self.scale.shape[1], -1, *self.shape)


@dataclass(frozen=True)
class UnitJacobian:
    """The Jacobian of a vector whose entries many units shift together, each times a factor, without the array (D, c).

    Attributes
    ----------
    shift
        The map of the units from shifts (n, D) to vectors (n, c).
    n_units
        Number of units D.
    scale
        Factors (1, c), which all rows share.
    """

    shift: Callable[[Tensor], Tensor]
    n_units: int
    scale: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (c,) of one row of the vector."""
        return tuple(self.scale.shape[1:])

    def to_tensor(self) -> Tensor:
        """Return the Jacobian as a tensor (D, 1, c)."""
        eye = torch.eye(self.n_units, device=self.scale.device, dtype=self.scale.dtype)
        return (self.shift(eye) * self.scale)[:, None]

    def push_linear(self, weight: Tensor) -> Tensor:
        """Return the directions (D, 1, d) after a linear map ``weight`` (d, c): its columns, summed over each unit."""
        with torch.enable_grad():
            t = self.scale.new_zeros(len(weight), self.n_units, requires_grad=True)
            (sums,) = torch.autograd.grad(self.shift(t), t, weight.detach() * self.scale)
        return sums.T[:, None]


@dataclass(frozen=True)
class UniformJacobian:
    """Directions that are the same at all positions of a channel, as those of whole channels are.

    Attributes
    ----------
    base
        Directions (D, n or 1, C) of the C channels.
    shape
        Shape ``(C, *positions)`` of one row of the tensor.
    """

    base: Tensor
    shape: tuple[int, ...]

    def to_tensor(self) -> Tensor:
        """Return the directions ``(D, n or 1, C, *positions)``, which share memory over the positions."""
        ones = (1,) * (len(self.shape) - 1)
        return self.base.reshape(*self.base.shape, *ones).expand(*self.base.shape[:2], *self.shape)


@dataclass
class DeferredProduct:
    """Directions times a factor per row, not multiplied yet.

    A factor has no dimension of directions. Factors that follow each other, such as a slope and a dropout mask, are
    therefore multiplied with each other first, at a D-th of the cost.

    Attributes
    ----------
    base
        Directions ``(D, n or 1, *shape)``.
    factor
        Factor ``(n, *shape)``; None once :meth:`to_tensor` has multiplied it into ``base``.
    """

    base: Tensor
    factor: Tensor | None

    def to_tensor(self) -> Tensor:
        """Return the product ``(D, n, *shape)``, computed at the first call."""
        if self.factor is not None:
            self.base = self.base * self.factor
            self.factor = None
        return self.base


#: Directions of an intermediate tensor, (D, n or 1, *shape).
Jacobian = Tensor | DiagonalJacobian | UnitJacobian | UniformJacobian | DeferredProduct


def to_tensor(jacobian: Jacobian) -> Tensor:
    """Return a Jacobian as a tensor ``(D, n or 1, *shape)``."""
    return jacobian if isinstance(jacobian, Tensor) else jacobian.to_tensor()


def is_shared(jacobian: Jacobian) -> bool:
    """Return whether all rows are known to share the directions."""
    if isinstance(jacobian, DiagonalJacobian):
        return jacobian.scale.shape[0] == 1
    if isinstance(jacobian, UniformJacobian):
        return jacobian.base.shape[1] == 1
    if isinstance(jacobian, UnitJacobian):
        return True
    return isinstance(jacobian, Tensor) and jacobian.shape[1] == 1


def scale_rows(jacobian: Jacobian, factor: float | Tensor) -> Jacobian:
    """Return directions times a number, or times a tensor that broadcasts to ``(n, *shape)`` from the right.

    The cheapest form is kept: factors of a deferred product are multiplied with each other, a diagonal Jacobian stays
    diagonal, shared directions stay shared under a factor that all rows share, and a factor per row is deferred.
    """
    if isinstance(jacobian, DeferredProduct) and jacobian.factor is not None:
        product = jacobian.factor * factor
        if product.shape == jacobian.factor.shape:
            return DeferredProduct(jacobian.base, product)
    if isinstance(jacobian, UniformJacobian):
        by_channel = _by_channel(factor, jacobian.shape)
        if by_channel is not None:
            return UniformJacobian(jacobian.base * by_channel, jacobian.shape)
    if isinstance(jacobian, UnitJacobian):
        scale = jacobian.scale * (_one_row(factor, 2) if isinstance(factor, Tensor) else factor)
        if scale.shape == jacobian.scale.shape:
            return replace(jacobian, scale=scale)
    if isinstance(factor, Tensor) and is_shared(jacobian):
        ndim = len(jacobian.shape) + 1 if isinstance(jacobian, DiagonalJacobian) else to_tensor(jacobian).ndim - 1
        factor = _one_row(factor, ndim)
    if isinstance(jacobian, DiagonalJacobian):
        scale = jacobian.scale.reshape(-1, *jacobian.shape) * factor
        if scale.shape[1:] == jacobian.shape:
            return DiagonalJacobian(scale.reshape(len(scale), -1), jacobian.shape)
    directions = to_tensor(jacobian)
    # Deferred only if the factor differs by row and does not broadcast, so that further factors have its shape.
    if isinstance(factor, Tensor) and factor.ndim and factor.shape[0] > 1 and factor.shape[1:] == directions.shape[2:]:
        return DeferredProduct(directions, factor)
    return directions * factor


def _by_channel(factor: float | Tensor, shape: tuple[int, ...]) -> float | Tensor | None:
    """Return a factor of a tensor ``(n, C, *positions)`` as a number or (n or 1, C); None if it differs by position."""
    if not isinstance(factor, Tensor) or not factor.ndim:
        return factor
    n_positions = len(shape) - 1
    if n_positions and any(size > 1 for size in factor.shape[-n_positions:]):
        return None
    return factor.reshape(factor.shape[: max(0, factor.ndim - n_positions)])


def _one_row(factor: Tensor, ndim: int) -> Tensor:
    """Return the first row of a factor that is the same for all rows, such as a dropout mask; else the factor.

    With one row the directions stay shared, and products with them cost an n-th.
    """
    if factor.ndim < ndim or len(factor) == 1:
        return factor
    first = factor[:1]
    return first if torch.equal(factor, first.expand_as(factor)) else factor
