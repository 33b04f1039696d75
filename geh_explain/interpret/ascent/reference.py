"""Reference inputs of gradient ascent: their range, their statistics, and the spread of units over them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from torch import Tensor

from geh_explain.data.reader import Reader
from geh_explain.errors import GEHValueError
from geh_explain.interpret.ascent.gradient_ascent import AscentProblem, Generators, Values

#: Largest number of reference inputs, and of numbers in them.
MAX_REFERENCE_ROWS = 512
_MAX_REFERENCE_NUMBERS = 2**25
#: Smallest number of reference inputs, if there are so many, and rows per forward pass.
_MIN_REFERENCE_ROWS = 64
#: Number of images over which the mean and the spread of units are measured.
_MAX_MOMENT_IMAGES = 64
_BATCH = 32


def max_reference_rows(numel: int) -> int:
    """Return how many inputs of ``numel`` numbers serve as reference.

    >>> max_reference_rows(784), max_reference_rows(3 * 224 * 224)
    (512, 222)
    """
    return max(_MIN_REFERENCE_ROWS, min(MAX_REFERENCE_ROWS, _MAX_REFERENCE_NUMBERS // numel))


def moment_rows(template: Tensor) -> int:
    """Return over how many inputs the mean and the spread of units are measured, at most: 64 images, 512 others."""
    return _MAX_MOMENT_IMAGES if template.ndim == 3 else MAX_REFERENCE_ROWS


def read_reference(reference: Any, template: Tensor) -> Tensor | None:
    """Return reference inputs ``(n, *shape)``, or None if there are none.

    Parameters
    ----------
    reference
        Inputs of any kind that ``explain`` accepts, or None. The first 512 are used, fewer of large images.
    template
        A tensor of the shape, dtype and device of one input.

    Raises
    ------
    GEHValueError
        If the rows of ``reference`` have another shape than the inputs.
    """
    if reference is None:
        return None
    reader = Reader(floating_only=True, device=template.device, dtype=template.dtype, argument="reference")
    n_rows = max_reference_rows(template.numel())
    stream = islice(reader.stream(reference, _BATCH), -(-n_rows // _BATCH))
    rows = torch.cat([batch.inputs[0] for batch in stream])[:n_rows]
    if rows.shape[1:] != template.shape:
        raise GEHValueError(
            f"reference: its rows have shape {tuple(rows.shape[1:])}, but shape={tuple(template.shape)}; give rows of "
            "that shape."
        )
    return rows


def value_range(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest value of inputs ``(n, *shape)``: of each column of a table, of each colour.

    Inputs other than tables and images (n, C, H, W) have one range.

    >>> low, high = value_range(torch.tensor([[0.0, 5.0], [1.0, 7.0]]))
    >>> low.tolist(), high.tolist()
    ([0.0, 5.0], [1.0, 7.0])
    """
    dims = {2: (0,), 4: (0, 2, 3)}.get(inputs.ndim, tuple(range(inputs.ndim)))
    return inputs.amin(dim=dims, keepdim=True)[0], inputs.amax(dim=dims, keepdim=True)[0]


@torch.no_grad()
def unit_moments(
    problem: AscentProblem, values: Values, reference: Tensor | None, generators: Generators
) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation (D,) of all units over reference inputs.

    Parameters
    ----------
    problem
        Gives random inputs where there is no reference.
    values
        Activations of all units.
    reference
        Inputs ``(n, *shape)``, of which at most 64 are used if they are images; or None.
    generators
        One source of random numbers per random input.
    """
    inputs = problem.random_inputs(generators) if reference is None else reference
    count = min(len(inputs), moment_rows(problem.template))
    inputs = inputs[torch.linspace(0, len(inputs) - 1, count).long()]
    activations = torch.cat([values(batch) for batch in torch.split(inputs, _BATCH)])
    spread = activations.std(dim=0, correction=0)
    # A unit that is constant over the reference is centred only.
    return activations.mean(dim=0), torch.where(spread > 0, spread, torch.ones_like(spread))
