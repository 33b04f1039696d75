"""Steps of gradient ascent, and the rule by which an objective has settled."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

#: Steps over which objectives are averaged to decide whether they still rise.
WINDOW = 16
#: Decay rates of Adam's averages, and the number that avoids a division by 0.
_BETA_MEAN = 0.9
_BETA_SQUARE = 0.999
_EPSILON = 1e-8


class Stepper(ABC):
    """Map from gradients (n, ...) of n inputs to steps uphill."""

    @abstractmethod
    def __call__(self, gradient: Tensor) -> Tensor:
        """Return the steps, of the shape of the gradient."""

    def keep(self, rows: Tensor) -> None:  # noqa: B027
        """Drop the state of all inputs but those in the mask ``rows`` (n,). The default has no state."""


class Adam(Stepper):
    """Steps of Adam (Kingma and Ba, 2015): lr * m / (sqrt(v) + eps), with averages m and v of gradients and squares.

    The steps are those of ``torch.optim.Adam``, which cannot drop a part of a tensor.
    """

    def __init__(self, lr: float) -> None:
        self._lr = lr
        self._count = 0
        self._mean = torch.zeros(())
        self._square = torch.zeros(())

    def __call__(self, gradient: Tensor) -> Tensor:
        self._count += 1
        self._mean = _BETA_MEAN * self._mean.to(gradient) + (1 - _BETA_MEAN) * gradient
        self._square = _BETA_SQUARE * self._square.to(gradient) + (1 - _BETA_SQUARE) * gradient.square()
        mean = self._mean / (1 - _BETA_MEAN**self._count)
        square = self._square / (1 - _BETA_SQUARE**self._count)
        return self._lr * mean / (square.sqrt() + _EPSILON)

    def keep(self, rows: Tensor) -> None:
        self._mean = self._mean[rows]
        self._square = self._square[rows]


class NormalisedGradient(Stepper):
    """Steps of length lr along the gradient of each input."""

    def __init__(self, lr: float) -> None:
        self._lr = lr

    def __call__(self, gradient: Tensor) -> Tensor:
        return self._lr * F.normalize(gradient.flatten(1)).view_as(gradient)


class ScoreHistory:
    """Objectives of n inputs, step by step.

    An objective has settled if its mean over the last 16 steps exceeds that over the 16 steps before by less than
    ``tolerance`` times its rise since the start. Random transforms make single steps noisy.

    Parameters
    ----------
    count
        Number n of inputs.
    tolerance
        A share of the rise; with 0 no objective settles.
    """

    def __init__(self, count: int, tolerance: float) -> None:
        self._tolerance = tolerance
        self._gains: list[Tensor] = []
        self._first: Tensor | None = None
        self._changed = torch.zeros(count, dtype=torch.bool)
        #: Number of steps (n,) that each input has taken.
        self.steps = torch.zeros(count, dtype=torch.long)

    def add(self, active: Tensor, scores: Tensor, gains: Tensor) -> Tensor:
        """Add a step of the inputs with the row numbers ``active`` (m,); return the mask (m,) of settled ones.

        Parameters
        ----------
        active
            Row numbers, those of the last call or a part of them.
        scores, gains
            Objectives (m,) without and with penalties.
        """
        if self._first is None:
            self._first = scores
        self._changed[active] |= scores != self._first[active]
        self.steps[active] += 1
        row = torch.full(self._changed.shape, torch.nan, dtype=torch.double)
        row[active] = gains.double()
        self._gains.append(row)
        if len(self._gains) % WINDOW or len(self._gains) < 3 * WINDOW or not self._tolerance:
            return torch.zeros(len(active), dtype=torch.bool)
        gains_so_far = torch.stack(self._gains)[:, active]
        last, before = gains_so_far[-WINDOW:].mean(dim=0), gains_so_far[-2 * WINDOW : -WINDOW].mean(dim=0)
        settled: Tensor = last - before <= self._tolerance * (last - gains_so_far[0]).abs()
        return settled

    def changed(self, final: Tensor) -> Tensor:
        """Return the mask (n,) of inputs whose objective changed in any step or is other than at first in the end."""
        return self._changed | (final != self._first)
