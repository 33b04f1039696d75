"""The section of the report page about single predictions: a waterfall that is a table at the same time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from geh_explain.errors import GEHTypeError
from geh_explain.local.explanation import LocalExplanation, LocalExplanations
from geh_explain.local.plotting import waterfall_steps
from geh_explain.plots.axes import compact
from geh_explain.plots.waterfall import Steps
from geh_explain.report.names import cut_names

#: What ``report(local=...)`` takes.
Local = LocalExplanation | LocalExplanations | Sequence[LocalExplanation] | None

#: Contributions of a waterfall; the others are one step together.
_STEPS = 10
#: Accounts of a page at most, which keeps it small.
_MAX_ACCOUNTS = 50
#: Level of the intervals.
_LEVEL = 0.95
#: Maximum number of characters of a unit's name.
_MAX_NAME = 24


def local_section(local: Local) -> str:
    """Return the section about one or several accounts as HTML; empty where there are none.

    All text is escaped. The section needs no script.
    """
    accounts = check_local(local)
    if not accounts:
        return ""
    title = "One prediction" if len(accounts) == 1 else f"{len(accounts)} predictions"
    left_out = len(accounts) - _MAX_ACCOUNTS
    parts = [_account(account, number, len(accounts)) for number, account in enumerate(accounts[:_MAX_ACCOUNTS])]
    note = f"<p>{left_out} further accounts are left out.</p>" if left_out > 0 else ""
    heading = f'<h2 id="local-title">{title}</h2>'
    cards = f'<div class="cards">{"".join(parts)}</div>'
    return f'<section id="local" aria-labelledby="local-title">{heading}{cards}{note}</section>'


def check_local(local: Local) -> list[LocalExplanation]:
    """Return the accounts in a list, or raise if something else was given."""
    if local is None:
        return []
    accounts: list[Any] = [local] if isinstance(local, LocalExplanation) else None  # type: ignore[assignment]
    if accounts is None and isinstance(local, (LocalExplanations, list, tuple)):
        accounts = list(local)
    wrong = [local] if accounts is None else [each for each in accounts if not isinstance(each, LocalExplanation)]
    if wrong:
        raise GEHTypeError(
            f"local: a {type(wrong[0]).__name__} is no account of a prediction; give what explainer.explain_row(...) "
            "returns, or a list of these."
        )
    return accounts


def _account(account: LocalExplanation, number: int, count: int) -> str:
    """Return one account: sentences, and the waterfall."""
    short = cut_names([compact(name) for name in account.names], _MAX_NAME)
    steps, full = (waterfall_steps(account, _STEPS, _LEVEL, names) for names in (short, account.names))
    title = f"<h3>Prediction {number + 1} of {count}</h3>" if count > 1 else ""
    interval = "<small>95 % interval</small>" if account.has_intervals else ""
    columns = ("contribution<small>value: reference → row</small>", "from reference to prediction", f"effect{interval}")
    head = f"<thead><tr>{''.join(f'<th>{column}</th>' for column in columns)}</tr></thead>"
    words, details = _sentences(account)
    warnings = "".join(f'<p class="small">{escape(message)}</p>' for message in account.warnings)
    table = f'<table class="waterfall">{head}{_rows(steps, full.labels, _values(account))}</table>'
    text = f'<p>{escape(words)}</p><p class="small">{escape(details)}</p>'
    return f'<div class="card account">{title}{text}{warnings}{table}</div>'


def _sentences(account: LocalExplanation) -> tuple[str, str]:
    """Return what the account says, and details."""
    main, pairs = (float(part.mean.sum()) for part in (account.main_effects, account.pair_effects))
    number = _number_format([account.prediction, account.reference])
    words = (
        f"The output is {number(account.prediction, '')}, and {number(account.reference, '')} at the reference "
        f"({account.baseline}). Main effects add {number(main, '+')}, pairs {number(pairs, '+')}."
    )
    return words, (
        f"Red raises the output, blue lowers it; grey: the sum of the others. By {account.method}, which leave "
        f"{100 * account.remainder_share:.1f} % over."
    )


def _values(account: LocalExplanation) -> dict[str, str]:
    """Return the value of each unit at the reference and in the row, by its name."""
    pairs = zip(account.names, account.row_values, account.baseline_values, strict=True)
    return {
        name: _minus(f"{reference:.3g} → {value:.3g}")
        for name, value, reference in pairs
        if np.isfinite(value) and np.isfinite(reference)
    }


def _rows(steps: Steps, full: Sequence[str], values: Mapping[str, str]) -> str:
    """Return the rows of the waterfall: reference, steps, prediction.

    ``full`` are the labels of the steps for their titles; ``values`` is shown below those that are names of units.
    """
    halves = steps.half_widths
    ends = np.concatenate([steps.starts, steps.stops, steps.stops - halves, steps.stops + halves])
    ends = np.append(ends[np.isfinite(ends)], [steps.reference, steps.prediction])
    low, span = float(ends.min()), float(np.ptp(ends)) or 1.0
    write = _number_format([*steps.effects, steps.reference, steps.prediction])

    def place(value: float) -> float:
        return 100 * (value - low) / span

    rows = [_row("reference", _mark(place(steps.reference)), write(steps.reference, ""))]
    for label, title, effect, half, plain, start, stop in zip(
        steps.labels, full, steps.effects, halves, steps.plain, steps.starts, steps.stops, strict=True
    ):
        kind = "plain" if plain else "up" if effect > 0 else "down"
        left, right = sorted((place(start), place(stop)))
        bar = f'<i style="left:{left:.2f}%;width:{right - left:.2f}%" class="{kind}"></i>'
        number = write(effect, "+")
        if np.isfinite(half):
            bar += (
                f'<b style="left:{place(stop - half):.2f}%;width:{place(stop + half) - place(stop - half):.2f}%"></b>'
            )
            number += f"<small>{write(effect - half, '')} to {write(effect + half, '')}</small>"
        rows.append(_row(label, bar, number, title, "" if plain else values.get(title, "")))
    rows.append(_row("prediction", _mark(place(steps.prediction)), write(steps.prediction, "")))
    return f"<tbody>{''.join(rows)}</tbody>"


def _mark(place: float) -> str:
    """Return a mark at a place of the track, in per cent."""
    return f'<u style="left:{place:.2f}%"></u>'


def _row(label: str, bar: str, number: str, title: str | None = None, small: str = "") -> str:
    """Return a row of the waterfall; ``bar`` and ``number`` are HTML, ``title`` is the label in full."""
    words, full = escape(label), ""
    if title not in (None, label):
        # Lines break between the names.
        names = words.replace(" × ", " ×\n").split("\n")
        words = " ".join(f'<span class="name">{name}</span>' for name in names).replace("…", "…<wbr>")
        full = f' title="{escape(str(title))}"'
    head = f'<th scope="row"{full}>{words}{f"<small>{escape(small)}</small>" if small else ""}</th>'
    return f'<tr>{head}<td><div class="track">{bar}</div></td><td>{number}</td></tr>'


def _number_format(numbers: Sequence[float]) -> Callable[[float, str], str]:
    """Return a function that writes numbers and their sign ("+" or "") with as many decimals as all the others.

    The largest of ``numbers`` has three digits.

    >>> write = _number_format([0.281, -0.02])
    >>> write(-0.02, "+"), write(0.281, "+"), write(0.0001, "")
    ('−0.020', '+0.281', '0.000')
    """
    largest = max((abs(float(number)) for number in numbers), default=0.0)
    decimals = 2 - math.floor(math.log10(largest)) if largest > 0 else 2
    spec = f".{max(0, decimals)}f" if -4 < decimals <= 6 else ".3g"

    def write(number: float, sign: str) -> str:
        # Adding 0 turns the zero with a minus sign into one without.
        return _minus(f"{round(number, decimals) + 0.0:{sign}{spec}}")

    return write


def _minus(number: str) -> str:
    """Return a number as text with a minus sign instead of a hyphen."""
    return re.sub(r"(?<!e)-", "−", number)
