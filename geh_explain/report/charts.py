"""The charts of the report page, as Vega-Lite specifications.

The specifications hold no data. ``page.js`` adds data sets and parameters by the names used here: the data sets
``cells``, ``rows``, ``edges``, ``nodes``, ``groups`` and ``points``, and the parameters ``chosen`` and ``largest``.
"""

from __future__ import annotations

import json
from typing import Any

from geh_explain.plots import palette

Spec = dict[str, Any]

#: Side of the heatmap, largest side of one of its cells, and height of a row of the other charts, in pixels.
_HEATMAP_SIDE = 480
_MAX_CELL = 34
_ROW_HEIGHT = 20
#: Axis with names.
_NAME_AXIS: Spec = {"title": None, "labelLimit": 320, "ticks": False, "domain": False}
#: Axis with few numbers, which do not overlap.
_NUMBER_AXIS: Spec = {"tickCount": 4, "labelOverlap": "greedy", "format": ".4~g"}
#: Parameters that the script of the page sets: the index of the chosen pair, and the largest score.
_PARAMS = [{"name": "chosen", "value": -1}, {"name": "largest", "value": 1}]
#: Marks that choose a pair when clicked; the table is what screen readers read.
_POINTER: Spec = {"cursor": "pointer", "aria": False}
#: Condition that colours the chosen pair.
_CHOSEN: Spec = {"test": "datum.pair === chosen", "value": palette.MARK}


def build_charts(content: dict[str, Any]) -> dict[str, Spec]:
    """Return the specification of each chart, by the id of its element, for the data of the page ``content``."""
    has_intervals = "low" in content["measures"]["geh"]
    has_group_intervals = content["group_effects"]["half"] is not None
    has_evidence = content["evidence"] is not None
    tooltip = [{"field": "label", "title": "pair"}, *_numbers(*_tooltip_fields(has_intervals, content))]
    return {
        "heatmap": _heatmap(
            {content["names"][i]: content["short_names"][i] for i in content["heatmap"]}, tooltip, content["partial"]
        ),
        "forest": _forest(has_intervals, has_evidence, tooltip),
        "network": _network(content["nodes"]["size_meaning"], tooltip),
        "groups": _groups(has_group_intervals, "descriptions" in content["groups"]),
        "surface": _surface(),
    }


def _heatmap(short_names: dict[str, str], tooltip: list[Spec], partial: bool) -> Spec:
    """Return the heatmap of all pairs of the units of ``short_names``, in this order on both axes.

    Each pair has two cells, with the fields of a pair, row, column, ``value`` (the colour), ``unsure`` (not accepted,
    so struck out) and ``shown`` (not filtered out; other cells are pale).
    """
    units, scale = len(short_names), {"domain": list(short_names)}
    step = min(_MAX_CELL, _HEATMAP_SIDE / units)
    axis = {
        "title": None,
        "labelLimit": 150,
        "labelExpr": f"({json.dumps(short_names)})[datum.value]",
        "ticks": False,
        "domain": False,
        "labelFontSize": min(11, step),
    }
    return _chart(
        "cells",
        width={"step": step},
        height={"step": step},
        layer=[
            {
                "mark": {"type": "rect", "cursor": "pointer", "aria": False},
                "encoding": {
                    "color": {
                        "field": "value",
                        "type": "quantitative",
                        # The script sets the range of colours, which differs between light and dark mode.
                        "scale": {"domainMin": 0, "interpolate": "lab"},
                        "legend": {"title": None, "orient": "bottom", "gradientLength": 160},
                    },
                    "fillOpacity": {"condition": {"test": "datum.shown", "value": 1}, "value": 0.12},
                    "stroke": {"condition": _CHOSEN, "value": None},
                    "strokeWidth": {"value": 2.5},
                    "tooltip": tooltip,
                },
            },
            {
                "transform": [{"filter": "datum.shown && datum.unsure"}],
                "mark": {
                    "type": "point",
                    "shape": "M-0.7,0.7L0.7,-0.7",
                    "strokeWidth": 1,
                    "size": (0.45 * step) ** 2,
                    "aria": False,
                    "tooltip": None,
                    "cursor": "pointer",
                },
                "encoding": {"color": {"value": palette.UNSURE}},
            },
            *([_unknown_cells()] if partial else []),
        ],
        encoding={
            "x": {"field": "column", "type": "nominal", "scale": scale, "axis": {**axis, "labelAngle": -90}},
            "y": {"field": "row", "type": "nominal", "scale": scale, "axis": axis},
        },
    )


