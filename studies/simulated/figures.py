"""The pictures of the simulated study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from geh_explain import inference
from geh_explain.datasets import simulation as data
from geh_explain.inference.jsonl import Record
from geh_explain.plots import palette
from studies.figures import COLOURS, panels, save
from studies.simulated import summary
from studies.simulated.experiment import POSTERIORS

#: Mean rank of the true pairs if all orders are alike, and at best.
_CHANCE, _BEST = (len(data.TRUTH) + 1) / 2, (data.TRUTH.sum() + 1) / 2


def ranks(table: pd.DataFrame, lines: dict[str, tuple[str, str]], path: Path) -> Path:
    """Draw the mean rank of the seven true pairs against signal to noise, one line per method."""
    figure, [[ax]] = panels(1, 1, (7, 4))
    levels = sorted(table["sn"].unique())
    places = np.arange(len(levels))
    for colour, (label, (method, posterior)) in zip(COLOURS, lines.items(), strict=False):
        own = table[(table["method"] == method) & (table["posterior"] == posterior)]
        mean = summary.averaged(own, "mean_rank", "sn").reindex(levels)
        style = "--" if label == "Oracle" else "-"
        ax.errorbar(
            places, mean["mean"], mean["sem"], label=label, color=colour, linestyle=style, marker=".", capsize=2
        )
    ax.axhline(_CHANCE, color=palette.UNSURE, linewidth=0.8, linestyle=":")
    ax.axhline(_BEST, color=palette.UNSURE, linewidth=0.8, linestyle=":")
    ax.annotate("chance", (places[-1], _CHANCE), ha="right", va="bottom", color=palette.LINE)
    ax.set_ylim(top=19)
    ax.annotate("best possible", (places[0], _BEST), ha="left", va="bottom", color=palette.LINE)
    ax.set_xticks(places, [f"{level:g}" for level in levels])
    ax.set_xlabel("signal to noise (ratio of variances)")
    ax.set_ylabel("mean rank of the true pairs")
    ax.legend(frameon=False, ncols=3, loc="upper right")
    return save(figure, path)


def intervals(record: Record, path: Path) -> Path:
    """Draw the GEH of all pairs with 95 % intervals beside the truth, one panel per posterior."""
    figure, [axes] = panels(1, len(POSTERIORS), (13, 4.6), sharey=True)
    truth = np.asarray(record["truth"]["geh"])
    order = np.argsort(~data.TRUTH, kind="stable")
    labels = [f"{data.NAMES[i]} x {data.NAMES[j]}" for i, j in zip(data.FIRST[order], data.SECOND[order], strict=True)]
    for ax, posterior in zip(axes, POSTERIORS, strict=True):
        own = record["scores"][posterior]["geh"]
        mean, std = np.asarray(own["mean"])[order], np.asarray(own["std"])[order]
        places = np.arange(len(mean))
        ax.errorbar(places, mean, 2 * std, fmt=".", color=palette.SURE, capsize=2, label="posterior, 95 %")
        ax.plot(places, truth[order], "_", color=palette.MARK, markersize=9, markeredgewidth=2, label="truth")
        ax.set_xticks(places, labels, rotation=90, fontsize=7)
        ax.set_title(posterior)
    axes[0].set_ylabel("GEH")
    axes[0].legend(frameon=False)
    return save(figure, path)


def roc_and_groups(records: Sequence[Record], sn: float, posterior: str, path: Path) -> Path:
    """Draw the ROC curves of the three measures over all data sets, and how the number of groups settles."""
    figure, [[left, right]] = panels(1, 2, (10, 4))
    own = [record for record in records if record["sn"] == sn]
    truth = np.concatenate([data.TRUTH for _ in own])
    for colour, measure in zip(COLOURS, ("aeh", "geh", "eah"), strict=False):
        scores = np.concatenate([record["scores"][posterior][measure]["mean"] for record in own])
        alarms, hits = inference.roc(scores, truth)
        left.plot(alarms, hits, color=colour, label=f"{measure.upper()}, area {inference.auc(scores, truth):.3f}")
    left.plot([0, 1], [0, 1], color=palette.UNSURE, linewidth=0.8, linestyle=":")
    left.set_xlabel("false positive rate")
    left.set_ylabel("true positive rate")
    left.set_title(f"pairs of {len(own)} data sets, S/N = {sn:g}")
    left.legend(frameon=False)
    for record in own:
        right.plot(record["delta"]["counts"], record["delta"]["delta"], color=palette.SURE, linewidth=0.8, alpha=0.6)
    right.set_yscale("symlog", linthresh=1e-4)
    right.set_xlabel("number of groups M")
    right.set_ylabel(r"rank weighted distance $\Delta^2_M$")
    right.set_title("does one group more change the ranking?")
    return save(figure, path)
