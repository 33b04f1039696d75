"""Networks on real data: with the original target, with targets without interactions, and with an injected one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch

from geh_explain import baselines, bnn, posterior
from geh_explain._types import Floats
from geh_explain.analyses.surface import Surface
from geh_explain.datasets import Regression
from geh_explain.errors import GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.inference import PermutationTest, permutation_test
from geh_explain.inference.jsonl import Record
from geh_explain.results.interactions import Interactions
from geh_explain.run.threads import one_thread
from geh_explain.scores.evidence import Evidence
from geh_explain.scores.ranking import PairRanking
from geh_explain.statistics.p_values import discoveries
from studies.real.settings import FORMS, SETTINGS, injected_effect, load_table

#: Smaller seeds were used to choose the networks and their training.
SEED = 400
MEASURES = ("aeh", "geh", "eah")
#: Credible level of the interval rule; other rules reject at one minus this level.
LEVEL = 0.95
#: Gaussian weights with a tempered prior.
MEAN_FIELD = "mean field"
#: The posterior of the paper.
CONCRETE = "concrete dropout"
#: Folder of the refits to targets with main effects and no interactions.
ADDITIVE = "additive"
#: First seed of networks on injected interactions; how pairs without a test are ranked was chosen on others.
INJECTED_SEED = 500
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
    additive
        Targets with main effects and no interactions, for each data set, analysed with mean field posteriors.
    shares
        Standard deviations of the injected interactions, relative to that of the target.
    networks
        Networks that are fitted to each target with an injected interaction, whose ranks are averaged.
    draws
        Posterior draws.
    trees
        Boosted trees for SHAP.
    epochs
        Factor of the epochs in the settings.
    """

    permutations: int
    compared: int
    additive: int
    shares: tuple[float, ...]
    networks: int
    draws: int
    trees: int
    epochs: float = 1.0


