"""Gradient ascent: steps in the inputs that increase objectives, within bounds and with penalties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geh_explain.errors import GEHRuntimeError
from geh_explain.interpret.ascent.bounds import Bounds
from geh_explain.interpret.ascent.images import RandomTransform, total_variation
from geh_explain.interpret.ascent.objectives import Objective
from geh_explain.interpret.ascent.parametrisation import NaturalImages, Parametrisation, Phases, Pixels, Spectrum
from geh_explain.interpret.ascent.statistics import ImageStatistics
from geh_explain.interpret.ascent.steps import Adam, NormalisedGradient, ScoreHistory, Stepper

#: Standard deviation of the noise around the start, as a share of the bounds' span.
_START_NOISE = 0.01
#: Steps between two blurs.
_BLUR_INTERVAL = 4

#: Activations (n, D) of all units for inputs ``(n, *shape)``, differentiable.
Values = Callable[[Tensor], Tensor]
#: One source of random numbers per input.
Generators = Sequence[torch.Generator]


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
    parametrisation
        Optimised variables: ``"natural"``, ``"phase"``, ``"fourier"`` or ``"pixel"``.
    statistics
        Statistics of images, for ``"natural"`` and ``"phase"``; else None.
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
    parametrisation: str
    statistics: ImageStatistics | None
    mask: Tensor | None
    start: Tensor | None
    transform: RandomTransform
    penalty: Penalty
    blur: float

    def initial_input(self) -> Tensor:
        """Return the input (``shape``) at the first step, without noise."""
        start = self.template + self.bounds.centre if self.start is None else self.start
        return self.bounds.project(start[None])[0]

    def noise(self, generators: Generators) -> Tensor:
        """Return Gaussian noise ``(n, *shape)`` with the bounds' span as standard deviation.

        The n generators are on the CPU, so that the noise does not depend on the device.
        """
        noise = [torch.randn(self.template.shape, generator=generator) for generator in generators]
        return self.bounds.span * torch.stack(noise).to(self.template)

    def apply_mask(self, x: Tensor) -> Tensor:
        """Return inputs ``(n, *shape)`` with the masked numbers as they were at the start."""
        return x if self.mask is None else self.mask * x + (1 - self.mask) * self.initial_input()

    def parametrise(self, generators: Generators) -> Parametrisation:
        """Return the variables of one input per generator at the first step; random numbers separate restarts."""
        if self.statistics is not None:
            kind = Phases if self.parametrisation == "phase" else NaturalImages
            return kind(self.statistics, self.bounds, generators)
        start = self.initial_input() + _START_NOISE * self.noise(generators)
        return Spectrum(start, self.bounds) if self.parametrisation == "fourier" else Pixels(start, self.bounds)

    def random_inputs(self, generators: Generators) -> Tensor:
        """Return one random input per generator: random images, or Gaussian noise around the centre of the bounds."""
        if self.statistics is not None:
            return self.parametrise(generators).inputs().detach()
        return self.bounds.project(self.bounds.centre + self.noise(generators))


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
    steps
        Number of steps (n,) until the objective settled.
    """

    inputs: Tensor
    scores: Tensor
    values: Tensor
    changed: Tensor
    steps: Tensor


