"""Figures of the simulated study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from geh_explain import inference
from geh_explain.datasets import simulation as data
from geh_explain.inference.jsonl import Record
from geh_explain.plots import palette
from studies.figures import COLOURS, create_panels, save_figure
from studies.simulated import summary
from studies.simulated.experiment import MEASURES, POSTERIORS

#: Mean rank of the true pairs in a random order.
_CHANCE = (len(data.TRUTH) + 1) / 2
#: Their mean rank when they come first.
_BEST = (data.TRUTH.sum() + 1) / 2


def draw_ranks(table: pd.DataFrame, methods: dict[str, tuple[str, str]], path: Path) -> Path:
    """Draw the mean rank of the true pairs against signal to noise, one line per method, and return ``path``.

    ``methods`` maps the label of a line to its method and posterior in ``table``.
    """
    figure, [[ax]] = create_panels(1, 1, (7, 4))
    ratios = sorted(table["sn"].unique())
    # Ratios include 0, so the axis has one tick per ratio instead of a logarithmic scale.
    ticks = np.arange(len(ratios))
    # Scores of one posterior share their colour; those without evidence from held-out rows are dotted.
    keys = list(dict.fromkeys(posterior or method for method, posterior in methods.values()))
    styles = {"GEH": ":", "Oracle": "--"}
    for label, (method, posterior) in methods.items():
        colour = COLOURS[keys.index(posterior or method)]
        rows = table[(table["method"] == method) & (table["posterior"] == posterior)]
        mean = summary.average(rows, "mean_rank", "sn").reindex(ratios)
        style = styles.get(method, "-")
        ax.errorbar(ticks, mean["mean"], mean["sem"], label=label, color=colour, linestyle=style, marker=".", capsize=2)
    ax.axhline(_CHANCE, color=palette.UNSURE, linewidth=0.8, linestyle=":")
    ax.axhline(_BEST, color=palette.UNSURE, linewidth=0.8, linestyle=":")
    ax.annotate("chance", (ticks[-1], _CHANCE), ha="right", va="bottom", color=palette.LINE)
    ax.set_ylim(top=21)
    ax.annotate("best possible", (ticks[0], _BEST), ha="left", va="bottom", color=palette.LINE)
    ax.set_xticks(ticks, [f"{ratio:g}" for ratio in ratios])
    ax.set_xlabel("signal to noise (ratio of variances)")
    ax.set_ylabel("mean rank of the true pairs")
    ax.legend(frameon=False, ncols=3, loc="upper right")
    return save_figure(figure, path)


def draw_intervals(record: Record, path: Path) -> Path:
    """Draw the GEH of all pairs, both kinds of 95 % intervals and the truth, by posterior, and return ``path``.

    The intervals are that of the score over draws of the network, and that of the true score from held-out labels.
    """
    figure, [axes] = create_panels(1, len(POSTERIORS), (13, 4.6), sharey=True)
    truth = np.asarray(record["truth"]["geh"])
    order = np.argsort(~data.TRUTH, kind="stable")
    labels = [f"{data.NAMES[i]} x {data.NAMES[j]}" for i, j in zip(data.FIRST[order], data.SECOND[order], strict=True)]
    for ax, posterior in zip(axes, POSTERIORS, strict=True):
        scores = record["scores"][posterior]["geh"]
        mean, std = np.asarray(scores["mean"])[order], np.asarray(scores["std"])[order]
        ticks = np.arange(len(mean))
        ax.errorbar(ticks, mean, 2 * std, fmt=".", color=palette.SURE, capsize=2, label="posterior, 95 %")
        low, high = (np.asarray(record["evidence"][posterior][end])[order] for end in ("true_low", "true_high"))
        ax.vlines(ticks + 0.35, low, high, color=COLOURS[2], label="held-out labels, 95 %")
        ax.plot(ticks, truth[order], "_", color=palette.MARK, markersize=9, markeredgewidth=2, label="truth")
        ax.set_xticks(ticks, labels, rotation=90, fontsize=7)
        ax.set_title(posterior)
    axes[0].set_ylabel("GEH")
    axes[0].legend(frameon=False)
    return save_figure(figure, path)


def draw_roc_and_delta(records: Sequence[Record], sn: float, posterior: str, path: Path) -> Path:
    """Draw the data sets with signal to noise ``sn``, and return ``path``.

    Left: the ROC curve of each measure, and of the supported score, over the pairs of all data sets. Right: the rank
    weighted distance between the rankings with M and with M + 1 groups, one line per data set.
    """
    figure, [[left, right]] = create_panels(1, 2, (10, 4))
    chosen = [record for record in records if record["sn"] == sn]
    truth = np.concatenate([data.TRUTH for _ in chosen])
    curves = {
        measure.upper(): np.concatenate([record["scores"][posterior][measure]["mean"] for record in chosen])
        for measure in MEASURES
    }
    curves["supported"] = np.concatenate([summary.supported_scores(record, posterior) for record in chosen])
    for colour, (name, scores) in zip(COLOURS, curves.items(), strict=False):
        false_positives, true_positives = inference.roc(scores, truth)
        area = inference.auc(scores, truth)
        left.plot(false_positives, true_positives, color=colour, label=f"{name}, area {area:.3f}")
    left.plot([0, 1], [0, 1], color=palette.UNSURE, linewidth=0.8, linestyle=":")
    left.set_xlabel("false positive rate")
    left.set_ylabel("true positive rate")
    left.set_title(f"pairs of {len(chosen)} data sets, S/N = {sn:g}")
    left.legend(frameon=False)
    for record in chosen:
        right.plot(record["delta"]["counts"], record["delta"]["delta"], color=palette.SURE, linewidth=0.8, alpha=0.6)
    right.set_yscale("symlog", linthresh=1e-4)
    right.set_xlabel("number of groups M")
    right.set_ylabel(r"rank weighted distance $\Delta^2_M$")
    right.set_title("does one group more change the ranking?")
    return save_figure(figure, path)
