"""SHAP interaction values of gradient-boosted trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from geh_explain._types import Floats
from geh_explain._validation import check_int
from geh_explain.baselines.table import read_table
from geh_explain.errors import GEHRuntimeError
from geh_explain.scores.ranking import PairRanking

#: One row in this many is held out for early stopping.
_HELD_OUT_FRACTION = 5
#: Trees without a smaller error on these rows after which boosting ends.
_PATIENCE = 50


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
    """Rank pairs by the mean absolute SHAP interaction value of boosted trees.

    Trees are fitted to four fifths of the rows, and boosting ends where the error on the other fifth is least.

    Parameters
    ----------
    X, y
        Table (n, D) and target (n,).
    points
        Number of rows, chosen at random, over which the values are averaged.
    trees
        Largest number of trees.
    leaves
        Largest number of leaves of each tree.
    learning_rate
        Weight of each tree.
    names
        Names of the columns; those of a DataFrame, else x0, x1, ..., by default.
    seed
        Decides on the held-out rows and the points.

    Raises
    ------
    GEHRuntimeError
        If the packages shap and lightgbm are not installed: ``pip install "geh-explain[baselines]"``.

    Examples
    --------
    >>> x = np.random.default_rng(0).uniform(size=(500, 3))
    >>> shap_trees(x, x[:, 0] * x[:, 2], trees=50, learning_rate=0.1, points=20).top(1)  # doctest: +SKIP
    [('x0', 'x2')]
    """
    try:
        import lightgbm
        import shap
    except ImportError as error:
        raise GEHRuntimeError(
            f"shap_trees needs the packages shap and lightgbm ({error}); pip install 'geh-explain[baselines]'."
        ) from error
    x, target, columns = read_table(X, y, names)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    held_out, train = np.split(order, [len(x) // _HELD_OUT_FRACTION])
    train_set = lightgbm.Dataset(x[train], target[train])
    booster = lightgbm.train(
        {
            "objective": "regression",
            "learning_rate": learning_rate,
            "num_leaves": leaves,
            "seed": seed,
            # Both are needed for the same trees on every run.
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": torch.get_num_threads(),
            "verbose": -1,
        },
        train_set,
        check_int("trees", trees, 1),
        valid_sets=[lightgbm.Dataset(x[held_out], target[held_out], reference=train_set)],
        callbacks=[lightgbm.early_stopping(_PATIENCE, verbose=False)],
    )
    rows = x[rng.choice(len(x), min(check_int("points", points, 1), len(x)), replace=False)]
    values: Floats = np.asarray(shap.TreeExplainer(booster).shap_interaction_values(rows))
    i, j = np.triu_indices(x.shape[1], 1)
    return PairRanking("SHAP", np.abs(values[:, i, j]).mean(axis=0), columns)
