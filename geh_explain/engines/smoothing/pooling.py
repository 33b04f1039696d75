"""Smooth maxima over pooling windows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def max_pool(dimensions: int) -> Callable[..., Any]:
    """Return the smooth form of ``max_pool1d``, 2d or 3d: log(sum exp(beta x)) / beta per window.

    Padding is absent from the sum. Indices, where they are requested, are those of the hard maxima.

    >>> x = torch.tensor([[[0.0, 1.0, 5.0, 2.0]]])
    >>> max_pool(1)(10.0, x, kernel_size=2)
    tensor([[[1.0000, 5.0000]]])
    """

    def pool(
        beta: float | Tensor,
        input: Tensor,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        # The hard maxima give the shape of the result, the indices, and a shift that avoids overflow.
        settings = (kernel_size, stride or kernel_size, padding, dilation)
        hard, indices = getattr(F, f"max_pool{dimensions}d")(input.detach(), *settings, ceil_mode, return_indices=True)
        # Finite, as the derivative in beta of exp(beta x) at -inf is NaN.
        lowest = torch.finfo(input.dtype).min / 4
        windows = pool_windows(dimensions, input, hard, (settings, {}), outside=lowest)
        soft = _soft_maximum(beta, windows, hard)
        return (soft, indices) if return_indices else soft

    return pool


def adaptive_max_pool(dimensions: int) -> Callable[..., Any]:
    """Return the smooth form of ``adaptive_max_pool1d``, 2d or 3d: log(sum exp(beta x)) / beta per cell."""

    def pool(beta: float | Tensor, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        hard, indices = getattr(F, f"adaptive_max_pool{dimensions}d")(input.detach(), output_size, return_indices=True)
        first = input.ndim - dimensions
        # A sharpness for each row and channel has dimensions of length 1 where cells are.
        divisor = beta.flatten(first - 1) if isinstance(beta, Tensor) else beta
        cells = []
        sizes = [(input.shape[first + d], hard.shape[first + d]) for d in range(dimensions)]
        for cell in itertools.product(*(range(count) for _, count in sizes)):
            view = input
            for d, (length, count) in enumerate(sizes):
                # Torch's rule for the bounds of a cell: floor of the first, ceiling of the last.
                start, stop = cell[d] * length // count, -(-(cell[d] + 1) * length // count)
                view = view.narrow(first + d, start, stop - start)
            cells.append(torch.logsumexp(beta * view, tuple(range(first, input.ndim))) / divisor)
        soft = torch.stack(cells, dim=-1).reshape(hard.shape)
        return (soft, indices) if return_indices else soft

    return pool


def with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a pooling function that always returns indices too, as torch's ``..._with_indices`` do."""
    return lambda *args, **kwargs: pool(*args, **(kwargs | {"return_indices": True}))


def pool_windows(
    dimensions: int,
    input: Tensor,
    like: Tensor,
    settings: tuple[Sequence[Any], dict[str, Any]],
    outside: float = 0.0,
) -> Tensor:
    """Return the values at each position of the pooling windows, (k, ...), with k the size of a window.

    Parameters
    ----------
    dimensions
        Number of pooled dimensions, the last ones of ``input``.
    input
        The tensor that is pooled; it may have further dimensions in front, such as directions.
    like
        The pooled tensor, which gives the number of windows.
    settings
        Arguments of the pooling function after its input, by position and by name.
    outside
        Value of the padding.
    """
    names = ("kernel_size", "stride", "padding", "dilation")
    options = dict(zip(names, settings[0], strict=False)) | settings[1]
    size = _per_dimension(options["kernel_size"], dimensions)
    gap = _per_dimension(options.get("dilation", 1), dimensions)
    step = _per_dimension(options.get("stride") or size, dimensions)
    pad = _per_dimension(options.get("padding", 0), dimensions)
    first, counts = input.ndim - dimensions, like.shape[like.ndim - dimensions :]
    # ceil_mode lets windows end after the padding, so the end is padded by as much as they need.
    reach = [(counts[d] - 1) * step[d] + (size[d] - 1) * gap[d] + 1 for d in range(dimensions)]
    end_pad = [max(0, reach[d] - input.shape[first + d] - pad[d]) for d in range(dimensions)]
    padded = F.pad(input, [side for d in reversed(range(dimensions)) for side in (pad[d], end_pad[d])], value=outside)
    # For each position in a window, a strided view of its entries in all windows.
    positions = []
    for offset in itertools.product(*(range(count) for count in size)):
        view = padded
        for d in range(dimensions):
            start = offset[d] * gap[d]
            view = view.narrow(first + d, start, (counts[d] - 1) * step[d] + 1)
            view = view[(slice(None),) * (first + d) + (slice(None, None, step[d]),)]
        positions.append(view)
    return torch.stack(positions)


def _soft_maximum(beta: float | Tensor, values: Tensor, highest: Tensor) -> Tensor:
    """Return log(sum exp(beta x)) / beta over dimension 0, shifted by the ``highest`` values."""
    return highest + torch.exp(beta * (values - highest)).sum(dim=0).log() / beta


def _per_dimension(value: int | Sequence[int], dimensions: int) -> tuple[int, ...]:
    """Return a setting as one number per dimension."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dimensions if len(values) == 1 else values
