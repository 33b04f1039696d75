"""The charts of the report page, as Vega-Lite specifications.

The specifications hold no data. ``page.charts.js`` adds data sets, sizes and parameters by the names used here: data
sets ``cells``, ``edges``, ``nodes`` and ``points``, and the parameters ``chosen`` and ``largest``. Colours like
``var(--mark)`` are variables of ``page.css``.
"""

from __future__ import annotations

from typing import Any

from geh_explain.plots import palette

Spec = dict[str, Any]

#: Axis with few numbers, which do not overlap.
_NUMBER_AXIS: Spec = {"tickCount": 4, "labelOverlap": "greedy", "format": ".4~g"}
#: Parameters that the script of the page sets: the index of the chosen pair, and the largest score.
_PARAMS = [{"name": "chosen", "value": -1}, {"name": "largest", "value": 1}]
#: Condition that colours the chosen pair.
_CHOSEN: Spec = {"test": "datum.pair === chosen", "value": "var(--mark)"}

#: Width of the edge of the strongest pair in pixels.
_WIDEST_EDGE = 9


def build_charts(content: dict[str, Any]) -> dict[str, Spec]:
    """Return the specification of each chart, by the id of its element, for the data of the page ``content``."""
    tooltip = [{"field": "label", "title": "pair"}, *_numbers(*_tooltip_fields(content))]
    units = [content["names"][i] for i in content["heatmap"]]
    return {
        "heatmap": _heatmap(units, tooltip, content["partial"]),
        "network": _network(content["nodes"]["size_meaning"], tooltip),
        "surface": _surface(),
    }


def _heatmap(units: list[str], tooltip: list[Spec], partial: bool) -> Spec:
    """Return the heatmap of all pairs of ``units``, in this order on both axes; the script sets their short names.

    Each pair has two cells, with the fields of a pair, row, column, ``fill`` and ``dot`` (colours), ``decision`` and
    ``shown`` (not filtered out; other cells are pale). Accepted pairs have a dot.
    """
    scale = {"domain": units, "paddingInner": 0.03, "paddingOuter": 0}
    axis = {
        "title": None,
        "labelOverlap": False,
        "ticks": False,
        "domain": False,
        "labelPadding": 5,
    }
    return _chart(
        "cells",
        layer=[
            {
                "transform": [{"filter": "!datum.unknown"}],
                "mark": {"type": "rect", "cursor": "pointer", "aria": False},
                "encoding": {
                    "color": {"field": "fill", "type": "nominal", "scale": None},
                    "fillOpacity": {"condition": {"test": "datum.shown", "value": 1}, "value": 0.12},
                    "stroke": {"condition": _CHOSEN, "value": None},
                    "strokeWidth": {"value": 2.5},
                    "tooltip": tooltip,
                },
            },
            {
                "transform": [{"filter": "datum.shown && datum.decision === 'yes'"}],
                "mark": {"type": "point", "filled": True, "opacity": 1, "aria": False, "tooltip": None},
                "encoding": {"color": {"field": "dot", "type": "nominal", "scale": None}},
            },
            *([_unknown_cells()] if partial else []),
        ],
        encoding={
            "x": {"field": "column", "type": "nominal", "scale": scale, "axis": axis},
            "y": {"field": "row", "type": "nominal", "scale": scale, "axis": axis},
        },
    )


def _unknown_cells() -> Spec:
    """Return the layer of the heatmap over the cells of pairs that were not computed, which says so."""
    return {
        "transform": [{"filter": "datum.unknown"}],
        "mark": {"type": "rect", "aria": False},
        "encoding": {
            "color": {"value": "var(--unknown)"},
            "fillOpacity": {"value": 0.5},
            "tooltip": {"value": "not computed"},
        },
    }


