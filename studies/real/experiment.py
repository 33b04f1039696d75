"""Networks on real data: with the target as it is, permuted, and with an interaction injected."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch

from geh_explain import baselines, bnn
from geh_explain.analyses.surface import Surface
from geh_explain.datasets import Regression
from geh_explain.errors import GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.inference import PermutationTest, permutation_test
from geh_explain.inference.jsonl import Record
from geh_explain.inference.workers import one_thread
from geh_explain.results.interactions import Interactions
from geh_explain.scores.ranking import PairRanking
from studies.real.settings import FORMS, SETTINGS, injected, table

#: Seeds below this one served to choose the networks and how they are trained.
SEED = 100
MEASURES = ("aeh", "geh", "eah")
LEVEL = 0.95
#: Gaussian weights with a tempered prior, and what the paper has.
MEAN_FIELD, CONCRETE = "mean field", "concrete dropout"
#: Networks train at least so long on injected interactions, whose features are strongly correlated in one data set.
_LONG = 120


@dataclass(frozen=True)
class Size:
    """How large a study is: permutations of each target, injected shares of its spread, draws, trees for SHAP.

    ``compared`` permutations are also analysed with concrete dropout.
    """

    permutations: int
    compared: int
    shares: tuple[float, ...]
    draws: int
    trees: int
    epochs: float = 1.0


FULL = Size(120, 30, (0.02, 0.05, 0.1, 0.2, 0.5), 50, 1000)
QUICK = Size(4, 2, (0.5,), 20, 100, epochs=0.25)


@dataclass(frozen=True)
class Analysis:
    """Fits a network to 70 % of the rows, stops by 20 %, and explains it at 10 %; what a permutation test refits.

    It is trained for the epochs and with the patience of its setting, and for ``at_least`` so many.
    """

    name: str
    size: Size
    posterior: str = MEAN_FIELD
    at_least: int = 0

    def __call__(self, X: pd.DataFrame, y: pd.Series, seed: int) -> Interactions:
        """Return the interactions."""
        return self.fitted(X, y, seed)[1]

    def fitted(self, X: pd.DataFrame, y: pd.Series, seed: int) -> tuple[bnn.HybridNet, Interactions, float]:
        """Return the network, its interactions, and the share of the target's variance that it explains."""
        setting = SETTINGS[self.name]
        train, validation, test = Regression(X, y).split(SEED)
        weights, temperature = ("gaussian", setting.temperature) if self.posterior == MEAN_FIELD else ("dropout", 1.0)
        net = bnn.HybridNet(X.shape[1], hidden=setting.hidden, weights=weights, seed=seed)
        bnn.fit(
            net,
            train.X,
            train.y,
            validation=(validation.X, validation.y),
            epochs=max(2, round(self.size.epochs * max(setting.epochs, self.at_least))),
            patience=max(setting.patience, self.at_least),
            lr=setting.lr,
            temperature=temperature,
            seed=seed,
            progress=False,
        )
        explainer = GEHExplainer(net)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GEHWarning)
            result = explainer.explain(test.X, groups=setting.groups, draws=self.size.draws, seed=seed, progress=False)
        return net, result, _explained(net, test)


@torch.no_grad()
def _explained(net: bnn.HybridNet, test: Regression) -> float:
    """Return the share of the variance of held-out targets that a network explains."""
    predicted = net(torch.tensor(test.X.to_numpy(dtype=np.float32)))[:, 0].numpy()
    return float(1 - np.mean((predicted - test.y) ** 2) / np.var(test.y.to_numpy()))


@dataclass(frozen=True)
class Kept:
    """What is kept of each permuted target: how many pairs each rule calls significant, and the strongest scaled one.

    ``spread`` (P,) are the products of the features' standard deviations.
    """

    spread: tuple[float, ...]

    def __call__(self, result: Interactions) -> Record:
        """Return shares of pairs, and a score."""
        shares = {
            f"{measure} interval": float(np.mean(result.scores(measure).pair_interval(LEVEL)[0] > 0))
            for measure in MEASURES
        }
        shares["geh sign"] = float(np.mean(result.sign_p_values() < 1 - LEVEL))
        return {**shares, "scaled": float((result.geh.pair_mean * np.array(self.spread)).max())}


