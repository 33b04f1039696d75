"""Bandwidths of kinked calls, measured in each row by derivatives along the units.

See :mod:`geh_explain.engines.smoothing.radius` for the formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from geh_explain.data.rows import Rows
from geh_explain.engines.smoothing.maxima import form_of, maximum_of
from geh_explain.engines.smoothing.movement import compares_tensors, plain_values
from geh_explain.engines.smoothing.view import KinkedCallView
from geh_explain.model.cut import Cut

#: Units whose directions are all taken, and random directions for more units.
MAX_DIRECTIONS = 64
#: Shift of the units for differences, where a function has no forward-mode derivative.
DIFFERENCE = 1e-3
#: Standard deviation of the units that a row sets by itself, times sqrt(K), as a part of its median distance to the
#: kinks of K entries.
_OWN_PART = 0.6
#: Entries are at the kink if they are nearer than this number of eps of the farthest entry.
_ROUNDING_EPS = 100


@dataclass(frozen=True)
class Layout:
    """Where the rows are in what enters a kinked call.

    Rows are the first dimension of most tensors. They are the second one where positions of a sequence come first, and
    one dimension holds rows and positions where a model reshapes both into one.

    Attributes
    ----------
    dim
        The dimension of the rows.
    per_row
        Number of consecutive places in this dimension that belong to a row.

    Examples
    --------
    Two rows with three places each, in a dimension of length 6:

    >>> layout = Layout(dim=0, per_row=3)
    >>> layout.by_row(torch.arange(6.0)).tolist()
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    >>> layout.along_rows(torch.tensor([1.0, 2.0]), torch.zeros(6, 1)).flatten().tolist()
    [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    """

    dim: int
    per_row: int

    def split(self, x: Tensor, *sizes: int) -> Tensor:
        """Return x with the dimension of the rows in front, as ``(*sizes, places, ...)``."""
        front = x.movedim(self.dim, 0)
        return front.reshape(*sizes, -1, *front.shape[1:])

    def merge(self, x: Tensor, n_sizes: int) -> Tensor:
        """Return ``(*sizes, places, ...)`` with one dimension of rows again, in its place."""
        return x.flatten(0, n_sizes).movedim(0, self.dim)

    def by_row(self, x: Tensor) -> Tensor:
        """Return the entries of each row, (n, entries)."""
        return self.split(x, x.shape[self.dim] // self.per_row).flatten(1)

    def of_rows(self, x: Tensor, rows: slice) -> Tensor:
        """Return the part of x that belongs to consecutive rows."""
        return x.narrow(self.dim, rows.start * self.per_row, (rows.stop - rows.start) * self.per_row)

    def along_rows(self, values: Tensor, like: Tensor) -> Tensor:
        """Return one value (n,) per row in a shape that broadcasts with ``like``."""
        repeated = values if self.per_row == 1 else values.repeat_interleave(self.per_row)
        return repeated.to(like.dtype).reshape([-1 if dim == self.dim else 1 for dim in range(like.ndim)])

    def joined(self, parts: Sequence[Tensor | None], draws: int) -> Tensor | None:
        """Return the values of all points, of parts whose rows are repeated for each draw; None if one is missing."""
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if len(known) == 1:
            return known[0]
        split = [self.split(part, draws, part.shape[self.dim] // (self.per_row * draws)) for part in known]
        return self.merge(torch.cat(split, dim=1), 2)


class _Shapes(KinkedCallView):
    """Records the shape of what enters each kinked call, and changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def handle_kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one kinked call, unchanged."""
        self.shapes.append(tuple(_entering(name, args, kwargs).shape))
        return func(*args, **kwargs)


def row_layouts(cut: Cut, rows: Rows) -> list[Layout | None]:
    """Return where the rows are in each kinked call; None where no single dimension grows with the rows.

    Found from forward passes of one row and of two. Calls on constants have no rows, nor have those inside the model's
    own ``vmap``.

    Parameters
    ----------
    cut
        The model as a function of the units' shifts.
    rows
        A row or more; the first one is used.
    """
    found = []
    for some in (rows[:1], rows[:1].repeat(2)):
        view = _Shapes()
        with cut.viewed(view):
            cut.all_outputs(some, cut.zeros(some))
        found.append(view.shapes)
    layouts: list[Layout | None] = []
    for one, two in zip(*found, strict=False):
        doubled = [dim for dim, (a, b) in enumerate(zip(one, two, strict=False)) if b == 2 * a]
        alone = len(one) == len(two) and len(doubled) == 1
        layouts.append(Layout(doubled[0], one[doubled[0]]) if alone else None)
    return layouts


def _entering(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Return what meets the kink of a call, with its derivative.

    That is the input of a function, or the difference of the two tensors of which the larger or smaller is taken.
    """
    x: Tensor = args[0] if args else kwargs["input"]
    if name in ("maximum", "minimum", "fmax", "fmin") or compares_tensors(args, kwargs):
        other = kwargs["other"] if "other" in kwargs else args[1]
        difference: Tensor = x - other
        return difference
    return x


class Measurement(KinkedCallView):
    """Measures the bandwidths of kinked calls in a pass that carries the derivatives along all directions.

    Each call is smoothed as soon as it is measured.

    Parameters
    ----------
    layouts
        Where the rows are in each call.
    scale
        Standard deviation of the units, one for all rows or for each (n,), None if each row sets it, and what it is
        divided by.
    zeros
        Zeros (n,), in the dtype and on the device of the units.

    Attributes
    ----------
    bandwidths
        For each call so far its bandwidths, in the shape of what enters an elementwise function, or of the results of a
        maximum; None where it stays as it is.
    sigmas
        Standard deviations (n,) of the units; 0 where they are not known yet.
    undecided
        Whether rows (n,) met a call that did not set their standard deviation, as all of its entries were at the kink.
    """

    def __init__(
        self, layouts: Sequence[Layout | None], scale: tuple[float | Tensor | None, float], zeros: Tensor
    ) -> None:
        super().__init__()
        self._layouts = layouts
        self._scale = scale
        self._zeros = zeros
        self.bandwidths: list[Tensor | None] = []
        self.sigmas = zeros
        self.undecided = zeros > 0

    def begin(self) -> None:
        """Start a forward pass."""
        super().begin()
        self.bandwidths = []
        sigma, factor = self._scale
        self.sigmas = self._zeros if sigma is None else self._zeros + sigma / factor
        self.undecided = self._zeros > 0

    def handle_kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the smoothed result of one kinked call, and keep its bandwidths."""
        layout = self._layouts[self.n_calls - 1] if self.n_calls <= len(self._layouts) else None
        maximum = maximum_of(name, args, kwargs)
        # A maximum over everything is none of a row.
        if layout is None or (maximum is not None and maximum.of_everything):
            self.bandwidths.append(None)
            return self.call_form(name, func, None, args, kwargs)
        moved, values = self.movements(layout, _entering(name, args, kwargs))
        decides = _squared if maximum is None else maximum.pair_movement
        norms = decides(moved.nan_to_num(0.0, 0.0, 0.0)).sum(dim=0).sqrt()
        if self._scale[0] is None and not bool(self.sigmas.all()):
            heights = decides(values[None])[0].sqrt()
            own = own_sigma(layout.by_row(heights), layout.by_row(norms)) / self._scale[1]
            self.sigmas = torch.where(self.sigmas > 0, self.sigmas, own.to(self.sigmas))
            self.undecided = self.undecided | ((self.sigmas == 0) & (layout.by_row(norms) > 0).any(dim=1))
        bandwidths = norms * layout.along_rows(self.sigmas, norms)
        self.bandwidths.append(bandwidths)
        form = form_of(maximum, self.spread(layout, bandwidths))
        return self.call_form(name, func, form, args, kwargs)

    def movements(self, layout: Layout, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives (m, *shape) of what enters a call along m directions, and its values (*shape)."""
        values, tangent = forward_ad.unpack_dual(x)  # type: ignore[no-untyped-call]
        if tangent is None:
            return torch.zeros_like(values)[None], plain_values(values)
        while torch._C._functorch.is_gradtrackingtensor(tangent):
            tangent = torch._C._functorch.get_unwrapped(tangent)
        place = torch._C._functorch.maybe_get_bdim(tangent)
        plain = plain_values(tangent)
        return plain.movedim(place, 0) if place >= 0 else plain[None], plain_values(values)

    def spread(self, layout: Layout, bandwidths: Tensor) -> Tensor:
        """Return the bandwidths of all rows of the pass."""
        return bandwidths


class Differences(Measurement):
    """The same for networks without forward-mode derivatives, in a pass of rows that are shifted along all directions.

    Parameters
    ----------
    layouts, scale, zeros
        As above.
    sizes
        Numbers of draws, directions and points. Rows are repeated for all directions and then their negatives, in each
        draw.
    """

    def __init__(
        self,
        layouts: Sequence[Layout | None],
        scale: tuple[float | Tensor | None, float],
        zeros: Tensor,
        sizes: tuple[int, int, int],
    ) -> None:
        super().__init__(layouts, scale, zeros)
        self._sizes = sizes

    def movements(self, layout: Layout, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return differences (m, *shape) of what enters a call along m directions, and its values (*shape)."""
        draws, directions, points = self._sizes
        parts = layout.split(plain_values(x), draws, 2, directions, points)
        half = ((parts[:, 0] - parts[:, 1]) / (2 * DIFFERENCE)).transpose(0, 1)
        values = layout.merge(parts.mean(dim=(1, 2)), 2)
        return torch.stack([layout.merge(part, 2) for part in half]), values

    def spread(self, layout: Layout, bandwidths: Tensor) -> Tensor:
        """Return the bandwidths of all rows of the pass, repeated for directions and signs."""
        draws, directions, points = self._sizes
        parts = layout.split(bandwidths, draws, 1, points).expand(-1, 2 * directions, *[-1] * bandwidths.ndim, -1)
        return layout.merge(parts, 3)


def _squared(x: Tensor) -> Tensor:
    return x.square()


def own_sigma(heights: Tensor, norms: Tensor) -> Tensor:
    """Return the standard deviation of the units that each row sets by itself, (n,); 0 for none.

    It is 0.6 / sqrt(K) of the median distance |z| / ||dz / dt|| from the row to the kinks of one call, over its K
    entries that move. The number of kinks within reach grows with sqrt(K): one or two of 16 entries, eight of 500.
    Entries at the kink up to rounding, such as a maximum over equal entries, count in K and not in the median.

    Parameters
    ----------
    heights
        Distances |z| (n, entries) from the kinks, in the measure of what enters the call.
    norms
        Norms ||dz / dt|| (n, entries).

    Examples
    --------
    Four entries at distances 1, 2, 3 and 4; torch takes the lower median:

    >>> own_sigma(torch.tensor([[2.0, 2.0, 3.0, 4.0]]), torch.tensor([[2.0, 1.0, 1.0, 1.0]]))
    tensor([0.6000])
    """
    away = heights > _ROUNDING_EPS * torch.finfo(heights.dtype).eps * heights.amax(dim=-1, keepdim=True)
    distances = torch.where(away & (norms > 0), heights / norms.clamp_min(torch.finfo(norms.dtype).tiny), torch.nan)
    count = (norms > 0).sum(dim=-1).clamp_min(1)
    return (_OWN_PART * distances.nanmedian(dim=-1).values / count.sqrt()).nan_to_num(0.0, 0.0, 0.0)


def unit_directions(cut: Cut) -> Tensor:
    """Return directions v (m, D) with sum over k of (g v_k)^2 equal to ||g||^2, in expectation for more than 64 units.

    All units for up to 64 of them, else 64 random orthonormal directions times sqrt(D / 64), always the same.
    """
    n_units = cut.n_units
    if n_units <= MAX_DIRECTIONS:
        return torch.eye(n_units, dtype=cut.dtype, device=cut.device)
    drawn = torch.randn(n_units, MAX_DIRECTIONS, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    orthonormal: Tensor = torch.linalg.qr(drawn).Q.T
    return (math.sqrt(n_units / MAX_DIRECTIONS) * orthonormal).to(dtype=cut.dtype, device=cut.device)
