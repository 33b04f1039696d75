"""The charts of the page, as Vega-Lite specifications; the page fills in their data and who is chosen."""

from __future__ import annotations

from typing import Any

from geh_explain.plots import palette

Spec = dict[str, Any]

#: Pixels: of a cell of the heatmap by the number of units, and of a row of the forest.
_SIDE, _LARGEST_CELL, _ROW = 480, 34, 20
_LABELS: Spec = {"title": None, "labelLimit": 280, "ticks": False, "domain": False}
#: Few numbers along an axis, none over another.
_NUMBERS: Spec = {"tickCount": 4, "labelOverlap": "greedy", "format": ".4~g"}
#: Both names of a pair, long ones cut.
_BRIEF = "join([truncate(split(datum.label, ' × ')[0], 20), truncate(split(datum.label, ' × ')[1], 20)], ' × ')"
#: What the page's script tells a chart: the number of the chosen pair, and the largest score.
_PARAMS = [{"name": "chosen", "value": -1}, {"name": "largest", "value": 1}]
_CHOSEN: Spec = {"test": "datum.pair === chosen", "value": palette.MARK}


def charts(shown: dict[str, Any]) -> dict[str, Spec]:
    """Return one specification for each chart; names of data and parameters are those of the page's script."""
    several = shown["width"] is not None
    return {
        "heatmap": _heatmap([shown["names"][unit] for unit in shown["heat"]]),
        "forest": _forest(several),
        "network": _network(shown["nodes"]["what"]),
        "regions": _regions(several),
        "surface": _surface(),
    }


def _heatmap(names: list[str]) -> Spec:
    units, scale = len(names), {"domain": names}
    step = min(_LARGEST_CELL, _SIDE / units)
    axis = {"title": None, "labelLimit": 110, "ticks": False, "domain": False, "labelFontSize": min(11, step)}
    return _chart(
        "cells",
        width={"step": step},
        height={"step": step},
        layer=[
            {
                "mark": {"type": "rect", "cursor": "pointer", "aria": False},
                "encoding": {
                    "color": {
                        "field": "mean",
                        "type": "quantitative",
                        "scale": {"domainMin": 0, "interpolate": "lab"},  # its range depends on light or dark
                        "legend": {"title": None, "orient": "bottom", "gradientLength": 160},
                    },
                    "fillOpacity": {"condition": {"test": "datum.shown", "value": 1}, "value": 0.12},
                    "stroke": {"condition": _CHOSEN, "value": None},
                    "strokeWidth": {"value": 2.5},
                    "tooltip": _tooltip(),
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
        ],
        encoding={
            "x": {"field": "column", "type": "nominal", "scale": scale, "axis": {**axis, "labelAngle": -90}},
            "y": {"field": "row", "type": "nominal", "scale": scale, "axis": axis},
        },
    )


def _forest(several: bool) -> Spec:
    row = {
        "y": {"field": "label", "type": "nominal", "sort": None, "axis": {**_LABELS, "labelExpr": _BRIEF}},
        "color": {"condition": [_CHOSEN, {"test": "datum.unsure", "value": palette.UNSURE}], "value": palette.SURE},
        "tooltip": _tooltip(),
    }
    intervals = [("low", "high", 1.5), ("low50", "high50", 5.0)] if several else []
    return _chart("rows", width=250, height={"step": _ROW}, layer=_marks(row, intervals, None))


def _regions(several: bool) -> Spec:
    row = {
        "y": {"field": "region", "type": "nominal", "sort": None, "axis": {**_LABELS, "title": "region (points)"}},
        "color": {"condition": {"test": "datum.mean > 0", "value": palette.POSITIVE}, "value": palette.NEGATIVE},
        "tooltip": [{"field": "region", "title": "region (points)"}, *_numbers("mean", "low", "high")],
    }
    intervals = [("low", "high", 1.5)] if several else []
    return _chart("regions", width=260, height={"step": _ROW}, layer=_marks(row, intervals, "signed effect"))


def _marks(row: Spec, intervals: list[tuple[str, str, float]], title: str | None) -> list[Spec]:
    """Return a line at 0, and for each row its intervals and its mean."""
    x = {"type": "quantitative", "title": title, "scale": {"zero": True}, "axis": _NUMBERS}
    mark = {"cursor": "pointer", "aria": False}
    lines = [
        {
            "mark": {"type": "rule", "strokeWidth": thick, **mark},
            "encoding": {"x": {"field": low, **x}, "x2": {"field": high}, **row},
        }
        for low, high, thick in intervals
    ]
    points = {
        "mark": {"type": "point", "filled": True, "size": 50, **mark},
        "encoding": {"x": {"field": "mean", **x}, **row},
    }
    zero = {"data": {"values": [{}]}, "mark": {"type": "rule", "opacity": 0.5}, "encoding": {"x": {"datum": 0}}}
    return [zero, *lines, points]


def _network(what: str) -> Spec:
    place = {"axis": None, "scale": {"domain": [-1.45, 1.45]}, "type": "quantitative"}
    return _chart(
        "edges",
        width=440,
        height=440,
        layer=[
            {
                "mark": {"type": "rule", "cursor": "pointer", "strokeCap": "round", "aria": False},
                "encoding": {
                    "x": {"field": "x", **place},
                    "y": {"field": "y", **place},
                    "x2": {"field": "x2"},
                    "y2": {"field": "y2"},
                    "strokeWidth": {
                        "field": "mean",
                        "type": "quantitative",
                        "scale": {"domain": [0, {"expr": "largest"}], "range": [0.5, 9]},
                        "legend": None,
                    },
                    "opacity": {
                        "field": "certainty",
                        "type": "quantitative",
                        "scale": {"domain": [0.5, 1], "range": [0.12, 0.85], "clamp": True},
                        "legend": None,
                    },
                    "color": {
                        "condition": _CHOSEN,
                        "field": "sign",
                        "type": "nominal",
                        "scale": {
                            "domain": ["positive", "negative", "neither"],
                            "range": [palette.POSITIVE, palette.NEGATIVE, palette.UNSURE],
                        },
                        "legend": {"title": None, "orient": "bottom", "symbolType": "stroke"},
                    },
                    "tooltip": _tooltip(),
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
                    "tooltip": [{"field": "name", "title": "unit"}, {"field": "size", "title": what, "format": ".4g"}],
                },
            },
            *(
                {
                    "data": {"name": "nodes"},
                    "transform": [{"filter": f"datum.side === '{side}'"}],
                    "mark": {"type": "text", "align": side, "baseline": "middle", "limit": 110, "aria": False},
                    "encoding": {
                        "x": {"field": "text_x", **place},
                        "y": {"field": "text_y", **place},
                        "text": {"field": "name"},
                    },
                }
                for side in ("left", "center", "right")
            ),
        ],
    )


def _surface() -> Spec:
    near = {"zero": False, "nice": False}
    return _chart(
        "cells",
        width=260,
        height=220,
        layer=[
            {
                "mark": {"type": "rect", "aria": False},
                "encoding": {
                    "x": {"field": "x", "type": "quantitative", "scale": near},
                    "y": {"field": "y", "type": "quantitative", "scale": near},
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
    schema = "https://vega.github.io/schema/vega-lite/v6.json"  # a name, which nothing fetches
    return {"$schema": schema, "data": {"name": data}, "params": _PARAMS, **parts}


def _tooltip() -> list[Spec]:
    return [{"field": "label", "title": "pair"}, *_numbers("mean", "low", "high", "p")]


def _numbers(*names: str) -> list[Spec]:
    return [{"field": name, "format": ".4g"} for name in names]
