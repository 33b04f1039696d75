"""What the page shows, as values that JSON can hold."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHTypeError
from geh_explain.plots.pairs import strongest_units, unit_sizes
from geh_explain.statistics.intervals import width
from geh_explain.statistics.p_values import bayesian_p_value

if TYPE_CHECKING:
    from geh_explain.analyses.surface import Surface
    from geh_explain.interpret.gallery import Gallery
    from geh_explain.results.interactions import Interactions


#: The most units in the heatmap and in the network, pairs on the page, and numbers about regions.
_UNITS, _NODES, _PAIRS, _NUMBERS = 60, 30, 2000, 150_000
#: The most data points that are shown on a surface.
_POINTS = 300
_MEASURES = ("geh", "aeh", "eah")


def content(
    result: Interactions, level: float, main: Any, surfaces: Sequence[Surface], gallery: Gallery | None
) -> dict[str, Any]:
    """Return the page's data; ``left_out`` says what it does not show."""
    units = strongest_units(result.geh.mean, _UNITS)
    pairs = _pairs(result, units)
    regions = pairs[: max(1, _NUMBERS // (2 * len(result.group_names)))]
    i, j = np.triu_indices(len(result.names), 1)
    several = result.geh.count > 1
    signed = result.signed_means
    return {
        "names": result.names,
        "heat": units.tolist(),
        "nodes": _nodes(result, main),
        "pairs": {"first": i[pairs].tolist(), "second": j[pairs].tolist()},
        "measures": {name: _measure(result, name, pairs) for name in _MEASURES},
        "sign_p": _rounded(result.sign_p_values()[pairs]) if several else None,
        "majority": result.majority_signs()[pairs].tolist(),
        "width": width(level) if several else None,
        "half_width": width(0.5) if several else None,
        "level": level,
        "groups": {"names": result.group_names, "sizes": result.sizes.tolist()},
        "regions": {
            "mean": [_rounded(row) for row in signed[0][:, regions].T],
            "std": [_rounded(row) for row in signed[1][:, regions].T] if several else None,
        },
        "surfaces": [_surface(surface, pairs, result) for surface in _checked(surfaces)],
        "images": dict(_images(gallery)),
        "left_out": list(_left_out(result, len(units), len(pairs), len(regions))),
    }


def _pairs(result: Interactions, units: Ints) -> Ints:
    """Return the numbers of the pairs of the page, the strongest first: those of ``units``, and the strongest."""
    order = np.argsort(-result.geh.pair_mean(), kind="stable")
    i, j = np.triu_indices(len(result.names), 1)
    wanted = np.isin(i, units) & np.isin(j, units)
    wanted[order[:_PAIRS]] = True
    return order[wanted[order]]


def _measure(result: Interactions, name: str, pairs: Ints) -> dict[str, Any]:
    scores = result.scores(name)
    found: dict[str, Any] = {"mean": _rounded(scores.pair_mean()[pairs]), "std": None, "p": None}
    if scores.count > 1:
        mean, std = scores.pair_mean(), scores.pair_std()
        found |= {"std": _rounded(std[pairs]), "p": _rounded(bayesian_p_value(mean, std)[pairs])}
    return found


def _nodes(result: Interactions, main: Any) -> dict[str, Any]:
    """Return the units of the network on a circle, in their own order, and how large they are."""
    (sizes, what), shown = unit_sizes(result, main, "geh"), strongest_units(result.geh.mean, _NODES)
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(shown)) / len(shown)
    return {
        "unit": shown.tolist(),
        "x": _rounded(np.cos(angle)),
        "y": _rounded(np.sin(angle)),
        "size": _rounded(sizes[shown]),
        "what": what,
    }


def _checked(surfaces: Sequence[Surface]) -> Sequence[Surface]:
    from geh_explain.analyses.surface import Surface

    wrong = [type(each).__name__ for each in surfaces if not isinstance(each, Surface)]
    if wrong:
        raise GEHTypeError(f"surfaces holds a {wrong[0]}; give a list of what explainer.surface(...) returns.")
    return surfaces


def _surface(surface: Surface, pairs: Ints, result: Interactions) -> dict[str, Any]:
    """Return a surface as cells with their edges, and some of the data."""
    (left, right), (bottom, top) = _edges(surface.first), _edges(surface.second)
    step = -(-len(surface.points) // _POINTS)
    number = np.flatnonzero(pairs == result.pair(*surface.pair))
    return {
        "pair": int(number[0]) if len(number) else None,
        "names": list(surface.names),
        "x": [_rounded(left), _rounded(right)],
        "y": [_rounded(bottom), _rounded(top)],
        "values": [_rounded(row) for row in surface.values],
        "points": [_rounded(point) for point in surface.points[::step]],
    }


def _edges(places: Floats) -> tuple[Floats, Floats]:
    """Return where the cells around places on a line begin and end."""
    between = (places[1:] + places[:-1]) / 2
    first, last = 2 * places[0] - between[0], 2 * places[-1] - between[-1]
    return np.concatenate([[first], between]), np.concatenate([between, [last]])


def _images(gallery: Gallery | None) -> Iterator[tuple[str, str]]:
    """Yield the pictures of what excites each unit of a gallery, as data addresses, by its name."""
    if gallery is None:
        return
    from geh_explain.interpret.gallery import Gallery
    from geh_explain.plots.exemplars import colour_limits, first_input, maximum_places

    if not isinstance(gallery, Gallery):
        raise GEHTypeError(f"gallery is a {type(gallery).__name__}; give what explainer.interpret(...) returns.")
    for pair in gallery.pairs:
        inputs = first_input(pair.exemplars.inputs)
        limits = colour_limits(inputs.flatten(0, 1))
        for row, name in enumerate(pair.units):
            yield name, _png(inputs[row], limits, *maximum_places(pair.exemplars, row))


def _png(*shown: Any) -> str:
    from matplotlib.figure import Figure

    from geh_explain.plots.exemplars import draw_inputs

    figure = Figure(figsize=(2.4, 2.4))
    draw_inputs(figure.add_axes((0.02, 0.02, 0.96, 0.96)), *shown)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=80)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _left_out(result: Interactions, units: int, pairs: int, regions: int) -> Iterator[str]:
    every = len(result.geh.pair_mean())
    if units < len(result.names):
        yield f"The heatmap shows the {units} units with the strongest pairs, of {len(result.names):,}."
    if pairs < every:
        yield f"This page and its CSV file hold {pairs:,} of {every:,} pairs: the strongest, and those of the heatmap."
    if regions < pairs:
        yield f"Effects by region are shown for the {regions:,} strongest pairs."


def _rounded(values: Any) -> list[float]:
    """Return numbers to five digits, which is more than a picture shows."""
    return [float(f"{value:.5g}") for value in np.asarray(values, dtype=float)]
