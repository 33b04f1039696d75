"""One network of the MNIST study: trained, explained, and its strongest pairs of nodes read."""

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
from geh_explain.interpret import Gallery, PairView, half_blank
from studies.mnist import networks

#: Seeds below this one served to find the recipe, and an earlier one.
FIRST_SEED = 200
PAPER, OURS = "as in the paper", "adding evidence"
NO_OTHERS = "adding evidence, no other digits"
#: Our recipe without one of its parts: what changes in its network.
ABLATIONS: dict[str, dict[str, Any]] = {
    "adding evidence, no penalty": {"penalty": 0.0},
    "adding evidence, weights of any sign": {"positive": False},
    NO_OTHERS: {},
}
#: In our recipe, the share of sides that show a digit which is not of the task, so that no node takes a 2 for a 3.
_OTHER = 0.1
#: Pairs of nodes that are read.
PAIRS = 2


@dataclass(frozen=True)
class Size:
    """How large a study is."""

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


FULL = Size(10, False, 24_000, 20, 6_000, 15, 5_000, 1_000, 50, ablations=1)
QUICK = Size(1, True, 6_000, 16, 3_000, 8, 1_000, 500, 20)


def tasks(size: Size) -> list[tuple[Any, ...]]:
    """Return the networks of a study: the size's own numbers, recipe, task, seed."""
    settings = tuple(value for name, value in asdict(size).items() if name not in ("seeds", "ablations"))
    return [
        (*settings, recipe, task, FIRST_SEED + number)
        for recipes, seeds in (((OURS, PAPER), size.seeds), (ABLATIONS, size.ablations))
        for number in range(seeds)
        for task in TASKS
        for recipe in recipes
    ]


def expected(task: str) -> tuple[str, str]:
    """Return what the two nodes of the strongest pair should read."""
    left, _, right = TASKS[task]
    return f"{left} on the left", f"{right} on the right"


def run(task: tuple[Any, ...], folder: str | None = None, images: Path | None = None) -> Record:
    """Train one network, explain it, and read its strongest pairs; the first seed's are drawn into ``images``."""
    *settings, recipe, name, seed = task
    size = Size(1, *settings)
    start = perf_counter()
    net, accuracy, best_epoch = _trained(size, recipe, name, seed, folder)
    fitted = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GEHWarning)
        points = mnist_pairs(_digits("test", folder, size.small), name, size.points, seed=seed + 1).images
        explainer = GEHExplainer(net, networks.LAYER, output="probability")
        scale = None if recipe == PAPER else "std"
        result = explainer.explain(points, draws=size.draws, scale=scale, seed=seed, progress=False)
        candidates, labels = one_digit(_digits("test", folder, size.small))
        picture = None
        if images is not None and seed == FIRST_SEED and recipe in (OURS, PAPER):
            picture = images / f"mnist_{name}_{'ours' if recipe == OURS else 'paper'}.png"
        shown = explainer.interpret(result, candidates, PAIRS, joint=points, ascent=bool(picture), progress=False)
    if picture is not None:
        _draw(shown, labels, picture)
    return {
        "recipe": recipe,
        "digits": name,
        "seed": seed,
        "accuracy": accuracy,
        "best_epoch": best_epoch,
        "groups": len(result.group_names),
        "significant": int(result.table()["significant"].sum()),
        "pairs": [_read(pair, net, labels) for pair in shown.pairs],
        "seconds": {"fit": fitted - start, "explain": perf_counter() - fitted},
    }


def one_digit(digits: Digits) -> tuple[Tensor, list[str]]:
    """Return every digit on either side, with the other half blank, and what it is."""
    images = torch.cat([half_blank(digits.images, side) for side in ("left", "right")])
    return images, [f"{digit} on the {side}" for side in ("left", "right") for digit in digits.labels.tolist()]


def _trained(size: Size, recipe: str, task: str, seed: int, folder: str | None) -> tuple[nn.Module, float, int]:
    """Return a network, how often it is right on pairs of digits that it has not seen, and its best epoch."""
    rows, epochs, lr = (size.rows, size.epochs, 3e-3) if recipe != PAPER else (size.paper_rows, size.paper_epochs, 1e-3)
    other = 0.0 if recipe in (PAPER, NO_OTHERS) else _OTHER
    train = mnist_pairs(_digits("train", folder, size.small), task, rows, other=other, seed=seed)
    test = mnist_pairs(_digits("test", folder, size.small), task, size.test_rows, seed=seed)
    net = networks.as_in_the_paper(seed)
    if recipe != PAPER:
        net = networks.adding_evidence(seed, rows, **ABLATIONS.get(recipe, {}))
    history = bnn.fit(net, train.images, train.labels, epochs=epochs, batch_size=64, lr=lr, seed=seed, progress=False)
    with torch.no_grad():
        logits = torch.cat([net(part)[:, 0] for part in torch.split(test.images, 1000)])
    return net, float(((logits > 0) == test.labels.bool()).float().mean()), history.best_epoch


def _read(pair: PairView, net: nn.Module, labels: list[str]) -> Record:
    """Return what the two nodes of a pair read, whether they speak for or against the pair, and the score."""
    weights = networks.votes(net)
    found = pair.exemplars.reading(labels)
    return {
        "units": list(pair.units),
        "readings": [[each.label, each.count, each.total] for each in found],
        "signs": [1 if weights[number] >= 0 else -1 for number in pair.numbers],
        "mean": pair.mean,
        "low": pair.low,
        "high": pair.high,
    }


def _draw(shown: Gallery, labels: list[str], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = shown.plot(labels)
    figure.savefig(path, dpi=110)
    plt.close(figure)


@cache
def _digits(split: str, folder: str | None, small: bool) -> Digits:
    return mnist_digits(split, folder, small=small)