@dataclass(frozen=True)
class GradientAscent:
    """Maximisation of objective(h(T(x))) - penalty(x) over inputs x, with activations h and random transforms T.

    Steps are those of Adam. In a ball, Adam's steps of equal size in all coordinates would miss the maximum on the
    sphere; there each step follows the normalised gradient instead. An input whose objective has settled leaves the
    batch, see :class:`~geh_explain.interpret.ascent.steps.ScoreHistory`.

    Attributes
    ----------
    problem
        Bounds, start, transform and penalty.
    values
        Activations of all units.
    mean, std
        Mean and standard deviation (D,) of each unit over reference inputs.
    steps
        Largest number of steps.
    lr
        Learning rate, in units of the bounds' span, of natural amplitudes, or in radians for phases.
    tolerance
        Rise of the objective that counts as none, as a share of the rise since the start; 0 to take all steps.
    """

    problem: AscentProblem
    values: Values
    mean: Tensor
    std: Tensor
    steps: int
    lr: float
    tolerance: float

    def __call__(self, objectives: list[Objective], generators: Generators, on_step: Callable[[], Any]) -> AscentResult:
        """Run the steps for n objectives in one batch.

        Parameters
        ----------
        objectives
            One objective per input.
        generators
            Sources of the start's noise and of the random transforms, one per input. The result for an input
            therefore does not depend on the others in the batch.
        on_step
            Called after each step, for a progress bar.

        Raises
        ------
        GEHRuntimeError
            If an objective becomes NaN or infinite.
        """
        parametrisation = self.problem.parametrise(generators)
        stepper = self._stepper()
        history = ScoreHistory(len(objectives), self.tolerance)
        final = parametrisation.parameters.detach().clone()
        active = torch.arange(len(objectives))
        for step in range(self.steps):
            batch = [objectives[row] for row in active]
            scores, gains = self._step(batch, parametrisation, stepper, [generators[row] for row in active], step)
            on_step()
            settled = history.add(active, scores, gains)
            if not bool(settled.any()):
                continue
            final[active[settled]] = parametrisation.parameters.detach()[settled]
            active = active[~settled]
            if not len(active):
                break
            parametrisation.keep(~settled)
            stepper.keep(~settled)
        if len(active):
            final[active] = parametrisation.parameters.detach()
        parametrisation.parameters = final
        return self._result(objectives, parametrisation, history)

    def _step(
        self,
        objectives: list[Objective],
        parametrisation: Parametrisation,
        stepper: Stepper,
        generators: Generators,
        step: int,
    ) -> tuple[Tensor, Tensor]:
        """Take one step; return the objectives (n,) before it, without and with penalties."""
        problem = self.problem
        inputs = problem.apply_mask(parametrisation.inputs())
        transformed = problem.transform(inputs, generators) if problem.transform else inputs
        scores = self._scores(objectives, self.values(transformed))
        if not bool(torch.isfinite(scores).all()):
            raise GEHRuntimeError(f"the activation became NaN or infinite in step {step}; try a smaller lr.")
        gains = scores - problem.penalty(inputs)
        # Without a path from inputs to units, there is no gradient and no step.
        if scores.requires_grad:
            (gradient,) = torch.autograd.grad(gains.sum(), parametrisation.parameters)
            with torch.no_grad():
                parametrisation.parameters += stepper(gradient)
            parametrisation.project(problem.blur if (step + 1) % _BLUR_INTERVAL == 0 else 0.0)
        return scores.detach().cpu(), gains.detach().cpu()

    @torch.no_grad()
    def _result(
        self, objectives: list[Objective], parametrisation: Parametrisation, history: ScoreHistory
    ) -> AscentResult:
        """Evaluate the final inputs."""
        # Rounding may have moved inputs out of the bounds by a last digit.
        inputs = self.problem.apply_mask(self.problem.bounds.project(parametrisation.inputs()))
        values = self.values(inputs)
        scores = self._scores(objectives, values)
        return AscentResult(inputs, scores, values, history.changed(scores.cpu()), history.steps)

    def _stepper(self) -> Stepper:
        bounds = self.problem.bounds
        if bounds.radius is not None and self.problem.parametrisation == "pixel":
            # A normalised step moves all numbers together; this factor makes it as long as a step of Adam.
            return NormalisedGradient(self.lr * self.problem.template.numel() ** 0.5)
        return Adam(self.lr)

    def _scores(self, objectives: list[Objective], values: Tensor) -> Tensor:
        """Return the objective (n,) of each input, with activations (n, D)."""
        scores = [objective(values[row : row + 1], self.mean, self.std) for row, objective in enumerate(objectives)]
        return torch.cat(scores)
