"""Writing of the report page."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from geh_explain._validation import check_output_file
from geh_explain.analyses.surface import Surface
from geh_explain.errors import GEHTypeError
from geh_explain.interpret.gallery import Gallery
from geh_explain.report.charts import build_charts
from geh_explain.report.content import build_content
from geh_explain.report.names import replace_long_names
from geh_explain.report.predictions import Local, local_section
from geh_explain.report.text import list_omissions, list_settings, reading_guide
from geh_explain.report.verdict import give_verdict, list_facts
from geh_explain.scores.decisions import Decisions
from geh_explain.scores.protocol import PairResult
from geh_explain.storage.whole import write_whole

#: Parts of the script, in order.
_SCRIPTS = ("page.js", "page.table.js", "page.pair.js", "page.layout.js", "page.charts.js", "page.start.js")
#: Notes and warnings of more characters are folded in.
_MAX_NOTES = 200
#: Facts of more characters have the width of two.
_LONG_FACT = 40
#: Strongest pairs among which are those that the verdict may name.
_VERDICT_PAIRS = 50


def write_page(
    result: PairResult,
    path: str | os.PathLike[str],
    decisions: Decisions,
    *,
    title: str | None = None,
    main: Any = None,
    surfaces: Sequence[Surface] = (),
    gallery: Gallery | None = None,
    local: Local = None,
) -> Path:
    """Write the page of a result, and return its path.

    The parameters are those of :meth:`geh_explain.Interactions.report`. A former page is replaced at the end, or stays
    as it was.
    """
    path = check_output_file("path", path, ".html", ".htm")
    if title is not None and not isinstance(title, str):
        raise GEHTypeError(f"title={title!r} must be text.")
    content = build_content(result, decisions, main, surfaces, gallery)
    section = local_section(local)
    page = _fill_template(title or f"Interactions in {result.record.model}", result, decisions, content, section)
    with write_whole(path) as file:
        file.write(page.encode())
    return path


def _fill_template(
    title: str, result: PairResult, decisions: Decisions, content: dict[str, Any], local: str = ""
) -> str:
    """Return the page: ``page.html`` with its marks ``@@NAME@@`` replaced.

    All text is escaped. In the data ``<`` is written as an escape sequence, so that no name can end the script.
    """
    notes = [*list_omissions(result, content), *result.record.warnings]
    data = {**content, "charts": build_charts(content)}
    parts = {
        "TITLE": escape(title),
        "VERDICT": _verdict(result, decisions, content),
        "FACTS": "".join(_fact(*fact, _short_names(content)) for fact in list_facts(result, decisions)),
        "WARNINGS": "".join(f"<li>{escape(str(note))}</li>" for note in notes),
        "WARNINGS-COUNT": "1 note" if len(notes) == 1 else f"{len(notes)} notes and warnings",
        "WARNINGS-STATE": "hidden" if not notes else "open" if sum(map(len, map(str, notes))) < _MAX_NOTES else "",
        "HOW-TO-READ": "".join(f"<p>{escape(paragraph)}</p>" for paragraph in reading_guide(result, decisions)),
        "SETTINGS": "".join(_table_row(name, value) for name, value in list_settings(result)),
        "LOCAL": local,
        "STYLE": _read_part("page.css"),
        "VEGA": _read_part("vega.js"),
        "SCRIPT": f"(() => {{\n{''.join(map(_read_part, _SCRIPTS))}}})();",
        "DATA": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    # One pass over the template, so that marks inside of names and titles stay as they are.
    return re.sub("@@([A-Z-]+)@@", lambda mark: parts[mark[1]], _read_part("page.html"))


def _verdict(result: PairResult, decisions: Decisions, content: dict[str, Any]) -> str:
    """Return the sentences of the verdict as paragraphs, with long names cut."""
    short = _short_names(content)
    # Short names of a pair stay on one line; a line may end after the sign between long ones.
    long = any(short[name] != name for name in short)
    sign = "\u00a0× " if long else "\u00a0×\u00a0"
    sentences = [sentence.replace(" × ", sign) for sentence in give_verdict(result, decisions)]
    paragraphs = [replace_long_names(sentence, short) for sentence in sentences]
    text = "".join(f"<p{' class=lead' * (number == 0)}>{words}</p>" for number, words in enumerate(paragraphs))
    return text + _share_bar(result, decisions.level)


def _share_bar(result: PairResult, level: float) -> str:
    """Return a bar of the variance of the output: the largest pair, all interactions with their interval, the rest."""
    share = result.interaction_share(level)
    if share is None:
        return ""
    pairs = [pair for pair, _, _ in result.pair_shares(level).values()]
    overall, low, high, pair = (100 * min(1.0, max(0.0, part)) for part in (*share, max(pairs, default=0.0)))
    title = "Share of interactions in the variance of the output; dark: the pair with the largest share"
    return (
        f'<div class="track share" aria-hidden="true" title="{title}">'
        f'<i style="left:0;width:{overall:.2f}%" class="score"></i>'
        f'<i style="left:0;width:{min(pair, overall):.2f}%" class="largest"></i>'
        f'<b style="left:{low:.2f}%;width:{high - low:.2f}%"></b></div>'
    )


def _fact(name: str, value: str, short: dict[str, str]) -> str:
    """Return the name and the value of a fact, with long names cut."""
    wide = " class=wide" * (len(value) > _LONG_FACT)
    return f"<div{wide}><dt>{escape(name)}</dt> <dd>{replace_long_names(value, short)}</dd></div>"


def _short_names(content: dict[str, Any]) -> dict[str, str]:
    """Return the short names of the units of the strongest pairs, by their names."""
    units = [*content["pairs"]["first"][:_VERDICT_PAIRS], *content["pairs"]["second"][:_VERDICT_PAIRS]]
    return {content["names"][unit]: content["short_names"][unit] for unit in units}


def _table_row(name: str, value: str) -> str:
    """Return a row of the table of settings."""
    return f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>"


def _read_part(name: str) -> str:
    """Return the text of a file of this folder."""
    return files("geh_explain.report").joinpath(name).read_text(encoding="utf-8")
