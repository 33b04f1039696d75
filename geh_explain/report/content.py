"""The data of the report page, as values that JSON can hold. ``page.js`` reads them by the same keys."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.analyses.surface import Surface
from geh_explain.errors import GEHTypeError
from geh_explain.interpret.gallery import Gallery, PairView
from geh_explain.plots.axes import compact
from geh_explain.plots.exemplars import colour_limits, draw_inputs, first_input, maximum_places
from geh_explain.plots.pairs import strongest_units, unit_sizes
from geh_explain.report.names import cut_names
from geh_explain.report.verdict import split_description
from geh_explain.scores.decisions import Decisions
from geh_explain.scores.pair_names import join_names
from geh_explain.scores.protocol import PairResult
from geh_explain.units.pair_set import PairSet

#: Maximum number of units in the heatmap, and of nodes in the network.
_MAX_UNITS = 60
_MAX_NODES = 30
#: Number of strongest pairs on the page; those of the heatmap are added.
_MAX_PAIRS = 2000
#: Maximum number of means and standard deviations of groups, which would otherwise make up most of the file.
_MAX_GROUP_NUMBERS = 150_000
#: Maximum number of data points on a surface.
_MAX_SURFACE_POINTS = 300
#: Maximum number of characters of a unit's name in tables, and of its shorter forms for charts with little space.
_MAX_NAME = 24
_CHART_NAMES = (24, 18, 13, 9)
_BRIEF_NAME = 15
#: Number of strongest pairs with a category whose differences between levels are shown, and of differences of each.
_MAX_LEVEL_PAIRS = 50
_MAX_LEVELS = 6


def build_content(
    result: PairResult, decisions: Decisions, main: Any, surfaces: Sequence[Surface], gallery: Gallery | None
) -> dict[str, Any]:
    """Return the data of the page.

    Parameters
    ----------
    result
        The result.
    decisions
        Its decisions by the measure that the page opens with.
    main
        Main effects (D,) given by the user, or None.
    surfaces, gallery
        Surfaces and images that are shown with their pairs.

    Returns
    -------
    dict
        ``names`` of all units, ``short_names``, cut in the middle, and ``brief_names``, cut further; ``heatmap``, the
        indices of its units, and ``chart_names``, lists of their names for charts, each shorter than the one before;
        ``partial``, whether some pairs were not computed; ``nodes`` of the network; ``pairs``, the strongest first, as
        indices of their units with labels; ``measures`` with scores, intervals and decisions, ``evidence`` and
        ``majority`` with one entry per pair; ``decision``, the words for them; ``stable``, whether the sign of each
        pair holds in the network, where the decisions are about held-out labels; ``shares`` of the output's variance,
        for pairs by their position; ``groups`` and ``group_effects``; ``levels``, differences between levels of
        categories for pairs by their position; ``unsigned``, the positions of pairs whose effects in groups have no
        sign; ``level`` of the intervals; ``output_std``; ``surfaces``; ``images`` and ``painted`` (by gradient ascent)
        by unit name; ``joint``, both kinds of images for pairs by their position.
        Unknown numbers are None.
    """
    units = strongest_units(decisions.order, result.pairs, _MAX_UNITS)
    pairs = _select_pairs(decisions.order, result.pairs, units)
    pairs_with_groups = pairs[: max(1, _MAX_GROUP_NUMBERS // (2 * len(result.group_names)))]
    i, j = result.pairs.ends
    compact_names = result.names if result.settings.get("layer") is None else [compact(name) for name in result.names]
    short_names = cut_names(compact_names, _MAX_NAME)
    return {
        "names": result.names,
        "short_names": short_names,
        "brief_names": cut_names(compact_names, _BRIEF_NAME),
        "heatmap": units.tolist(),
        "chart_names": [cut_names([compact_names[unit] for unit in units], length) for length in _CHART_NAMES],
        "partial": not result.pairs.complete,
        "nodes": _network_nodes(result, decisions, main),
        "pairs": _pair_columns(result.names, short_names, i[pairs], j[pairs]),
        "measure": decisions.measure,
        "measures": {name: _measure_columns(result, decisions, name, pairs) for name in result.measures},
        "evidence": _evidence_columns(result, decisions, pairs),
        "decision": _decision_words(decisions),
        "stable": _stable_pairs(result, decisions, pairs),
        "shares": _pair_shares(result, decisions.level, pairs),
        "majority": result.majority_signs()[pairs].tolist(),
        "level": decisions.level,
        "output_std": result.output_std or None,
        "groups": _group_columns(result, pairs_with_groups),
        "group_effects": _group_effects(result, decisions.level, pairs_with_groups),
        "levels": _level_differences(result, decisions.level, pairs),
        "unsigned": _unsigned_pairs(result, pairs),
        "surfaces": [_surface_cells(surface, pairs, result) for surface in _check_surfaces(surfaces)],
        **_gallery_images(gallery, pairs, result),
    }


def _pair_columns(names: list[str], short_names: list[str], first: Ints, second: Ints) -> dict[str, Any]:
    """Return the indices of both units of each pair, its label, and a short label for the axis of a chart.

    No two pairs have the same label.
    """
    labels = {
        key: [join_names(shown[i], shown[j]) for i, j in zip(first, second, strict=True)]
        for key, shown in (("label", names), ("short", short_names))
    }
    return {"first": first.tolist(), "second": second.tolist(), **labels}


def _select_pairs(order: Ints, pairs: PairSet, heatmap_units: Ints) -> Ints:
    """Return the indices of the pairs of the page, the strongest first: those of the heatmap, and the strongest.

    ``order`` (P,) are the indices of all ``pairs`` of the result, the strongest first.
    """
    i, j = pairs.ends
    selected = np.isin(i, heatmap_units) & np.isin(j, heatmap_units)
    selected[order[:_MAX_PAIRS]] = True
    return order[selected[order]]


def _measure_columns(result: PairResult, decisions: Decisions, measure: str, pairs: Ints) -> dict[str, Any]:
    """Return scores, intervals, supported scores and decisions of the pairs in one measure; None where unknown."""
    rule, fdr = decisions.rule, decisions.fdr
    wide, thick = (result.decisions(measure, level, fdr, rule=rule) for level in (decisions.level, 0.5))
    columns: dict[str, Any] = {
        "mean": wide.mean,
        "std": wide.std,
        **({"low": wide.low, "high": wide.high} if wide.has_intervals else {}),
        **({"low50": thick.low, "high50": thick.high} if wide.has_intervals else {}),
        **({"supported": wide.supported} if decisions.rule == "evidence" else {}),
        **({"p": wide.p_value} if decisions.rule == "interval" else {}),
    }
    numbers = {name: _round(values[pairs]) for name, values in columns.items()}
    return {**numbers, "accepted": None if wide.accepted is None else wide.accepted[pairs].tolist()}


def _evidence_columns(result: PairResult, decisions: Decisions, pairs: Ints) -> dict[str, Any] | None:
    """Return slope, standard error, p-value and interval of the true GEH of the pairs; None if the rule is another."""
    evidence = result.evidence
    if decisions.rule != "evidence" or evidence is None:
        return None
    columns = {"slope": evidence.slope, "slope_se": evidence.slope_se, "p": evidence.p_value}
    if evidence.true_scores is not None:
        columns["true_low"], columns["true_high"] = evidence.true_scores.interval(decisions.level)
    return {name: _round(values[pairs]) for name, values in columns.items()}


def _decision_words(decisions: Decisions) -> dict[str, str] | None:
    """Return the words for accepted and other pairs, None if there are no decisions."""
    if decisions.accepted is None:
        return None
    return {"column": decisions.column, "label": decisions.label, "other": decisions.other_label}


def _stable_pairs(result: PairResult, decisions: Decisions, pairs: Ints) -> list[bool] | None:
    """Return which pairs the sign rule accepts, where the page decides by held-out labels; None if it cannot tell."""
    if decisions.rule != "evidence":
        return None
    accepted = result.decisions("geh", decisions.level, rule="sign").accepted
    return None if accepted is None else accepted[pairs].tolist()


def _pair_shares(result: PairResult, level: float, pairs: Ints) -> dict[int, list[float | None]]:
    """Return the share of pairs in the output's variance with both ends of its interval, by their position."""
    position = {int(pair): number for number, pair in enumerate(pairs)}
    shares = result.pair_shares(level).items()
    return {position[pair]: _round(share) for pair, share in shares if pair in position}