def _unknown_cells() -> Spec:
    """Return the layer of the heatmap with the cells of pairs that were not computed."""
    return {
        "transform": [{"filter": "datum.unknown"}],
        "mark": {"type": "rect", "aria": False},
        "encoding": {
            "color": {"value": palette.UNKNOWN},
            "tooltip": {"value": "not computed"},
        },
    }


def _forest(has_intervals: bool, has_evidence: bool, tooltip: list[Spec]) -> Spec:
    """Return the forest of the strongest pairs.

    Rows have the fields of a pair, and the ends of two intervals: low and high, low50 and high50. With evidence,
    diamonds are the supported scores.
    """
    row = {
        "y": {"field": "short", "type": "nominal", "sort": None, "axis": _NAME_AXIS},
        "color": {"condition": [_CHOSEN, {"test": "datum.unsure", "value": palette.UNSURE}], "value": palette.SURE},
        "tooltip": tooltip,
    }
    intervals = [("low", "high", 1.5), ("low50", "high50", 5.0)] if has_intervals else []
    diamond = {
        "transform": [{"filter": "datum.supported !== null && datum.p !== null"}],
        "mark": {"type": "point", "shape": "diamond", "filled": True, "size": 60, "opacity": 1, **_POINTER},
        "encoding": {
            "x": {"field": "supported", "type": "quantitative"},
            "y": row["y"],
            "color": {"value": palette.SUPPORTED},
            "tooltip": tooltip,
        },
    }
    layers = _marks(row, intervals, None) + [diamond] * has_evidence
    return _chart("rows", width=250, height={"step": _ROW_HEIGHT}, layer=layers)


def _groups(has_intervals: bool, described: bool) -> Spec:
    """Return the signed effect of the chosen pair in each group, with fields group, mean, low and high."""
    # A title would cover long labels.
    axis = _NAME_AXIS if described else {**_NAME_AXIS, "title": "group (points)"}
    row = {
        "y": {"field": "group", "type": "nominal", "sort": None, "axis": axis},
        "color": {"condition": {"test": "datum.mean > 0", "value": palette.POSITIVE}, "value": palette.NEGATIVE},
        "tooltip": [{"field": "group", "title": "group (points)"}, *_numbers("mean", "low", "high")],
    }
    intervals = [("low", "high", 1.5)] if has_intervals else []
    return _chart("groups", width=260, height={"step": _ROW_HEIGHT}, layer=_marks(row, intervals, "signed effect"))


def _marks(row: Spec, intervals: list[tuple[str, str, float]], title: str | None) -> list[Spec]:
    """Return the layers of a chart with one row per datum: a line at 0, intervals, and means.

    Parameters
    ----------
    row
        Encodings that all layers share: row, colour and tooltip.
    intervals
        Fields of the low and the high end, and line width, of each interval.
    title
        Title of the horizontal axis.
    """
    x = {"type": "quantitative", "title": title, "scale": {"zero": True}, "axis": _NUMBER_AXIS}
    lines = [
        {
            "mark": {"type": "rule", "strokeWidth": width, **_POINTER},
            "encoding": {"x": {"field": low, **x}, "x2": {"field": high}, **row},
        }
        for low, high, width in intervals
    ]
    points = {
        "mark": {"type": "point", "filled": True, "size": 50, **_POINTER},
        "encoding": {"x": {"field": "mean", **x}, **row},
    }
    zero = {"data": {"values": [{}]}, "mark": {"type": "rule", "opacity": 0.5}, "encoding": {"x": {"datum": 0}}}
    return [zero, *lines, points]