def spread_of(X: pd.DataFrame) -> tuple[float, ...]:
    """Return the products of standard deviations (P,) of all pairs of columns, by which scores become comparable."""
    deviations = X.std().to_numpy()
    i, j = np.triu_indices(len(deviations), 1)
    return tuple((deviations[i] * deviations[j]).tolist())


@dataclass(frozen=True)
class Tested:
    """One data set as it is: its interactions, tests of scores as they are and ``scaled`` by the features' deviations.

    ``concrete`` is a test with concrete dropout, of scores as they are; ``explained`` the share of the variance of
    held-out targets that the network explains.
    """

    result: Interactions
    raw: PermutationTest
    scaled: PermutationTest
    concrete: PermutationTest
    surface: Surface
    explained: float


def examine(name: str, size: Size, checkpoint: Path, workers: int, folder: str | None) -> Tested:
    """Analyse one data set, and test its pairs by permuting its target."""
    data, analysis = table(name, folder), Analysis(name, size)
    with one_thread():
        net, result, explained = analysis.fitted(data.X, data.y, SEED)
    keep = Kept(spread_of(data.X))
    how: dict[str, Any] = {"keep": keep, "workers": workers, "seed": SEED}
    raw = permutation_test(
        analysis, data.X, data.y, size.permutations, observed=result, checkpoint=checkpoint / MEAN_FIELD, **how
    )
    other = Analysis(name, size, CONCRETE)
    concrete = permutation_test(other, data.X, data.y, size.compared, checkpoint=checkpoint / CONCRETE, **how)
    ranking = PairRanking("scaled GEH", raw.observed.scores * np.array(keep.spread), raw.observed.names)
    scaled = PermutationTest(ranking, np.array([kept["scaled"] for kept in raw.kept]), raw.kept, raw.failures)
    points = data.split(SEED)[2].X
    surface = GEHExplainer(net).surface(points, *SETTINGS[name].shown, result=result, progress=False)
    return Tested(result, raw, scaled, concrete, surface, explained)


def tasks(size: Size) -> list[tuple[Any, ...]]:
    """Return the injected interactions: data set, form, share of the spread, and the size's own numbers."""
    numbers = (size.draws, size.trees, size.epochs)
    return [(name, form, share, *numbers) for name in SETTINGS for form in FORMS for share in size.shares]


def inject(task: tuple[Any, ...], folder: str | None = None) -> Record:
    """Inject one interaction, and return the rank of its pair by every method."""
    name, form, share, draws, trees, epochs = task
    size, data, pair = Size(0, 0, (), draws, trees, epochs), table(name, folder), SETTINGS[name].injected
    added = injected(data, pair, form, share)
    y = data.y + added
    y = (y - y.min()) / (y.max() - y.min())
    start = perf_counter()
    net, result, explained = Analysis(name, size, at_least=_LONG).fitted(data.X, y, SEED)
    names, spread = list(data.X.columns), np.array(spread_of(data.X))
    seen = pd.concat([part.X for part in Regression(data.X, y).split(SEED)[:2]])
    rankings = [
        PairRanking("1-GEH", result.aeh.pair_mean, names),
        PairRanking("GEH", result.geh.pair_mean, names),
        PairRanking("1-GEH, scaled", result.aeh.pair_mean * spread, names),
        PairRanking("GEH, scaled", result.geh.pair_mean * spread, names),
        baselines.nid(net, names=names),
        baselines.shap_trees(seen, y.loc[seen.index], trees=trees, seed=SEED, names=names),
        baselines.lasso(seen, y.loc[seen.index], names=names),
    ]
    return {
        "data": name,
        "form": form,
        "share": share,
        "explained": explained,
        "ranks": {ranking.method: ranking.rank(*pair) for ranking in rankings},
        "pairs": len(spread),
        "seconds": perf_counter() - start,
    }
