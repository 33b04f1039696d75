"""Names, descriptions and exemplars of groups in a file of results, as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain._types import Ints
from geh_explain.groups.descriptions import Description
from geh_explain.groups.group_info import GroupInfo


def group_info_to_json(info: GroupInfo) -> dict[str, Any]:
    """Return what a file holds of the groups: ``descriptions``, pairs of text and agreement, and ``exemplars``."""
    descriptions, exemplars = info.descriptions, info.exemplars
    return {
        "descriptions": None if descriptions is None else [[each.text, each.agreement] for each in descriptions],
        "exemplars": None if exemplars is None else exemplars.tolist(),
    }


def parse_group_info(stored: Any, groups: int, points: int) -> GroupInfo:
    """Return the descriptions and exemplars of a file, after checking that they fit its groups and points.

    Files of earlier versions have none.
    """
    if stored is None:
        return GroupInfo()
    if not isinstance(stored, dict):
        raise ValueError("its descriptions of groups are malformed")
    return GroupInfo(
        descriptions=_parse_descriptions(stored.get("descriptions"), groups),
        exemplars=_parse_exemplars(stored.get("exemplars"), groups, points),
    )


def _parse_descriptions(stored: Any, groups: int) -> list[Description] | None:
    """Return the descriptions of the groups of a file; raises if they are malformed."""
    if stored is None:
        return None
    if not isinstance(stored, list) or len(stored) != groups:
        raise ValueError("its descriptions do not fit its groups")
    for entry in stored:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise ValueError("its descriptions are malformed")
        if type(entry[1]) not in (int, float) or not 0 <= entry[1] <= 1:
            raise ValueError("its descriptions are malformed")
        # JSON can hold half of a surrogate pair, which cannot be written to a page or a terminal.
        entry[0].encode()
    return [Description(text, float(agreement)) for text, agreement in stored]


def _parse_exemplars(stored: Any, groups: int, points: int) -> Ints | None:
    """Return the exemplars (groups, k) of a file; raises if they are malformed."""
    if stored is None:
        return None
    if not isinstance(stored, list) or len(stored) != groups or not all(isinstance(row, list) for row in stored):
        raise ValueError("its exemplars do not fit its groups")
    if len({len(row) for row in stored}) != 1 or not stored[0]:
        raise ValueError("its exemplars are malformed")
    if any(type(index) is not int or not -1 <= index < points for row in stored for index in row):
        raise ValueError("its exemplars are no points")
    return np.array(stored, dtype=np.int64)


def check_names(names: Any, group_names: Any) -> None:
    """Raise unless names of units and groups are lists of text, and units are at least two and distinct."""
    if not (isinstance(names, list) and isinstance(group_names, list)):
        raise ValueError("its names are malformed")
    if not all(isinstance(name, str) for name in (*names, *group_names)) or len(set(names)) < len(names):
        raise ValueError("its names are not text, or not all different")
    if len(names) < 2:
        raise ValueError("it has no pair of units")
    # JSON can hold half of a surrogate pair, which cannot be written to a page or a terminal.
    "".join((*names, *group_names)).encode()
