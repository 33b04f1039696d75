"""Climbing to inputs that excite units: the steps of gradient ascent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.reader import Reader
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError, GEHValueError
from geh_explain.interpret.ascent.canvas import Bounds, Canvas, Pixels, Spectrum
from geh_explain.interpret.ascent.images import Shake, roughness
from geh_explain.interpret.ascent.objectives import Objective
from geh_explain.interpret.responses import BeforeActivation, reduced
from geh_explain.model.cut import Cut

#: Inputs start this far, of the width of their range, around its middle.
_START_SPREAD = 0.01
#: What is usual for a unit is seen on at most so many inputs.
REFERENCE_ROWS = 512
#: A blur is applied every so many steps.
_BLUR_EVERY = 4

#: The units' values (n, D) of inputs, with gradients.
Values = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Terrain:
    """Where climbs may go, what they start from, and what holds them back; ``like`` is an input."""

    like: Tensor
    bounds: Bounds
    spectrum: bool
    mask: Tensor | None
    start: Tensor | None
    shake: Shake
    l2: float
    tv: float
    blur: float

    def begin(self) -> Tensor:
        """Return the input to start from."""
        middle = self.like + self.bounds.middle if self.start is None else self.start
        return self.bounds.inside(middle[None])[0]

    def spread(self, count: int, generator: torch.Generator) -> Tensor:
        """Return ``count`` random shifts, as wide as inputs can move; the generator lives on the CPU."""
        return self.bounds.span * torch.randn(count, *self.like.shape, generator=generator).to(self.like)

    def seen(self, x: Tensor) -> Tensor:
        """Return inputs with what may not change as it was."""
        return x if self.mask is None else self.mask * x + (1 - self.mask) * self.begin()

    def penalty(self, x: Tensor) -> Tensor:
        """Return what is subtracted from the objectives (n,)."""
        norms = self.l2 * x.flatten(1).square().sum(dim=1)
        return norms + self.tv * roughness(x) if self.tv else norms


@dataclass(frozen=True)
class End:
    """Where climbs ended: inputs (n, *shape), objectives (n,), the units' values (n, D), and whether any step told."""

    inputs: Tensor
    scores: Tensor
    values: Tensor
    moved: Tensor


@dataclass(frozen=True)
class Climb:
    """Gradient ascent on a terrain; ``mean`` and ``std`` (D,) are what is usual for the units."""

    terrain: Terrain
    values: Values
    mean: Tensor
    std: Tensor
    steps: int
    lr: float

    def __call__(self, objectives: list[Objective], generator: torch.Generator, tick: Callable[[], Any]) -> End:
        """Climb one input for each objective, and call ``tick`` after every step."""
        terrain = self.terrain
        start = terrain.begin() + _START_SPREAD * terrain.spread(len(objectives), generator)
        canvas: Canvas = (Spectrum if terrain.spectrum else Pixels)(start, terrain.bounds)
        optimiser = self._optimiser(canvas)
        scores = []
        for step in range(self.steps):
            shown = terrain.seen(canvas.inputs())
            score = self._score(objectives, self.values(terrain.shake(shown, generator) if terrain.shake else shown))
            if not bool(torch.isfinite(score).all()):
                raise GEHRuntimeError(f"the activation became NaN or infinite in step {step}; try a smaller lr.")
            scores.append(score.detach())
            if score.requires_grad:
                optimiser.zero_grad()
                torch.autograd.backward((terrain.penalty(shown) - score).sum(), inputs=[canvas.parameters])
                self._straighten(canvas)
                optimiser.step()
                canvas.settle(terrain.blur if (step + 1) % _BLUR_EVERY == 0 else 0.0)
            tick()
        with torch.no_grad():
            # Not beyond the bounds by a rounding error.
            shown = terrain.seen(terrain.bounds.inside(canvas.inputs()))
            values = self.values(shown)
        scores.append(self._score(objectives, values))
        return End(shown, scores[-1], values, (torch.stack(scores) != scores[0]).any(dim=0))

    def _optimiser(self, canvas: Canvas) -> torch.optim.Optimizer:
        if self._goes_straight:
            return torch.optim.SGD([canvas.parameters], lr=self.lr * self.terrain.like.numel() ** 0.5)
        return torch.optim.Adam([canvas.parameters], lr=self.lr)

    @property
    def _goes_straight(self) -> bool:
        """Whether steps follow the gradient: Adam's, alike in all numbers, would miss the best place on a ball."""
        return self.terrain.bounds.radius is not None and not self.terrain.spectrum

    def _straighten(self, canvas: Canvas) -> None:
        gradient = canvas.parameters.grad
        if self._goes_straight and gradient is not None:
            canvas.parameters.grad = F.normalize(gradient.flatten(1)).view_as(gradient)

    def _score(self, objectives: list[Objective], values: Tensor) -> Tensor:
        parts = [objective(values[row : row + 1], self.mean, self.std) for row, objective in enumerate(objectives)]
        return torch.cat(parts)


def unit_values(cut: Cut, x: Tensor, reduce: str, preactivation: bool) -> Tensor:
    """Return the units' values (n, D), with gradients; before the layer's activation function, if that is wanted."""
    if not preactivation:
        return reduced(cut, cut.reached(as_rows(x)), reduce).values
    with BeforeActivation() as before:
        activations = cut.reached(as_rows(x))
    return reduced(cut, before.of(activations), reduce).values


@torch.no_grad()
def usual(terrain: Terrain, values: Values, reference: Any, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (D,) of the units over ``reference``, or over random inputs."""
    like = terrain.like
    if reference is None:
        random = terrain.bounds.inside(terrain.bounds.middle + terrain.spread(REFERENCE_ROWS, generator))
        pieces = torch.split(random, 64)
    else:
        reader = Reader(floating_only=True, device=like.device, dtype=like.dtype, argument="reference")
        pieces = tuple(rows.inputs[0] for rows in islice(reader.stream(reference, 64), REFERENCE_ROWS // 64))
        if any(piece.shape[1:] != like.shape for piece in pieces):
            raise GEHValueError(
                f"reference: its rows have shape {tuple(pieces[0].shape[1:])}, and shape={tuple(like.shape)}."
            )
    found = torch.cat([values(piece) for piece in pieces])
    spread = found.std(dim=0, correction=0)
    return found.mean(dim=0), torch.where(spread > 0, spread, torch.ones_like(spread))


def as_rows(x: Tensor) -> Rows:
    """Return inputs as the model is called with them."""
    return Rows((x,), ForwardArgs.of(None, (), len(x)))