def _group_columns(result: PairResult, pairs: Ints) -> dict[str, Any]:
    """Return names, sizes and, where there are any, descriptions of the groups; or those of each pair.

    A description is a list of words and the agreement of both in per cent, which may be None.
    """
    cells = result.pair_cells
    if cells is not None:
        ends = np.stack(result.pairs.ends, axis=1)[pairs].tolist()
        by_pair = []
        for pair, units in zip(pairs, ends, strict=True):
            names, rules = cells.describe(int(pair), units, result.names)
            words = [[rule.replace(" >= ", " ≥ ") or name, None] for name, rule in zip(names, rules, strict=True)]
            by_pair.append({"names": names, "sizes": cells.sizes[:, pair].tolist(), "descriptions": words})
        return {"by_pair": by_pair}
    columns = {"names": result.group_names, "sizes": result.sizes.tolist()}
    descriptions = result.group_descriptions
    return columns if descriptions is None else {**columns, "descriptions": [*map(split_description, descriptions)]}


def _unsigned_pairs(result: PairResult, pairs: Ints) -> list[int]:
    """Return the positions of pairs with a category of several levels, whose differences have signs of their own."""
    if result.level_draws is None:
        return []
    found: list[int] = np.flatnonzero(np.isin(pairs, result.level_draws.contrasts.several)).tolist()
    return found


