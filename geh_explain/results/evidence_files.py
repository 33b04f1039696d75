"""The evidence of a result in a saved file.

The arrays ``evidence_slope``, ``evidence_slope_se`` and ``evidence_p_value`` (P,) are members of the archive, and the
entry ``evidence`` of its JSON text has the number of rows and the link. ``evidence_true_...`` hold the estimates of
true scores, if there are any. Files without evidence have none of them.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.scores.evidence import Evidence, TrueScoreEstimates

#: Members of the archive, and the fields of :class:`Evidence` that they hold.
EVIDENCE_ARRAYS = {"evidence_slope": "slope", "evidence_slope_se": "slope_se", "evidence_p_value": "p_value"}
#: Members of the archive that hold :class:`TrueScoreEstimates`, all of them or none.
TRUE_SCORE_ARRAYS = {f"evidence_true_{field.name}": field.name for field in fields(TrueScoreEstimates)}
#: Links of a test.
_LINKS = ("identity", "logit")


def evidence_to_arrays(evidence: Evidence | None) -> dict[str, Floats]:
    """Return the arrays of evidence by the names of their members; none without evidence."""
    if evidence is None:
        return {}
    arrays = {member: getattr(evidence, field) for member, field in EVIDENCE_ARRAYS.items()}
    if evidence.true_scores is not None:
        arrays |= {member: getattr(evidence.true_scores, field) for member, field in TRUE_SCORE_ARRAYS.items()}
    return arrays


def evidence_to_json(evidence: Evidence | None) -> dict[str, Any] | None:
    """Return the entry of the JSON text."""
    return None if evidence is None else {"n_rows": evidence.n_rows, "link": evidence.link}


def parse_evidence(about: Any, arrays: dict[str, Any], pairs: int) -> Evidence | None:
    """Return the evidence of a file, after checking that its parts are valid and belong together.

    Parameters
    ----------
    about
        The entry of the JSON text, None if there is none.
    arrays
        Members of the archive that belong to the evidence.
    pairs
        Number of pairs P of the result.
    """
    if about is None and not arrays:
        return None
    has_true_scores = any(member in arrays for member in TRUE_SCORE_ARRAYS)
    expected = {*EVIDENCE_ARRAYS, *(TRUE_SCORE_ARRAYS if has_true_scores else ())}
    if not isinstance(about, dict) or set(about) != {"n_rows", "link"} or set(arrays) != expected:
        raise ValueError("its evidence is incomplete")
    if type(about["n_rows"]) is not int or about["n_rows"] < 1 or about["link"] not in _LINKS:
        raise ValueError("its evidence is malformed")
    if any(array.shape != (pairs,) or array.dtype != np.float64 for array in arrays.values()):
        raise ValueError("its evidence does not fit its pairs")
    true_scores = None
    if has_true_scores:
        true_scores = TrueScoreEstimates(**{field: arrays[member] for member, field in TRUE_SCORE_ARRAYS.items()})
    tested = {field: arrays[member] for member, field in EVIDENCE_ARRAYS.items()}
    return Evidence(**tested, **about, true_scores=true_scores)
