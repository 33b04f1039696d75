"""SHAP interaction values of boosted trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from geh_explain._validation import check_int
from geh_explain.baselines.table import read
from geh_explain.errors import GEHRuntimeError
from geh_explain.scores.ranking import PairRanking


def shap_trees(
    X: Any,
    y: Any,
    *,
    points: int = 200,
    trees: int = 1000,
    leaves: int = 31,
    learning_rate: float = 0.01,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> PairRanking:
    """Rank pairs by the mean absolute SHAP interaction values, over some ``points``, of boosted trees fitted to X, y.

    The number of trees is where the error on a fifth of the rows, held out, is least; at most ``trees``. Needs the
    packages shap and lightgbm: ``pip install "geh-explain[baselines]"``.
    """
    try:
        import lightgbm
        import shap
    except ImportError as error:
        raise GEHRuntimeError(
            f"shap_trees needs the packages shap and lightgbm ({error}); pip install 'geh-explain[baselines]'."
        ) from error
    x, target, found = read(X, y, names)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    held_out, train = order[: len(x) // 5], order[len(x) // 5 :]
    seen = lightgbm.Dataset(x[train], target[train])
    booster = lightgbm.train(
        {
            "objective": "regression",
            "learning_rate": learning_rate,
            "num_leaves": leaves,
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": torch.get_num_threads(),
            "verbose": -1,
        },
        seen,
        check_int("trees", trees, 1),
        valid_sets=[lightgbm.Dataset(x[held_out], target[held_out], reference=seen)],
        callbacks=[lightgbm.early_stopping(50, verbose=False)],
    )
    rows = x[rng.choice(len(x), min(check_int("points", points, 1), len(x)), replace=False)]
    values = np.asarray(shap.TreeExplainer(booster).shap_interaction_values(rows))
    i, j = np.triu_indices(x.shape[1], 1)
    return PairRanking("SHAP", np.abs(values[:, i, j]).mean(axis=0), found)