def _level_differences(result: PairResult, level: float, pairs: Ints) -> dict[int, list[list[Any]]]:
    """Return words, mean and ends of the strongest differences between levels, for pairs by their position."""
    if result.level_draws is None:
        return {}
    first, second = result.pairs.ends
    found = {}
    for position in _unsigned_pairs(result, pairs)[:_MAX_LEVEL_PAIRS]:
        pair = pairs[position]
        names = {"i": result.names[first[pair]], "j": result.names[second[pair]]}
        table = result.levels(names["i"], names["j"], level).head(_MAX_LEVELS)
        found[position] = [
            [
                ", ".join(
                    f"{name}: {row[f'from_{end}']} → {row[f'to_{end}']}"
                    for end, name in names.items()
                    if f"from_{end}" in table
                ),
                *_round([row["mean"], row["low"], row["high"]]),
            ]
            for _, row in table.iterrows()
        ]
    return found


def _group_effects(result: PairResult, level: float, pairs: Ints) -> dict[str, Any]:
    """Return the signed effect of the pairs in each group, and the half-widths of its intervals; None if unknown."""
    mean, half = result.signed_means[0][:, pairs], result.group_half_widths(level, pairs)
    unknown = bool(np.isnan(half).all())
    return {
        "mean": [_round(row) for row in mean.T],
        "half": None if unknown else [_round(row) for row in half.T],
    }


def _network_nodes(result: PairResult, decisions: Decisions, main: Any) -> dict[str, Any]:
    """Return the units of the network with their positions on a circle, their sizes, and what the sizes mean."""
    sizes, size_meaning = unit_sizes(result, decisions, main)
    units = strongest_units(decisions.order, result.pairs, _MAX_NODES)
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
    # Points at levels of a category that the grid leaves out have no place.
    points = surface.points[~np.isnan(surface.points).any(axis=1)]
    step = max(1, -(-len(points) // _MAX_SURFACE_POINTS))
    position = np.flatnonzero(pairs == result.pairs.find(*surface.pair))
    return {
        "pair": int(position[0]) if len(position) else None,
        "names": list(surface.names),
        "x": [_round(left), _round(right)],
        "y": [_round(bottom), _round(top)],
        "values": [_round(row) for row in surface.values],
        "points": [_round(point) for point in points[::step]],
        "levels": list(surface.levels),
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


def _gallery_images(gallery: Gallery | None, pairs: Ints, result: PairResult) -> dict[str, Any]:
    """Return the images of a gallery as data URLs.

    Returns
    -------
    dict
        ``images``: exemplars by unit name; ``painted``: inputs by gradient ascent by unit name; ``joint``: for the
        position of a pair on the page, exemplars of both units and the input by gradient ascent, or None.
    """
    images: dict[str, str] = {}
    painted: dict[str, str] = {}
    joint: dict[int, list[str | None]] = {}
    for pair in _check_gallery(gallery):
        inputs = first_input(pair.exemplars.inputs)
        limits = colour_limits(inputs.flatten(0, 1))
        ascent = [None] * 3 if pair.ascent is None else [_draw_png(image[None], limits) for image in pair.ascent.inputs]
        for row, name in enumerate(pair.units):
            images[name] = _draw_png(inputs[row], limits, *maximum_places(pair.exemplars, row))
            if (image := ascent[row]) is not None:
                painted[name] = image
        position = np.flatnonzero(pairs == result.pair(*pair.numbers))
        if len(position):
            joint[int(position[0])] = [_draw_png(first_input(pair.both.inputs)[0], limits), ascent[2]]
    return {"images": images, "painted": painted, "joint": joint}


def _check_gallery(gallery: Gallery | None) -> Sequence[PairView]:
    """Return the pairs of a gallery, none if there is no gallery."""
    if gallery is None:
        return []
    if not isinstance(gallery, Gallery):
        raise GEHTypeError(f"gallery is a {type(gallery).__name__}; give what explainer.interpret(...) returns.")
    return gallery.pairs


def _draw_png(*inputs: Any) -> str:
    """Return a PNG image, as a data URL, of what :func:`geh_explain.plots.exemplars.show` draws."""
    from matplotlib.figure import Figure

    # A Figure without pyplot, so that no window or global state is touched.
    figure = Figure(figsize=(2.4, 2.4))
    draw_inputs(figure.add_axes((0.02, 0.02, 0.96, 0.96)), *inputs)
    file = io.BytesIO()
    # Cropped to what was drawn: wide and high images leave no empty space.
    figure.savefig(file, format="png", dpi=80, bbox_inches="tight", pad_inches=0.02)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _round(values: Any) -> list[float | None]:
    """Return numbers with five significant digits, more than a chart can show, to keep the file small; None for NaN."""
    return [None if np.isnan(value) else float(f"{value:.5g}") for value in np.asarray(values, dtype=float)]
