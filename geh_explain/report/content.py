"""The data of the report page, as values that JSON can hold. ``page.js`` reads them by the same keys."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.analyses.surface import Surface
from geh_explain.errors import GEHTypeError
from geh_explain.interpret.gallery import Gallery
from geh_explain.plots.exemplars import colour_limits, draw_inputs, first_input, maximum_places
from geh_explain.plots.pairs import strongest_units, unit_sizes
from geh_explain.scores.protocol import PairResult
from geh_explain.statistics.intervals import std_multiplier
from geh_explain.statistics.p_values import bayesian_p_value

#: Maximum number of units in the heatmap, and of nodes in the network.
_MAX_UNITS = 60
_MAX_NODES = 30
#: Number of strongest pairs on the page; those of the heatmap are added.
_MAX_PAIRS = 2000
#: Maximum number of means and standard deviations of groups, which would otherwise make up most of the file.
_MAX_GROUP_NUMBERS = 150_000
#: Maximum number of data points on a surface.
_MAX_SURFACE_POINTS = 300
#: Measures that the page shows, in the order of its menu.
_MEASURES = ("geh", "aeh", "eah")


def build_content(
    result: PairResult, level: float, main: Any, surfaces: Sequence[Surface], gallery: Gallery | None
) -> dict[str, Any]:
    """Return the data of the page.

    Parameters
    ----------
    result
        The result.
    level
        Level of the intervals.
    main
        Main effects (D,) given by the user, or None.
    surfaces, gallery
        Surfaces and images that are shown with their pairs.

    Returns
    -------
    dict
        ``names`` of all units; ``heatmap``, the indices of its units; ``nodes`` of the network; ``pairs``, the
        strongest first, as indices of their units; ``measures``, ``sign_p`` and ``majority`` with one entry per pair;
        ``groups`` and ``group_effects``; ``multiplier`` and ``multiplier50``, the half-widths of intervals in standard
        deviations, None with a single draw; ``level``; ``surfaces``; ``images`` by unit name.
    """
    geh = result.scores("geh")
    units = strongest_units(geh.mean, _MAX_UNITS)
    pairs = _select_pairs(geh.pair_mean, len(result.names), units)
    pairs_with_groups = pairs[: max(1, _MAX_GROUP_NUMBERS // (2 * len(result.group_names)))]
    i, j = np.triu_indices(len(result.names), 1)
    has_intervals = geh.n_draws > 1
    group_mean, group_std = result.signed_means
    return {
        "names": result.names,
        "heatmap": units.tolist(),
        "nodes": _network_nodes(result, main),
        "pairs": {"first": i[pairs].tolist(), "second": j[pairs].tolist()},
        "measures": {name: _measure_columns(result, name, pairs) for name in _MEASURES},
        "sign_p": _round(result.sign_p_values()[pairs]) if has_intervals else None,
        "majority": result.majority_signs()[pairs].tolist(),
        "multiplier": std_multiplier(level) if has_intervals else None,
        "multiplier50": std_multiplier(0.5) if has_intervals else None,
        "level": level,
        "groups": {"names": result.group_names, "sizes": result.sizes.tolist()},
        "group_effects": {
            "mean": [_round(row) for row in group_mean[:, pairs_with_groups].T],
            "std": [_round(row) for row in group_std[:, pairs_with_groups].T] if has_intervals else None,
        },
        "surfaces": [_surface_cells(surface, pairs, result) for surface in _check_surfaces(surfaces)],
        "images": dict(_unit_images(gallery)),
    }


def _select_pairs(strength: Floats, units: int, heatmap_units: Ints) -> Ints:
    """Return the indices of the pairs of the page, the strongest first: those of the heatmap, and the strongest."""
    order = np.argsort(-strength, kind="stable")
    i, j = np.triu_indices(units, 1)
    selected = np.isin(i, heatmap_units) & np.isin(j, heatmap_units)
    selected[order[:_MAX_PAIRS]] = True
    return order[selected[order]]


def _measure_columns(result: PairResult, measure: str, pairs: Ints) -> dict[str, Any]:
    """Return mean, standard deviation and p-value of the pairs in one measure; None where there is a single draw."""
    scores = result.scores(measure)
    mean, std = scores.pair_mean, scores.pair_std
    if scores.n_draws < 2:
        return {"mean": _round(mean[pairs]), "std": None, "p": None}
    return {"mean": _round(mean[pairs]), "std": _round(std[pairs]), "p": _round(bayesian_p_value(mean, std)[pairs])}


def _network_nodes(result: PairResult, main: Any) -> dict[str, Any]:
    """Return the units of the network with their positions on a circle, their sizes, and what the sizes mean."""
    sizes, size_meaning = unit_sizes(result, main, "geh")
    units = strongest_units(result.scores("geh").mean, _MAX_NODES)
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(units)) / len(units)
    return {
        "unit": units.tolist(),
        "x": _round(np.cos(angle)),
        "y": _round(np.sin(angle)),
        "size": _round(sizes[units]),
        "size_meaning": size_meaning,
    }


def _check_surfaces(surfaces: Sequence[Surface]) -> Sequence[Surface]:
    """Return ``surfaces``, or raise if one of them is something else."""
    wrong = [type(surface).__name__ for surface in surfaces if not isinstance(surface, Surface)]
    if wrong:
        raise GEHTypeError(f"surfaces holds a {wrong[0]}; give a list of what explainer.surface(...) returns.")
    return surfaces


def _surface_cells(surface: Surface, pairs: Ints, result: PairResult) -> dict[str, Any]:
    """Return a surface as cells with their edges, some of the data, and the position of its pair on the page."""
    (left, right), (bottom, top) = _cell_edges(surface.first), _cell_edges(surface.second)
    step = -(-len(surface.points) // _MAX_SURFACE_POINTS)
    position = np.flatnonzero(pairs == result.pair(*surface.pair))
    return {
        "pair": int(position[0]) if len(position) else None,
        "names": list(surface.names),
        "x": [_round(left), _round(right)],
        "y": [_round(bottom), _round(top)],
        "values": [_round(row) for row in surface.values],
        "points": [_round(point) for point in surface.points[::step]],
    }


def _cell_edges(grid: Floats) -> tuple[Floats, Floats]:
    """Return where the cells around the values of a grid begin and end.

    >>> import numpy as np
    >>> [edges.tolist() for edges in _cell_edges(np.array([0.0, 1.0, 3.0]))]
    [[-0.5, 0.5, 2.0], [0.5, 2.0, 4.0]]
    """
    between = (grid[1:] + grid[:-1]) / 2
    first, last = 2 * grid[0] - between[0], 2 * grid[-1] - between[-1]
    return np.concatenate([[first], between]), np.concatenate([between, [last]])


def _unit_images(gallery: Gallery | None) -> Iterator[tuple[str, str]]:
    """Yield name and image, as a data URL, of each unit of a gallery."""
    if gallery is None:
        return
    if not isinstance(gallery, Gallery):
        raise GEHTypeError(f"gallery is a {type(gallery).__name__}; give what explainer.interpret(...) returns.")
    for pair in gallery.pairs:
        inputs = first_input(pair.exemplars.inputs)
        limits = colour_limits(inputs.flatten(0, 1))
        for row, name in enumerate(pair.units):
            yield name, _draw_png(inputs[row], limits, *maximum_places(pair.exemplars, row))


def _draw_png(*inputs: Any) -> str:
    """Return a PNG image, as a data URL, of what :func:`geh_explain.plots.exemplars.show` draws."""
    from matplotlib.figure import Figure

    # A Figure without pyplot, so that no window or global state is touched.
    figure = Figure(figsize=(2.4, 2.4))
    draw_inputs(figure.add_axes((0.02, 0.02, 0.96, 0.96)), *inputs)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=80)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _round(values: Any) -> list[float]:
    """Return numbers with five significant digits, more than a chart can show, to keep the file small."""
    return [float(f"{value:.5g}") for value in np.asarray(values, dtype=float)]