FULL = Size(
    permutations=100, compared=30, additive=100, shares=(0.02, 0.05, 0.1, 0.2, 0.5), networks=2, draws=50, trees=1000
)
QUICK = Size(permutations=4, compared=2, additive=2, shares=(0.5,), networks=1, draws=20, trees=100, epochs=0.25)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted network; its ``ranking`` makes it an outcome of the ``fit`` of a permutation test.

    Attributes
    ----------
    net
        The network.
    result
        Its interactions, with evidence from the test rows; where these are too few, also from those of early stopping.
    unseen
        Evidence from all rows that training did not use, those of early stopping among them; None where not asked for.
    explained
        Share of the test variance that the network explains.
    """

    net: bnn.HybridNet
    result: Interactions
    unseen: Evidence | None
    explained: float

    def ranking(self, measure: str) -> PairRanking:
        """Return the pairs in the order of a measure."""
        return self.result.ranking(measure)


@dataclass(frozen=True)
class Analysis:
    """The ``fit`` of a permutation test: train on 70 % of the rows, stop early on 20 %, explain the remaining 10 %.

    Epochs and patience are those of the data set's setting, or ``min_epochs`` if that is more. ``unseen`` tests the
    pairs a second time, on all rows that training did not use.
    """

    name: str
    size: Size
    posterior: str = MEAN_FIELD
    min_epochs: int = 0
    unseen: bool = False

    def __call__(self, X: pd.DataFrame, y: pd.Series, seed: int) -> Fitted:
        """Return a network that is trained on ``X`` and ``y``, explained and tested."""
        setting = SETTINGS[self.name]
        train, validation, test = Regression(X, y).split(SEED)
        weights, temperature = ("gaussian", setting.temperature) if self.posterior == MEAN_FIELD else ("dropout", 1.0)
        net = bnn.HybridNet(X.shape[1], hidden=setting.hidden, weights=weights, pairs=0, seed=seed)
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
            # The network with mean weights is tested, as any fixed function may be: the mean over draws takes ten times
            # as long.
            tester = GEHExplainer(net, posterior=posterior.PointEstimate())
            rows = _join(validation, test) if setting.few_test_rows else test
            result = tester.test(result, rows.X, rows.y, explained=test.X, seed=SEED, progress=False)
            unseen = None
            if self.unseen:
                rows = _join(validation, test)
                unseen = tester.test_pairs(rows.X, rows.y, seed=SEED, progress=False)
        return Fitted(net, result, unseen, _explained_variance(net, test))


def _join(*parts: Regression) -> Regression:
    """Return the rows of several parts of a table."""
    return Regression(pd.concat([part.X for part in parts]), pd.concat([part.y for part in parts]))


@torch.no_grad()
def _explained_variance(net: bnn.HybridNet, test: Regression) -> float:
    """Return the share of the variance of the test targets that a network explains."""
    predicted = net(torch.tensor(test.X.to_numpy(dtype=np.float32)))[:, 0].numpy()
    return float(1 - np.mean((predicted - test.y) ** 2) / np.var(test.y.to_numpy()))


@dataclass(frozen=True)
class RefitRecord:
    """The ``keep`` of a permutation test: shares of significant pairs by each rule, and the strongest scaled GEH.

    ``factors`` (P,) scale the scores: products of the features' standard deviations.
    """

    factors: tuple[float, ...]

    def __call__(self, fitted: Fitted) -> Record:
        """Return the record of one refit: a share of pairs for each measure and rule, and ``"scaled"``.

        Keys are ``"aeh interval"``, ..., ``"geh sign"``, ``"geh evidence"`` (p < 0.05), ``"geh discovery"`` (at a false
        discovery rate of 5 %), ``"geh any discovery"``, 1 if there is one and else 0, and, where it was tested,
        ``"geh unseen"``, which is ``"geh evidence"`` from all rows that training did not use.
        """
        result = fitted.result
        assert result.evidence is not None
        p_values = result.evidence.p_value
        found = discoveries(p_values, 1 - LEVEL)
        shares = {
            f"{measure} interval": float(np.mean(result.scores(measure).pair_interval(LEVEL)[0] > 0))
            for measure in MEASURES
        }
        shares |= {
            "geh sign": float(np.mean(result.sign_p_values() < 1 - LEVEL)),
            "geh evidence": float(np.mean(p_values < 1 - LEVEL)),
            "geh discovery": float(np.mean(found)),
            "geh any discovery": float(found.any()),
        }
        if fitted.unseen is not None:
            shares["geh unseen"] = float(np.mean(fitted.unseen.p_value < 1 - LEVEL))
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
        Interactions of the mean field network, with evidence from held-out labels.
    raw, scaled
        Permutation tests of its scores, and of its scores times the features' standard deviations.
    concrete
        Permutation test of the scores with concrete dropout.
    additive
        Test of the scores against targets with main effects and permuted residuals.
    surface
        Joint effect of one pair.
    explained
        Share of the held-out variance that the network explains.
    unseen
        Number of rows that training did not use.
    """

    result: Interactions
    raw: PermutationTest
    scaled: PermutationTest
    concrete: PermutationTest
    additive: PermutationTest
    surface: Surface
    explained: float
    unseen: int


