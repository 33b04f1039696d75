"""The strongest pairs of hidden units, and what they respond to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geh_explain._validation import check_int
from geh_explain.data.reader import Reader
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError
from geh_explain.interpret.ascent.climb import REFERENCE_ROWS
from geh_explain.interpret.ascent.maximisation import Maximised, maximise
from geh_explain.interpret.ascent.objectives import soft_minimum
from geh_explain.interpret.exemplar_search import Best, Exemplars, Search
from geh_explain.model.borrow import borrow, device_and_dtype
from geh_explain.results.interactions import Interactions
from geh_explain.units.base import Units
from geh_explain.units.subset import Subset

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class PairView:
    """One pair: its score with interval, its signed effect by region, and what excites its units.

    ``exemplars`` has a row for each unit, ``both`` one for both together; ``ascent``, the inputs painted by gradient
    ascent, has all three, and is None where none was asked for, or the inputs are not one tensor of real numbers.
    """

    units: tuple[str, str]
    numbers: tuple[int, int]
    mean: float
    low: float
    high: float
    regions: pd.DataFrame
    exemplars: Exemplars
    both: Exemplars
    ascent: Maximised | None

    def __repr__(self) -> str:
        return f"{self.units[0]} × {self.units[1]}: {self.mean:.4g}"


@dataclass(frozen=True)
class Gallery:
    """The pairs that were looked at, the strongest first.

    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2), torch.nn.Tanh())
    >>> explainer, x = geh.GEHExplainer(net, "1", posterior=geh.posterior.PointEstimate()), torch.randn(50, 2)
    >>> result = explainer.explain(x, target=0, groups=1, progress=False)
    >>> gallery = explainer.interpret(result, x, pairs=1, ascent=False, progress=False)
    >>> len(gallery.pairs), list(gallery.readings(["a"] * 50)["reads_i"])
    (1, ['a, 9 of 9'])
    """

    pairs: list[PairView]
    measure: str

    def readings(self, labels: Sequence[Any] | Tensor | NDArray[Any]) -> pd.DataFrame:
        """Return a line for each pair: its units, what they read, and its score; ``labels`` has one per candidate."""
        import pandas as pd

        lines = []
        for pair in self.pairs:
            first, second = pair.exemplars.reading(labels)
            lines.append([*pair.units, str(first), str(second), pair.mean, pair.low, pair.high])
        return pd.DataFrame(lines, columns=["unit_i", "unit_j", "reads_i", "reads_j", "mean", "low", "high"])

    def images(self) -> dict[str, NDArray[np.float64]]:
        """Return the image (H, W, 3) that excites each unit most, by its name: thumbnails for ``plot.network``."""
        from geh_explain.plots.exemplars import colour_limits, first_input, picture

        found: dict[str, NDArray[np.float64]] = {}
        for pair in self.pairs:
            inputs = first_input(pair.exemplars.inputs)
            if inputs[0, 0].ndim not in (2, 3):
                raise GEHValueError(
                    f"gallery: its inputs have shape {tuple(inputs[0, 0].shape)}; thumbnails need images (H, W) or "
                    "(C, H, W)."
                )
            limits = colour_limits(inputs.flatten(0, 1))
            found.update((name, picture(inputs[row, 0].cpu(), limits)) for row, name in enumerate(pair.units))
        return found

    def plot(self, labels: Sequence[Any] | Tensor | NDArray[Any] | None = None) -> Any:
        """Draw all pairs, a row each, and return the figure; with ``labels`` of the candidates, units are read too."""
        from geh_explain.plots.gallery import draw

        return draw(self, labels)


def build_gallery(
    model: nn.Module,
    layer: Any,
    units: Units | None,
    result: Interactions,
    candidates: Any,
    joint: Any,
    pairs: list[tuple[int, int]],
    measure: str,
    search: Search,
    ascent: dict[str, Any] | None,
) -> Gallery:
    """Look at pairs of units; ``joint`` are the candidates for both units of a pair, ``ascent`` options of that."""
    involved = sorted({unit for pair in pairs for unit in pair})
    chosen, search = Subset(involved, units), replace(search, keep=True)
    with borrow(model):
        best = search(model, layer, chosen, candidates)
        _check_units(result, best.units)
        of_both = best if joint is None else replace(search, argument="joint")(model, layer, chosen, joint)
    columns = [[involved.index(i), involved.index(j)] for i, j in pairs]
    alone = best.result()
    together = _together(model, of_both, candidates if joint is None else joint, columns, search)
    painted = None
    if ascent is not None and _is_real(alone.inputs):
        (usual,) = _fetch(model, candidates, np.linspace(0, best.seen - 1, min(best.seen, REFERENCE_ROWS)))
        # Columns of a table have each their own range, pixels one in common.
        limits = (usual.amin(dim=0), usual.amax(dim=0)) if usual.ndim == 2 else (float(usual.min()), float(usual.max()))
        objectives = [objective for pair in pairs for objective in (*pair, pair)]
        options = {"unit_set": units, "reference": usual, "limits": limits, **ascent}
        painted = maximise(model, layer, objectives, tuple(usual.shape[1:]), **options)
    mean, (low, high) = result.scores(measure).mean, _interval(result, measure)
    views = [
        PairView(
            (result.names[i], result.names[j]),
            (i, j),
            float(mean[i, j]),
            float(low[i, j]),
            float(high[i, j]),
            result.regions(i, j),
            alone.part(rows),
            both,
            None if painted is None else painted.part(range(3 * number, 3 * number + 3)),
        )
        for number, ((i, j), rows, both) in enumerate(zip(pairs, columns, together, strict=True))
    ]
    return Gallery(views, measure)


def check_ascent(ascent: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """Return the options of gradient ascent, the user's before those given here; None if none is asked for."""
    if isinstance(ascent, bool):
        return options if ascent else None
    if not isinstance(ascent, dict):
        raise GEHTypeError(f"ascent={ascent!r} must be True, False, or a dict with options of maximise().")
    known = set(signature(maximise).parameters) - {"model", "layer", "units", "shape", "unit_set"}
    unknown = sorted(set(ascent) - known)
    if unknown:
        raise GEHValueError(f"ascent: {unknown} are no options of maximise(); there are {sorted(known)}.")
    return {**options, **ascent}


