"""Maxima over several entries: which entries a call compares, and how far their differences move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geh_explain.engines.smoothing.gaussian import Bandwidth
from geh_explain.engines.smoothing.movement import compares_tensors, plain_values
from geh_explain.engines.smoothing.pooling import pool_windows
from geh_explain.engines.smoothing.sharpness import BETA_TIMES_BANDWIDTH
from geh_explain.engines.smoothing.view import Form

#: Smallest bandwidth of a maximum, relative to the movement of its entries: entries that move together.
_MIN_BANDWIDTH = 1e-3


@dataclass(frozen=True)
class Maximum:
    """A call that takes the maximum, or minimum, over several entries.

    Attributes
    ----------
    dims
        The dimensions that it reduces, counted from the last one; empty where it reduces everything.
    windows
        Returns the entries (k, ...) of pooling windows of a tensor, given the value of the padding; None where all
        entries along ``dims`` are compared.
    """

    dims: tuple[int, ...]
    windows: Callable[[Tensor], Tensor] | None = None

    @property
    def of_everything(self) -> bool:
        """Whether it reduces all dimensions, the rows included."""
        return not self.dims

    def pair_movement(self, moved: Tensor) -> Tensor:
        """Return the mean squared difference of the movements of two entries of each maximum.

        It is twice the variance, and at least a small part of the mean square: entries that move together never change
        their order. Dimensions that are reduced have length 1 then. ``moved`` (m, *shape) has directions in front.
        """
        if self.windows is None:
            return _pair_movement(moved, torch.ones_like(moved), self.dims)
        return _pair_movement(self.windows(moved), self.windows(torch.ones_like(moved)), (0,)).squeeze(0)


def maximum_of(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Maximum | None:
    """Return which maximum over several entries a kinked call is; None for other functions.

    Parameters
    ----------
    name
        Name of the function, its key in ``FORMS``.
    args, kwargs
        Arguments of the call. ``torch.max`` of two tensors is an elementwise function, of one tensor a maximum.

    Examples
    --------
    >>> maximum_of("amax", (torch.zeros(2, 3, 4), (1, 2)), {}).dims
    (-2, -1)
    >>> maximum_of("relu", (torch.zeros(2, 3),), {}) is None
    True
    """
    x = plain_values(args[0] if args else kwargs["input"])
    if "max_pool" in name:
        dimensions = int(name.removesuffix("_with_indices").removesuffix("d")[-1])
        dims = tuple(range(-dimensions, 0))
        if name.startswith("adaptive"):
            return Maximum(dims)
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        options = dict(zip(names, args[1:6], strict=False)) | {key: kwargs[key] for key in names if key in kwargs}
        like = getattr(F, f"max_pool{dimensions}d")(x, **options)
        options.pop("ceil_mode", None)
        return Maximum(dims, lambda moved: pool_windows(dimensions, moved, like, ((), options)))
    if name not in ("amax", "amin", "max", "min") or compares_tensors(args, kwargs):
        return None
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    given = () if dim is None else tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    return Maximum(tuple(number % x.ndim - x.ndim for number in given))


def form_of(maximum: Maximum | None, bandwidths: Tensor) -> Form:
    """Return what the smooth form of a call takes, given its bandwidths.

    Bandwidths for elementwise functions. For a maximum the sharpness pi / (sqrt(3) b) of a log-sum-exp: of two entries
    it is a ramp of their difference whose second derivative has the standard deviation b.
    """
    if maximum is None:
        return Bandwidth.of(bandwidths)
    return BETA_TIMES_BANDWIDTH / bandwidths.clamp_min(torch.finfo(bandwidths.dtype).tiny ** 0.5)


def _pair_movement(moved: Tensor, inside: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return twice the variance of ``moved`` along ``dims``, where ``inside`` is 1 for entries and 0 for padding.

    >>> _pair_movement(torch.tensor([[1.0, 4.0]]), torch.ones(1, 2), (1,))
    tensor([[9.]])
    """
    count = inside.sum(dims, keepdim=True)
    mean = (moved * inside).sum(dims, keepdim=True) / count.clamp_min(1)
    squares = ((moved - mean) * inside).square().sum(dims, keepdim=True)
    size = (moved * inside).square().sum(dims, keepdim=True) / count.clamp_min(1)
    return torch.maximum(2 * squares / (count - 1).clamp_min(1), _MIN_BANDWIDTH**2 * size)
