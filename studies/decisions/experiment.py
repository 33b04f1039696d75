"""A block of data sets of one scenario: fit, test all pairs against held-out labels, and compare with the truth."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn

from geh_explain import demo, posterior
from geh_explain._types import Floats
from geh_explain.datasets import simulation
from geh_explain.errors import GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.inference.jsonl import Record
from geh_explain.results.interactions import Interactions
from geh_explain.scores.evidence import Evidence
from geh_explain.units import FeatureGroups, Subset, Units
from studies.decisions.networks import train_together
from studies.decisions.scenarios import HIDDEN_WEIGHTS, SCENARIOS, Sample, Scenario, draw, signal_features, true_pairs

#: Smaller seeds were used to choose the test's columns, standard errors and degrees of freedom.
FIRST_SEED = 13_000
#: The factor of the supported score was chosen on smaller seeds of the scenarios in which scores are measured.
SCORED_SEED = 16_000
#: Groups of points.
_GROUPS = 11
#: Pairs that are tested where there are many features: the strongest.
_MAX_PAIRS = 100


#: Unit sets of scenarios that do not explain all features.
_UNITS: dict[str, Units] = {
    "some": Subset(range(4)),
    "groups": FeatureGroups({name: [2 * k, 2 * k + 1] for k, name in enumerate("abcd")}),
}
#: Name of the tasks that run the demonstration of the package.
DEMONSTRATION = "demonstration"


@dataclass(frozen=True)
class Size:
    """Extent of a study: scenarios, data sets of each, how many are fitted together, and demonstrations."""

    scenarios: tuple[str, ...]
    data_sets: int
    block: int
    demonstrations: int


FULL = Size(tuple(SCENARIOS), data_sets=40, block=10, demonstrations=20)
QUICK = Size(("S/N 1", "correlation 0.8", "binary"), data_sets=4, block=4, demonstrations=1)


def tasks(size: Size) -> list[tuple[Any, ...]]:
    """Return one task per block: scenario, first seed, number of data sets; then one per demonstration."""
    starts = range(0, size.data_sets, size.block)
    blocks = [(name, _first_seed(name) + start, size.block) for name in size.scenarios for start in starts]
    return [*blocks, *((DEMONSTRATION, FIRST_SEED + number, 1) for number in range(size.demonstrations))]


def _first_seed(name: str) -> int:
    """Return the seed of the first data set of a scenario."""
    return SCORED_SEED if _measures_scores(SCENARIOS[name]) else FIRST_SEED


def _measures_scores(scenario: Scenario) -> bool:
    """Return whether scores and intervals are measured: in the scenarios of signal to noise."""
    return scenario.train == SCENARIOS["S/N 1"].train


def run(task: tuple[Any, ...]) -> Record:
    """Analyse a block of data sets, and return their records."""
    name, first_seed, count = task
    if name == DEMONSTRATION:
        return {"data_sets": [], "significant": _demonstrate(first_seed)}
    scenario = SCENARIOS[name]
    # The scenarios' own number keeps their data apart.
    number = list(SCENARIOS).index(name)
    samples = [draw(scenario, 100_000 * number + first_seed + k) for k in range(count)]
    start = perf_counter()
    models = _fit(scenario, samples, first_seed)
    fit_seconds = (perf_counter() - start) / count
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GEHWarning)
        data_sets = [
            {"scenario": name, "seed": first_seed + k, "fit_seconds": fit_seconds, **_analyse(scenario, model, sample)}
            for k, (model, sample) in enumerate(zip(models, samples, strict=True))
        ]
    return {"data_sets": data_sets}


def _demonstrate(seed: int) -> list[list[str]]:
    """Return the significant pairs of the demonstration on Friedman's function, with another seed."""
    table = demo.explain_friedman(seed, progress=False).result.table()
    return [list(pair) for pair in table.loc[table["significant"], ["unit_i", "unit_j"]].to_numpy().tolist()]


