"""Measurements that the other pages quote: error rates of tests, coverage of intervals, sizes of scores.

``python docs/studies/further.py`` writes further.md. It takes twenty minutes.
"""

from __future__ import annotations

import itertools
import math
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import geh_explain as geh
from geh_explain.posterior import PointEstimate

PAGE = Path(__file__).with_suffix(".md")
Function = Callable[[Tensor], Tensor]


def normal(rows: int, columns: int, seed: int, correlation: float = 0.0) -> Tensor:
    """Return normal rows (n, D) of variance 1 whose columns all have one correlation."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(rows, 1, generator=generator)
    own = torch.randn(rows, columns, generator=generator)
    return math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own


def share_of(hits: Any) -> str:
    """Return the share of hits (data sets, trials) in per cent, with its standard error over data sets."""
    by_set = np.asarray(hits, dtype=float).reshape(len(hits), -1).mean(axis=1)
    return f"{by_set.mean():.1%} ± {by_set.std(ddof=1) / math.sqrt(len(by_set)):.1%}".replace("%", " %")


class Above(nn.Module):
    """A function of a layer's output as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self._function = function

    def forward(self, a: Tensor) -> Tensor:
        """Return the function's value."""
        return self._function(a)


# Groups of each pair


def fitted(x: Tensor, y: Tensor, seed: int) -> nn.Sequential:
    """Return a tanh network that was fitted to numbers y (n,) by 800 steps of Adam."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(x.shape[1], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(800):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x)[:, 0], y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return net.eval()


def pairwise_groups() -> pd.DataFrame:
    """Return how much larger scores are with groups of each pair than with clusters, where nothing interacts."""
    functions: dict[str, Function] = {
        "squares": lambda x: x.square().sum(dim=1),
        "sines": lambda x: torch.sin(2 * x).sum(dim=1),
        "steps and lines": lambda x: (x[:, :4] > 0).float().sum(dim=1) + x[:, 4:].sum(dim=1),
    }
    rows = []
    for name, function in functions.items():
        ratios = []
        for seed in range(3):
            x = normal(2000, 8, seed)
            y = function(x) / function(x).std() + 0.3 * normal(2000, 1, seed + 100)[:, 0]
            explainer = geh.GEHExplainer(fitted(x, y, seed), posterior=PointEstimate())
            scores = {
                groups: explainer.explain(x, groups=groups, progress=False).geh.pair_mean.mean()
                for groups in ("pairwise", 8, 20)
            }
            ratios.append([scores["pairwise"] / scores[groups] for groups in (8, 20)])
        low, high = np.min(ratios, axis=0), np.max(ratios, axis=0)
        cells = [f"{a:.1f} to {b:.1f}" for a, b in zip(low, high, strict=True)]
        rows.append({"function": name, "beside 8 clusters": cells[0], "beside 20 clusters": cells[1]})
    return pd.DataFrame(rows)


# Products of three features

#: Functions of ten features uniform over (-1, 1), with their interactions, by which HybridNet's default was chosen.
WEAK_TRIPLES: dict[str, tuple[Callable[..., Tensor], list[str]]] = {
    "exp(b) sqrt(abs(a)) + 0.3 c sqrt(abs(d e)) + f g - sqrt(abs(h + 0.2))": (
        lambda a, b, c, d, e, f, g, h, i, j: (
            a.abs().sqrt() * b.exp() + 0.3 * c * (d * e).abs().sqrt() + f * g - (h + 0.2).abs().sqrt()
        ),
        ["ab", "cde", "fg"],
    ),
    "2 abs(a - b) + 0.2 sin(3 c) d² cos(2 e) + exp(f g) + i": (
        lambda a, b, c, d, e, f, g, h, i, j: (
            2 * (a - b).abs() + 0.2 * torch.sin(3 * c) * d.square() * torch.cos(2 * e) + (f * g).exp() + i
        ),
        ["ab", "cde", "fg"],
    ),
    "log(1 + 5 abs(a b)) + 0.15 c d e + 2 max(f + g, 0) + h³ + 0.2 abs(h) i abs(j)": (
        lambda a, b, c, d, e, f, g, h, i, j: (
            torch.log1p(5 * (a * b).abs())
            + 0.15 * c * d * e
            + 2 * torch.relu(f + g)
            + h**3
            + 0.2 * h.abs() * i * j.abs()
        ),
        ["ab", "cde", "fg", "hij"],
    ),
    "tanh(3 a b) + 3 sqrt(abs(c)) + d e + 0.1 cos(f + g - 2 h)": (
        lambda a, b, c, d, e, f, g, h, i, j: (
            torch.tanh(3 * a * b) + 3 * c.abs().sqrt() + d * e + 0.1 * torch.cos(f + g - 2 * h)
        ),
        ["ab", "de", "fgh"],
    ),
}


def triples() -> pd.DataFrame:
    """Return how well networks with and without products of three features separate interacting pairs."""
    return pd.DataFrame(_triples_of(name, *WEAK_TRIPLES[name]) for name in WEAK_TRIPLES)


def _triples_of(name: str, function: Callable[..., Tensor], interactions: list[str]) -> dict[str, str]:
    """Return the row of one function: means over three seeds."""
    true = {pair for letters in interactions for pair in itertools.combinations(letters, 2)}
    truth = np.array([pair in true for pair in itertools.combinations("abcdefghij", 2)])
    found: dict[int, list[tuple[float, float, float]]] = {0: [], 2: []}
    for seed, degree in itertools.product(range(10, 13), found):
        x = 2 * torch.rand(12_000, 10, generator=torch.Generator().manual_seed(seed)) - 1
        y = function(*x.T)
        net = geh.bnn.HybridNet(10, triples=degree, seed=seed)
        geh.bnn.fit(net, x[:8000], y[:8000], seed=seed, progress=False)
        with torch.no_grad():
            error = float((net(x[8000:])[:, 0] - y[8000:]).square().mean() / y.var())
        start = time.process_time()
        result = geh.GEHExplainer(net).explain(x[:2000], groups="pairwise", progress=False)
        seconds = time.process_time() - start
        found[degree].append((float(geh.inference.auc(result.geh.pair_mean, truth)), error, seconds))
    without, added = (np.mean(found[degree], axis=0) for degree in found)
    return {
        "function": f"`{name}`",
        "AUC without": f"{without[0]:.3f}",
        "AUC": f"{added[0]:.3f}",
        "error without": f"{without[1]:.2%}".replace("%", " %"),
        "error": f"{added[1]:.2%}".replace("%", " %"),
        "time": f"{added[2] / without[2]:.1f}",
    }


# Comparisons


def comparisons() -> pd.DataFrame:
    """Return the share of pairs with p < 0.05 where two results have the same expected scores."""
    rows = []
    for name, n, bootstrap in (("two samples of 60", 60, False), ("two samples of 1,500", 1500, False),
                               ("a sample of 400 and a bootstrap sample of it", 400, True)):  # fmt: skip
        found: dict[str, list[Any]] = {"groups": [], "mean": []}
        for seed in range(100):
            torch.manual_seed(seed)
            net = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 1))
            explainer = geh.GEHExplainer(net, posterior=PointEstimate())
            x = normal(n, 6, 2 * seed)
            other = x[torch.randint(n, (n,))] if bootstrap else normal(n, 6, 2 * seed + 1)
            results = [explainer.explain(z, groups=(z[:, 0] > 0).long(), progress=False) for z in (x, other)]
            for measure, values in found.items():
                values.append(results[0].compare(results[1], measure=measure).p_value < 0.05)
        rows.append({"results of": name, **{f'"{measure}"': share_of(values) for measure, values in found.items()}})
    return pd.DataFrame(rows)


# Shares


def shares() -> pd.DataFrame:
    """Return how often the interval of the share of interactions holds the share of a known function."""
    cases: dict[str, tuple[Function, float]] = {
        "x + y + y z / 2": (lambda x: x[:, 0] + x[:, 1] + 0.5 * x[:, 1] * x[:, 2], 0.25 / 2.25),
        "x y + z": (lambda x: x[:, 0] * x[:, 1] + x[:, 2], 0.5),
        "x y z + x": (lambda x: x[:, 0] * x[:, 1] * x[:, 2] + x[:, 0], 0.5),
        "exp(x) + y z / 10": (lambda x: x[:, 0].exp() + 0.1 * x[:, 1] * x[:, 2], 0.01 / (math.e * (math.e - 1) + 0.01)),
    }
    rows = []
    for name, (function, share) in cases.items():
        hits = []
        for seed in range(100):
            x = normal(500, 3, seed).double()
            explainer = geh.GEHExplainer(function, posterior=PointEstimate())
            result = explainer.explain(x, groups=1, progress=False)
            found = explainer.share(result, x, progress=False)
            hits.append(found.low <= share <= found.high)
        rows.append({"function": name, "share": f"{share:.1%}".replace("%", " %"), "held": share_of(hits)})
    return pd.DataFrame(rows)


# Held-out tests


def weights() -> pd.DataFrame:
    """Return the share of pairs with p < 0.05 in weighted held-out tests where nothing interacts."""
    kinds: dict[str, Callable[[np.ndarray[Any, Any], np.random.Generator], Any]] = {
        "effective number 60 %": lambda x, generator: generator.lognormal(0, 0.71, len(x)),
        "effective number 25 %": lambda x, generator: generator.lognormal(0, 1.18, len(x)),
        "that depend on the units": lambda x, generator: np.exp(0.4 * x[:, 0] + 0.4 * x[:, 1] + 0.4 * x[:, 2]),
    }
    rows = []
    for name, kind in kinds.items():
        row = {"weights": name}
        for label, correlation, classes in (("numbers", 0.0, False), ("numbers, correlation 0.6", 0.6, False),
                                            ("classes", 0.0, True)):  # fmt: skip
            row[label] = share_of([_weighted(kind, seed, correlation, classes) for seed in range(30)])
        rows.append(row)
    return pd.DataFrame(rows)


def _weighted(kind: Any, seed: int, correlation: float, classes: bool) -> Any:
    """Return which pairs have p < 0.05 in one data set of 1,200 rows."""
    generator = np.random.default_rng(seed)
    x = normal(1200, 6, seed, correlation)
    columns = x.numpy().astype(float)
    mean = columns[:, 0] ** 2 + np.sin(2 * columns[:, 1]) + columns[:, 2] - 0.5 * columns[:, 3] ** 2
    if classes:
        y = (generator.random(len(x)) < 1 / (1 + np.exp(-mean))).astype(float)
    else:
        y = mean + generator.normal(size=len(x)) * (0.5 + np.abs(columns[:, 0]))
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 1))
    model = Above(lambda x: x[:, 0].square() + torch.sin(2 * x[:, 1]) + x[:, 2] + net(x)[:, 0])
    explainer = geh.GEHExplainer(model, posterior=PointEstimate())
    found = explainer.test_pairs(x, y, sample_weight=kind(columns, generator), progress=False)
    return found.p_value < 0.05


def hidden_units() -> pd.DataFrame:
    """Return the share of null pairs with p < 0.05 at hidden layers, and the power for a product of two units."""
    rows = []
    for name, (case, units) in LAYERS.items():
        null, power, tested = [], [], []
        for seed in range(40):
            for signal, values in ((0.0, null), (1.0, power)):
                p = _hidden(case(seed), units, signal, seed)
                values.append(p[0] < 0.05 if signal else np.nan_to_num(p, nan=1.0) < 0.05)
                tested.append(np.isfinite(p) & (p < 1))
        rows.append({
            "units": name, "level": share_of(null), "power": f"{np.mean(power):.0%}".replace("%", " %"),
            "cannot be tested": f"{1 - np.mean(tested):.0%}".replace("%", " %"),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _hidden(case: tuple[nn.Module, Tensor, Function], units: Any, signal: float, seed: int) -> np.ndarray[Any, Any]:
    """Return the p-values of the pairs of four units.

    The labels are effects of single units, ``signal`` times the product of the first two, and noise; the signal to
    noise ratio of the variances is 5.
    """
    below, x, values_of = case
    with torch.no_grad():
        a = below(x)
        values = standardised(values_of(a))
        effects = torch.stack([values[:, 0].square(), torch.sin(2 * values[:, 1]), values[:, 2].square(), values[:, 3]])
        mean = effects.sum(dim=0) + 3 * signal * values[:, 0] * values[:, 1]
        y = mean.numpy() + mean.std().item() / math.sqrt(5) * np.random.default_rng(seed).normal(size=len(x))

    def above(a: Tensor) -> Tensor:
        u = values_of(a)
        return sum(u[:, i] * u[:, j] for i in range(4) for j in range(i)) + u.sum(dim=1)  # type: ignore[return-value]

    explainer = geh.GEHExplainer(nn.Sequential(below, Above(above)), "0", posterior=PointEstimate(), units=units)
    return np.asarray(explainer.test_pairs(x, y, progress=False).p_value)


def standardised(values: Tensor) -> Tensor:
    """Return columns of mean 0 and variance 1."""
    return (values - values.mean(dim=0)) / values.std(dim=0).clamp_min(1e-9)


def relu_units(seed: int) -> tuple[nn.Module, Tensor, Function]:
    """Return four ReLU units of twelve inputs, half of whose values are 0."""
    torch.manual_seed(seed)
    linear = nn.Linear(12, 4)
    nn.init.normal_(linear.weight, 0, 0.4)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.ReLU()), normal(1000, 12, seed), lambda a: a


def tokens(seed: int) -> tuple[nn.Module, Tensor, Function]:
    """Return four tokens of a Markov chain of ten states, with embeddings of three numbers."""
    torch.manual_seed(seed)
    moves = torch.rand(10, 10).pow(2)
    chain = [torch.randint(10, (1000,))]
    for _ in range(3):
        chain.append(torch.multinomial(moves[chain[-1]], 1)[:, 0])
    return nn.Embedding(10, 3), torch.stack(chain, dim=1), lambda a: a.mean(dim=2)


def patches(seed: int) -> tuple[nn.Module, Tensor, Function]:
    """Return the four quarters of smooth images of 6 x 6 pixels."""
    images = nn.functional.interpolate(normal(1000, 9, seed).reshape(-1, 1, 3, 3), size=6, mode="bilinear")
    images = images + 0.3 * normal(1000, 36, seed + 100).reshape(-1, 1, 6, 6)
    return nn.Identity(), images, lambda a: nn.functional.avg_pool2d(a, 3).flatten(1)


def channels(seed: int) -> tuple[nn.Module, Tensor, Function]:
    """Return four channels of 2 x 2 positions, after two convolutions and pooling."""
    torch.manual_seed(seed)
    below = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Tanh(), nn.AvgPool2d(4))
    with torch.no_grad():
        below[2].weight *= 3
    return below, normal(1000, 144, seed).reshape(-1, 1, 12, 12), lambda a: a.mean(dim=(2, 3))


LAYERS: dict[str, tuple[Callable[[int], tuple[nn.Module, Tensor, Function]], Any]] = {
    "ReLU neurons": (relu_units, None),
    "tokens of a Markov chain": (tokens, geh.units.Tokens()),
    "patches of smooth images": (patches, geh.units.Patches(3)),
    "channels after two convolutions and pooling": (channels, geh.units.Channels()),
}


# The page

SECTIONS: dict[str, tuple[Callable[[], pd.DataFrame], str]] = {
    "Scores with groups of each pair": (
        pairwise_groups,
        'Mean GEH of all pairs with `groups="pairwise"`, divided by that with k-means groups, in networks with two '
        "hidden layers of 64 that were fitted to additive functions of eight features at 2,000 rows; lowest and "
        "highest of three seeds.",
    ),
    "Products of three features": (
        triples,
        "`HybridNet` without and with its products of three features, fitted to 8,000 rows without noise: area under "
        "the ROC curve of GEH over the 45 pairs, squared error on 4,000 other rows over the variance, time of an "
        "explanation of 2,000 points with products over that without. Means of three seeds. The default was chosen on "
        "these functions, with other seeds.",
    ),
    "Comparison of two results": (
        comparisons,
        "Share of pairs with p < 0.05 where the same random network of six inputs is explained at two samples of one "
        "population, by both measures of `result.compare`; 5 % is right. 100 networks.",
    ),
    "Intervals of the share of interactions": (
        shares,
        "How often the 95 % interval of `explainer.share` at 500 normal rows holds the share of a known function, in "
        "100 samples.",
    ),
    "Weighted held-out tests": (
        weights,
        "Share of pairs with p < 0.05 where no pair interacts, in 30 data sets of 1,200 rows and six units, with "
        "numbers of unequal variance or classes; 5 % is right.",
    ),
    "Held-out tests at hidden layers": (
        hidden_units,
        "Four units with effects of their own, 1,000 rows, a signal to noise ratio of 5, 40 data sets. Level: share "
        "of pairs with p < 0.05 where none interacts; pairs that cannot be tested count as not found. Power: share of "
        "data sets in which a product of the first two units has p < 0.05.",
    ),
}


def sections() -> Iterator[str]:
    """Yield the parts of the page, measuring one after the other."""
    yield "# Further measurements"
    yield wrap("Numbers that other pages quote. `python docs/studies/further.py` writes this page.")
    for title, (measure, text) in SECTIONS.items():
        table = measure()
        lines = ["| " + " | ".join(table.columns) + " |", "|---|" + "---:|" * (table.shape[1] - 1)]
        lines += ["| " + " | ".join(map(str, row)) + " |" for row in table.itertuples(index=False)]
        print(f"## {title}", *lines, sep="\n", flush=True)
        yield from (f"## {title}", wrap(text), "\n".join(lines))


def wrap(text: str) -> str:
    """Return a paragraph in lines of 118 characters."""
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Measure everything, and write the page."""
    warnings.simplefilter("ignore")
    PAGE.write_text("\n\n".join(sections()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
