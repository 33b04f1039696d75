"""The page of the MNIST study, from its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from geh_explain.datasets import TASKS
from geh_explain.inference.jsonl import Record
from studies.mnist.experiment import ABLATIONS, OURS, PAPER, Size, expected
from studies.mnist.summary import counts
from studies.text import filled, markdown

#: How many networks of ten are to read as expected and accurately, and how many with digits of the task only.
_WANTED, _WANTED_RELATED = 0.8, 0.9

_INTRODUCTION = """
Two MNIST digits stand side by side. In task A they are drawn from 7, 4 and 0, and a network learns whether they are
7 and 0, in this order; in task B from 5, 4 and 3, and it learns whether they are 5 and 3. A LeNet with concrete
dropout per node is trained, interactions between the nodes of its second-to-top fully connected layer are measured,
and each node of the strongest pairs is read: by the nine images, of all test digits on either side with the other
half blank, that excite it most. The paper's expectation: the strongest pair reads "7 on the left" and "0 on the
right", or 5 and 3.
"""
_WHY = """
Nothing makes a network represent what we would. (1) It may learn what to *exclude*: a node for 0 on the left that
speaks against the pair does the work of a node for 7 on the left. Read by what excites it most, it shows a digit
that has no part in the pair. (2) A node may look for both digits at once, and all nodes alike: the strongest pair
then is one meaning twice. (3) From the last hidden nodes to the output the network is linear but for the final
sigmoid, so that the Hessian is of rank one: the strongest pair is that of the two nodes with the largest weights,
whatever they mean.
"""
_RECIPE = """
Our recipe leads a LeNet to positive evidence, and leaves the task as it is. The weights of the fully connected layers
are non-negative, so that a node can only respond to what is there, and only speak for the pair; a penalty on
correlations between the nodes makes them differ, and as the two halves of an image are independent of each other, the
cheapest way to differ is to look at one half each. Nodes lie between 0 and 1, and their votes are bounded, so that
one node cannot decide alone. In training, one side in ten shows a digit that is not of the task: nothing else would
tell the network that a 2 is no 3. The layer has 8 nodes instead of 84, the convolutions have ReLU and max pooling
(they are below the nodes, where no derivative is taken), and scores are scaled by the nodes' standard deviations, as
votes count by how far nodes move. The price is longer training on more pairs. Accuracy and explanation are of pairs
of the task's digits only, and nodes are read among all ten digits, as in the paper's recipe.
"""
_FALLS_SHORT = """
Where another pair leads in task A, it is by a hair, and the expected one is second. The intervals are wide, and
hardly any excludes 0: whether a draw leaves a positive pair above or below the middle of the final sigmoid decides on
the sign of the curvature there, and draws differ in that. The strongest pair is told by the mean alone.
"""
_EARLIER = """
An earlier form of this recipe had average pooling and softplus, a penalty more than three times as large, half as many
pairs, and no digits but those of the task. On ten seeds of its own (100 to 109) it read as expected, at 99 % or
more, in 8 networks of task A and 6 of task B; mostly a node for 3 on the right read as 2, a digit that training had
never shown. Its records are in [mnist_earlier.csv](mnist_earlier.csv).
"""


def page(table: pd.DataFrame, records: Sequence[Record], size: Size) -> str:
    """Return the page."""
    minutes = sum(sum(record["seconds"].values()) for record in records) / 60
    blocks = [
        "# Pairs of digits",
        filled(_INTRODUCTION),
        filled(
            f"{size.seeds} networks for each task and recipe, with seeds that played no part in finding the recipe; "
            "none was left out. Pairs for training are drawn from the training digits, those for accuracy "
            f"({size.test_rows:,}) and explanation ({size.points:,} points, {size.draws} draws) from the test digits. "
            f"All networks together took {minutes:.0f} minutes of one processor."
        ),
        "## In short",
        _short(table),
        "## Why the plain recipe does not show it, and what ours changes",
        filled(_WHY),
        filled(_RECIPE),
        f"## Our recipe: {OURS}",
        filled("A pair of nodes as (left, right) digit, with how many of nine exemplars show it; bold as expected."),
        _readings(table, OURS),
        filled(_FALLS_SHORT),
        filled(_EARLIER),
        *_pictures(OURS, "ours"),
        *_without(table),
        f"## {PAPER.capitalize()}",
        filled(
            "The plain network, outputs and scores as the paper has them. A minus marks a node that speaks against the "
            "positive pair."
        ),
        _readings(table, PAPER),
        *_pictures(PAPER, "paper"),
        "*Written by `geh-explain study mnist`; all numbers in [mnist.csv](mnist.csv).*",
    ]
    return "\n\n".join(blocks) + "\n"


def _without(table: pd.DataFrame) -> Iterator[str]:
    """Yield what becomes of the recipe without one of its parts."""
    for recipe in ABLATIONS:
        if (table["recipe"] == recipe).any():
            yield f"### {recipe.capitalize()}"
            yield _readings(table, recipe)


def lines(table: pd.DataFrame) -> Iterator[str]:
    """Yield the outcome in words, a line for each recipe and task."""
    for (recipe, task), row in _outcomes(table):
        yield (
            f"{recipe}, task {task}: strongest pair as expected in {row['as_expected']:.0f} of {row['networks']:.0f}, "
            f"digits of the task only in {row['related']:.0f}, mean accuracy {row['accuracy']:.4f}"
        )


def _outcomes(table: pd.DataFrame) -> Iterator[tuple[tuple[str, str], dict[str, float]]]:
    for row in counts(table).reset_index().to_dict("records"):
        recipe, task = str(row.pop("recipe")), str(row.pop("task"))
        yield (recipe, task), {str(name): float(value) for name, value in row.items()}


def _short(table: pd.DataFrame) -> str:
    rows = []
    for (recipe, task), row in _outcomes(table):
        networks = row["networks"]
        met = row["both"] >= _WANTED * networks, row["related"] >= _WANTED_RELATED * networks
        marks = ["" if recipe != OURS else " (met)" if each else " (**missed**)" for each in met]
        rows.append(
            [
                f"{recipe}, task {task}",
                f"{row['as_expected']:.0f} of {networks:.0f}",
                f"{row['accuracy']:.2%}, {row['accurate']:.0f} of {networks:.0f}",
                f"{row['both']:.0f} of {networks:.0f}{marks[0]}",
                f"{row['related']:.0f} of {networks:.0f}{marks[1]}",
            ]
        )
    heads = [
        "",
        "strongest pair as expected",
        "accuracy, and how often at least 99 %",
        "both (wanted: 8 of 10)",
        "top two pairs read digits of the task only (wanted: 9 of 10)",
    ]
    return markdown(heads, rows)


def _readings(table: pd.DataFrame, recipe: str) -> str:
    mine = table[table["recipe"] == recipe]
    rows = []
    for (task, seed), pairs in mine.groupby(["task", "seed"]):
        first, second = (pairs[pairs["pair"] == rank].iloc[0] for rank in (1, 2))
        told = f"**{_pair(first)}**" if first["as_expected"] else _pair(first)
        rows.append([f"{task}, {seed}", f"{first['accuracy']:.2%}", f"{first['groups']}", told, _pair(second)])
    return markdown(["task, seed", "accuracy", "M", "strongest pair", "second"], rows)


def _pair(row: pd.Series) -> str:
    read = [
        f"{'−' if row[f'sign_{unit}'] < 0 else ''}{_brief(row[f'reads_{unit}'])} ({row[f'count_{unit}']})"
        for unit in "ij"
    ]
    return f"{read[0]} × {read[1]}: {row['mean']:.3g} ({row['low']:.3g} to {row['high']:.3g})"


def _brief(reading: str) -> str:
    """Return "7 on the left" in the paper's way: (7, -)."""
    digit, side = reading[0], reading.rsplit(" ", 1)[1]
    return f"({digit}, -)" if side == "left" else f"(-, {digit})"


def _pictures(recipe: str, short: str) -> list[str]:
    return [
        f"![The strongest pairs of one network, {recipe}, task {task}: "
        f"{' and '.join(expected(task))} are looked for](../images/mnist_{task}_{short}.png)"
        for task in TASKS
    ]
