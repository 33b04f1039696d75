"""Networks on real data: with the original target, with permuted targets, and with an injected interaction."""

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
from studies.real.settings import FORMS, SETTINGS, injected_effect, load_table

#: Smaller seeds were used to choose the networks and their training.
SEED = 100
MEASURES = ("aeh", "geh", "eah")
#: Credible level of the interval rule; the sign rule rejects at one minus this level.
LEVEL = 0.95
#: Gaussian weights with a tempered prior.
MEAN_FIELD = "mean field"
#: The posterior of the paper.
CONCRETE = "concrete dropout"
#: Minimal epochs on injected interactions: in one data set their features are strongly correlated.
_MIN_EPOCHS_INJECTED = 120


@dataclass(frozen=True)
class Size:
    """Extent of a study.

    Parameters
    ----------
    permutations
        Permutations of each target, analysed with mean field posteriors.
    compared
        Permutations of each target, analysed with concrete dropout.
    shares
        Standard deviations of the injected interactions, relative to that of the target.
    draws
        Posterior draws.
    trees
        Boosted trees for SHAP.
    epochs
        Factor of the epochs in the settings.
    """

    permutations: int
    compared: int
    shares: tuple[float, ...]
    draws: int
    trees: int
    epochs: float = 1.0


FULL = Size(permutations=120, compared=30, shares=(0.02, 0.05, 0.1, 0.2, 0.5), draws=50, trees=1000)
QUICK = Size(permutations=4, compared=2, shares=(0.5,), draws=20, trees=100, epochs=0.25)


@dataclass(frozen=True)
class Analysis:
    """The ``fit`` of a permutation test: train on 70 % of the rows, stop early on 20 %, explain the remaining 10 %.

    Epochs and patience are those of the data set's setting, or ``min_epochs`` if that is more.
    """

    name: str
    size: Size
    posterior: str = MEAN_FIELD
    min_epochs: int = 0

    def __call__(self, X: pd.DataFrame, y: pd.Series, seed: int) -> Interactions:
        """Return the interactions of a network that is trained on ``X`` and ``y``."""
        return self.fit(X, y, seed)[1]

    def fit(self, X: pd.DataFrame, y: pd.Series, seed: int) -> tuple[bnn.HybridNet, Interactions, float]:
        """Return the network, its interactions, and the share of the held-out variance that it explains."""
        setting = SETTINGS[self.name]
        train, validation, test = Regression(X, y).split(SEED)
        weights, temperature = ("gaussian", setting.temperature) if self.posterior == MEAN_FIELD else ("dropout", 1.0)
        net = bnn.HybridNet(X.shape[1], hidden=setting.hidden, weights=weights, seed=seed)
        bnn.fit(
            net,
            train.X,
            train.y,
            validation=(validation.X, validation.y),
            epochs=max(2, round(self.size.epochs * max(setting.epochs, self.min_epochs))),
            patience=max(setting.patience, self.min_epochs),
            lr=setting.lr,
            temperature=temperature,
            seed=seed,
            progress=False,
        )
        explainer = GEHExplainer(net)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GEHWarning)
            result = explainer.explain(test.X, groups=setting.groups, draws=self.size.draws, seed=seed, progress=False)
        return net, result, _explained_variance(net, test)


@torch.no_grad()
def _explained_variance(net: bnn.HybridNet, test: Regression) -> float:
    """Return the share of the variance of the test targets that a network explains."""
    predicted = net(torch.tensor(test.X.to_numpy(dtype=np.float32)))[:, 0].numpy()
    return float(1 - np.mean((predicted - test.y) ** 2) / np.var(test.y.to_numpy()))


@dataclass(frozen=True)
class PermutationRecord:
    """The ``keep`` of a permutation test: shares of significant pairs by each rule, and the strongest scaled GEH.

    ``factors`` (P,) scale the scores: products of the features' standard deviations.
    """

    factors: tuple[float, ...]

    def __call__(self, result: Interactions) -> Record:
        """Return the record of one permutation: ``"aeh interval"``, ..., ``"geh sign"`` and ``"scaled"``."""
        shares = {
            f"{measure} interval": float(np.mean(result.scores(measure).pair_interval(LEVEL)[0] > 0))
            for measure in MEASURES
        }
        shares["geh sign"] = float(np.mean(result.sign_p_values() < 1 - LEVEL))
        return {**shares, "scaled": float((result.geh.pair_mean * np.array(self.factors)).max())}


