"""Inputs that excite units most, found by gradient ascent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from geh_explain._validation import check_int
from geh_explain.interpret.ascent.arguments import (
    ImageOptions,
    StepOptions,
    broadcast,
    check_bounds,
    check_mask,
    check_number,
    check_shape,
    check_unit_set,
)
from geh_explain.interpret.ascent.gradient_ascent import AscentProblem, AscentResult, GradientAscent, Penalty
from geh_explain.interpret.ascent.objectives import Objective, parse_objectives
from geh_explain.interpret.ascent.preactivations import UnitValues, as_rows
from geh_explain.interpret.ascent.reference import moment_rows, read_reference, unit_moments, value_range
from geh_explain.interpret.ascent.statistics import ImageStatistics
from geh_explain.interpret.responses import HiddenUnits, check_reduce, report_dead
from geh_explain.model.layers import Layer
from geh_explain.model.preserve import as_module, device_and_dtype, preserved
from geh_explain.plots.exemplars import draw_maximised
from geh_explain.units.base import Units

#: Objectives listed in the repr of a result.
_MAX_LISTED = 3


@dataclass(frozen=True, repr=False)
class Maximised:
    """One input for each of U objectives.

    Attributes
    ----------
    inputs
        Inputs ``(U, *shape)``.
    scores
        Objectives (U,) of these inputs.
    activations
        For each objective the activation of its unit, or of both units of a pair, before the activation function if
        that was maximised; the score for a direction.
    names
        Names of the objectives.
    dead
        Mask (U,) of objectives that did not change with any input tried.
    steps
        Number of steps (U,) after which the objectives had settled, or their largest number.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3))
    >>> geh.interpret.maximise(net, "0", [0, 2], shape=(2,), limits=(0, 1), steps=8, progress=False)
    Maximised(2 inputs (2,): 0[0], 0[2])
    """

    inputs: Tensor
    scores: NDArray[np.float64]
    activations: list[tuple[float, ...]]
    names: list[str]
    dead: NDArray[np.bool_]
    steps: NDArray[np.int64] | None = None

    def select(self, rows: Sequence[int]) -> Maximised:
        """Return the inputs of some objectives, given by their rows."""
        index = list(rows)
        return Maximised(
            self.inputs[index],
            self.scores[index],
            [self.activations[row] for row in index],
            [self.names[row] for row in index],
            self.dead[index],
            None if self.steps is None else self.steps[index],
        )

    def plot(self) -> Any:
        """Draw the inputs side by side and return the figure."""
        return draw_maximised(self)

    def __repr__(self) -> str:
        listed = ", ".join(self.names[:_MAX_LISTED]) + (", ..." if len(self.names) > _MAX_LISTED else "")
        return f"Maximised({len(self.names)} inputs {tuple(self.inputs.shape[1:])}: {listed})"


def maximise(
    model: nn.Module,
    layer: str | nn.Module | Layer,
    units: Any,
    shape: int | Sequence[int],
    *,
    unit_set: Units | None = None,
    reduce: str = "mean",
    preactivation: bool = True,
    reference: Any = None,
    parametrisation: str = "auto",
    limits: tuple[Any, Any] | None = None,
    radius: float | None = None,
    mask: Any = None,
    start: Tensor | None = None,
    jitter: float | None = None,
    rotate: float | None = None,
    scale: float | None = None,
    l2: float = 0.0,
    tv: float = 0.0,
    blur: float = 0.0,
    steps: int | None = None,
    lr: float | None = None,
    tolerance: float | None = None,
    restarts: int = 1,
    batch_size: int = 32,
    seed: int = 0,
    progress: bool = True,
) -> Maximised:
    """Find inputs that excite units most by gradient ascent from noise.

    Images keep the colours and the contrast of natural images, and steps favour the frequencies that natural images
    favour. Pass images like those that the network was trained on as ``reference``, so that range and statistics are
    theirs.

    Parameters
    ----------
    model, layer
        A network, and the layer of the units: a dotted name, a module, or a :class:`~geh_explain.Layer`.
    units
        Index of a unit, a pair ``(i, j)`` to be excited together, a direction (a floating-point tensor with one
        weight per unit), a list of these, or None for each unit. The objective of a pair is the smooth minimum of
        both standardised activations.
    shape
        Shape of one input, without the batch dimension.
    unit_set
        Definition of a unit, from :mod:`geh_explain.units`; None: neurons, or channels of feature maps.
    reduce
        Reduction of a feature map to one number: ``"mean"`` or ``"max"``.
    preactivation
        If the layer ends in an activation function, maximise the values before it: a ReLU has no gradient where it
        is 0.
    reference
        Inputs whose activations standardise the units of a pair, and whose statistics images keep; at most 512, fewer
        of large images. None for random inputs, and images with amplitudes that fall as 1 / frequency.
    parametrisation
        ``"natural"``: Fourier coefficients in units of the amplitudes of natural images, with fixed colours and
        contrast; ``"phase"``: their phases only (MACO, Fel et al. 2023), which also fixes the power spectrum;
        ``"fourier"``: weighted Fourier coefficients; ``"pixel"``: the numbers themselves. ``"auto"``: natural images
        (Fourier coefficients with ``start`` or ``radius``), numbers for other inputs.
    limits
        Lowest and highest value, numbers or arrays that broadcast to ``shape``. None: for natural images and phases
        the range of ``reference``, else no limits. Inputs that are normalised by colour have limits by colour, of shape
        (C, 1, 1).
    radius
        Largest Euclidean norm of an input; None for no limit. Excludes ``limits`` and ``mask``.
    mask
        1 where the input may change, 0 where it stays as it starts; broadcasts to ``shape``.
    start
        Input to start from, broadcasts to ``shape``; None for the centre of the limits. A little noise is added.
    jitter, rotate, scale
        Largest random shift (pixels), rotation (degrees) and zoom (share of the size) of images in each step; None
        for 1/10 of the shorter side, 10 degrees and 0.15. Only patterns that survive them are found.
    l2, tv
        Weights of the squared norm and of the total variation, which are subtracted from the objective.
    blur
        Standard deviation in pixels of a blur after every fourth step; needs ``parametrisation="pixel"``.
    steps
        Largest number of steps; None for 128 of images, 256 of other inputs.
    lr
        Size of steps: in natural amplitudes (None for 0.1), in radians for phases (0.2), else as a share of the limits'
        width or of the radius (0.05).
    tolerance
        An input takes no further steps once its objective, averaged over 16 steps, rises by less than this share of
        its total rise; 0 for all steps. None for 0.02, or for 1e-6 without random transforms.
    restarts
        Number of starts per objective; the best result is returned.
    batch_size
        Inputs per forward pass. It does not change the result.
    seed
        Seed of all random numbers.
    progress
        Whether to show a progress bar.

    Returns
    -------
    Maximised
        One input per objective, with its score.

    Raises
    ------
    GEHTypeError, GEHValueError
        If an argument is not supported, or no unit changes with the inputs.
    GEHRuntimeError
        If an activation becomes NaN or infinite.

    Examples
    --------
    The best input of a linear unit within a box is the corner given by the signs of its weights.

    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, 0.0]]))
    >>> maximised = geh.interpret.maximise(net, "1", 0, shape=(3,), limits=(-1, 1), progress=False)
    >>> maximised.inputs[0].tolist()
    [1.0, -1.0, 1.0]
    """
    check_reduce(reduce)
    restarts = check_int("restarts", restarts, 1)
    batch_size = check_int("batch_size", batch_size, 1)
    seed = check_int("seed", seed, 0)
    step_options = StepOptions(
        None if steps is None else check_int("steps", steps, 1),
        lr=check_number("lr", lr, positive=True),
        tolerance=check_number("tolerance", tolerance),
    )
    image_options = ImageOptions(
        parametrisation,
        jitter=check_number("jitter", jitter),
        rotate=check_number("rotate", rotate),
        scale=check_number("scale", scale),
        tv=check_number("tv", tv) or 0.0,
        blur=check_number("blur", blur) or 0.0,
    )
    l2 = check_number("l2", l2) or 0.0
    radius = check_number("radius", radius, positive=True)
    shape = check_shape(shape)
    unit_set = check_unit_set(unit_set)
    image_options.check(shape)
    module = as_module(model)
    device, dtype = device_and_dtype(module)
    # Shape, precision and device of all tensors that follow.
    template = torch.zeros(shape, device=device, dtype=dtype)
    with preserved(module):
        # Gradients are needed in the inputs only; preserved() restores requires_grad.
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        cut = HiddenUnits(module, layer, unit_set).cut(as_rows(template.expand(2, *shape)), "shape")
        objectives = parse_objectives(units, cut.n_units)
        reference_rows = read_reference(reference, template)
        problem = AscentProblem(
            template,
            check_bounds(limits, radius, mask, template),
            image_options.choose(shape, start is not None or radius is not None),
            None,
            check_mask(mask, template),
            None if start is None else broadcast("start", start, template),
            image_options.transform(shape),
            Penalty(l2, image_options.tv),
            image_options.blur,
        )
        problem = _with_statistics(problem, reference_rows)
        values = UnitValues(cut, reduce, preactivation, template)
        mean, std = template.new_zeros(cut.n_units), template.new_ones(cut.n_units)
        if any(len(objective.units) == 2 for objective in objectives):
            # Single units and directions are not standardised.
            mean, std = unit_moments(problem, values, reference_rows, _generators(seed, 1, moment_rows(template)))
        numbers = step_options.resolve(problem.parametrisation, problem.transform)
        ascent = GradientAscent(problem, values, mean, std, *numbers)
        # Restarts of one objective are consecutive, possibly in several batches.
        starts = [objective for objective in objectives for _ in range(restarts)]
        results = _run_batches(ascent, starts, batch_size, seed, progress)
        names = cut.unit_names()
    return _best_of_restarts(results, objectives, restarts, names)


def _with_statistics(problem: AscentProblem, reference: Tensor | None) -> AscentProblem:
    """Return a problem whose images have the statistics and, unless the user gave limits, the range of ``reference``.

    Without reference inputs the statistics are those of photographs. Other parametrisations have no statistics.
    """
    if problem.parametrisation not in ("natural", "phase"):
        return problem
    bounds = problem.bounds
    if reference is not None and bounds.box is None:
        low, high = (end.expand_as(problem.template) for end in value_range(reference))
        bounds = replace(bounds, low=low, high=high)
    if reference is None:
        statistics = ImageStatistics.of_photographs(problem.template, bounds)
    else:
        statistics = ImageStatistics.measure(reference)
    return replace(problem, bounds=bounds, statistics=statistics)


def _generators(seed: int, stream: int, count: int) -> list[torch.Generator]:
    """Return ``count`` independent generators; ``stream`` tells different uses of one seed apart."""
    seeds = np.random.SeedSequence([seed, stream]).generate_state(count, np.uint64) >> np.uint64(1)
    return [torch.Generator().manual_seed(int(number)) for number in seeds]


def _run_batches(
    ascent: GradientAscent, starts: list[Objective], batch_size: int, seed: int, progress: bool
) -> list[AscentResult]:
    """Run the ascent for one objective per start, ``batch_size`` at a time."""
    generators = _generators(seed, 0, len(starts))
    batches = [slice(first, first + batch_size) for first in range(0, len(starts), batch_size)]
    total = len(batches) * ascent.steps
    with tqdm(total=total, desc="ascent", unit="step", disable=not progress, leave=False) as bar:
        return [ascent(starts[batch], generators[batch], bar.update) for batch in batches]


def _best_of_restarts(
    results: list[AscentResult], objectives: list[Objective], restarts: int, names: list[str]
) -> Maximised:
    """Return the restart with the highest score of each objective.

    Parameters
    ----------
    results
        Batches of results. Together they hold ``restarts`` consecutive rows per objective.
    objectives, restarts
        The U objectives, and the number of starts of each.
    names
        Names of all units of the layer.
    """
    grid = (len(objectives), restarts)
    scores = torch.cat([result.scores for result in results])
    values = torch.cat([result.values for result in results])
    best = scores.reshape(grid).argmax(dim=1) + restarts * torch.arange(len(objectives), device=scores.device)
    dead = ~torch.cat([result.changed for result in results]).reshape(grid).any(dim=1).cpu().numpy()
    objective_names = [objective.name(names) for objective in objectives]
    report_dead(dead, objective_names, "did not change with any input that was tried")
    # A direction has no units of its own: its score is reported instead.
    activations = [
        tuple(float(values[row, unit]) for unit in objective.units) or (float(scores[row]),)
        for objective, row in zip(objectives, best.tolist(), strict=True)
    ]
    inputs = torch.cat([result.inputs for result in results])[best].detach()
    steps = torch.cat([result.steps for result in results])[best.cpu()].numpy()
    return Maximised(inputs, scores[best].double().cpu().numpy(), activations, objective_names, dead, steps)
