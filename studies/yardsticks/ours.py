"""What the package does on the yardsticks: the network, its training and its explanation, in one place."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time

import numpy as np
import torch
from torch import nn

from geh_explain import bnn
from geh_explain._types import Floats
from geh_explain.errors import GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.results.interactions import Interactions

#: Share of the rows whose labels training never sees.
HELD_OUT = 0.2
#: Training rows at which networks are explained.
POINTS = 2_000


def fit_network(x: Floats, y: Floats, seed: int) -> nn.Module:
    """Return a network fitted with the defaults of the package."""
    net = bnn.HybridNet(x.shape[1], seed=seed)
    bnn.fit(net, x.astype(np.float32), y.astype(np.float32), seed=seed, progress=False)
    return net


def explain(
    net: nn.Module, x: Floats, evidence: tuple[Floats, Floats], seed: int, pairs: int, groups: str = "auto"
) -> Interactions:
    """Explain a network, and test ``pairs`` of its pairs on held-out rows; all other options are defaults."""
    explainer = GEHExplainer(net)
    points = x[:POINTS].astype(np.float32)
    result = explainer.explain(points, groups=groups, seed=seed, progress=False)
    rows, labels = (values.astype(np.float32) for values in evidence)
    # True scores, which need the points, are not read, and groups of each pair have none.
    return explainer.test(result, rows, labels, pairs=pairs, progress=False)


@dataclass(frozen=True)
class Fitted:
    """A network that was fitted to four fifths of the rows.

    ``error`` is the mean squared error to the noiseless function on held-out rows, over the variance of that function.
    ``seconds`` are those of the fit.
    """

    net: nn.Module
    train: Floats
    held_out: tuple[Floats, Floats]
    seed: int
    error: float
    seconds: float

    def explain(self, pairs: int = 100, groups: str = "auto") -> tuple[Interactions, float]:
        """Return an explanation, of which at most ``pairs`` pairs are tested on held-out rows, and its seconds."""
        start = process_time()
        with _without_warnings():
            result = explain(self.net, self.train, self.held_out, self.seed, pairs, groups)
        return result, process_time() - start


#: Scores of the package, with groups of each pair and with default groups; targets are about the first.
SCORES = (
    "supported, pairwise groups",
    "GEH, pairwise groups",
    "supported, default groups",
    "GEH, default groups",
    "EAH",
    "held-out test",
)


def scores(pairwise: Interactions, default: Interactions) -> dict[str, Floats]:
    """Return the scores (P,) by which the package can rank pairs, from explanations with both kinds of groups."""
    evidence = default.evidence
    assert evidence is not None
    found = (
        _supported(pairwise),
        pairwise.geh.pair_mean,
        _supported(default),
        default.geh.pair_mean,
        default.eah.pair_mean,
        -np.nan_to_num(evidence.p_value, nan=1.0),
    )
    return dict(zip(SCORES, found, strict=True))


def _supported(result: Interactions) -> Floats:
    """Return the score by which ``result.table()`` orders pairs."""
    assert result.evidence is not None
    return np.asarray(result.evidence.shrinkage * result.geh.pair_mean)


def fit(x: Floats, y: Floats, signal: Floats, seed: int) -> Fitted:
    """Fit a network to four fifths of the rows.

    Parameters
    ----------
    x, y
        Rows (n, D) and labels (n,).
    signal
        The labels without noise (n,), to which the error refers.
    seed
        Of the network and its training.
    """
    held = round(HELD_OUT * len(x))
    start = process_time()
    with _without_warnings():
        net = fit_network(x[held:], y[held:], seed)
    seconds = process_time() - start
    with torch.no_grad():
        predicted = net(torch.as_tensor(x[:held].astype(np.float32))).reshape(-1).double().numpy()
    error = float(np.mean((predicted - signal[:held]) ** 2) / signal.var())
    return Fitted(net, x[held:], (x[:held], y[:held]), seed, error, seconds)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide what the package warns of: the study measures what comes of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GEHWarning)
        yield
