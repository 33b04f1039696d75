"""A result as one page that opens anywhere: no network, no server, no other file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.report.charts import charts
from geh_explain.report.content import content
from geh_explain.report.words import how_to_read, sentences, settings_in_words

if TYPE_CHECKING:
    from geh_explain.analyses.surface import Surface
    from geh_explain.interpret.gallery import Gallery
    from geh_explain.results.interactions import Interactions


def write(
    result: Interactions,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    level: float = 0.95,
    main: Any = None,
    surfaces: Sequence[Surface] = (),
    gallery: Gallery | None = None,
) -> Path:
    """Write the page of a result, and return its path; see :meth:`geh_explain.Interactions.report`."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise GEHValueError(f"path={str(path)!r} must end in .html.")
    if not path.parent.is_dir():
        raise GEHValueError(f"path={str(path)!r}: there is no folder {str(path.parent)!r}; make it first.")
    if title is not None and not isinstance(title, str):
        raise GEHTypeError(f"title={title!r} must be text.")
    name = title or f"Interactions in {result.settings.get('model', 'a network')}"
    shown = content(result, level, main, surfaces, gallery)
    shown["charts"] = charts(shown)
    path.write_text(_filled(name, result, level, shown), encoding="utf-8")
    return path


def _filled(title: str, result: Interactions, level: float, shown: dict[str, Any]) -> str:
    """Return the page: text is escaped, and data can hold no tag."""
    notes = [*shown.pop("left_out"), *result.settings.get("warnings", [])]
    parts = {
        "TITLE": escape(title),
        "SUMMARY": _paragraph(sentences(result, level)),
        "WARNINGS": "".join(f"<li>{escape(str(note))}</li>" for note in notes),
        "HIDE-WARNINGS": "" if notes else "hidden",
        "HOW-TO-READ": "".join(f"<p>{escape(paragraph)}</p>" for paragraph in how_to_read(result, level)),
        "SETTINGS": "".join(_row(name, value) for name, value in settings_in_words(result)),
        "STYLE": _part("page.css"),
        "VEGA": _part("vega.js"),
        "SCRIPT": _part("page.js"),
        "DATA": json.dumps(shown, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return re.sub("@@([A-Z-]+)@@", lambda mark: parts[mark[1]], _part("page.html"))


def _paragraph(lines: Sequence[str]) -> str:
    return f"<p>{escape(' '.join(lines))}</p>"


def _row(name: str, value: str) -> str:
    return f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>"


def _part(name: str) -> str:
    return files("geh_explain.report").joinpath(name).read_text(encoding="utf-8")
