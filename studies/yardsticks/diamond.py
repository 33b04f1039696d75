"""The setting of Diamond: 30 features, of which 20 are irrelevant; are discoveries right at a false discovery rate?"""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain._types import Bools
from geh_explain.statistics.p_values import discoveries
from studies.yardsticks import ours
from studies.yardsticks.functions import DIAMOND

#: False discovery rate that is wanted.
RATE = 0.2
#: Rows, and columns without any effect.
ROWS, IRRELEVANT = 20_000, 20
_QUICK_ROWS, _QUICK_IRRELEVANT = 2_000, 2
_QUICK_FUNCTIONS = ("F8",)
#: Pairs that are tested: the strongest by GEH, which is computed without the held-out labels.
PAIRS = 100
#: True pairs of F1, and how many of them Diamond reports; quoted.
QUOTED_F1 = (5, 11)


def cases(quick: bool) -> list[str]:
    """Return the names of the functions."""
    return list(_QUICK_FUNCTIONS if quick else DIAMOND)


def run(seed: int, quick: bool) -> list[dict[str, Any]]:
    """Return one row per function and truth: false discovery proportion and power."""
    return [row for case in cases(quick) for row in run_case(case, seed, quick)]


def run_case(case: str, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Fit a network to noiseless rows, test its pairs on held-out ones, and compare discoveries with both truths."""
    function = DIAMOND[case]
    irrelevant = _QUICK_IRRELEVANT if quick else IRRELEVANT
    generator = np.random.default_rng([seed, list(DIAMOND).index(case), 1])
    x = function.draw(_QUICK_ROWS if quick else ROWS, generator, irrelevant)
    y = function(x)
    fitted = ours.fit(x, y, y, seed)
    result, seconds = fitted.explain(PAIRS)
    evidence = result.evidence
    assert evidence is not None
    found = discoveries(evidence.p_value, RATE)
    common = {
        "function": case,
        "seed": seed,
        "error": fitted.error,
        "seconds": fitted.seconds + seconds,
        "p_value": [None if np.isnan(value) else float(value) for value in evidence.p_value],
    }
    truths = {"listed": function.listed_pairs(x.shape[1]), "corrected": function.true_pairs(x.shape[1])}
    return [{**common, "truth": name, **compare(found, truth)} for name, truth in truths.items()]


def compare(found: Bools, truth: Bools) -> dict[str, float]:
    """Return the number of discoveries, the share of false ones among them (0 for none), and the power."""
    return {
        "found": int(found.sum()),
        "fdp": float((found & ~truth).sum() / max(1, found.sum())),
        "power": float(found[truth].mean()),
    }
