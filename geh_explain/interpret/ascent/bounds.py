"""Bounds of inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Bounds:
    """Allowed inputs: a box, a ball around 0, both, or everything.

    Attributes
    ----------
    low, high
        Lowest and highest value of each number, tensors of the shape of one input; both None for no box.
    radius
        Largest Euclidean norm of an input; None for no ball.
    """

    low: Tensor | None = None
    high: Tensor | None = None
    radius: float | None = None

    @property
    def box(self) -> tuple[Tensor, Tensor] | None:
        """Both corners of the box, or None."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def project(self, x: Tensor) -> Tensor:
        """Return inputs ``(n, *shape)`` clipped to the box, then scaled down to the ball."""
        if self.box is not None:
            low, high = self.box
            x = torch.minimum(torch.maximum(x, low), high)
        if self.radius is not None:
            norms = x.flatten(1).norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
            x = x * (self.radius / norms).clamp(max=1).reshape(-1, *(1 for _ in x.shape[1:]))
        return x

    @property
    def centre(self) -> Tensor | float:
        """Centre of the box, 0 if there is none."""
        return 0.0 if self.box is None else (self.box[0] + self.box[1]) / 2

    @property
    def span(self) -> Tensor | float:
        """Unit in which steps are measured: the width of the box, else the radius, else 1."""
        if self.box is None:
            return self.radius or 1.0
        low, high = self.box
        # A number with equal limits is constant; its span of 1 avoids a division by 0.
        return torch.where(high > low, high - low, torch.ones_like(low))