def scale_factors(X: pd.DataFrame) -> tuple[float, ...]:
    """Return std(x_i) * std(x_j) (P,) of all pairs of columns; scores times these factors are comparable."""
    deviations = X.std().to_numpy()
    i, j = np.triu_indices(len(deviations), 1)
    return tuple((deviations[i] * deviations[j]).tolist())


@dataclass(frozen=True)
class DataSetTests:
    """Results on one data set with its original target.

    Attributes
    ----------
    result
        Interactions of the mean field network.
    raw, scaled
        Permutation tests of its scores, and of its scores times the features' standard deviations.
    concrete
        Permutation test of the scores with concrete dropout.
    surface
        Joint effect of one pair.
    explained
        Share of the held-out variance that the network explains.
    """

    result: Interactions
    raw: PermutationTest
    scaled: PermutationTest
    concrete: PermutationTest
    surface: Surface
    explained: float


def analyse_data_set(name: str, size: Size, checkpoint: Path, workers: int, folder: str | None) -> DataSetTests:
    """Explain one data set and test its pairs by permuting its target; ``checkpoint`` is the folder of the records."""
    data, analysis = load_table(name, folder), Analysis(name, size)
    # Workers refit with one thread; with more, the observed scores would differ from theirs in the last digits.
    with one_thread():
        net, result, explained = analysis.fit(data.X, data.y, SEED)
    keep = PermutationRecord(scale_factors(data.X))
    # As in the paper the target itself is permuted: every pair that is then significant is a false positive.
    options: dict[str, Any] = {"null": "y", "keep": keep, "workers": workers, "seed": SEED}
    raw = permutation_test(
        analysis, data.X, data.y, size.permutations, observed=result, checkpoint=checkpoint / MEAN_FIELD, **options
    )
    concrete = permutation_test(
        Analysis(name, size, CONCRETE), data.X, data.y, size.compared, checkpoint=checkpoint / CONCRETE, **options
    )
    # The scaled test needs no refits: each permutation has recorded its strongest scaled score.
    ranking = PairRanking("scaled GEH", raw.observed.scores * np.array(keep.factors), raw.observed.names)
    scaled = PermutationTest(ranking, np.array([record["scaled"] for record in raw.kept]), raw.kept, raw.failures)
    points = data.split(SEED)[2].X
    surface = GEHExplainer(net).surface(points, pair=SETTINGS[name].shown, result=result, progress=False)
    return DataSetTests(result, raw, scaled, concrete, surface, explained)


def tasks(size: Size) -> list[tuple[Any, ...]]:
    """Return one task per injected interaction: data set, form, share, then the fields of ``size`` that affect it."""
    settings = (size.draws, size.trees, size.epochs)
    return [(name, form, share, *settings) for name in SETTINGS for form in FORMS for share in size.shares]


def rank_injected_pair(task: tuple[Any, ...], folder: str | None = None) -> Record:
    """Inject one interaction into the target, and return a record with the rank of its pair by every method."""
    name, form, share, draws, trees, epochs = task
    size = Size(0, 0, (), draws, trees, epochs)
    data = load_table(name, folder)
    pair = SETTINGS[name].injected
    y = data.y + injected_effect(data, pair, form, share)
    y = (y - y.min()) / (y.max() - y.min())
    start = perf_counter()
    net, result, explained = Analysis(name, size, min_epochs=_MIN_EPOCHS_INJECTED).fit(data.X, y, SEED)
    names, factors = list(data.X.columns), np.array(scale_factors(data.X))
    # The baselines get the rows that the network was trained and stopped on.
    rows = pd.concat([part.X for part in Regression(data.X, y).split(SEED)[:2]])
    rankings = [
        PairRanking("1-GEH", result.aeh.pair_mean, names),
        PairRanking("GEH", result.geh.pair_mean, names),
        PairRanking("1-GEH, scaled", result.aeh.pair_mean * factors, names),
        PairRanking("GEH, scaled", result.geh.pair_mean * factors, names),
        baselines.nid(net, names=names),
        baselines.shap_trees(rows, y.loc[rows.index], trees=trees, seed=SEED, names=names),
        baselines.lasso(rows, y.loc[rows.index], names=names),
    ]
    return {
        "data": name,
        "form": form,
        "share": share,
        "explained": explained,
        "ranks": {ranking.method: ranking.rank(*pair) for ranking in rankings},
        "pairs": len(factors),
        "seconds": perf_counter() - start,
    }