def analyse_data_set(name: str, size: Size, checkpoint: Path, workers: int, folder: str | None) -> DataSetTests:
    """Explain one data set, test its pairs, and refit to targets without interactions.

    ``checkpoint`` is the folder of the records of refits.
    """
    data, analysis = load_table(name, folder), Analysis(name, size)
    # Workers refit with one thread; with more, the observed scores would differ from theirs in the last digits.
    with one_thread():
        fitted = analysis(data.X, data.y, SEED)
    result = fitted.result
    keep = RefitRecord(scale_factors(data.X))

    def refit(fit: Analysis, count: int, null: str, records: str, observed: Interactions | None) -> PermutationTest:
        return permutation_test(
            fit,
            data.X,
            data.y,
            count,
            null=null,
            observed=observed,
            keep=keep,
            workers=workers,
            checkpoint=checkpoint / records,
            seed=SEED,
        )

    # As in the paper the target itself is permuted: every pair that is then significant is a false positive.
    raw = refit(analysis, size.permutations, "y", MEAN_FIELD, result)
    concrete = refit(Analysis(name, size, CONCRETE), size.compared, "y", CONCRETE, None)
    # An additive model is fitted to the target; its residuals, which hold the interactions, are permuted.
    additive = refit(Analysis(name, size, unseen=True), size.additive, "main", ADDITIVE, result)
    # The scaled test needs no refits: each permutation has recorded its strongest scaled score.
    ranking = PairRanking("scaled GEH", raw.observed.scores * np.array(keep.factors), raw.observed.names)
    scaled = PermutationTest(ranking, np.array([record["scaled"] for record in raw.kept]), raw.kept, raw.failures)
    _, validation, test = data.split(SEED)
    surface = GEHExplainer(fitted.net).surface(test.X, pair=SETTINGS[name].shown, result=result, progress=False)
    return DataSetTests(result, raw, scaled, concrete, additive, surface, fitted.explained, len(validation) + len(test))


def tasks(size: Size) -> list[tuple[Any, ...]]:
    """Return one task per injected interaction: data set, form, share, then the fields of ``size`` that affect it."""
    settings = (size.networks, size.draws, size.trees, size.epochs)
    return [(name, form, share, *settings) for name in SETTINGS for form in FORMS for share in size.shares]


def rank_injected_pair(task: tuple[Any, ...], folder: str | None = None) -> Record:
    """Inject one interaction into the target, and return a record with the rank of its pair by every method."""
    name, form, share, networks, draws, trees, epochs = task
    size = Size(0, 0, 0, (), networks, draws, trees, epochs)
    data = load_table(name, folder)
    pair = SETTINGS[name].injected
    y = data.y + injected_effect(data, pair, form, share)
    y = (y - y.min()) / (y.max() - y.min())
    start = perf_counter()
    analysis = Analysis(name, size, min_epochs=_MIN_EPOCHS_INJECTED)
    names, factors = list(data.X.columns), np.array(scale_factors(data.X))
    ranks: list[dict[str, float]] = []
    explained = []
    # Where features are strongly correlated, the rank depends on the initial weights.
    for seed in range(INJECTED_SEED, INJECTED_SEED + networks):
        fitted = analysis(data.X, y, seed)
        rankings = [*_network_rankings(fitted.result, factors), baselines.nid(fitted.net, names=names)]
        ranks.append({ranking.method: ranking.rank(*pair) for ranking in rankings})
        explained.append(fitted.explained)
    # All rows were used, for training, early stopping or the test, so that the other methods get all of them too.
    others = [
        baselines.shap_trees(data.X, y, trees=trees, seed=SEED, names=names),
        baselines.lasso(data.X, y, names=names),
    ]
    return {
        "data": name,
        "form": form,
        "share": share,
        "explained": float(np.mean(explained)),
        "ranks": {
            **{method: float(np.mean([each[method] for each in ranks])) for method in ranks[0]},
            **{ranking.method: ranking.rank(*pair) for ranking in others},
        },
        "pairs": len(factors),
        "seconds": perf_counter() - start,
    }


def _network_rankings(result: Interactions, factors: Floats) -> list[PairRanking]:
    """Return the rankings by the scores of a network, their supported parts, and both scaled by ``factors`` (P,)."""
    assert result.evidence is not None
    shrinkage = result.evidence.shrinkage
    geh, aeh = result.geh.pair_mean, result.aeh.pair_mean
    scores = {
        "supported": shrinkage * geh,
        "supported 1-GEH": shrinkage * aeh,
        "1-GEH": aeh,
        "GEH": geh,
        "supported, scaled": shrinkage * geh * factors,
        "1-GEH, scaled": aeh * factors,
        "GEH, scaled": geh * factors,
    }
    return [PairRanking(method, values, result.names) for method, values in scores.items()]
