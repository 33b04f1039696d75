"""Short names of units for the report page; the full ones are shown when the pointer is on them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from geh_explain.scores.pair_names import number_repeats


def cut_middle(name: str, max_chars: int) -> str:
    """Return a name of at most ``max_chars`` characters: of a long one both ends, with an ellipsis between them.

    >>> cut_middle("median_income_of_the_block", 15)
    'median_…e_block'
    >>> cut_middle("roof", 15)
    'roof'
    """
    if len(name) <= max_chars:
        return name
    end = max_chars // 2
    return f"{name[: max_chars - 1 - end]}…{name[-end:]}"


def cut_names(names: Sequence[str], max_chars: int) -> list[str]:
    """Return names cut by :func:`cut_middle`, of which no two are the same.

    Names that would be cut to the same keep the place where they begin to differ; those that are still the same are
    numbered.

    >>> cut_names(["sort_of_wall[outer]_quarter_1", "sort_of_wall[inner]_quarter_1", "roof"], 18)
    ['so…outer]_q…rter_1', 'so…inner]_q…rter_1', 'roof']
    """
    flat = [" ".join(name.split()) for name in names]
    short = [cut_middle(name, max_chars) for name in flat]
    same: dict[str, list[int]] = {}
    for unit, name in enumerate(short):
        same.setdefault(name, []).append(unit)
    for units in same.values():
        if len(units) > 1 and flat[units[0]] != short[units[0]]:
            start = _common_start([flat[unit] for unit in units])
            for unit in units:
                short[unit] = _cut_around(flat[unit], start, max_chars)
    return number_repeats(short)


def _common_start(names: Sequence[str]) -> int:
    """Return the number of characters that all names have in common at their start."""
    first, last = min(names), max(names)
    return next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def _cut_around(name: str, start: int, max_chars: int) -> str:
    """Return a long name with its ends and what begins at the index ``start``, and ellipses between them."""
    head, tail = max_chars // 9, max_chars // 3
    middle = max_chars - head - tail - 2
    if start + middle >= len(name) - tail - 1:
        # All of the end has space.
        return f"{name[:head]}…{name[head + 1 - max_chars :]}"
    if start <= head + 1:
        return f"{name[: max_chars - 1 - tail]}…{name[-tail:]}"
    return f"{name[:head]}…{name[start : start + middle]}…{name[-tail:]}"


def replace_long_names(sentence: str, short: Mapping[str, str]) -> str:
    """Return a sentence as HTML, in which names of units are cut as in ``short``; the pointer shows them in full.

    Names of several words stay on one line, and so do numbers with their unit and intervals.

    >>> replace_long_names("income_of_block is <strong>", {"income_of_block": "inc…block"})
    '<span class="name" title="income_of_block">inc…block</span> is &lt;strong&gt;'
    >>> replace_long_names("wind speed is high", {"wind speed": "wind speed"})
    '<span class="name">wind speed</span> is high'
    """
    long = sorted((name for name in short if short[name] != name or " " in name), key=len, reverse=True)
    if not long:
        return escape(keep_together(sentence))
    parts = re.split(f"({'|'.join(map(re.escape, long))})", sentence)
    return "".join(
        _name(part, short[part]) if number % 2 else escape(keep_together(part)) for number, part in enumerate(parts)
    )


def keep_together(text: str) -> str:
    """Return a text in which no line ends before a per cent sign, or within an interval or the word held-out.

    >>> len(keep_together("5 % of 1–2").split(" "))
    3
    """
    text = text.replace(" %", "\u00a0%").replace("held-out", "held-\u2060out")
    return re.sub(r"(?<=\d)–(?=\d)", "\u2060–\u2060", text)


def _name(name: str, short: str) -> str:
    """Return a name as HTML, with its full form as the title if it was cut."""
    title = "" if name == short else f' title="{escape(name)}"'
    return f'<span class="name"{title}>{escape(short)}</span>'
