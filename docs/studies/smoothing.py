"""How scores depend on the sharpness of the softplus that replaces ReLU.

``python docs/studies/smoothing.py`` writes smoothing.csv, ../images/smoothing.png and smoothing.md. It takes less
than a minute.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from torch import Tensor, nn

import geh_explain as geh
from geh_explain.plots import palette
from geh_explain.posterior import PointEstimate

FOLDER = Path(__file__).parent
IMAGE = FOLDER.parent / "images" / "smoothing.png"

BETAS = [0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100]
SEEDS = range(3)
SAMPLES, POINTS = 5, 400
EDGE = math.sqrt(3)  # uniform inputs on (-EDGE, EDGE) have variance 1, like the normal ones
COLOURS = {"normal": palette.SURE, "uniform": palette.MARK}
LEFT, RIGHT = 0.45, 112  # of the drawn betas
PANELS = {
    "score": "Score of the true pair (x0, x1), ± 2 standard deviations between samples",
    "false_pair": "Largest score of a pair that does not interact",
    "relative_change": "Change of the output by smoothing, in units of its spread",
}
SHOWN = ["0.5", "1", "2", "5", "10", "auto", "20", "50", "100"]
HEADER = (
    "| β | score, normal | score, uniform | noise, normal | noise, uniform | false pair, normal | false pair, uniform "
    "| change, normal | change, uniform |"
)


def draw(inputs: str, rows: int, generator: torch.Generator) -> Tensor:
    """Draw inputs (rows, 4) with mean 0 and variance 1."""
    if inputs == "normal":
        return torch.randn(rows, 4, generator=generator)
    return EDGE * (2 * torch.rand(rows, 4, generator=generator) - 1)


def truth(x: Tensor) -> Tensor:
    """Return y = x0 * x1 + x2, whose only interaction is that of x0 and x1, and is 1 everywhere."""
    return x[:, 0] * x[:, 1] + x[:, 2]


def train(inputs: str, generator: torch.Generator, steps: int = 1200) -> nn.Sequential:
    """Train a ReLU network with two hidden layers of 64."""
    net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x = draw(inputs, 256, generator)
        loss = (net(x)[:, 0] - truth(x)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return net


@torch.no_grad()
def own_curvature(net: nn.Sequential, inputs: str, generator: torch.Generator, rows: int = 200_000) -> float:
    """Return the mean interaction of x0 and x1 in the network itself, kinks included, without any derivative.

    For standard normal inputs it is E[x0 x1 f(x)] (Stein's identity); for uniform ones the fundamental theorem
    turns the integral of the mixed derivative into f at the four corners of the (x0, x1) square.
    """
    x = draw(inputs, rows, generator)
    if inputs == "normal":
        # What the network adds to the truth, whose own expectation is 1, varies much less than the network.
        return 1 + float((x[:, 0] * x[:, 1] * (net(x)[:, 0] - truth(x))).mean())
    total = 0.0
    for first in (-EDGE, EDGE):
        for second in (-EDGE, EDGE):
            x[:, 0], x[:, 1] = first, second
            total += math.copysign(1, first * second) * float(net(x).mean())
    return total / (2 * EDGE) ** 2


def explain(net: nn.Sequential, smooth: str | float, samples: list[Tensor]) -> dict[str, float]:
    """Explain several samples of points; return the mean scores, and how the true pair's varies between samples."""
    scores, others, changes, betas = [], [], [], []
    for x in samples:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", geh.GEHWarning)  # the smallest betas change the network, which is the point
            explainer = geh.GEHExplainer(net, smooth=smooth, posterior=PointEstimate())
            result = explainer.explain(x, groups=1, progress=False)
        table = result.geh.mean.copy()
        scores.append(table[0, 1])
        table[0, 1] = table[1, 0] = 0
        others.append(table.max())
        changes.append(result.settings["smoothed"]["relative_change"])
        betas.append(result.settings["smoothed"]["beta"])
    low, high = np.mean(betas, axis=0)
    return {
        **{"beta_low": low, "beta_high": high, "score": np.mean(scores), "noise": np.std(scores, ddof=1)},
        **{"false_pair": np.mean(others), "relative_change": np.mean(changes)},
    }


def measure() -> pd.DataFrame:
    """Train and explain all networks: one row per network and sharpness."""
    rows = []
    for inputs in COLOURS:
        for seed in SEEDS:
            torch.manual_seed(seed)
            generator = torch.Generator().manual_seed(seed)
            net = train(inputs, generator)
            samples = [draw(inputs, POINTS, generator) for _ in range(SAMPLES)]
            x = draw(inputs, 20_000, generator)
            with torch.no_grad():
                fit = 1 - float((net(x)[:, 0] - truth(x)).var() / truth(x).var())
            about = {"inputs": inputs, "seed": seed, "fit": fit, "own": own_curvature(net, inputs, generator)}
            rows += [{**about, "smooth": smooth, **explain(net, smooth, samples)} for smooth in [*BETAS, "auto"]]
    return pd.DataFrame(rows).round(5)


# The picture


def picture(table: pd.DataFrame) -> None:
    """Draw score, largest false pair and change of the output against beta."""
    mpl.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(3, 1, figsize=(7.6, 8.2), sharex=True, layout="constrained", height_ratios=[1.8, 1, 1])
    figure.get_layout_engine().set(hspace=0.06, h_pad=0.08, w_pad=0.08)
    fixed, auto = table[table["smooth"] != "auto"], table[table["smooth"] == "auto"]
    for ax, (column, title) in zip(axes, PANELS.items(), strict=True):
        ax.axvspan(auto["beta_low"].min(), auto["beta_high"].max(), color=palette.NONE, zorder=0, lw=0)
        for inputs, colour in COLOURS.items():
            mean = fixed[fixed["inputs"] == inputs].groupby("beta_low").mean(numeric_only=True)
            ax.plot(mean.index, mean[column], "o-", color=colour, linewidth=1.8, markersize=3.5, zorder=3)
            if column == "score":
                low, high = mean[column] - 2 * mean["noise"], mean[column] + 2 * mean["noise"]
                ax.fill_between(mean.index, low, high, color=colour, alpha=0.18, lw=0)
            chosen = auto[auto["inputs"] == inputs].mean(numeric_only=True)
            where = math.sqrt(chosen["beta_low"] * chosen["beta_high"])
            ax.plot(where, chosen[column], "D", color=colour, ms=8.5, mec="white", mew=1.5, zorder=5)
        ax.set_title(title, loc="left", fontsize=10.5, fontweight="bold", pad=7)
        ax.tick_params(length=3, color=palette.UNSURE)
        ax.spines[["left", "bottom"]].set_color(palette.UNSURE)
        ax.spines["bottom"].set_bounds(LEFT, RIGHT)
    _label_score(axes[0], table, float(np.sqrt(auto["beta_low"].min() * auto["beta_high"].max())))
    axes[1].set_ylim(0, None)
    _label_change(axes[2])
    figure.savefig(IMAGE, dpi=160)
    plt.close(figure)


def _label_score(ax: Any, table: pd.DataFrame, auto: float) -> None:
    """Name the lines, the truth, the networks' own curvature and the two ways to go wrong."""
    ax.set_ylim(0, 1.2)
    ax.plot([LEFT, RIGHT], [1, 1], color=palette.LINE, linestyle=(0, (5, 3)), linewidth=1, zorder=1)
    ax.text(0.48, 1.015, "truth", color=palette.LINE, va="bottom")
    ax.text(1.5, 0.77, "normal inputs", color=COLOURS["normal"], ha="right", fontweight="bold")
    ax.text(1.75, 0.52, "uniform inputs", color=COLOURS["uniform"], fontweight="bold")
    ax.text(auto, 0.03, 'chosen by smooth="auto"', color=palette.LINE, rotation=90, ha="center", va="bottom")
    ax.text(0.9, 0.1, "too blurred: biased", color=palette.LINE, style="italic", ha="center")
    ax.text(45, 0.1, "too sharp: noisy", color=palette.LINE, style="italic", ha="center")
    for inputs, shift in (("normal", 0.018), ("uniform", -0.018)):
        own = table.loc[table["inputs"] == inputs, "own"].mean()
        ax.plot([RIGHT + 4, 138], [own, own], color=COLOURS[inputs], linewidth=2.5, solid_capstyle="butt")
        ax.text(144, own + shift, f"{own:.3f}", color=COLOURS[inputs], va="center")
    ax.text(RIGHT + 4, 0.865, "the networks'\nown curvature", color=palette.LINE, va="top", fontsize=8.5)


def _label_change(ax: Any) -> None:
    ax.plot([LEFT, RIGHT], [0.1, 0.1], color=palette.LINE, linestyle=(0, (1, 2)), linewidth=1)
    ax.text(RIGHT, 0.115, "above this, a warning", color=palette.LINE, va="bottom", ha="right", fontsize=8.5)
    ax.set(xscale="log", yscale="log", xlim=(LEFT, 215))
    ax.xaxis.set_major_locator(FixedLocator([0.5, 1, 2, 5, 10, 20, 50, 100]))
    ax.yaxis.set_major_locator(FixedLocator([0.001, 0.01, 0.1, 1]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
    ax.set_xlabel(r"sharpness $\beta$ of the softplus that replaces ReLU")


# The page


class Words:
    """Numbers of the table in words: means over the networks, for normal and for uniform inputs."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table
        self.mean = table.groupby(["inputs", "smooth"]).mean(numeric_only=True)

    def values(self, column: str, smooth: str) -> list[float]:
        return [float(self.mean.loc[(inputs, smooth), column]) for inputs in COLOURS]

    def both(self, column: str, smooth: str, digits: int = 3) -> str:
        return " and ".join(f"{value:.{digits}f}" for value in self.values(column, smooth))

    def percent(self, smooth: str, digits: int = 1) -> str:
        return " and ".join(f"{100 * value:.{digits}f} %" for value in self.values("relative_change", smooth))

    def row(self, smooth: str) -> str:
        cells = [f"{value:.3f}" for column in ("score", "noise", "false_pair") for value in self.values(column, smooth)]
        cells += [f"{100 * value:.1f} %" for value in self.values("relative_change", smooth)]
        return "| " + " | ".join(f"**{cell}**" if smooth == "auto" else cell for cell in (smooth, *cells)) + " |"


def page(table: pd.DataFrame) -> str:
    """Return the page as Markdown."""
    words, auto = Words(table), table[table["smooth"] == "auto"]
    own = [f"{value:.3f}" for value in words.values("own", "auto")]
    fit = math.floor(1e4 * table["fit"].min()) / 100
    error = 100 * (auto["score"] / auto["own"] - 1).abs().max()
    blocks = [
        "# Sharpness of the smoothed ReLU",
        """The output of a ReLU network is made of flat facets. Its second derivative is 0 on every facet and
        infinite on the folds between them, so the Hessian at a data point is 0, whatever the network has learnt: all
        its curvature is on the folds. While explaining, geh_explain therefore replaces each ReLU by a softplus of
        sharpness β. The softplus spreads the curvature of a fold over a strip about 1/β wide, which contains data
        points. Averaged over the data this is a kernel estimate, and **1/β is its bandwidth**. It trades bias against
        variance:""",
        """- **β too small: biased.** The strips are so wide that they overlap and extend beyond the edge of the
        data. The explained function is no longer the network.""",
        """- **β too large: noisy.** The strips are so narrow that few points lie in any of them. The score depends
        on those few, and another sample of the same data gives another score.""",
        "## The experiment",
        f"""The truth is y = x0·x1 + x2, with four inputs of variance 1: only x0 and x1 interact, and their second
        derivative is 1 everywhere. Pure ReLU networks with two hidden layers of 64 units learn it, {len(SEEDS)} from
        standard normal and {len(SEEDS)} from uniform inputs; all explain more than {fit:.2f} % of the variance. Each is
        explained at {len(BETAS)} fixed sharpnesses and with `smooth="auto"`, on {SAMPLES} samples of {POINTS}
        points:""",
        """```text
geh.GEHExplainer(net, smooth=beta, posterior=PointEstimate()).explain(x, groups=1)
```""",
        "![Score of the true pair, largest false pair and change of the output against beta](../images/smoothing.png)",
        f"""The network differs from the truth. Its own mean curvature can be computed without smoothing and
        derivatives: for normal inputs it is E[x0·x1·f(x)] (Stein's identity), for uniform ones the mixed difference of
        f over the corners of the square. It is {own[0]} for the networks with normal inputs, and {own[1]} for those
        with uniform ones, which fit the truth less well in the corners. A good β reproduces these values.""",
        "## Results",
        f"""Means over {len(SEEDS)} networks each. The noise is the standard deviation of the score from one sample of
        {POINTS} points to the next; the change is that of the output, in units of its spread.""",
        "\n".join([HEADER, "|---" * 9 + "|", *map(words.row, SHOWN)]),
        f"""- At β = 0.5 the scores are {words.both("score", "0.5", 2)}, and the output has moved by
        {words.percent("0.5", 0)} of its spread. There is hardly any noise, but the explained
        function differs from the network. `explain` warns.""",
        f"""- At β = 100 the scores are {words.both("score", "100")} on average, but from sample to sample they vary by
        {words.both("noise", "100")} (one standard deviation), and the largest false pair has grown to
        {words.both("false_pair", "100")}.""",
        f"""- `"auto"` takes the bandwidth of a step of 0.75 standard deviations of the inputs, and at least
        β = 10 / (standard deviation of what enters the ReLU), which decides here: four inputs are few. β is between
        {auto["beta_low"].min():.1f} and {auto["beta_high"].max():.1f}. The scores are {words.both("score", "auto")},
        each within {error:.1f} % of the network's own curvature. The noise is {words.both("noise", "auto")}, the
        largest false pair {words.both("false_pair", "auto")}, and the output moves by {words.percent("auto")} of its
        spread.""",
        "## Recommendation",
        f"""Leave `smooth="auto"` unless a warning says that smoothing changed the network.
        `result.settings["smoothed"]` contains the smoothed functions, their sharpness and the change of the output.
        To check a score, explain again with half and with twice that β. Here β = 7 gives {words.both("score", "7")},
        and β = 30 gives {words.both("score", "30")}. A score that does not depend on β is a property of the
        network.""",
        "*Written by `python docs/studies/smoothing.py`; the numbers are in `smoothing.csv`.*",
    ]
    return "\n\n".join(map(_wrapped, blocks)).replace(".\n\n- ", ".\n- ") + "\n"


def _wrapped(block: str) -> str:
    """Fill a paragraph; code, tables and pictures stay as they are."""
    if block.startswith(("```", "|", "!", "#")):
        return block
    return textwrap.fill(" ".join(block.split()), 118, subsequent_indent="  " * block.startswith("-"))


def main() -> None:
    """Measure, then draw and write from what was stored."""
    torch.set_num_threads(1)
    stored = FOLDER / "smoothing.csv"
    measure().to_csv(stored, index=False)
    table = pd.read_csv(stored, dtype={"smooth": str})
    picture(table)
    (FOLDER / "smoothing.md").write_text(page(table), encoding="utf-8")


if __name__ == "__main__":
    main()