def _network(size_meaning: str, tooltip: list[Spec]) -> Spec:
    """Return the network of the units; the script sets its size, and the domains of the places in pixels.

    Edges have the fields of a pair, the coordinates x, y, x2 and y2 of both ends, sign, and ``band``, the GEH behind a
    supported score, else 0. Nodes have name, x, y and size, whose meaning is ``size_meaning``; for the name they have
    text_x, text_y, side, and leader, whether a line leads to it.
    """
    place = {"axis": None, "type": "quantitative"}
    pale = {"test": "datum.unsure && datum.pair !== chosen", "value": 0.28}
    chosen = {"transform": [{"filter": "datum.pair === chosen"}]}
    return _chart(
        "edges",
        resolve={"scale": {"strokeWidth": "independent"}},
        layer=[
            _edges("band", 0, {"opacity": {"value": 0.16}, "color": _sign()}, tooltip),
            _edges("strength", 0, {"opacity": {"condition": pale, "value": 0.9}, "color": _sign()}, tooltip),
            # The chosen pair once more, above the others and with an outline.
            {**_edges("strength", 7, {"color": {"value": "var(--mark)"}}, tooltip), **chosen},
            {**_edges("strength", 3, {"color": {"value": "var(--back)"}}, tooltip), **chosen},
            {**_edges("strength", 0, {"color": _sign()}, tooltip), **chosen},
            # From nodes to names in columns.
            {
                "data": {"name": "nodes"},
                "transform": [{"filter": "datum.leader"}],
                "mark": {"type": "rule", "aria": False, "tooltip": None},
                "encoding": {
                    "x": {"field": "x", **place},
                    "y": {"field": "y", **place},
                    "x2": {"field": "text_x"},
                    "y2": {"field": "text_y"},
                    "color": {"value": "var(--line)"},
                },
            },
            {
                "data": {"name": "nodes"},
                "mark": {"type": "circle", "opacity": 1, "aria": False},
                "encoding": {
                    "x": {"field": "x", **place},
                    "y": {"field": "y", **place},
                    "size": {
                        "field": "size",
                        "type": "quantitative",
                        "scale": {"domainMin": 0, "range": [20, 420]},
                        "legend": None,
                    },
                    "color": {"value": "var(--unsure)"},
                    "tooltip": [
                        {"field": "name", "title": "unit"},
                        {"field": "size", "title": size_meaning, "format": ".4g"},
                    ],
                },
            },
            # Alignment is a property of a mark and no encoding, so names have one layer for each side of the circle.
            *(
                {
                    "data": {"name": "nodes"},
                    "transform": [{"filter": f"datum.side === '{side}'"}],
                    "mark": {"type": "text", "align": side, "baseline": "middle", "aria": False},
                    "encoding": {
                        "x": {"field": "text_x", **place},
                        "y": {"field": "text_y", **place},
                        "text": {"field": "short"},
                    },
                }
                for side in ("left", "center", "right")
            ),
        ],
    )


def _sign() -> Spec:
    """Return the encoding of an edge's colour: the sign of the pair in most groups."""
    colours = {"positive": "var(--positive)", "negative": "var(--negative)", "neither": "var(--unsure)"}
    scale = {"domain": list(colours), "range": list(colours.values())}
    return {"field": "sign", "type": "nominal", "scale": scale, "legend": None}


def _edges(field: str, outline: int, encoding: Spec, tooltip: list[Spec]) -> Spec:
    """Return a layer of the network with lines as wide as ``field`` says, and by ``outline`` pixels wider."""
    scale = {"domain": [0, {"expr": "largest"}], "range": [outline, outline + _WIDEST_EDGE]}
    place = {"axis": None, "type": "quantitative"}
    return {
        "mark": {"type": "rule", "cursor": "pointer", "strokeCap": "butt", "aria": False},
        "encoding": {
            "x": {"field": "x", **place},
            "y": {"field": "y", **place},
            "x2": {"field": "x2"},
            "y2": {"field": "y2"},
            "strokeWidth": {"field": field, "type": "quantitative", "scale": scale, "legend": None},
            "tooltip": tooltip,
            **encoding,
        },
    }


def _surface() -> Spec:
    """Return the joint effect of a pair, with data points on top; the script sets its size.

    Cells have their edges x, x2, y and y2, and value; points have x and y. The script sets the titles of the axes.
    """
    place = {"type": "quantitative", "scale": {"zero": False, "nice": False}, "axis": _NUMBER_AXIS}
    return _chart(
        "cells",
        layer=[
            {
                "mark": {"type": "rect", "aria": False},
                "encoding": {
                    "x": {"field": "x", **place},
                    "y": {"field": "y", **place},
                    "x2": {"field": "x2"},
                    "y2": {"field": "y2"},
                    "color": {
                        "field": "value",
                        "type": "quantitative",
                        "scale": {"scheme": "redblue", "reverse": True, "domainMid": 0},
                        "legend": {"title": "joint effect", "gradientLength": 140},
                    },
                },
            },
            {
                "data": {"name": "points"},
                "mark": {"type": "point", "filled": True, "size": 6, "opacity": 0.5, "clip": True, "aria": False},
                "encoding": {
                    "x": {"field": "x", "type": "quantitative"},
                    "y": {"field": "y", "type": "quantitative"},
                    "color": {"value": palette.LINE},
                },
            },
        ],
    )


def _chart(data: str, **parts: Any) -> Spec:
    """Return a specification of the data set ``data``, with the parameters of the page."""
    schema = "https://vega.github.io/schema/vega-lite/v6.json"  # an identifier that is never fetched
    return {"$schema": schema, "data": {"name": data}, "params": _PARAMS, **parts}


def _tooltip_fields(content: dict[str, Any]) -> list[str]:
    """Return the numbers in the tooltip of a pair."""
    measure, evidence = content["measures"]["geh"], content["evidence"]
    fields = ["mean", *(["low", "high"] if "low" in measure else [])]
    fields += ["supported", "slope", "slope_se"] if evidence is not None else []
    return fields + ["p"] * ("p" in measure or evidence is not None)


def _numbers(*names: str) -> list[Spec]:
    """Return tooltip fields with four digits."""
    return [{"field": name, "format": ".4g"} for name in names]
