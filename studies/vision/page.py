"""Markdown page of the study of vision, from its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from geh_explain.inference.jsonl import Record
from studies.text import fill_paragraph, markdown_table
from studies.vision.experiment import STEPS, WANTED_STEP, Size
from studies.vision.networks import SUBJECTS
from studies.vision.summary import layer_means, layer_worst

_MIN_CORRELATION = 0.9
_MAX_SCALE_ERROR = 0.15
#: Mixed effects of the strongest pairs, relative to the others, that are wanted in the mean over layers.
_MIN_RATIO = 1.8
_MIN_AUC = 0.9

_INTRODUCTION = """
Two trained networks, whose weights Python packages include, are explained at three hidden layers each. Units are the
channels of a layer; all positions of a channel shift together. Scores are second derivatives with
`smooth="auto"`, scaled by the channels' standard deviations. How kinked functions are smoothed was chosen on other
samples of EfficientNet-Lite0; the second network was not used for it. What the former step of 0.5 gave at block 10 of
the first sample (r 0.81, size 1.36) was known by then.
"""
_AGREEMENT = """
Scores are compared with mixed differences of the network as it is, without smoothing, derivatives or this package: a
channel is moved up and down by a step, given in its standard deviations. Correlation *r* over all pairs of random
channels, and size of the scores relative to the differences (the slope through 0; 1 is best). Change: by how much
smoothing changes the output, relative to its spread.
"""
_OWN_AGREEMENT = """
Differences depend on their step, too. The next table compares them with those by half a standard deviation, in the same
way. Where two steps hardly agree with each other, no score agrees with both.
"""
_FAITHFULNESS = """
The pairs of the channels with the largest gradients. Ablation, for EAH: on other images, both channels of a pair are
set to their mean; the joint effect beyond the single effects of the strongest half of the pairs, divided by that of the
other half, the area under the ROC curve for the quarter of pairs with the largest joint effects, and the rank
correlation. Keeps place: share of the ten strongest pairs that are among the strongest at half and twice the sharpness
as well. Halves: correlation of the scores of two halves of the images; photographs are in one half only. Stable: share
of pairs whose sign holds over images like these (false discovery rate 5 %, with photographs as clusters). Whether
intervals over points and clusters hold what they promise is the subject of [another study](coverage.md).
"""
_PICTURES = """
What the two channels of the strongest pair of each layer respond to: crops that excite the first, the second and both
most, one from each photograph, and an image that is synthesised by activation maximisation. They are those of the
first sample; none was chosen.
"""


def build_page(table: pd.DataFrame, records: Sequence[Record], size: Size) -> str:
    """Return the page as Markdown."""
    blocks = [
        "# Trained vision networks",
        fill_paragraph(_INTRODUCTION),
        fill_paragraph(
            f"{size.seeds} sample(s) of {size.images} images, {size.channels} random channels and {size.screened} "
            "channels with the largest gradients for each layer. Numbers are means over samples. `make study-vision` "
            "runs the study."
        ),
        markdown_table(
            ["network", "task and images"],
            [[SUBJECTS[name].title, SUBJECTS[name].about] for name in dict.fromkeys(table["network"])],
        ),
        "## Summary",
        markdown_table(["expectation", "reached", ""], [list(row) for row in _verdicts(table)]),
        "## Agreement with differences",
        fill_paragraph(_AGREEMENT),
        _agreement_table(layer_means(table), "change"),
        fill_paragraph(_OWN_AGREEMENT),
        _agreement_table(layer_means(table), "own"),
        "## Faithfulness and stability",
        fill_paragraph(_FAITHFULNESS),
        _faithfulness_table(layer_means(table)),
        "## Costs",
        fill_paragraph(
            f"Seconds of one processor, {size.images} images: interactions of {size.channels} channels, the same by "
            "differences (of what follows the layer for EfficientNet-Lite0, of the whole network for the other), the "
            f"choice of {size.screened} channels by their gradients, and the interactions of these."
        ),
        _cost_table(layer_means(table)),
        *_picture_blocks(records),
    ]
    return "\n\n".join(blocks) + "\n"


def _verdicts(table: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield what was expected, what was reached, and whether that is enough."""
    for _, row in layer_worst(table, WANTED_STEP).iterrows():
        met = row["r"] >= _MIN_CORRELATION and max(1 - row["low"], row["high"] - 1) <= _MAX_SCALE_ERROR
        yield (
            f"{_title(row)}: r at least {_MIN_CORRELATION:g} and size within {_MAX_SCALE_ERROR:.0%} of differences by "
            f"{WANTED_STEP:g} standard deviations, in all samples",
            f"r ≥ {row['r']:.2f}, {row['low']:.2f} to {row['high']:.2f}",
            _word(met),
        )
    means = layer_means(table)
    ratio, area = float(means["ablation_ratio"].mean()), float(means["ablation_auc"].mean())
    yield (
        f"joint effects of the strongest pairs at least {_MIN_RATIO:g} times those of the others",
        f"{ratio:.1f}",
        _word(ratio >= _MIN_RATIO),
    )
    yield (
        f"area under the ROC curve of large joint effects at least {_MIN_AUC:g}",
        f"{area:.2f}",
        _word(area >= _MIN_AUC),
    )


