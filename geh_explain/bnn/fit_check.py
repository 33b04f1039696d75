"""Has a network learned what there is? Its held-out error beside those of an additive model and of boosted trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.bnn.data import Table

#: Training rows of the other models at most, a random part of them where there are more.
_MAX_ROWS = 50_000
#: Columns and classes at most; boosted trees of more take long.
_MAX_COLUMNS = 300
_MAX_CLASSES = 20
#: A network that has learned explains at least this part of what another model explains, up to so many standard errors.
_MIN_PART = 0.8
_MAX_ERRORS = 3.0
#: It explains at least this part of what interactions add for boosted trees, if that is more than so many errors.
_MIN_GAIN = 0.5
#: Held-out rows at least: the standard errors of fewer tell nothing.
_MIN_HELD_OUT = 30
#: Rounds of boosting.
_ROUNDS = 200


@dataclass(frozen=True)
class FitCheck:
    """Share of held-out variance, or of cross-entropy, that the network and two other models explain.

    For a regression the share is R^2 = 1 - MSE / variance; for classes 1 - cross-entropy / entropy of the classes.

    Attributes
    ----------
    network
        Share of the fitted network.
    additive
        Share of boosted trees of one feature each: main effects of any shape, no interactions.
    trees
        Share of boosted trees of all features.
    error
        Standard error of the difference between ``network`` and the best one of the others and of a constant.
    gain_error
        Standard error of the difference between ``trees`` and ``additive``, which is due to interactions.

    Examples
    --------
    >>> check = FitCheck(network=0.70, additive=0.68, trees=0.93, error=0.01)
    >>> check.has_learned
    False
    >>> print(check.describe())
    the network explains 70.0 % of held-out rows, boosted trees 93.0 %, an additive model 68.0 %

    Interactions are a small part of what there is here, and the network has none of it:

    >>> FitCheck(network=0.90, additive=0.90, trees=0.98, error=0.005, gain_error=0.005).has_learned
    False
    """

    network: float
    additive: float
    trees: float
    error: float
    gain_error: float = 0.0

    @property
    def has_learned(self) -> bool:
        """Whether the network explains what the other models explain, up to three standard errors.

        That is four fifths of what either of them or a constant explains, and half of what boosted trees explain
        beyond the additive model.
        """
        upper = self.network + _MAX_ERRORS * self.error
        if upper < _MIN_PART * max(self.additive, self.trees, 0.0):
            return False
        gain = self.trees - max(self.additive, 0.0)
        return gain <= _MAX_ERRORS * self.gain_error or upper >= self.trees - (1 - _MIN_GAIN) * gain

    def describe(self) -> str:
        """Return the three shares as part of a sentence."""
        return (
            f"the network explains {self.network:.1%} of held-out rows, boosted trees {self.trees:.1%}, an additive "
            f"model {self.additive:.1%}"
        ).replace("%", " %")


def check_fit(train: Table, held_out: Table, outputs: Floats, seed: int) -> FitCheck | None:
    """Return the comparison of a network with other models; None for data that they cannot take, or take long for.

    Held-out rows that are copies of training rows, with their target, do not count. With fewer than 30 other ones there
    is no comparison.

    Parameters
    ----------
    train, held_out
        Rows that the network was fitted to, and others.
    outputs
        Outputs (n, k) of the network on the held-out rows: means, or logits of classes.
    seed
        Decides on the rows that are used.
    """
    if train.x.ndim != 2 or train.x.shape[1] > _MAX_COLUMNS or (train.y.ndim == 2 and train.y.shape[1] > 1):
        return None
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(train))[:_MAX_ROWS]
    x, y = train.x.double().cpu().numpy()[chosen], train.y.cpu().numpy().reshape(len(train))[chosen]
    rows, labels = held_out.x.double().cpu().numpy(), held_out.y.cpu().numpy().reshape(len(held_out))
    new = _are_new(train, rows, labels)
    rows, labels, outputs = rows[new], labels[new], outputs[new]
    if len(rows) < _MIN_HELD_OUT:
        return None
    if train.task == "classification":
        classes = np.unique(y)
        if not 2 <= len(classes) <= _MAX_CLASSES or not np.isin(labels, classes).all():
            return None
        losses = _class_losses(x, y, rows, labels, outputs)
    else:
        others = [_trees("Regressor", additive, seed).fit(x, y).predict(rows) for additive in (True, False)]
        losses = np.square(np.stack([outputs[:, 0], *others, np.full(len(labels), y.mean())]) - labels)
    whole = float(losses[3].mean())
    if not whole > 0:
        return None
    network, additive, trees, _ = (1 - losses.mean(axis=1) / whole).tolist()
    best = 1 + int(losses[1:].mean(axis=1).argmin())
    errors = [float((losses[i] - losses[j]).std() / np.sqrt(len(labels)) / whole) for i, j in ((0, best), (1, 2))]
    return FitCheck(network, additive, trees, *errors)


def _are_new(train: Table, rows: Floats, labels: Any) -> Any:
    """Return which held-out rows (n,) are no copies of a training row; of classes, which few numbers have, all are."""
    if train.task == "classification":
        return np.ones(len(rows), dtype=bool)
    known = np.column_stack([train.x.double().cpu().numpy(), train.y.double().cpu().numpy().reshape(len(train))])
    seen = {row.tobytes() for row in known}
    return np.array([row.tobytes() not in seen for row in np.column_stack([rows, labels.astype(float)])])


def _class_losses(x: Floats, y: Any, rows: Floats, labels: Any, outputs: Floats) -> Floats:
    """Return the cross-entropies (4, n) of the network, both other models, and the shares of the classes."""
    classes, counts = np.unique(y, return_counts=True)
    place = np.searchsorted(classes, labels)
    logits = np.concatenate([np.zeros_like(outputs), outputs], axis=1) if outputs.shape[1] == 1 else outputs[:, classes]
    logits = logits - logits.max(axis=1, keepdims=True)
    of_network = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    others = [_trees("Classifier", additive, 0).fit(x, y).predict_proba(rows) for additive in (True, False)]
    at = np.arange(len(rows))
    losses = [-np.log(np.clip(shares[at, place], 1e-12, None)) for shares in (of_network, *others)]
    return np.stack([*losses, -np.log(counts / counts.sum())[place]])


def _trees(kind: str, additive: bool, seed: int) -> Any:
    """Return boosted trees, additive ones without interactions."""
    from sklearn import ensemble

    make = getattr(ensemble, f"HistGradientBoosting{kind}")
    constraint = "no_interactions" if additive else None
    return make(max_iter=_ROUNDS, early_stopping=True, interaction_cst=constraint, random_state=seed)
