"""The suite of NID: ten functions of ten features; how well do scores separate the pairs that interact?"""

from __future__ import annotations

from time import process_time
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.inference import auc
from studies.yardsticks import ours, peers
from studies.yardsticks.functions import NID

#: Numbers of rows, training and held-out ones together.
ROWS = (10_000, 30_000)
#: Standard deviation of the noise over that of the function.
NOISE = 0.5
#: Seeds of the setting that the targets are about, and of the others.
SEEDS, FEWER_SEEDS = 10, 2
#: Rows and functions of the quick form.
_QUICK_ROWS = 2_000
_QUICK_FUNCTIONS = ("F5", "F8")
#: Peers that explain the same network.
ON_NETWORK = {"SHAP": peers.shap_exact, "shapiq": peers.shapiq_exact, "H-statistic": peers.h_statistic}
#: Peers that are fitted to the same rows, held-out ones included.
ON_ROWS = {
    "NID": peers.nid,
    "NID with main effects": peers.nid_main,
    "FAST of EBM": peers.fast,
    "SHAP of boosted trees": peers.shap_trees,
    "Lasso": peers.lasso,
}
#: Peers that are run on the smaller number of rows only.
SLOW = ("SHAP", "SHAP of boosted trees")
#: Peers of the quick form, which need no further package.
_QUICK_PEERS = ("H-statistic", "NID", "Lasso")
#: Averages over the ten functions that Tsang, Cheng and Liu (2018) print, on 30,000 noiseless rows; not run here.
QUOTED = {"ANOVA": 0.72, "hierarchical Lasso": 0.70, "RuleFit": 0.76, "Additive Groves": 0.87, "NID": 0.92}


def cases(quick: bool) -> list[str]:
    """Return the cases, as "function rows noise"."""
    if quick:
        return [f"{name} {_QUICK_ROWS} 0" for name in _QUICK_FUNCTIONS]
    return [f"{name} {rows} {noise:g}" for rows in ROWS for noise in (0.0, NOISE) for name in NID]


def case_of(row: dict[str, Any]) -> str:
    """Return the case that a row of the table belongs to."""
    return f"{row['function']} {row['rows']} {row['noise']:g}"


def count_seeds(case: str) -> int:
    """Return with how many of the seeds a case is run: all without noise and with the smaller number of rows."""
    _, rows, noise = case.split()
    return SEEDS if int(rows) == min(ROWS) and not float(noise) else FEWER_SEEDS


def run(seed: int, quick: bool) -> list[dict[str, Any]]:
    """Return one row per case and method: the area under the ROC curve over 45 pairs, scores, seconds."""
    return [row for case in cases(quick) for row in run_case(case, seed, quick)]


def run_case(case: str, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Fit and explain a network for one case, and score its pairs by all methods."""
    name, rows, noise = case.split()
    x, y, signal = draw(name, int(rows), float(noise), seed)
    fitted = ours.fit(x, y, signal, seed)
    default, seconds = fitted.explain()
    pairwise, _ = fitted.explain(groups="pairwise")
    common = {"function": name, "rows": int(rows), "noise": float(noise), "seed": seed}
    common["groups"] = default.settings["group_count"]
    truth = NID[name].listed_pairs()

    def row(method: str, scores: Floats, seconds: float) -> dict[str, Any]:
        found = {"method": method, "auc": float(auc(scores, truth)), "seconds": seconds}
        return {**common, **found, "error": fitted.error, "scores": np.asarray(scores).tolist()}

    table = [row(method, found, fitted.seconds + seconds) for method, found in ours.scores(pairwise, default).items()]
    chosen = _QUICK_PEERS if quick else tuple(peer for peer in (*ON_NETWORK, *ON_ROWS) if _is_run(peer, int(rows)))
    predict = peers.predict_with(fitted.net)
    for peer in chosen:
        start = process_time()
        scores = ON_NETWORK[peer](predict, x, seed) if peer in ON_NETWORK else ON_ROWS[peer](x, y, seed)
        table.append(row(peer, scores, process_time() - start + (fitted.seconds if peer in ON_NETWORK else 0)))
    return table


def draw(name: str, rows: int, noise: float, seed: int) -> tuple[Floats, Floats, Floats]:
    """Return features (n, 10), labels (n,) and labels without noise (n,); the same features with and without noise."""
    generator = np.random.default_rng([seed, list(NID).index(name), rows])
    x = NID[name].draw(rows, generator)
    signal = NID[name](x)
    return x, signal + noise * signal.std() * generator.normal(size=rows), signal


def _is_run(peer: str, rows: int) -> bool:
    """Return whether a peer is run on this number of rows."""
    return peer not in SLOW or rows == min(ROWS)
