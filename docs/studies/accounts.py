"""What accounts of one prediction by geh_explain, shapiq and SHAP have in common, on the same networks and rows.

``python docs/studies/accounts.py`` writes accounts.md. It needs the packages of ``".[bench]"``, and a minute.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
import shap
import shapiq
import torch
from torch import Tensor, nn

import geh_explain as geh
from geh_explain.posterior import PointEstimate

PAGE = Path(__file__).with_suffix(".md")
FEATURES, ROWS, EXPLAINED, SEED = 8, 2000, 10, 0
Predictor = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


def truth(x: Tensor) -> Tensor:
    """Return x0 x1 + 2 x2 x3 x4 + sin(2 x5) + x6: a pair, a triple and main effects."""
    return x[:, 0] * x[:, 1] + 2 * x[:, 2] * x[:, 3] * x[:, 4] + torch.sin(2 * x[:, 5]) + x[:, 6]


def train(activation: type[nn.Module], x: Tensor, y: Tensor, steps: int = 1500) -> nn.Sequential:
    """Fit a network with two hidden layers of 64 units to the numbers ``y`` (n,) at the rows ``x``."""
    torch.manual_seed(SEED)
    net = nn.Sequential(nn.Linear(FEATURES, 64), activation(), nn.Linear(64, 64), activation(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x)[:, 0], y).backward()
        optimiser.step()
    return net.double().eval()


def ours(net: nn.Module, x: Tensor, baseline: Tensor, data: Tensor, engine: str) -> tuple[np.ndarray[Any, Any], Any]:
    """Return the sums of main effects and pairs (n,), and the matrices (n, D, D) of half the pairs."""
    explainer = geh.GEHExplainer(net, posterior=PointEstimate(), engine=engine)
    accounts = [explainer.explain_row(row, baseline=baseline, data=data, progress=False) for row in x]
    sums = [account.main["mean"].sum() + account.pairs["mean"].sum() for account in accounts]
    return np.array(sums), np.stack([account.matrix for account in accounts])


def by_shapiq(predict: Predictor, x: Tensor, baseline: Tensor, order: int) -> tuple[np.ndarray[Any, Any], Any]:
    """Return the sums (n,) of exact k-SII values up to an order, and those of pairs as matrices."""
    explainer = shapiq.TabularExplainer(
        model=predict, data=baseline[None].numpy(), imputer="baseline", index="k-SII", max_order=order
    )
    sums, matrices = [], []
    for row in x.numpy():
        values = explainer.explain(row, budget=2**FEATURES)
        # The entry of the empty set is the output at the baseline.
        sums.append(sum(values.dict_values.values()) - values.dict_values.get((), 0.0))
        matrices.append(values.get_n_order_values(2))
    return np.array(sums), np.stack(matrices)


def by_shap(predict: Predictor, x: Tensor, baseline: Tensor) -> tuple[np.ndarray[Any, Any], Any]:
    """Return the sums (n,) of exact Shapley interaction values, and the values as matrices."""
    masker = shap.maskers.Independent(baseline[None].numpy())
    values = shap.explainers.Exact(predict, masker)(x.numpy(), interactions=True).values
    return values.reshape(len(x), FEATURES, FEATURES).sum(axis=(1, 2)), values.reshape(len(x), FEATURES, FEATURES)


def predictor(net: nn.Module) -> Predictor:
    """Return a network as a function of arrays."""

    def predict(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with torch.no_grad():
            return np.asarray(net(torch.as_tensor(x, dtype=torch.double))[:, 0].numpy())

    return predict


def compare(net: nn.Module, data: Tensor) -> pd.DataFrame:
    """Return one row per method: how far its account is from the difference, and its time per row."""
    predict = predictor(net)
    x, baseline = data[:EXPLAINED], data.mean(dim=0)
    difference = predict(x.numpy()) - predict(baseline[None].numpy())
    methods: dict[str, Callable[[], tuple[np.ndarray[Any, Any], Any]]] = {
        "geh_explain, integrated Hessians": lambda: ours(net, x, baseline, data, "auto"),
        "geh_explain, differences": lambda: ours(net, x, baseline, data, "difference"),
        "shapiq, k-SII of order 2": lambda: by_shapiq(predict, x, baseline, 2),
        "shapiq, k-SII of order 3": lambda: by_shapiq(predict, x, baseline, 3),
        "SHAP, interaction values": lambda: by_shap(predict, x, baseline),
    }
    rows = []
    for name, method in methods.items():
        method()  # compiles, and reads files
        start = process_time()
        sums, matrices = method()
        seconds = (process_time() - start) / len(x)
        left = np.abs(sums - difference).mean() / np.abs(difference).mean()
        upper = np.abs(np.asarray(matrices)).mean(axis=0)[np.triu_indices(FEATURES, 1)]
        strongest = np.argsort(-upper)[:4]
        pairs = [tuple(int(unit[place]) for unit in np.triu_indices(FEATURES, 1)) for place in strongest]
        found = sum(pair in ((0, 1), (2, 3), (2, 4), (3, 4)) for pair in pairs)
        rows.append(
            {"method": name, "left over": left, "true pairs among the first four": found, "ms per row": seconds}
        )
    return pd.DataFrame(rows)


def category_pairs() -> str:
    """Return how methods see 2 [c = a and d = x] in a network, with c and d one-hot (3 and 2 columns)."""
    rows = torch.arange(600)
    c, d = torch.eye(3)[rows % 3], torch.eye(2)[rows // 3 % 2]
    numbers = torch.randn(600, 3, generator=torch.Generator().manual_seed(SEED))
    x = torch.cat([c, d, numbers], dim=1)
    net = train(nn.Tanh, x, 2 * x[:, 0] * x[:, 3] + 0.3 * x[:, 5] * x[:, 6] + x[:, 7])
    x = x.double()
    units = geh.units.Categorical({"c": [0, 1, 2], "d": [3, 4]})
    result = geh.GEHExplainer(net, units=units, posterior=PointEstimate()).explain(x, groups=1, progress=False)
    first, second = (result.top(2).iloc[place] for place in range(2))
    _, values = by_shap(predictor(net), x[:60], x.mean(dim=0))
    sizes = np.abs(values).mean(axis=0)[:3, 3:5]
    spread = int((sizes > 0.1 * sizes.max()).sum())
    return (
        "A network of the same size was fitted to 2 [c = a and d = x] + 0.3 u v + w, with three levels of c and two of "
        f"d, one-hot. With `units.Categorical` the pair ({first['unit_i']}, {first['unit_j']}) is first, "
        f"{first['mean']:.2f} (true: 1.33), and ({second['unit_i']}, {second['unit_j']}) has {second['mean']:.2f} "
        "(true: 0.30 for u and v, which are x5 and x6). SHAP's interaction values, column by column, divide the first "
        f"among six pairs of columns; {spread} of them have more than a tenth of the largest."
    )


def build_page(tables: dict[str, pd.DataFrame], categories: str) -> str:
    """Return the page."""
    introduction = (
        "Three packages explain the same rows of the same networks, from the mean of the data to the row. The networks "
        f"have {FEATURES} inputs and two hidden layers of 64 units, and were fitted to x0 x1 + 2 x2 x3 x4 + sin(2 x5) "
        f"+ x6 at {ROWS:,} normal rows; the first {EXPLAINED} of them are explained. *Left over* is the mean of "
        "|f(x) − f(b) − sum of all values|, relative to the mean of |f(x) − f(b)|. Four pairs interact in the "
        "function: (0, 1), and those of the triple (2, 3, 4). `python docs/studies/accounts.py` writes this page, with "
        f"shapiq {version('shapiq')} and SHAP {version('shap')}, both exact, with all 256 sets of features; their cost "
        "doubles with each further feature. Milliseconds are of one processor."
    )
    reading = (
        "Integrated Hessians and the Shapley-type indices sum to the difference. k-SII of order 3 has the triple as a "
        "term of its own, which the others divide among main effects and pairs; our differences leave it over, and "
        "`result.triples()` names it. The values are different quantities, and agree only where the function has no "
        "more than products. With 8 features the others are faster."
    )
    parts = ["# Accounts of one prediction", _wrap(introduction)]
    for title, table in tables.items():
        lines = ["| " + " | ".join(table.columns) + " |", "|---|---:|---:|---:|"]
        for row in table.itertuples(index=False):
            left = "0" if row[1] < 1e-6 else f"{row[1]:.1%}"
            lines.append(f"| {row[0]} | {left} | {row[2]} | {1000 * row[3]:.0f} |")
        parts += [f"## {title}", "\n".join(lines)]
    return "\n\n".join([*parts, _wrap(reading), "## One-hot columns", _wrap(categories)]) + "\n"


def _wrap(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Compare on both networks, and write the page."""
    warnings.simplefilter("ignore")
    data = torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(SEED))
    kinds = {"A smooth network (tanh)": nn.Tanh, "A network with kinks (ReLU)": nn.ReLU}
    tables = {title: compare(train(kind, data, truth(data)), data.double()) for title, kind in kinds.items()}
    PAGE.write_text(build_page(tables, category_pairs()), encoding="utf-8")


if __name__ == "__main__":
    main()