def _fit(scenario: Scenario, samples: list[Sample], seed: int) -> list[Any]:
    """Return one fitted model per data set: a module, or a function of a tensor."""
    if scenario.model == "trees":
        return [_trees(sample) for sample in samples]
    inputs = [sample.x_train for sample in samples]
    hidden = scenario.model == "hidden"
    if hidden:
        inputs = [np.tanh(x @ HIDDEN_WEIGHTS) for x in inputs]
    labels = [sample.y_train for sample in samples]
    networks = train_together(inputs, labels, fit=scenario.fit, task=scenario.labels, seed=seed)
    return [nn.Sequential(_first_layer(), network) for network in networks] if hidden else list(networks)


def _trees(sample: Sample) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return boosted trees as a function of a tensor."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    trees = HistGradientBoostingRegressor(max_iter=200, learning_rate=0.08, early_stopping=True, random_state=0)
    trees.fit(sample.x_train, sample.y_train)
    return lambda x: torch.as_tensor(trees.predict(x.double().numpy()))


def _first_layer() -> nn.Sequential:
    """Return the fixed first layer of the models with hidden units."""
    inputs, units = HIDDEN_WEIGHTS.shape
    linear = nn.Linear(inputs, units, bias=False)
    linear.weight.data.copy_(torch.as_tensor(HIDDEN_WEIGHTS.T))
    return nn.Sequential(linear, nn.Tanh())


def _analyse(scenario: Scenario, model: Any, sample: Sample) -> Record:
    """Return p-values, truth and, for the signal-to-noise scenarios, scores and intervals of one data set."""
    layer = "0" if scenario.model == "hidden" else None
    explainer = GEHExplainer(model, layer, units=_UNITS.get(scenario.units), posterior=posterior.PointEstimate())
    x, points = (torch.as_tensor(array, dtype=torch.float32) for array in (sample.x_held, sample.points))
    y: Any = sample.y_held.astype(int) if scenario.labels == "classes" else sample.y_held
    target = 1 if scenario.labels == "classes" else None
    start = perf_counter()
    result = None
    if _measures_scores(scenario):
        result = explainer.explain(points, groups=_GROUPS, draws=1, evidence=(x, y), progress=False)
        evidence = result.evidence
    elif scenario.features > 8:
        explained = explainer.explain(points, groups=1, draws=1, progress=False)
        evidence = explainer.test(explained, x, y, pairs=_MAX_PAIRS, progress=False).evidence
    else:
        evidence = explainer.test_pairs(x, y, target, progress=False)
    assert evidence is not None
    tested = evidence.tested
    record: Record = {
        "p_value": evidence.p_value[tested].tolist(),
        "interacts": true_pairs(scenario)[tested].tolist(),
        "seconds": perf_counter() - start,
    }
    if result is not None:
        record |= _scores(result, evidence, sample, scenario)
        record["oracle"] = _oracle(x, y)
    return record


def _scores(result: Interactions, evidence: Evidence, sample: Sample, scenario: Scenario) -> Record:
    """Return network's scores, supported scores, true scores and the intervals for them."""
    features = signal_features(sample.units)
    signal = np.sum(list(simulation.effects(features).values()), axis=0)
    true = simulation.true_scores(features, result.labels)["geh"] * (scenario.sn > 0)
    # Inputs of the networks have variance 1, and the signal too, so that derivatives change by these factors.
    true = true / (signal.std() * 12)
    assert evidence.true_scores is not None
    low, high = evidence.true_scores.interval(0.95)
    return {
        "geh": result.geh.pair_mean.tolist(),
        "slope": evidence.slope.tolist(),
        "slope_se": evidence.slope_se.tolist(),
        "true": true.tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
    }


def _oracle(x: torch.Tensor, y: Floats) -> list[float]:
    """Return the p-values (P,) of the same test with the true function in place of the network."""

    def truth(x: torch.Tensor) -> torch.Tensor:
        features = signal_features(x.double().numpy() / 12**0.5 + 0.5)
        return torch.as_tensor(np.sum(list(simulation.effects(features).values()), axis=0))

    explainer = GEHExplainer(truth, posterior=posterior.PointEstimate())
    values: list[float] = explainer.test_pairs(x.double(), y, progress=False).p_value.tolist()
    return values