def _word(met: bool) -> str:
    """Return the verdict in a word."""
    return "met" if met else "**missed**"


def _title(row: pd.Series) -> str:
    """Return network and layer of a row."""
    return f"{SUBJECTS[row['network']].title}, {row['layer']}"


def _agreement_table(means: pd.DataFrame, kind: str) -> str:
    """Return correlation and size at all steps, one row per layer.

    ``kind`` is ``"change"`` for scores, with what smoothing changes, or ``"own"`` for differences by other steps.
    """
    own = kind == "own"
    steps = [step for step in STEPS if not own or step != WANTED_STEP]
    heads = ["layer", *([] if own else ["channels", "change"])]
    for step in steps:
        heads += [f"r, {step:g} std", f"size, {step:g} std"]
    prefix = "own " if own else ""
    rows = []
    for _, row in means.iterrows():
        cells = [_title(row), *([] if own else [f"{row['channels']:.0f}", f"{row['output_change']:.1%}"])]
        for step in steps:
            cells += [f"{row[f'{prefix}r {step:g}']:.3f}", f"{row[f'{prefix}scale {step:g}']:.2f}"]
        rows.append(cells)
    return markdown_table(heads, rows)


def _faithfulness_table(means: pd.DataFrame) -> str:
    """Return ablation and stability, one row per layer."""
    columns = {
        "ablation, ratio": "ablation_ratio",
        "AUC": "ablation_auc",
        "rank correlation": "ablation_correlation",
        "keeps place": "keeps_place",
        "halves": "halves_correlation",
        "stable": "stable",
    }
    rows = [[_title(row), *(f"{row[name]:.2f}" for name in columns.values())] for _, row in means.iterrows()]
    return markdown_table(["layer", *columns], rows)


def _cost_table(means: pd.DataFrame) -> str:
    """Return the seconds of all steps, one row per layer."""
    columns = {
        "random channels": "explain_seconds",
        "by differences": "difference_seconds",
        "screen": "screen_seconds",
        "screened channels": "explain_screened_seconds",
    }
    rows = [[_title(row), *(f"{row[name]:.1f}" for name in columns.values())] for _, row in means.iterrows()]
    return markdown_table(["layer", *columns], rows)


def _picture_blocks(records: Sequence[Record]) -> list[str]:
    """Return the galleries that were drawn."""
    drawn = [record for record in records if "picture" in record]
    if not drawn:
        return []
    blocks = ["## What the strongest pairs respond to", fill_paragraph(_PICTURES)]
    for record in drawn:
        first, second = record["pair"]
        title = f"{SUBJECTS[record['network']].title}, {record['layer']}: {first} and {second}"
        blocks += [
            f"### {SUBJECTS[record['network']].title}, {record['layer']}",
            fill_paragraph(
                f"{first} and {second}, score {record['score']:.3g}; {record['gallery_seconds']:.0f} seconds."
            ),
            f"![{title}](../images/{record['picture']})",
        ]
    return blocks
