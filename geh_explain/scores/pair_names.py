"""Labels of pairs: the names of both units, so that different pairs have different labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from geh_explain.units.pair_set import PairSet, count_pairs

#: How many units are named.
_MAX_NAMED = 4

#: Stands between the two names of a pair.
SEPARATOR = "×"


def join_names(first: str, second: str, space: str = " ") -> str:
    """Return the label of a pair. Names that hold the separator are quoted, so that no other pair has the same label.

    ``space`` is what follows the separator: a space, or a new line.

    >>> join_names("age", "income"), join_names("a × b", "c"), join_names("a", "b × c")
    ('age × income', '"a × b" × c', 'a × "b × c"')
    """
    return f"{_quoted(first)} {SEPARATOR}{space}{_quoted(second)}"


def _quoted(name: str) -> str:
    """Return a name, in quotation marks if it holds the separator or starts with one; inner ones are doubled."""
    if SEPARATOR in name or name.startswith('"'):
        return '"' + name.replace('"', '""') + '"'
    return name


def number_repeats(labels: Sequence[str]) -> list[str]:
    """Return labels of which no two are equal: those that shortening made equal are numbered.

    >>> number_repeats(["…wall north", "…wall north", "roof"])
    ['…wall north (1)', '…wall north (2)', 'roof']
    """
    distinct = list(labels)
    while len(set(distinct)) < len(distinct):
        counts, seen = Counter(distinct), Counter[str]()
        for place, label in enumerate(distinct):
            if counts[label] > 1:
                seen[label] += 1
                distinct[place] = f"{label} ({seen[label]})"
    return distinct


def describe_known(pairs: PairSet, names: Sequence[str] | None = None) -> str:
    """Return how many of all pairs were computed; with ``names`` (D) also which ones.

    >>> describe_known(PairSet.touching([1], n_units=4), ["a", "b", "c", "d"])
    '3 of 6 pairs were computed: those of b'
    >>> describe_known(PairSet.of([(0, 1)], n_units=4))
    '1 of 6 pairs was computed'
    """
    verb = "was" if len(pairs) == 1 else "were"
    count = f"{len(pairs):,} of {count_pairs(pairs.n_units):,} pairs {verb} computed"
    if names is None:
        return count
    if pairs.is_rows:
        units = [names[unit] for unit in pairs.units[:_MAX_NAMED]]
        more = len(pairs.units) - len(units)
        return f"{count}: those of {', '.join(units)}{f' and {more} more units' if more else ''}"
    shown = [join_names(names[i], names[j]) for i, j in list(zip(*pairs.ends, strict=True))[:_MAX_NAMED]]
    more = len(pairs) - len(shown)
    return f"{count}: {', '.join(shown)}{f' and {more} more' if more else ''}"
