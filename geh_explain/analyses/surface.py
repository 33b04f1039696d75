"""Surface of a pair: the joint effect of two units on a grid of their values, without their main effects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from geh_explain._types import Floats, Ints
from geh_explain.analyses.surface_axes import SurfaceUnit, nearest_shares
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.model.kept_points import keep_below, output_of_row
from geh_explain.plots.surface import draw_surface
from geh_explain.posterior import Posterior
from geh_explain.posterior.protocols import enter_draws, fixed
from geh_explain.run.options import AnalysisOptions
from geh_explain.scores.pair_names import join_names

#: Joint effects of so many eps of the responses are rounding, and are 0.
_ROUNDING = 4


@dataclass(frozen=True, repr=False)
class Surface:
    """Joint effect of two units on a grid of their values, without their main effects.

    Attributes
    ----------
    pair, names
        Indices and names of the two units.
    first, second
        Grid values of the two units, (G,) and (H,). Those of a category are the indices of its levels.
    values, std
        Joint effect (G, H), its mean and standard deviation over draws. Rows and columns average to 0 over the data.
    points
        Values (n, 2) of the two units in the data. NaN at levels of a category that the grid leaves out.
    labels, effects
        Group (n,) of each point and signed interaction (M,) of each group; None where they are not known, and for
        categories, whose interactions have several signs.
    levels
        Names of the levels of both units; None for a numeric unit.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    >>> explainer.surface(torch.rand(200, 2), pair=(0, 1), grid=5, progress=False)
    Surface(x0 × x1, 5 × 5 grid, 200 points)
    """

    pair: tuple[int, int]
    names: tuple[str, str]
    first: Floats
    second: Floats
    values: Floats
    std: Floats
    points: Floats
    labels: Ints | None = None
    effects: Floats | None = None
    levels: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None)

    def with_groups(self, names: tuple[str, str], labels: Ints, effects: Floats) -> Surface:
        """Return the surface with the groups (n,) of the same points and the signed effect (M,) of the pair in each."""
        if len(labels) != len(self.points):
            raise GEHValueError(
                f"result: it is about {len(labels)} points, and inputs has {len(self.points)}; give the same."
            )
        if self.levels != (None, None):
            return replace(self, names=names)
        return replace(self, names=names, labels=labels, effects=effects)

    def __repr__(self) -> str:
        grid = f"{len(self.first)} × {len(self.second)}"
        return f"Surface({join_names(*self.names)}, {grid} grid, {len(self.points)} points)"

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the surface with the data on it, groups outlined in the colour of their effect; return the axes.

        With a category and a number it is one line per level, with two categories a grid of their levels.
        """
        return draw_surface(self, ax=ax)


@dataclass(frozen=True)
class SurfaceRequest:
    """What a surface is measured for: two units by index, grid values per unit, and points for the other units."""

    pair: tuple[int, int]
    grid: int
    points: int


def joint_effect(
    cut: Cut, points: Points, posterior: Posterior, request: SurfaceRequest, options: AnalysisOptions
) -> Surface:
    """Measure the joint effect of a pair of units on a grid of their values, or of the levels of a category.

    The response at a grid point is the mean over background points whose two units are moved there. Main effects are
    removed: response - row mean - column mean + mean, weighted by the share of the data near each grid value.
    """
    units = SurfaceUnit.of(cut, request.pair[0]), SurfaceUnit.of(cut, request.pair[1])
    with fixed(posterior, cut.model, options.seed):
        points = keep_below(cut, points, options.batch_size)
    first_forward = partial(output_of_row, cut, points.first[:1], cut.below)
    data = np.concatenate([_values(cut, rows, units) for rows in points.split(options.batch_size)])
    first, second = (unit.grid(cut, data[:, k], request.grid) for k, unit in enumerate(units))
    step = max(1, len(points) // request.points)
    sampled = (rows[::step] for rows in points.batches())
    background = [(rows, torch.as_tensor(_values(cut, rows, units))) for rows in sampled]
    n_background = sum(len(rows) for rows, _ in background)
    weights = [nearest_shares(column, places) for column, places in zip(data.T, (first, second), strict=True)]
    n_draws = min(options.draws, posterior.__len__()) if hasattr(posterior, "__len__") else options.draws
    surfaces = []
    with (
        tqdm(total=n_draws * len(first), desc="surface", unit="row", disable=not options.progress, leave=False) as bar,
        enter_draws(posterior, cut.model, options.draws, options.seed, first_forward) as draws,
    ):
        for _ in draws:
            response = np.empty((len(first), len(second)))
            for number, place in enumerate(first):
                sums = [
                    _sums(cut, rows, values, units, float(place), second, options.batch_size)
                    for rows, values in background
                ]
                response[number] = np.sum(sums, axis=0) / n_background
                bar.update()
            rounding = _ROUNDING * torch.finfo(cut.dtype).eps * np.abs(response).max()
            joint = _without_main_effects(response, *weights)
            surfaces.append(np.where(np.abs(joint) <= rounding, 0.0, joint))
    if not surfaces:
        raise GEHValueError(f"posterior={posterior!r} gave no draws.")
    stacked = np.stack(surfaces)
    names = cut.unit_names()
    return Surface(
        pair=request.pair,
        names=(names[request.pair[0]], names[request.pair[1]]),
        first=first,
        second=second,
        values=stacked.mean(axis=0),
        std=stacked.std(axis=0, ddof=min(1, len(stacked) - 1)),
        points=data,
        levels=(units[0].levels, units[1].levels),
    )


def _values(cut: Cut, rows: Rows, units: tuple[SurfaceUnit, SurfaceUnit]) -> Floats:
    """Return the values (n, 2) of two units in each row."""
    return np.stack([unit.values(cut, rows) for unit in units], axis=1)


@torch.no_grad()
def _sums(
    cut: Cut,
    rows: Rows,
    values: Tensor,
    units: tuple[SurfaceUnit, SurfaceUnit],
    place: float,
    second: Floats,
    batch_size: int | None,
) -> Floats:
    """Return the sum of responses with the first unit at ``place`` and the second at each of ``second``."""
    per_call = max(1, (batch_size or 4096) // len(rows))
    sums: list[float] = []
    for start in range(0, len(second), per_call):
        places = second[start : start + per_call]
        repeated = rows.repeat(len(places))
        t = cut.zeros(repeated)
        own = values.repeat(len(places), 1)
        repeated = units[0].move(repeated, t, own[:, 0], np.full(len(repeated), place))
        repeated = units[1].move(repeated, t, own[:, 1], np.repeat(places, len(rows)))
        sums += cut.outputs(repeated, t).double().reshape(len(places), len(rows)).sum(dim=1).tolist()
    return np.array(sums)


def _without_main_effects(response: Floats, weights_first: Floats, weights_second: Floats) -> Floats:
    """Return the response minus its weighted row and column means."""
    rows, columns = response @ weights_second, weights_first @ response
    return np.asarray(response - rows[:, None] - columns + weights_first @ rows)
