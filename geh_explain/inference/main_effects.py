"""Main effects of all features: additive models that need no tuning.

The model of a target y with n rows is ::

    y = c + sum over blocks b of Z_b w_b + e,      w_b ~ N(0, t_b I),      e ~ N(0, s I)

A numeric feature has two blocks: cubic splines for smooth effects, and indicators [x > q] of its quantiles q, whose
weighted sum is a random walk, for steps. A feature with few values, or of words, has one indicator per value. The
variances t_b and s maximise the marginal likelihood, by MacKay's fixed point ::

    t_b <- |w_b|^2 / g_b,      s <- |e|^2 / (n - 1 - sum of g_b),      g_b = effective degrees of freedom of block b.

Each feature thereby has the flexibility that the data support, and features without effect have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHValueError
from geh_explain.inference.rows import to_array

#: Numeric features with at most this many values have one indicator per value.
_FEW_VALUES = 10
#: Levels of a feature of words that have an indicator, the most frequent ones; all others share the intercept.
_MAX_LEVELS = 50
#: Knots of a spline, which then has 7 columns.
_KNOTS = 6
#: Quantile indicators of a feature, and rows for each of them.
_MAX_STEPS, _ROWS_PER_STEP = 40, 10
#: Columns of all blocks together: more than 35 features have fewer steps, and more than 214 are linear.
_MAX_COLUMNS = 1500
_MAX_FEATURES = 3000
#: Blocks with fewer degrees of freedom than this are dropped while the variances are estimated.
_NO_EFFECT = 1e-2
#: Iterations of the fixed point, and the change of degrees of freedom at which it ends.
_ITERATIONS, _TOLERANCE = 200, 1e-3
#: The largest factor by which one iteration changes a variance.
_MAX_CHANGE = 20.0
#: Smallest variance of the residuals, as a share of that of the target: an exact fit is not iterated further.
_MIN_NOISE = 1e-10
#: Candidates for the inverse penalty of the logistic model; 1 corresponds to the estimated variances.
_PENALTIES = (0.1, 1.0, 10.0, 100.0)
_FOLDS = 5


@dataclass(frozen=True)
class BlockFit:
    """Fit of one target to blocks of columns.

    Attributes
    ----------
    fitted : ndarray
        Fitted values (n,).
    freedom : float
        Degrees of freedom 1 + tr(2 H - H H'), for the smoother matrix H of the centred target. The expected sum of
        squared residuals of a model without bias is s (n - freedom).
    variances : ndarray
        Variance t_b of the weights of each block; 0 for a block without effect.
    """

    fitted: Floats
    freedom: float
    variances: Floats


def additive_residuals(X: Any, y: Floats) -> tuple[Floats, Floats]:
    """Return fitted values (n, K) and residuals (n, K) of the targets ``y`` (n, K) under an additive model.

    Residuals of a fit are too small. They are multiplied by sqrt(n / (n - freedom)), so that their variance is that of
    the noise.

    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> fitted, residuals = additive_residuals(X, (3 * X[:, 0] ** 2 + X[:, 0] * X[:, 1])[:, None])
    >>> float(np.corrcoef(residuals[:, 0], X[:, 0] * X[:, 1])[0, 1]) > 0.95
    True
    """
    with threadpool_limits(1):  # sums over several threads differ in their last digits
        blocks = additive_basis(X)
        fits = [fit_blocks(blocks, column) for column in y.T]
    fitted = np.stack([fit.fitted for fit in fits], axis=1)
    inflation = [np.sqrt(len(y) / max(len(y) - fit.freedom, 1.0)) for fit in fits]
    return fitted, (y - fitted) * inflation


def additive_probabilities(X: Any, codes: Ints) -> Floats:
    """Return the probabilities (n, C) of classes 0 ... C - 1 under an additive logistic model.

    The variances of the blocks are those of additive models of the indicators of the classes, transferred to the scale
    of log-odds. A common factor is chosen by cross-validation.

    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> probabilities = additive_probabilities(X, (X[:, 0] > 0).astype(int))
    >>> bool(probabilities[X[:, 0] > 0.5, 1].min() > 0.8)
    True
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    counts = np.bincount(codes)
    with threadpool_limits(1):
        blocks = additive_basis(X)
        variances = np.zeros(len(blocks))
        for label, count in enumerate(counts):
            share = count / len(codes)
            # A change of a probability p is one of the log-odds, divided by p (1 - p).
            fit = fit_blocks(blocks, (codes == label).astype(float))
            variances += fit.variances / (share * (1 - share)) ** 2 / len(counts)
        if not variances.any():
            return np.tile(counts / len(codes), (len(codes), 1))
        Z = np.hstack([np.sqrt(t) * block for t, block in zip(variances, blocks, strict=True) if t > 0])
        models = [LogisticRegression(C=penalty, max_iter=2000) for penalty in _PENALTIES]
        n_folds = min(_FOLDS, int(counts.min()))
        losses = [0.0, -1.0]
        if n_folds > 1:
            folds = StratifiedKFold(n_folds, shuffle=True, random_state=0)
            losses = [
                log_loss(codes, cross_val_predict(model, Z, codes, cv=folds, method="predict_proba"))
                for model in models
            ]
        best = models[int(np.argmin(losses))].fit(Z, codes)
        return np.asarray(best.predict_proba(Z), dtype=float)


def additive_basis(X: Any) -> list[Floats]:
    """Return the blocks of all features, each (n, columns), centred, with rows of mean square length 1.

    Parameters
    ----------
    X
        DataFrame, tensor or array; several inputs as a tuple. Rows of more than one dimension are flattened.

    Raises
    ------
    GEHValueError
        If values are missing, or there are more than 3,000 features.
    """
    columns = _feature_columns(X)
    if len(columns) > _MAX_FEATURES:
        raise GEHValueError(
            f"X has {len(columns)} features; the main effects of at most {_MAX_FEATURES} are fitted: give a model of "
            "them as main=, or use null='y'."
        )
    blocks = [block for column in columns for block in _feature_blocks(column, _MAX_COLUMNS // len(columns))]
    centred = (block - block.mean(axis=0) for block in blocks)
    return [block / np.sqrt((block**2).sum(axis=1).mean()) for block in centred]


def fit_blocks(blocks: Sequence[Floats], y: Floats) -> BlockFit:
    """Fit a target (n,) to blocks of columns, with the variances of maximal marginal likelihood."""
    centred = y - y.mean()
    total = float(centred.var())
    variances = np.full(len(blocks), total / (2 * max(len(blocks), 1)))
    fit = BlockFit(np.full(len(y), y.mean()), 1.0, np.zeros(len(blocks)))
    if total == 0 or not blocks:
        return fit
    Z, block_of = np.hstack(blocks), np.repeat(np.arange(len(blocks)), [block.shape[1] for block in blocks])
    gram, moments, noise = Z.T @ Z, Z.T @ centred, total / 2
    before: Floats = np.zeros(len(blocks))
    for _ in range(_ITERATIONS):
        used = np.flatnonzero(variances[block_of])
        if not len(used):
            return fit
        scale = np.sqrt(variances[block_of[used]])
        precision = gram[np.ix_(used, used)] * np.outer(scale, scale) / noise + np.eye(len(used))
        covariance = np.linalg.inv(precision)
        weights = covariance @ (scale * moments[used]) / noise
        smoother = np.eye(len(used)) - covariance
        fitted = Z[:, used] @ (scale * weights)
        freedom = 1 + 2 * np.trace(smoother) - (smoother**2).sum()
        fit = BlockFit(y.mean() + fitted, float(freedom), variances)
        by_block: Floats = np.bincount(block_of[used], np.diag(smoother), len(blocks)).astype(float)
        if np.abs(by_block - before).max() < _TOLERANCE:
            break
        before = by_block
        squares = np.bincount(block_of[used], weights**2, len(blocks))
        ratio = np.divide(squares, by_block, out=np.zeros(len(blocks)), where=by_block > _NO_EFFECT)
        variances = variances * np.where(ratio > 0, np.clip(ratio, 1 / _MAX_CHANGE, _MAX_CHANGE), 0.0)
        noise = max(float(((centred - fitted) ** 2).sum()) / max(len(y) - 1 - by_block.sum(), 1.0), _MIN_NOISE * total)
    return fit


def flat_features(X: Any) -> Any:
    """Return inputs as a DataFrame, if they are one, or as an array (n, features)."""
    if hasattr(X, "columns"):
        return X
    parts = [to_array(part) for part in (X if isinstance(X, tuple) else (X,))]
    return np.hstack([part.reshape(len(part), -1) for part in parts])


def _feature_columns(X: Any) -> list[NDArray[Any]]:
    """Return the features that vary, each (n,) of floats or of words."""
    table = flat_features(X)
    columns = [table.iloc[:, k] for k in range(table.shape[1])] if hasattr(table, "columns") else list(table.T)
    return [column for column in map(_numbers_or_words, columns) if (column != column[0]).any()]


def _numbers_or_words(column: Any) -> NDArray[Any]:
    """Return a column as floats, or as words if it does not hold numbers; refuses missing values."""
    try:
        values = np.asarray(column, dtype=float)
    except (TypeError, ValueError):
        return np.asarray(column).astype(str)
    if not np.isfinite(values).all():
        name = getattr(column, "name", None)
        raise GEHValueError(
            f"X{'' if name is None else f' in column {name!r}'} has missing or infinite values; give a model of the "
            "main effects that accepts them as main=, or use null='y'."
        )
    return values


def _feature_blocks(column: NDArray[Any], max_columns: int) -> Iterator[Floats]:
    """Yield the blocks of one feature, with as many columns as all features can have."""
    values, counts = np.unique(column, return_counts=True)
    if column.dtype.kind not in "fiu" or len(values) <= min(_FEW_VALUES, max_columns):
        frequent = values[np.sort(np.argsort(-counts, kind="stable")[:_MAX_LEVELS])]
        yield (column[:, None] == frequent).astype(float)
        return
    n_spline = _KNOTS + 1
    if max_columns < n_spline:
        yield column[:, None].astype(float)
        return
    yield _splines(column)
    n_steps = min(_MAX_STEPS, len(column) // _ROWS_PER_STEP, max_columns - n_spline)
    if n_steps > 1:
        yield (column[:, None] > _quantiles(column, n_steps + 1)[1:-1]).astype(float)


def _splines(column: Floats) -> Floats:
    """Return cubic B-splines (n, 7 or fewer) of a feature, with knots at its quantiles."""
    from sklearn.preprocessing import SplineTransformer

    # Ties of quantiles are removed, so that a feature with many zeros has knots among its other values only.
    knots = _quantiles(column, _KNOTS - 1)
    transformer = SplineTransformer(knots=knots[:, None], degree=3, include_bias=False)
    return np.asarray(transformer.fit_transform(column[:, None]), dtype=float)


def _quantiles(column: Floats, n_intervals: int) -> Floats:
    """Return the distinct quantiles of a feature that divide it into equal parts, minimum and maximum included."""
    return np.unique(np.quantile(column, np.linspace(0, 1, n_intervals + 1)))
