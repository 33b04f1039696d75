"""Gradient ascent: steps in the inputs that increase objectives, within bounds and with penalties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geh_explain.data.reader import Reader
from geh_explain.errors import GEHRuntimeError, GEHValueError
from geh_explain.interpret.ascent.images import RandomTransform, total_variation
from geh_explain.interpret.ascent.objectives import Objective
from geh_explain.interpret.ascent.parametrisation import Bounds, Parametrisation, Pixels, Spectrum

#: Standard deviation of the noise around the start, as a share of the bounds' span.
_START_NOISE = 0.01
#: Number of inputs from which the mean and the spread of units are estimated, at most.
MAX_REFERENCE_ROWS = 512
#: Rows per forward pass in that estimate.
_REFERENCE_BATCH = 64
#: Steps between two blurs.
_BLUR_INTERVAL = 4

#: Activations (n, D) of all units for inputs ``(n, *shape)``, differentiable.
UnitValues = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Penalty:
    """Penalty l2 * ||x||^2 + tv * TV(x), subtracted from the objective.

    TV is :func:`~geh_explain.interpret.ascent.images.total_variation`; inputs other than images have ``tv`` = 0.
    """

    l2: float
    tv: float

    def __call__(self, x: Tensor) -> Tensor:
        """Return the penalty (n,) of inputs ``(n, *shape)``."""
        norms = self.l2 * x.flatten(1).square().sum(dim=1)
        # Total variation is defined for images only, so it is left out rather than multiplied by 0.
        return norms + self.tv * total_variation(x) if self.tv else norms


@dataclass(frozen=True)
class AscentProblem:
    """Everything about an ascent but its objectives: inputs that are allowed, start, transforms and penalties.

    Attributes
    ----------
    template
        A tensor of zeros with the shape, dtype and device of one input.
    bounds
        Allowed inputs.
    uses_spectrum
        Whether Fourier coefficients are optimised instead of pixels.
    mask
        Tensor of the shape of one input: 1 where it may change, 0 where it stays as it starts; None for no mask.
    start
        Input to start from; None for the centre of the bounds.
    transform
        Random transform of images before each forward pass.
    penalty
        Subtracted from the objective.
    blur
        Standard deviation in pixels of a Gaussian blur after every fourth step; 0 for none.
    """

    template: Tensor
    bounds: Bounds
    uses_spectrum: bool
    mask: Tensor | None
    start: Tensor | None
    transform: RandomTransform
    penalty: Penalty
    blur: float

    def initial_input(self) -> Tensor:
        """Return the input (``shape``) at the first step, without noise."""
        start = self.template + self.bounds.centre if self.start is None else self.start
        return self.bounds.project(start[None])[0]

    def noise(self, count: int, generator: torch.Generator) -> Tensor:
        """Return Gaussian noise ``(count, *shape)`` with the bounds' span as standard deviation.

        ``generator`` is on the CPU, so that the noise does not depend on the device.
        """
        return self.bounds.span * torch.randn(count, *self.template.shape, generator=generator).to(self.template)

    def apply_mask(self, x: Tensor) -> Tensor:
        """Return inputs ``(n, *shape)`` with the masked numbers as they were at the start."""
        return x if self.mask is None else self.mask * x + (1 - self.mask) * self.initial_input()

    def parametrise(self, count: int, generator: torch.Generator) -> Parametrisation:
        """Return the variables of ``count`` inputs at the first step, with noise that separates restarts."""
        start = self.initial_input() + _START_NOISE * self.noise(count, generator)
        return Spectrum(start, self.bounds) if self.uses_spectrum else Pixels(start, self.bounds)


@dataclass(frozen=True)
class AscentResult:
    """Inputs at the end of an ascent.

    Attributes
    ----------
    inputs
        Inputs ``(n, *shape)``, within the bounds.
    scores
        Objectives (n,) of these inputs, without penalties and random transforms.
    values
        Activations (n, D) of all units.
    changed
        Mask (n,): whether the objective changed in any step. If not, its unit is dead.
    """

    inputs: Tensor
    scores: Tensor
    values: Tensor
    changed: Tensor


@dataclass(frozen=True)
class GradientAscent:
    """Maximisation of objective(h(T(x))) - penalty(x) over inputs x, with activations h and random transforms T.

    Steps are those of Adam. In a ball, Adam's steps of equal size in all coordinates would miss the maximum on the
    sphere; there each step follows the normalised gradient instead.

    Attributes
    ----------
    problem
        Bounds, start, transform and penalty.
    values
        Activations of all units.
    mean, std
        Mean and standard deviation (D,) of each unit over reference inputs.
    steps
        Number of steps.
    lr
        Learning rate, in units of the bounds' span.
    """

    problem: AscentProblem
    values: UnitValues
    mean: Tensor
    std: Tensor
    steps: int
    lr: float

    def __call__(
        self, objectives: list[Objective], generator: torch.Generator, on_step: Callable[[], Any]
    ) -> AscentResult:
        """Run all steps for n objectives in one batch.

        Parameters
        ----------
        objectives
            One objective per input.
        generator
            Source of the start's noise and of the random transforms.
        on_step
            Called after each step, for a progress bar.

        Raises
        ------
        GEHRuntimeError
            If an objective becomes NaN or infinite.
        """
        problem = self.problem
        parametrisation = problem.parametrise(len(objectives), generator)
        optimiser = self._optimiser(parametrisation)
        history = []
        for step in range(self.steps):
            inputs = problem.apply_mask(parametrisation.inputs())
            transformed = problem.transform(inputs, generator) if problem.transform else inputs
            scores = self._scores(objectives, self.values(transformed))
            if not bool(torch.isfinite(scores).all()):
                raise GEHRuntimeError(f"the activation became NaN or infinite in step {step}; try a smaller lr.")
            history.append(scores.detach())
            # Without a path from inputs to units, there is no gradient and no step.
            if scores.requires_grad:
                optimiser.zero_grad()
                loss = (problem.penalty(inputs) - scores).sum()
                torch.autograd.backward(loss, inputs=[parametrisation.parameters])
                self._normalise_gradient(parametrisation)
                optimiser.step()
                parametrisation.project(problem.blur if (step + 1) % _BLUR_INTERVAL == 0 else 0.0)
            on_step()
        return self._result(objectives, parametrisation, history)

    @torch.no_grad()
    def _result(
        self, objectives: list[Objective], parametrisation: Parametrisation, history: list[Tensor]
    ) -> AscentResult:
        """Evaluate the final inputs; ``history`` holds the scores (n,) of each step."""
        # Rounding may have moved inputs out of the bounds by a last digit.
        inputs = self.problem.apply_mask(self.problem.bounds.project(parametrisation.inputs()))
        values = self.values(inputs)
        scores = self._scores(objectives, values)
        changed = (torch.stack([*history, scores]) != history[0]).any(dim=0)
        return AscentResult(inputs, scores, values, changed)

    def _optimiser(self, parametrisation: Parametrisation) -> torch.optim.Optimizer:
        if self._follows_gradient:
            # A normalised step moves all numbers together; this factor makes it as long as a step of Adam.
            return torch.optim.SGD([parametrisation.parameters], lr=self.lr * self.problem.template.numel() ** 0.5)
        return torch.optim.Adam([parametrisation.parameters], lr=self.lr)

    @property
    def _follows_gradient(self) -> bool:
        """Whether steps follow the normalised gradient instead of Adam."""
        return self.problem.bounds.radius is not None and not self.problem.uses_spectrum

    def _normalise_gradient(self, parametrisation: Parametrisation) -> None:
        """Scale the gradient of each input to norm 1, if steps follow it."""
        gradient = parametrisation.parameters.grad
        if self._follows_gradient and gradient is not None:
            parametrisation.parameters.grad = F.normalize(gradient.flatten(1)).view_as(gradient)

    def _scores(self, objectives: list[Objective], values: Tensor) -> Tensor:
        """Return the objective (n,) of each input, with activations (n, D)."""
        scores = [objective(values[row : row + 1], self.mean, self.std) for row, objective in enumerate(objectives)]
        return torch.cat(scores)


@torch.no_grad()
def reference_moments(
    problem: AscentProblem, values: UnitValues, reference: Any, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation (D,) of all units over at most 512 inputs.

    Parameters
    ----------
    problem
        Gives the shape of inputs, and their bounds for random ones.
    values
        Activations of all units.
    reference
        Inputs of any kind that ``explain`` accepts; None for Gaussian noise around the centre of the bounds.
    generator
        Source of the noise.

    Raises
    ------
    GEHValueError
        If the rows of ``reference`` have another shape than the inputs.
    """
    template = problem.template
    if reference is None:
        noise = problem.noise(MAX_REFERENCE_ROWS, generator)
        batches = torch.split(problem.bounds.project(problem.bounds.centre + noise), _REFERENCE_BATCH)
    else:
        reader = Reader(floating_only=True, device=template.device, dtype=template.dtype, argument="reference")
        stream = islice(reader.stream(reference, _REFERENCE_BATCH), MAX_REFERENCE_ROWS // _REFERENCE_BATCH)
        batches = tuple(rows.inputs[0] for rows in stream)
        if any(batch.shape[1:] != template.shape for batch in batches):
            raise GEHValueError(
                f"reference: its rows have shape {tuple(batches[0].shape[1:])}, but shape={tuple(template.shape)}; "
                "give rows of that shape."
            )
    activations = torch.cat([values(batch) for batch in batches])
    spread = activations.std(dim=0, correction=0)
    # A unit that is constant over the reference is centred only.
    return activations.mean(dim=0), torch.where(spread > 0, spread, torch.ones_like(spread))
