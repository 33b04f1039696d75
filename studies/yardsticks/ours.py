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


def explain(net: nn.Module, x: Floats, evidence: tuple[Floats, Floats], seed: int, pairs: int) -> Interactions:
    """Explain a network with the defaults of the package, and test ``pairs`` of its pairs on held-out rows."""
    explainer = GEHExplainer(net)
    points = x[:POINTS].astype(np.float32)
    result = explainer.explain(points, seed=seed, progress=False)
    rows, labels = (values.astype(np.float32) for values in evidence)
    return explainer.test(result, rows, labels, explained=points, pairs=pairs, progress=False)


@dataclass(frozen=True)
class Fitted:
    """A fitted network, its explanation, its error and the seconds of both.

    ``error`` is the mean squared error to the noiseless function on held-out rows, over the variance of that function.
    """

    net: nn.Module
    result: Interactions
    error: float
    fit_seconds: float
    explain_seconds: float

    def scores(self) -> dict[str, Floats]:
        """Return the scores (P,) by which the package can rank pairs."""
        evidence = self.result.evidence
        assert evidence is not None
        return {
            "supported": evidence.shrinkage * self.result.geh.pair_mean,
            "GEH": self.result.geh.pair_mean,
            "EAH": self.result.eah.pair_mean,
            "held-out test": -np.nan_to_num(evidence.p_value, nan=1.0),
        }


#: Scores of the package, the default one first: pairs are in its order in ``result.table()``.
SCORES = ("supported", "GEH", "EAH", "held-out test")


def fit_and_explain(x: Floats, y: Floats, signal: Floats, seed: int, pairs: int = 100) -> Fitted:
    """Fit a network to four fifths of the rows, explain it, and test its pairs on the others.

    Parameters
    ----------
    x, y
        Rows (n, D) and labels (n,).
    signal
        The labels without noise (n,), to which the error refers.
    seed
        Of the network and its training.
    pairs
        Pairs that are tested, at most.
    """
    held = round(HELD_OUT * len(x))
    with _without_warnings():
        start = process_time()
        net = fit_network(x[held:], y[held:], seed)
        fit_seconds = process_time() - start
        start = process_time()
        result = explain(net, x[held:], (x[:held], y[:held]), seed, pairs)
        explain_seconds = process_time() - start
    with torch.no_grad():
        predicted = net(torch.as_tensor(x[:held].astype(np.float32))).reshape(-1).double().numpy()
    error = float(np.mean((predicted - signal[:held]) ** 2) / signal.var())
    return Fitted(net, result, error, fit_seconds, explain_seconds)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide what the package warns of: the study measures what comes of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GEHWarning)
        yield
