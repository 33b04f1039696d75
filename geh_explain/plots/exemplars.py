"""Drawings of inputs that excite units: images in a grid, rows of a table as colours."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.plots import palette
from geh_explain.plots.axes import compact, shorten

#: Width of the line between two images of one unit, as a share of their shorter side.
_GAP = 0.06
#: Grey value of that line, from 0 (black) to 1 (white).
_GAP_GREY = 0.75
#: Units drawn in one figure; further ones are left out, and the figure's title says so.
_MAX_UNITS = 24
#: Characters per line of a reading in a title.
_LINE_LENGTH = 34
#: Diameter in points of the ring around the maximum of a map.
_RING_SIZE = 7
#: A table with more columns than this has no ticks.
_MAX_TICKS = 12

#: Lowest and highest value, scalars for images and one entry per column for tables.
ColourLimits = tuple[Tensor, Tensor]


class ExemplarData(Protocol):
    """What the drawings read from the exemplars of U units, k inputs each.

    :class:`geh_explain.interpret.Exemplars` satisfies this protocol.
    """

    @property
    def inputs(self) -> Any:
        """Inputs ``(U, k, *shape)``, or a tuple of such tensors if the model takes several."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the units."""

    @property
    def places(self) -> NDArray[np.int64] | None:
        """Positions (U, k, r) of the maxima in feature maps, None for units without a map."""

    @property
    def map_shape(self) -> tuple[int, ...] | None:
        """Shape of these feature maps."""

    @property
    def dead(self) -> NDArray[np.bool_]:
        """Mask (U,) of the units with a constant activation."""

    def reading(self, labels: Any) -> Sequence[object]:
        """Return for each unit the majority label of its exemplars."""


class MaximisedData(Protocol):
    """What the drawings read from inputs found by gradient ascent, one per objective.

    :class:`geh_explain.interpret.Maximised` satisfies this protocol.
    """

    @property
    def inputs(self) -> Tensor:
        """Inputs ``(U, *shape)``."""

    @property
    def scores(self) -> NDArray[np.float64]:
        """Values (U,) of the objectives."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the objectives."""


def draw_exemplars(exemplars: ExemplarData, labels: Any = None) -> Any:
    """Draw the exemplars of each unit in axes of its own.

    Parameters
    ----------
    exemplars
        Inputs and names of the units. At most 24 units are drawn.
    labels
        One label per candidate, or None. With labels, the title of a unit includes its reading.

    Returns
    -------
    matplotlib.figure.Figure
        The colour scale is shared by all units.
    """
    inputs = first_input(exemplars.inputs)
    figure, grid = _axes_grid(len(exemplars.names))
    limits = colour_limits(inputs.flatten(0, 1))
    # Titles exist for all units, axes for the first ones only.
    for row, (ax, title) in enumerate(zip(grid, exemplar_titles(exemplars, labels), strict=False)):
        draw_inputs(ax, inputs[row], limits, *maximum_places(exemplars, row))
        set_title(ax, title)
    return figure


def draw_maximised(maximised: MaximisedData) -> Any:
    """Draw one input per objective, each with its own colour scale, and return the figure."""
    figure, grid = _axes_grid(len(maximised.names))
    for row, (ax, name, score) in enumerate(zip(grid, maximised.names, maximised.scores, strict=False)):
        inputs = maximised.inputs[row : row + 1]
        draw_inputs(ax, inputs, colour_limits(inputs))
        set_title(ax, f"{shorten(compact(name), 40)}\n{score:.3g}")
    return figure


def exemplar_titles(exemplars: ExemplarData, labels: Any = None) -> list[str]:
    """Return a title per unit: its name, "(dead)" if it is, and its reading if there are ``labels``."""
    names = [
        shorten(compact(name)) + " (dead)" * bool(dead)
        for name, dead in zip(exemplars.names, exemplars.dead, strict=True)
    ]
    if labels is None:
        return names
    readings = ("\n".join(textwrap.wrap(str(reading), _LINE_LENGTH)) for reading in exemplars.reading(labels))
    return [f"{name}\n{reading}" for name, reading in zip(names, readings, strict=True)]


def maximum_places(exemplars: ExemplarData, row: int) -> tuple[NDArray[np.int64] | None, tuple[int, ...] | None]:
    """Return the positions (k, r) of one unit's maxima and the map's shape; (None, None) if it has none.

    A dead unit has the same value everywhere, so the position of its maximum is arbitrary and is not returned.
    """
    if exemplars.places is None or exemplars.dead[row]:
        return None, None
    return exemplars.places[row], exemplars.map_shape


def draw_inputs(
    ax: Any,
    inputs: Tensor,
    limits: ColourLimits,
    places: NDArray[np.int64] | None = None,
    map_shape: Sequence[int] | None = None,
) -> None:
    """Draw inputs into one axes: images in a square grid, other inputs as rows of colours.

    Parameters
    ----------
    ax
        Matplotlib axes.
    inputs
        Images (k, C, H, W) or (k, H, W), or anything else with k rows, which is flattened to (k, columns).
    limits
        The values at both ends of the colour scale, from :func:`colour_limits`.
    places
        Positions (k, 2) in a feature map, each marked by a ring in its image; None for no rings.
    map_shape
        Shape (rows, columns) of that map, which is stretched over the image.
    """
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_color(palette.NONE)
    if inputs[0].ndim in (2, 3):
        _draw_images(ax, [to_rgb(image, limits) for image in inputs.cpu()], places, map_shape)
    else:
        _draw_table(ax, _rescale(inputs.flatten(1).cpu(), limits))


