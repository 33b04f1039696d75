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
        Standard error of the difference between ``network`` and the better one of the others.

    Examples
    --------
    >>> check = FitCheck(network=0.70, additive=0.68, trees=0.93, error=0.01)
    >>> check.has_learned
    False
    >>> print(check.describe())
    the network explains 70.0 % of held-out rows, boosted trees 93.0 %, an additive model 68.0 %
    """

    network: float
    additive: float
    trees: float
    error: float

    @property
    def has_learned(self) -> bool:
        """Whether the network explains at least four fifths of what either of the other models explains."""
        best = max(self.additive, self.trees)
        return best <= 0 or self.network + _MAX_ERRORS * self.error >= _MIN_PART * best

    def describe(self) -> str:
        """Return the three shares as part of a sentence."""
        return (
            f"the network explains {self.network:.1%} of held-out rows, boosted trees {self.trees:.1%}, an additive "
            f"model {self.additive:.1%}"
        ).replace("%", " %")


def check_fit(train: Table, held_out: Table, outputs: Floats, seed: int) -> FitCheck | None:
    """Return the comparison of a network with other models; None for data that they cannot take, or take long for.

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
    if train.task == "classification":
        classes = np.unique(y)
        if not 2 <= len(classes) <= _MAX_CLASSES or not np.isin(labels, classes).all():
            return None
        losses, whole = _class_losses(x, y, rows, labels, outputs)
    else:
        others = [_trees("Regressor", additive, seed).fit(x, y).predict(rows) for additive in (True, False)]
        losses = np.square(np.stack([outputs[:, 0], *others]) - labels)
        whole = float(np.square(labels - y.mean()).mean())
    if not whole > 0:
        return None
    network, additive, trees = (1 - losses.mean(axis=1) / whole).tolist()
    excess = losses[0] - losses[1 if additive > trees else 2]
    return FitCheck(network, additive, trees, float(excess.std() / np.sqrt(len(excess)) / whole))


def _class_losses(x: Floats, y: Any, rows: Floats, labels: Any, outputs: Floats) -> tuple[Floats, float]:
    """Return the cross-entropies (3, n) of the network and both other models, and the entropy of the classes."""
    classes, counts = np.unique(y, return_counts=True)
    place = np.searchsorted(classes, labels)
    logits = np.concatenate([np.zeros_like(outputs), outputs], axis=1) if outputs.shape[1] == 1 else outputs[:, classes]
    logits = logits - logits.max(axis=1, keepdims=True)
    of_network = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    others = [_trees("Classifier", additive, 0).fit(x, y).predict_proba(rows) for additive in (True, False)]
    at = np.arange(len(rows))
    losses = [-np.log(np.clip(shares[at, place], 1e-12, None)) for shares in (of_network, *others)]
    return np.stack(losses), float(-np.log(counts / counts.sum())[place].mean())


def _trees(kind: str, additive: bool, seed: int) -> Any:
    """Return boosted trees, additive ones without interactions."""
    from sklearn import ensemble

    make = getattr(ensemble, f"HistGradientBoosting{kind}")
    constraint = "no_interactions" if additive else None
    return make(max_iter=_ROUNDS, early_stopping=True, interaction_cst=constraint, random_state=seed)
