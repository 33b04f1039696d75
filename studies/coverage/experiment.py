"""A block of samples of one scenario: draw points, explain, and compare intervals with the population's scores."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
import torch

from geh_explain import posterior
from geh_explain.errors import GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.inference.jsonl import Record
from geh_explain.results.interactions import Interactions
from studies.coverage import population

#: Smaller seeds were used to choose the intervals.
FIRST_SEED = 50_000
#: Correlation of the clusters that are also explained as if all points were independent.
_IGNORED = 0.5


@dataclass(frozen=True)
class Scenario:
    """What is sampled: independent points or clusters, with so many regions and draws.

    Attributes
    ----------
    regions
        Number of regions.
    points
        Number of independent points; 0 for clusters.
    clusters, correlation
        Number of clusters, and correlation of the features of two points of a cluster.
    draws
        Number of draws of the sizes c; 1 for the function itself.
    """

    regions: int
    points: int = 0
    clusters: int = 0
    correlation: float = 0.0
    draws: int = 1

    @property
    def name(self) -> str:
        """Name of the scenario."""
        regions = f"{self.regions} region{'s' * (self.regions > 1)}"
        if self.clusters:
            return f"{self.clusters} clusters, correlation {self.correlation:g}, {regions}"
        return f"{self.points} points, {regions}" + (f", {self.draws} draws" if self.draws > 1 else "")


SCENARIOS = [
    *(Scenario(regions, points) for regions in (1, 4) for points in (50, 200, 1000)),
    *(Scenario(10, points) for points in (200, 1000)),
    *(Scenario(4, points, draws=draws) for draws in (5, 20) for points in (50, 200)),
    *(
        Scenario(regions, clusters=clusters, correlation=correlation)
        for regions in (1, 4)
        for clusters in (15, 40, 100)
        for correlation in (0.2, 0.5, 0.8)
    ),
]


@dataclass(frozen=True)
class Size:
    """Extent of a study: scenarios, samples of each, and how many of them are one task."""

    scenarios: tuple[Scenario, ...]
    samples: int
    block: int


FULL = Size(tuple(SCENARIOS), samples=200, block=50)
QUICK = Size((SCENARIOS[4], SCENARIOS[9], SCENARIOS[-5]), samples=20, block=20)


def tasks(size: Size) -> list[tuple[Any, ...]]:
    """Return one task per block: number of the scenario, first seed, number of samples."""
    starts = range(0, size.samples, size.block)
    numbers = [SCENARIOS.index(scenario) for scenario in size.scenarios]
    # All scenarios by turns, so that an interrupted study has samples of each.
    return [(number, FIRST_SEED + start, size.block) for start in starts for number in numbers]


def run(task: tuple[Any, ...]) -> Record:
    """Explain a block of samples, and return for each which intervals hold the true scores."""
    number, first_seed, count = task
    start = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GEHWarning)
        samples = [_sample(number, first_seed + k) for k in range(count)]
    return {"samples": samples, "seconds": process_time() - start}


def _sample(number: int, seed: int) -> Record:
    """Explain one sample of a scenario."""
    scenario = SCENARIOS[number]
    rng = np.random.default_rng((seed, number))
    clusters = None
    if scenario.clusters:
        x, clusters = population.draw_clusters(scenario.clusters, scenario.correlation, rng)
    else:
        x = population.draw_points(scenario.points, rng)
    sizes = np.ones(4)
    draws: Any = posterior.PointEstimate()
    if scenario.draws > 1:
        # The draw whose score is to be covered, and those that are seen, come from the same distribution.
        sizes, *seen = 1 + population.SIZE_STD * rng.standard_normal((scenario.draws + 1, 4))
        draws = posterior.WeightSamples([{"sizes": torch.as_tensor(size)} for size in seen])
    explainer = GEHExplainer(population.KnownFunction(), posterior=draws, engine="exact")
    options: dict[str, Any] = {
        "groups": population.regions(x, scenario.regions),
        "draws": scenario.draws,
        "progress": False,
    }
    result = explainer.explain(torch.as_tensor(x), clusters=clusters, **options)
    geh = population.true_geh(scenario.regions, sizes)
    record: Record = {"scenario": scenario.name, "seed": seed, "geh": _compare(result, "geh", geh)}
    if clusters is not None and scenario.correlation == _IGNORED:
        record["clusters ignored"] = _compare(explainer.explain(torch.as_tensor(x), **options), "geh", geh)
    elif clusters is None and scenario.draws == 1 and scenario.regions == 1:
        record["eah"] = _compare(result, "eah", population.true_eah())
    return record


def _compare(result: Interactions, measure: str, true: dict[str, float]) -> Record:
    """Return for each kind of pair the shares of intervals above and below the true score, width and score."""
    decisions = result.decisions(measure)
    record = {}
    for kind, value in true.items():
        low, high = (ends[population.PAIRS[kind]] for ends in (decisions.low, decisions.high))
        # Sums of products of the features have rounding errors.
        shares = (low > value + 1e-9).mean(), (high < value - 1e-9).mean(), (high - low).mean()
        record[kind] = [*map(float, shares), value]
    return record