def set_title(ax: Any, text: str) -> None:
    """Set a small title in which dollar signs are plain text, not mathematics."""
    ax.set_title(text, fontsize=8, parse_math=False)


def colour_limits(inputs: Tensor) -> ColourLimits:
    """Return the lowest and the highest value of inputs (n, *shape).

    Rows of a table, (n, columns), have limits per column, since columns may differ in unit; other inputs have scalars.

    >>> import torch
    >>> low, high = colour_limits(torch.tensor([[0.0, 10.0], [1.0, 30.0]]))
    >>> low.tolist(), high.tolist()
    ([0.0, 10.0], [1.0, 30.0])
    """
    inputs = inputs.cpu().double()
    return (inputs.amin(dim=0), inputs.amax(dim=0)) if inputs.ndim == 2 else (inputs.min(), inputs.max())


def first_input(inputs: Any) -> Tensor:
    """Return ``inputs``, or its first tensor if it is a tuple; only the first input of a model is drawn."""
    tensor: Tensor = inputs[0] if isinstance(inputs, tuple) else inputs
    return tensor


def to_rgb(image: Tensor, limits: ColourLimits) -> NDArray[np.float64]:
    """Return an image (C, H, W) or (H, W) as colours (H, W, 3) between 0 and 1.

    Three channels are red, green and blue; any other number of channels is averaged to grey.
    """
    image = _rescale(image, limits)
    image = image[None] if image.ndim == 2 else image
    image = image if len(image) == 3 else image.mean(dim=0, keepdim=True).expand(3, -1, -1)
    colours: NDArray[np.float64] = image.permute(1, 2, 0).numpy()
    return colours


def _axes_grid(count: int) -> tuple[Any, list[Any]]:
    """Return a figure and its axes, four per row, for ``count`` units or the first 24 of them."""
    import matplotlib.pyplot as plt

    drawn = min(count, _MAX_UNITS)
    columns = min(4, drawn)
    rows = -(-drawn // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(2.6 * columns, 0.5 + 1.9 * rows), layout="constrained", squeeze=False
    )
    for ax in grid.flat[drawn:]:
        ax.set_axis_off()
    if drawn < count:
        figure.suptitle(f"the first {drawn} of {count}", fontsize=9, color=palette.LINE)
    return figure, list(grid.flat[:drawn])


def _draw_table(ax: Any, values: Tensor) -> None:
    """Draw values (k, columns) between 0 and 1 as colours, one row per input."""
    ax.imshow(values.numpy(), aspect="auto", cmap=palette.STRENGTH, vmin=0, vmax=1)
    if values.shape[1] <= _MAX_TICKS:
        ax.set_xticks(range(values.shape[1]))
        ax.tick_params(labelsize=7, length=0)


def _draw_images(
    ax: Any,
    images: list[NDArray[np.float64]],
    places: NDArray[np.int64] | None,
    map_shape: Sequence[int] | None,
) -> None:
    """Draw images (H, W, 3) as one grid, row by row, with a ring at each of ``places``."""
    height, width = images[0].shape[:2]
    columns = math.ceil(math.sqrt(len(images)))
    rows = -(-len(images) // columns)
    gap = max(1, round(_GAP * min(height, width)))
    board = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), _GAP_GREY)
    # Cells without an image are white, so that they do not look like a grey image.
    blanks = [np.ones_like(images[0])] * (rows * columns - len(images))
    for number, image in enumerate([*images, *blanks]):
        top = (number // columns) * (height + gap)
        left = (number % columns) * (width + gap)
        board[top : top + height, left : left + width] = image
        if number < len(images) and places is not None and map_shape is not None and len(map_shape) == 2:
            # Centre of the map's cell, as a share of the image's height and width.
            y, x = ((place + 0.5) / size for place, size in zip(places[number], map_shape, strict=True))
            _draw_ring(ax, left + x * width - 0.5, top + y * height - 0.5)
    ax.imshow(board, interpolation="nearest")


def _draw_ring(ax: Any, x: float, y: float) -> None:
    """Draw a ring that is visible on light and on dark images: a coloured line on a wider white one."""
    from matplotlib.patheffects import withStroke

    halo = withStroke(linewidth=3.0, foreground="white")
    ax.plot(x, y, "o", mfc="none", mec=palette.MARK, ms=_RING_SIZE, mew=1.4, path_effects=[halo])


def _rescale(values: Tensor, limits: ColourLimits) -> Tensor:
    """Return values mapped linearly to [0, 1] and clipped; where both limits agree, the range is taken as 1."""
    low, high = limits
    span = torch.where(high > low, high - low, torch.ones_like(high))
    return ((values.double() - low) / span).clamp(0, 1)
