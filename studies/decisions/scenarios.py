"""Data whose interactions are known: signals, dependence, noise, distributions of the features, and labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain.datasets import simulation

#: Standard deviation of the uniform distribution on (0, 1), inverted: features have variance 1.
_UNIFORM_SCALE = 12**0.5
#: Log-odds have this standard deviation for binary labels.
_LOG_ODDS = 1.5


@dataclass(frozen=True)
class Scenario:
    """How one kind of data set is made, and what is fitted to it.

    Attributes
    ----------
    signal
        ``"pairs"``: the seven pairs of the simulated study. ``"steps"``: main effects with steps and two pairs.
        ``"main"``: strong main effects without interaction. ``"hour"``: two steps of the hour whose cosine and sine are
        the first features. ``"index"``: a curve of the third feature. Both have main effects of all other features.
        ``"triple"``: a product of three features and main effects; its mean interaction of any two of them is 0.
    correlation
        Correlation of all pairs of features, on the normal scale (Gaussian copula).
    dependence
        ``"copula"``. ``"nonlinear"``: three features are functions of others plus noise, without correlation.
        ``"copies"``: four features are copies of the other four, with a correlation of 0.9. ``"hour"``: the first two
        are cosine and sine of an hour. ``"index"``: the third is a function of the first two, as the body mass index.
    sn
        Ratio of the variances of signal and noise; 0 for labels of noise alone.
    noise
        ``"normal"``, ``"t"`` (three degrees of freedom) or ``"unequal"`` variance, which depends on the second feature.
    margins
        Distribution of the features: ``"uniform"``, ``"lognormal"`` or ``"levels"`` (four values).
    labels
        ``"numbers"``, ``"binary"`` or ``"classes"`` (three).
    share
        Share of label 1 among binary labels.
    model
        ``"network"``, ``"trees"`` (gradient boosting), or ``"hidden"``: a network whose hidden units interact.
    fit
        ``"usual"``, ``"under"`` (few epochs) or ``"over"`` (many epochs, few rows).
    units
        ``"features"``; ``"some"``: only the first four are explained; ``"groups"``: four groups of two features with
        unequal scales, of which the first two are a group, the next two, and so on.
    features
        Number of features; those after the eighth do not matter.
    train, held_out
        Numbers of rows.
    """

    signal: str = "pairs"
    correlation: float = 0.0
    dependence: str = "copula"
    sn: float = 1.0
    noise: str = "normal"
    margins: str = "uniform"
    labels: str = "numbers"
    share: float = 0.5
    model: str = "network"
    fit: str = "usual"
    units: str = "features"
    features: int = 8
    train: int = 4_000
    held_out: int = 3_000


#: All scenarios by name. Those of the signal-to-noise ratios alone also measure ranks and intervals.
SCENARIOS = {
    **{f"S/N {sn:g}": Scenario(sn=sn, train=20_000) for sn in (0.0, 0.1, 0.3, 1.0, 10.0)},
    "t(3) noise": Scenario(noise="t"),
    "unequal variance": Scenario(noise="unequal"),
    "binary": Scenario(labels="binary"),
    "three classes": Scenario(labels="classes"),
    "strong main effects only": Scenario(signal="main", sn=30.0),
    "300 rows": Scenario(sn=3.0, held_out=300),
    "correlation 0.5": Scenario(correlation=0.5),
    "correlation 0.8": Scenario(correlation=0.8),
    "correlation 0.8, S/N 10": Scenario(correlation=0.8, sn=10.0),
    "correlation 0.8, unequal variance": Scenario(correlation=0.8, noise="unequal"),
    "correlation 0.8, binary": Scenario(correlation=0.8, labels="binary"),
    "correlation 0.8, underfitted": Scenario(correlation=0.8, fit="under", sn=3.0),
    "correlation 0.8, overfitted": Scenario(correlation=0.8, fit="over", sn=3.0, train=800),
    "correlation 0.8, main effects only": Scenario(signal="main", correlation=0.8, sn=30.0),
    "correlation 0.8, steps": Scenario(signal="steps", correlation=0.8, sn=3.0),
    "correlation 0.8, 300 rows": Scenario(correlation=0.8, sn=3.0, held_out=300),
    "nonlinear dependence": Scenario(dependence="nonlinear"),
    "nonlinear dependence, S/N 10": Scenario(dependence="nonlinear", sn=10.0),
    "lognormal, 600 rows": Scenario(margins="lognormal", correlation=0.5, sn=3.0, held_out=600),
    "four levels, 600 rows": Scenario(margins="levels", correlation=0.5, sn=3.0, held_out=600),
    "boosted trees": Scenario(model="trees", sn=3.0),
    "boosted trees, correlation 0.8": Scenario(model="trees", correlation=0.8, sn=3.0),
    "boosted trees, correlation 0.8, steps": Scenario(model="trees", signal="steps", correlation=0.8, sn=3.0),
    "30 features": Scenario(features=30, sn=3.0, train=8_000),
    "30 features, correlation 0.7": Scenario(features=30, correlation=0.7, sn=3.0, train=8_000),
    "100 features, correlation 0.5": Scenario(features=100, correlation=0.5, sn=3.0, train=8_000),
    "hidden units": Scenario(model="hidden", sn=3.0),
    "copies, S/N 10": Scenario(dependence="copies", sn=10.0),
    "cosine and sine of the hour": Scenario(signal="hour", dependence="hour", sn=10.0),
    "function of two features": Scenario(signal="index", dependence="index", sn=10.0),
    "product of three features": Scenario(signal="triple", correlation=0.3),
    "four of eight features, underfitted": Scenario(units="some", correlation=0.5, fit="under", sn=10.0),
    "groups of features": Scenario(units="groups", correlation=0.3, sn=3.0),
    "binary, 1,000 rows": Scenario(labels="binary", held_out=1_000),
    "binary, 100 of 1,000 rows": Scenario(labels="binary", share=0.1, held_out=1_000),
    "binary, 60 of 1,000 rows": Scenario(labels="binary", share=0.06, held_out=1_000),
    "binary, 80 of 2,000 rows": Scenario(labels="binary", share=0.04, held_out=2_000),
}
#: Scales of the features that are groups.
_GROUP_SCALES = np.array([4.0, 1.0] * 4)


@dataclass(frozen=True)
class Sample:
    """Rows for training and held-out rows of one data set.

    Attributes
    ----------
    x_train, y_train, x_held, y_held
        Inputs (n, F) and labels (n,).
    points
        Further inputs (2000, F), to explain.
    units
        Features (n, 8) in (0, 1) of ``points``, from which true scores are computed.
    """

    x_train: Floats
    y_train: Floats
    x_held: Floats
    y_held: Floats
    points: Floats
    units: Floats


#: Number of points that are explained.
_POINTS = 2_000
#: Fixed first layer of the models with hidden units: eight units of twelve inputs.
HIDDEN_WEIGHTS = np.random.default_rng(0).normal(size=(12, 8)) / 12**0.5


def draw(scenario: Scenario, seed: int) -> Sample:
    """Draw one data set."""
    generator = np.random.default_rng(seed)
    rows = scenario.train + scenario.held_out + _POINTS
    if scenario.model == "hidden":
        inputs = generator.normal(size=(rows, len(HIDDEN_WEIGHTS)))
        units = (np.tanh(inputs @ HIDDEN_WEIGHTS) + 1) / 2
    else:
        units = _units(rows, scenario, generator)
        if scenario.margins == "levels":
            units = (np.floor(4 * units) + 0.5) / 4
        inputs = _features(units, scenario.margins)
        if scenario.units == "groups":
            inputs = inputs * _GROUP_SCALES
    labels = _labels(_signal(units, scenario.signal), units, scenario, generator)
    parts = np.split(np.arange(rows), [scenario.train, scenario.train + scenario.held_out])
    train, held, points = parts
    return Sample(inputs[train], labels[train], inputs[held], labels[held], inputs[points], units[points])


def true_pairs(scenario: Scenario) -> NDArray[np.bool_]:
    """Return which pairs (P,) of the units interact."""
    pairs = {
        "pairs": set(simulation.PAIRS),
        "steps": {(6, 7), (0, 3)},
        "hour": {(0, 1)},
        "triple": {(0, 1), (0, 2), (1, 2)},
    }.get(scenario.signal, set())
    if scenario.units == "groups":
        pairs = {(i // 2, j // 2) for i, j in pairs}
    n_units = scenario.features if scenario.units == "features" else 4
    first, second = np.triu_indices(n_units, 1)
    flags = [(i, j) in pairs for i, j in zip(first.tolist(), second.tolist(), strict=True)]
    return np.array(flags) & (scenario.sn > 0)


def signal_features(units: Floats) -> Floats:
    """Return the first eight units, which lie in (0, 1), in the ranges of the simulated study."""
    return np.asarray(units[:, :8] + np.array([0.5, -0.5, 0.5, -0.5, 0.5, 0.5, -0.5, 0.5]))


def _units(rows: int, scenario: Scenario, generator: np.random.Generator) -> Floats:
    """Draw features (rows, F) in (0, 1) that depend on each other as the scenario says."""
    from scipy.special import ndtr
    from scipy.stats import rankdata

    common = generator.normal(size=(rows, 1))
    own = generator.normal(size=(rows, scenario.features))
    if scenario.dependence == "copula":
        correlation = scenario.correlation
        return np.asarray(ndtr(np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own))
    if scenario.dependence == "nonlinear":
        own[:, 4] = (own[:, 0] ** 2 - 1) / 1.4 + 0.4 * own[:, 4]
        own[:, 5] = 1.3 * np.abs(own[:, 1]) - 1 + 0.4 * own[:, 5]
        own[:, 6] = np.sin(2 * own[:, 2]) + 0.4 * own[:, 6]
    elif scenario.dependence == "copies":
        own[:, 4:8] = 0.9 * own[:, :4] + 0.19**0.5 * own[:, 4:8]
    elif scenario.dependence == "index":
        own[:, 2] = (70 + 12 * own[:, 0]) / (1.7 + 0.1 * own[:, 1]) ** 2
    units = np.asarray((rankdata(own, axis=0) - 0.5) / rows)
    if scenario.dependence == "hour":
        angle = 2 * np.pi * units[:, 0]
        units[:, 0], units[:, 1] = (np.cos(angle) + 1) / 2, (np.sin(angle) + 1) / 2
    return units


def _features(units: Floats, margins: str) -> Floats:
    """Return features with the given distribution, from uniform units."""
    if margins == "lognormal":
        from scipy.special import ndtri

        return np.asarray(np.exp(ndtri(units)))
    return np.asarray((units - 0.5) * _UNIFORM_SCALE)


def _signal(units: Floats, kind: str) -> Floats:
    """Return the signal (n,) with mean 0 and variance 1."""
    v = 2 * units - 1
    if kind == "pairs":
        signal = np.sum(list(simulation.effects(signal_features(units)).values()), axis=0)
    elif kind == "steps":
        signal = 3.0 * (v[:, 0] > 0.2) + 2.5 * (v[:, 1] > -0.3) - 2 * (v[:, 2] > 0) + 1.5 * (v[:, 4] > 0.4)
        signal += 2 * np.sign(v[:, 3]) * (np.abs(v[:, 3]) > 0.5) + 1.5 * np.floor(3 * units[:, 5])
        signal += 2 * v[:, 6] * v[:, 7] + 1.5 * (v[:, 0] > 0) * (v[:, 3] > 0)
    elif kind == "hour":
        hour = np.arctan2(v[:, 1], v[:, 0]) % (2 * np.pi) * 12 / np.pi
        signal = 3.0 * ((hour > 8) & (hour < 18)) + _other_main_effects(v)
    elif kind == "triple":
        signal = 6 * v[:, 0] * v[:, 1] * v[:, 2] + v[:, 0] + _other_main_effects(v)
    elif kind == "index":
        signal = 6 * v[:, 2] ** 3 - 2 * v[:, 2] + _other_main_effects(v)
    else:
        signal = 4 * v[:, 0] ** 2 + 3 * np.sin(np.pi * v[:, 1]) + 2 * np.exp(v[:, 2]) + 3 * v[:, 3]
        signal += 2 * np.abs(v[:, 4]) + np.cos(2 * np.pi * v[:, 5]) + 2 * v[:, 6] ** 3 + np.tanh(4 * v[:, 7])
    return np.asarray((signal - signal.mean()) / signal.std())


def _other_main_effects(v: Floats) -> Floats:
    """Return main effects (n,) of all features but the first three."""
    return np.asarray(v[:, 3] + np.sin(np.pi * v[:, 4]) + v[:, 5] ** 2 + np.abs(v[:, 6]) - np.tanh(2 * v[:, 7]))


def _labels(signal: Floats, units: Floats, scenario: Scenario, generator: np.random.Generator) -> Floats:
    """Return labels (n,) with the signal as their mean, or as the log-odds of class 1."""
    rows = len(signal)
    if scenario.labels == "numbers":
        if scenario.sn == 0:
            return generator.normal(size=rows)
        return np.asarray(signal + _noise(units, scenario.noise, generator) / scenario.sn**0.5)
    hits = generator.uniform(size=rows) < _probabilities(_LOG_ODDS * signal, scenario.share)
    if scenario.labels == "binary":
        return hits.astype(float)
    # The other two classes depend on the third feature alone.
    others = np.where(generator.uniform(size=rows) < 0.3 + 0.4 * units[:, 2], 0.0, 2.0)
    return np.asarray(np.where(hits, 1.0, others))


def _probabilities(log_odds: Floats, share: float) -> Floats:
    """Return the probabilities (n,) of log-odds plus the constant that gives them the mean ``share``.

    The constant is 0 for a half, which is exact for log-odds with a symmetric distribution.
    """
    from scipy.optimize import brentq
    from scipy.special import expit

    constant = 0.0 if share == 0.5 else brentq(lambda value: expit(log_odds + value).mean() - share, -20, 20)
    return np.asarray(expit(log_odds + constant))


def _noise(units: Floats, kind: str, generator: np.random.Generator) -> Floats:
    """Return noise (n,) of variance about 1."""
    from scipy.special import ndtri

    if kind == "t":
        return np.asarray(generator.standard_t(3, size=len(units)) / 3**0.5)
    noise = generator.normal(size=len(units))
    if kind == "unequal":
        noise *= np.exp(0.8 * ndtri(units[:, 1]) - 0.64)
    return noise