def _check_units(result: Interactions, units: Units) -> None:
    """Refuse a result about other units than the explainer's."""
    assert isinstance(units, Subset)
    told = result.settings.get("units", repr(units.of))
    if told != repr(units.of):
        raise GEHValueError(
            f"result: its units are {told}, and this explainer's {units.of!r}; use the explainer that made it."
        )


def choose_pairs(result: Interactions, pairs: Any, measure: str) -> list[tuple[int, int]]:
    """Return the units of the pairs asked for: the strongest so many, or those of a list."""
    first, second = np.triu_indices(len(result.names), 1)
    if isinstance(pairs, (int, np.integer)):
        numbers = np.argsort(-result.scores(measure).pair_mean, kind="stable")[: check_int("pairs", pairs, 1)].tolist()
    elif isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise GEHTypeError(f"pairs={pairs!r} is not understood; give a number, or a list of pairs such as [(0, 3)].")
    elif not pairs or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise GEHValueError(f"pairs={pairs!r}: give a number, or a list of pairs of units, by name or number.")
    else:
        numbers = [result.pair(*pair) for pair in pairs]
    return [(int(first[number]), int(second[number])) for number in numbers]


def _together(
    model: nn.Module, best: Best, candidates: Any, columns: list[list[int]], search: Search
) -> list[Exemplars]:
    """Return for each pair the candidates that excite both of its units: the smooth minimum of standardised values."""
    values = torch.cat(best.values)
    spread = values.std(dim=0, correction=0)
    standard = (values - values.mean(dim=0)) / torch.where(spread > 0, spread, torch.ones_like(spread))
    sorted_ = [torch.sort(soft_minimum(standard[:, pair]), descending=True, stable=True) for pair in columns]
    scores = [part.values[None, : search.k].numpy() for part in sorted_]
    indices = [part.indices[: search.k].numpy() for part in sorted_]
    inputs = _fetch(model, candidates, np.concatenate(indices))
    found = []
    for number, chosen in enumerate(indices):
        shown = tuple(x[None, number * search.k : (number + 1) * search.k] for x in inputs)
        given = shown[0] if len(shown) == 1 else shown
        alive = np.array([False])
        found.append(Exemplars(chosen[None], scores[number], given, ["both"], best.seen, None, None, alive))
    return found


def _fetch(model: nn.Module, candidates: Any, indices: NDArray[Any]) -> tuple[Tensor, ...]:
    """Return the inputs of some candidates, in the order asked for."""
    device, dtype = device_and_dtype(model)
    wanted = [int(index) for index in indices]
    found: dict[int, tuple[Tensor, ...]] = {}
    with borrow(model):  # loaders draw from the global generators
        reader = Reader(floating=False, device=device, dtype=dtype, argument="candidates")
        for rows in reader.stream(candidates, None):
            for index in {index for index in wanted if rows.start <= index < rows.start + len(rows)}:
                found[index] = tuple(x[index - rows.start].clone() for x in rows.inputs)
    if len(found) < len(set(wanted)):
        raise GEHRuntimeError(
            "candidates: they could be read only once, and have to be read again for what excites both units; pass a "
            "tensor, or a Dataset that starts anew each time."
        )
    return tuple(torch.stack(parts) for parts in zip(*(found[index] for index in wanted), strict=True))


def _is_real(inputs: Any) -> bool:
    return isinstance(inputs, Tensor) and inputs.is_floating_point()


def _interval(result: Interactions, measure: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    scores = result.scores(measure)
    if scores.n_draws < 2:
        unknown = np.full_like(scores.mean, np.nan)
        return unknown, unknown
    return scores.interval()
