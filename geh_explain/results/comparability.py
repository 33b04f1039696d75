"""Whether two results can be compared: the same units, measured in the same way.

What makes two results different in kind raises an error that says which setting differs. What is legal but must be
known, such as different points or targets, is returned as notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._hashing import digest
from geh_explain._types import Ints
from geh_explain.errors import GEHValueError, warn
from geh_explain.scores.protocol import PairResult
from geh_explain.units.pair_set import PairSet

#: Settings that must be equal, with the way out if they are not.
_EQUAL = {
    "layer": "explain both at the same layer",
    "pick": "explain the same output of the layer",
    "call": "explain the same call of the layer",
    "units": "use the same units= for both explainers",
    "output": "use the same output= for both explainers",
    "scale": "explain both with the same scale=",
}
#: Settings that may differ, and are then named in a note.
_NOTED = {"target": "targets", "smooth": "settings of smoothing"}
#: The address of an object in its repr, which differs between processes.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
#: How many names an error message lists.
_MAX_LISTED = 6


@dataclass(frozen=True)
class CommonPairs:
    """Pairs that two results have in common.

    ``pairs`` are of the units of the first result; ``first`` and ``second`` are their places in either result.
    """

    pairs: PairSet
    first: Ints
    second: Ints


def check_comparable(a: PairResult, b: PairResult) -> list[str]:
    """Return what differs between two results and must be known; raises if they cannot be compared.

    Warns where units may not correspond: those of a hidden layer of two networks.
    """
    _check_names(a.names, b.names)
    for key, way_out in _EQUAL.items():
        ours, theirs = (_comparable(result.settings.get(key)) for result in (a, b))
        if ours != theirs:
            raise GEHValueError(
                f"other: the results differ in {key!r}, {_short(ours)} and {_short(theirs)}, so that their scores are "
                f"of different quantities; {way_out}."
            )
    _check_engines(a, b)
    _check_networks(a, b)
    notes = [
        f"The {words} differ: {_short(ours)} and {_short(theirs)}."
        for key, words in _NOTED.items()
        if (ours := _comparable(a.settings.get(key))) != (theirs := _comparable(b.settings.get(key)))
    ]
    if not (a.settings.get("inputs") and b.settings.get("inputs")):
        notes.append("It is not recorded whether the points are the same; they are taken as different ones.")
    if (a.sample_weight is None) != (b.sample_weight is None):
        notes.append("Only one result has case weights.")
    if a.settings.get("scale") == "std" and not same_points(a, b):
        notes.append("Each result is scaled by the standard deviations of its own points.")
    return notes


def same_points(a: PairResult, b: PairResult) -> bool:
    """Return whether two results are known to be about the same points in the same order."""
    ours, theirs = (result.settings.get("inputs") for result in (a, b))
    return bool(ours) and ours == theirs and len(a.labels) == len(b.labels)


def same_draws(a: PairResult, b: PairResult) -> bool:
    """Return whether both results keep several draws, and draw k of both is known to be the same function.

    They are draws of one network by one posterior with one seed. Networks without parameters cannot be told apart.
    """
    keys = ("model", "parameters", "posterior", "seed", "draws", "draws_kept")
    ours, theirs = ({key: _comparable(result.settings.get(key)) for key in keys} for result in (a, b))
    known = bool(ours["parameters"]) and ours["parameters"] != digest({})
    return ours == theirs and known and bool(ours["draws_kept"]) and (ours["draws"] or 0) > 1


def find_common_pairs(a: PairResult, b: PairResult) -> CommonPairs:
    """Return the pairs that both results have, by the names of their units; raises if there are none."""
    units = len(a.names)
    place = {name: index for index, name in enumerate(a.names)}
    ends = np.array([place[name] for name in b.names])[np.stack(b.pairs.ends)]
    ours, theirs = (np.minimum(i, j) * units + np.maximum(i, j) for i, j in (a.pairs.ends, ends))
    common, first, second = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    if not len(common):
        raise GEHValueError(
            "other: the results have no computed pair in common; explain both with the same pairs=, unit= or rows=."
        )
    return CommonPairs(PairSet(units, (common // units, common % units)), first, second)


def _check_names(ours: list[str], theirs: list[str]) -> None:
    """Raise unless both results have units of the same names, in any order."""
    if set(ours) == set(theirs):
        return
    here, there = ([name for name in names if name not in others] for names, others in ((ours, theirs), (theirs, ours)))
    raise GEHValueError(
        f"other: the results have different units: only this one has {list_names(here)}, only the other one "
        f"{list_names(there)}; explain both with the same units and names."
    )


def _check_engines(a: PairResult, b: PairResult) -> None:
    """Raise if one result has derivatives and the other differences, or differences of other steps."""
    kinds = [
        (result.settings.get("engine_settings"), result.settings.get("jumping_units"))
        if result.settings.get("engine") == "difference"
        else None
        for result in (a, b)
    ]
    if kinds[0] == kinds[1]:
        return
    if None in kinds:
        raise GEHValueError(
            f"other: one result has second derivatives and the other finite differences (engines "
            f"{a.settings.get('engine')!r} and {b.settings.get('engine')!r}); explain both with the same engine=."
        )
    raise GEHValueError(
        "other: both results have finite differences, with other steps or other discrete units; explain both with the "
        "same engine=Difference(...) and its discrete units given."
    )


def _check_networks(a: PairResult, b: PairResult) -> None:
    """Raise or warn if units of a hidden layer belong to different networks."""
    ours, theirs = (result.settings.get("parameters") for result in (a, b))
    if a.settings.get("layer") is None or (ours and ours == theirs):
        return
    place = a.record.place
    if a.record.model != b.record.model:
        raise GEHValueError(
            f"other: units of {place} of a {a.record.model} and of a {b.record.model} do not correspond; compare the "
            "interactions of their inputs (layer=None)."
        )
    warn(
        f"compare: units of {place} belong to two networks with different parameters. They correspond if both are "
        "checkpoints of one training, or one was fine-tuned from the other. Hidden units of networks that were trained "
        "independently do not: compare the interactions of their inputs (layer=None)."
    )


def _comparable(value: Any) -> Any:
    """Return a setting without what differs between processes."""
    return _ADDRESS.sub("", value) if isinstance(value, str) else value


def _short(value: Any) -> str:
    """Return the repr of a setting, shortened."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def list_names(names: list[str]) -> str:
    """Return names, the first few of them, for a message.

    >>> list_names(["a", "b"]), list_names([])
    ("'a', 'b'", 'none')
    """
    if not names:
        return "none"
    more = len(names) - _MAX_LISTED
    return ", ".join(map(repr, names[:_MAX_LISTED])) + (f" and {more} more" if more > 0 else "")