def _network(size_meaning: str, tooltip: list[Spec]) -> Spec:
    """Return the network of the units, whose coordinates lie on a circle of radius 1.

    Edges have the fields of a pair, the coordinates x, y, x2 and y2 of both ends, sign, and ``band``, the GEH behind a
    supported score, else 0. Nodes have name, x, y and size, and for the name text_x, text_y and side. ``size_meaning``
    is the title of the size.
    """
    place = {"axis": None, "scale": {"domain": [-1.45, 1.45]}, "type": "quantitative"}
    width_scale = {"domain": [0, {"expr": "largest"}], "range": [0, 9]}
    ends = {
        "x": {"field": "x", **place},
        "y": {"field": "y", **place},
        "x2": {"field": "x2"},
        "y2": {"field": "y2"},
    }
    sign_scale = {
        "domain": ["positive", "negative", "neither"],
        "range": [palette.POSITIVE, palette.NEGATIVE, palette.UNSURE],
    }
    legend = {"title": None, "orient": "bottom", "symbolType": "stroke", "symbolOpacity": 1, "symbolStrokeWidth": 3}
    sign = {
        "condition": _CHOSEN,
        "field": "sign",
        "type": "nominal",
        "scale": sign_scale,
        "legend": legend,
    }
    return _chart(
        "edges",
        width=440,
        height=440,
        layer=[
            {
                "mark": {"type": "rule", "cursor": "pointer", "opacity": 0.16, "aria": False},
                "encoding": {
                    **ends,
                    "strokeWidth": {"field": "band", "type": "quantitative", "scale": width_scale, "legend": None},
                    "color": sign,
                    "tooltip": tooltip,
                },
            },
            {
                "mark": {"type": "rule", "cursor": "pointer", "strokeCap": "butt", "aria": False},
                "encoding": {
                    **ends,
                    "strokeWidth": {"field": "strength", "type": "quantitative", "scale": width_scale, "legend": None},
                    "opacity": {"condition": {"test": "datum.unsure", "value": 0.35}, "value": 0.85},
                    "strokeDash": {"condition": {"test": "datum.unsure", "value": [5, 4]}, "value": [1, 0]},
                    "color": sign,
                    "tooltip": tooltip,
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
                    "color": {"value": palette.UNSURE},
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
                    "mark": {"type": "text", "align": side, "baseline": "middle", "limit": 150, "aria": False},
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


def _surface() -> Spec:
    """Return the joint effect of a pair, with data points on top.

    Cells have their edges x, x2, y and y2, and value; points have x and y. The script sets the titles of the axes.
    """
    scale = {"zero": False, "nice": False}
    return _chart(
        "cells",
        width=260,
        height=220,
        layer=[
            {
                "mark": {"type": "rect", "aria": False},
                "encoding": {
                    "x": {"field": "x", "type": "quantitative", "scale": scale},
                    "y": {"field": "y", "type": "quantitative", "scale": scale},
                    "x2": {"field": "x2"},
                    "y2": {"field": "y2"},
                    "color": {
                        "field": "value",
                        "type": "quantitative",
                        "scale": {"scheme": "redblue", "reverse": True, "domainMid": 0},
                        "legend": {"title": "joint effect", "gradientLength": 160},
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


def _tooltip_fields(has_intervals: bool, content: dict[str, Any]) -> list[str]:
    """Return the numbers in the tooltip of a pair."""
    fields = ["mean", *(["low", "high"] if has_intervals else [])]
    fields += ["supported", "slope", "slope_se"] if content["evidence"] is not None else []
    return fields + ["p"] * ("p" in content["measures"]["geh"] or content["evidence"] is not None)


def _numbers(*names: str) -> list[Spec]:
    """Return tooltip fields with four digits."""
    return [{"field": name, "format": ".4g"} for name in names]
