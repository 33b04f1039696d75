"""Gauss-Newton curvature of the weights of a linear layer, in its eigenbasis.

The layer maps features h (F,) to z = W h, with W of shape (C, F). With L_n (C, C) the second derivative of the negative
log-likelihood of row n in z, the curvature of the d = C F weights, output by output, is::

    H = sum over rows n of L_n (x) h_n h_n^T.

With a prior N(0, 1 / precision) the Gaussian approximation of the posterior has the covariance (H + precision I)^-1. In
the eigenbasis of H that is diagonal for every precision: nothing is factorised again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Curvature(ABC):
    """A positive semi-definite matrix H over weights (C, F), by its eigenvalues and eigenvectors.

    Attributes
    ----------
    eigenvalues
        Eigenvalues of H (C, F), not below 0; weights in the eigenbasis have the same shape.
    structure
        ``"full"``, ``"kron"`` or ``"diag"``.
    """

    eigenvalues: Tensor
    structure: str

    @abstractmethod
    def to_basis(self, weights: Tensor) -> Tensor:
        """Return weights (..., C, F) in the eigenbasis."""

    @abstractmethod
    def from_basis(self, coordinates: Tensor) -> Tensor:
        """Return the weights (..., C, F) with these coordinates in the eigenbasis."""

    def covariance(self, precision: float) -> Tensor:
        """Return (H + precision I)^-1 as a matrix (C F, C F)."""
        n_weights = self.eigenvalues.numel()
        roots = torch.eye(n_weights, dtype=torch.double).reshape(-1, *self.eigenvalues.shape)
        halves = self.from_basis(roots * (self.eigenvalues + precision).rsqrt()).flatten(1)
        return halves.T @ halves

    def distance(self, gradient: Tensor, precision: float) -> float:
        """Return g^T (H + precision I)^-1 g for a gradient g (C, F): the squared length of a Newton step."""
        return float((self.to_basis(gradient).square() / (self.eigenvalues + precision)).sum())


@dataclass(frozen=True)
class FullCurvature(Curvature):
    """H with eigenvectors (C F, C F) in its columns."""

    eigenvalues: Tensor
    vectors: Tensor
    structure: str = "full"

    def to_basis(self, weights: Tensor) -> Tensor:
        """Return weights in the basis in which the curvature is diagonal."""
        return (weights.flatten(-2) @ self.vectors).reshape(weights.shape)

    def from_basis(self, coordinates: Tensor) -> Tensor:
        """Return weights in their own basis again."""
        return (coordinates.flatten(-2) @ self.vectors.T).reshape(coordinates.shape)


@dataclass(frozen=True)
class KroneckerCurvature(Curvature):
    """H = L (x) A with eigenvectors (C, C) of L and (F, F) of A in their columns; None for the unit vectors."""

    eigenvalues: Tensor
    left: Tensor | None
    right: Tensor
    structure: str = "kron"

    def to_basis(self, weights: Tensor) -> Tensor:
        """Return weights in the basis in which the curvature is diagonal."""
        rotated = weights @ self.right
        return rotated if self.left is None else self.left.T @ rotated

    def from_basis(self, coordinates: Tensor) -> Tensor:
        """Return weights in their own basis again."""
        rotated = coordinates @ self.right.T
        return rotated if self.left is None else self.left @ rotated


@dataclass(frozen=True)
class DiagonalCurvature(Curvature):
    """The diagonal of H only."""

    eigenvalues: Tensor
    structure: str = "diag"

    def to_basis(self, weights: Tensor) -> Tensor:
        """Return weights in the basis in which the curvature is diagonal."""
        return weights

    def from_basis(self, coordinates: Tensor) -> Tensor:
        """Return weights in their own basis again."""
        return coordinates


def full_curvature(hessian: Tensor, n_outputs: int) -> FullCurvature:
    """Return a curvature (C F, C F) by its eigenvectors."""
    values, vectors = torch.linalg.eigh(hessian)
    return FullCurvature(values.clamp_min(0).reshape(n_outputs, -1), vectors)


def kronecker_curvature(left: Tensor, right: Tensor, structure: str = "kron") -> KroneckerCurvature:
    """Return the curvature L (x) A of L, a matrix (C, C) or the diagonal (C,) of one, and A (F, F)."""
    values, vectors = torch.linalg.eigh(right)
    if left.ndim == 1:
        return KroneckerCurvature(torch.outer(left, values.clamp_min(0)), None, vectors, structure)
    left_values, left_vectors = torch.linalg.eigh(left)
    products = torch.outer(left_values.clamp_min(0), values.clamp_min(0))
    return KroneckerCurvature(products, left_vectors, vectors, structure)
