"""What two units do together: the predicted response over both, without what each does alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.posterior import Posterior

if TYPE_CHECKING:
    from geh_explain.results.interactions import Interactions
from geh_explain._types import Floats

#: The grid reaches over this share of the data, so that a few outliers do not stretch it.
_SHARE = 0.98


@dataclass(frozen=True)
class Surface:
    """The joint effect of two units on a grid of their values, over and above what each does alone.

    ``values`` (G, H), over ``first`` (G,) and ``second`` (H,), is the mean over draws, and ``std`` the spread. Rows and
    columns average to 0 over the data, as main effects are taken off. ``points`` (n, 2) are the units' own values in
    the data, ``labels`` (n,) their regions and ``effects`` (M,) the signed interaction in each, where they are known.
    """

    pair: tuple[int, int]
    names: tuple[str, str]
    first: Floats
    second: Floats
    values: Floats
    std: Floats
    points: Floats
    labels: NDArray[np.int64] | None = None
    effects: Floats | None = None

    def with_regions(self, result: Interactions) -> Surface:
        """Return it with the regions of a result about the same points, and the pair's effect in each."""
        if result.labels is None or len(result.labels) != len(self.points):
            count = "no" if result.labels is None else len(result.labels)
            raise GEHValueError(
                f"result: it is about {count} points, and inputs has {len(self.points)}; give the same."
            )
        names = result.names[self.pair[0]], result.names[self.pair[1]]
        return replace(self, names=names, labels=result.labels, effects=result.regions(*self.pair)["mean"].to_numpy())

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the surface with the data on it, regions outlined in the colour of their effect; return the axes."""
        from geh_explain.plots.surface import draw_surface

        return draw_surface(self, ax=ax)


def joint_effect(
    cut: Cut,
    points: Points,
    posterior: Posterior,
    pair: tuple[int, int],
    grid: int,
    background: int,
    draws: int,
    batch_size: int | None,
    seed: int,
    progress: bool,
) -> Surface:
    """Measure the joint effect of a pair of units on a grid of their values.

    The response at a place of the grid is the mean over ``background`` points whose two units are moved there.
    """
    data = np.concatenate([_values(cut, rows, pair) for rows in points.pieces(batch_size)])
    first, second = (_grid(column, grid) for column in data.T)
    step = max(1, len(points) // background)
    some = [(rows, torch.as_tensor(_values(cut, rows, pair))) for rows in (all_[::step] for all_ in points.batches())]
    weights = [_weights(column, places) for column, places in zip(data.T, (first, second), strict=True)]
    found = []
    with tqdm(total=draws * len(first), desc="surface", unit="row", disable=not progress, leave=False) as bar:
        for draw in islice(posterior.draws(cut.model, draws, seed) or (), draws):
            with draw:
                cut.outputs(points.first[:1])  # the first forward of a draw has one row, see Posterior
                response = np.empty((len(first), len(second)))
                for number, place in enumerate(first):
                    sums = [_sums(cut, rows, own, pair, float(place), second, batch_size) for rows, own in some]
                    response[number] = np.sum(sums, axis=0) / sum(len(rows) for rows, _ in some)
                    bar.update()
            found.append(_without_main_effects(response, *weights))
    if not found:
        raise GEHValueError(f"posterior={posterior!r} gave no draws.")
    every = np.stack(found)
    names = cut.unit_names()
    spread = every.std(axis=0, ddof=min(1, len(every) - 1))
    return Surface(pair, (names[pair[0]], names[pair[1]]), first, second, every.mean(axis=0), spread, data)


@torch.no_grad()
def _values(cut: Cut, rows: Rows, pair: tuple[int, int]) -> Floats:
    """Return what two units are in each row (n, 2): for those that move several numbers, their mean."""
    members = cut.units.members(cut.activations(rows))[:, list(pair)].double()
    inside = torch.isfinite(members)
    return (members.masked_fill(~inside, 0).sum(dim=2) / inside.sum(dim=2)).cpu().numpy()


def _grid(values: Floats, count: int) -> Floats:
    """Return places from the lowest to the highest usual value, or all values where there are few."""
    known = np.unique(values)
    if len(known) < 2:
        raise GEHValueError("a unit has the same value in all inputs; a surface needs two that vary.")
    if len(known) <= count:
        return known
    low, high = np.quantile(values, [(1 - _SHARE) / 2, (1 + _SHARE) / 2])
    return np.linspace(low, high, count) if low < high else np.linspace(known[0], known[-1], count)


@torch.no_grad()
def _sums(
    cut: Cut, rows: Rows, own: Tensor, pair: tuple[int, int], place: float, second: Floats, batch_size: int | None
) -> Floats:
    """Return the sum of responses with the first unit at ``place`` and the second at each of ``second``."""
    per_call = max(1, (batch_size or 4096) // len(rows))
    found: list[float] = []
    for start in range(0, len(second), per_call):
        some = second[start : start + per_call]
        many = rows.repeat(len(some))
        t = cut.zeros(many)
        t[:, pair[0]] = (place - own[:, 0]).repeat(len(some)).to(t)
        t[:, pair[1]] = (torch.as_tensor(some)[:, None] - own[:, 1]).flatten().to(t)
        found += cut.outputs(many, t).double().reshape(len(some), len(rows)).sum(dim=1).tolist()
    return np.array(found)


def _weights(values: Floats, places: Floats) -> Floats:
    """Return the share of the data that is nearest to each place of the grid."""
    nearest = np.abs(values[:, None] - places).argmin(axis=1)
    return np.bincount(nearest, minlength=len(places)) / len(values)


def _without_main_effects(response: Floats, broadcast: Floats, of_second: Floats) -> Floats:
    rows, columns = response @ of_second, broadcast @ response
    return np.asarray(response - rows[:, None] - columns + broadcast @ rows)
