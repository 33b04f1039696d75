"""Demonstration on data that need no download: train a small network, explain it, draw and save the result.

``geh-explain demo`` runs :func:`run`. The documentation uses :func:`friedman` as its trained network.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_folder
from geh_explain.explainer import GEHExplainer
from geh_explain.results.interactions import Interactions
from geh_explain.storage.whole import save_figure

__all__ = ["digit_products", "digits_network", "friedman", "run", "train"]

#: Rows or digits of both data sets that are used for training; the others are explained.
_FRIEDMAN_TRAIN = 5000
_DIGITS_TRAIN = 900
_BATCH_SIZE = 128


class Demonstration(NamedTuple):
    """The outcome of one demonstration.

    Attributes
    ----------
    result : Interactions
        What the explainer returned.
    note : str
        How well the network fits, in one line.
    report_parts : dict
        Further arguments of ``result.report``: surfaces or a gallery.
    """

    result: Interactions
    note: str
    report_parts: dict[str, Any]


def friedman_network(features: int = 10) -> nn.Sequential:
    """Return an untrained MLP with dropout for tables of this many features.

    >>> friedman_network()(torch.zeros(5, 10)).shape
    torch.Size([5, 1])
    """
    return nn.Sequential(
        nn.Linear(features, 128),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(128, 128),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(128, 1),
    )


def digits_network() -> nn.Sequential:
    """Return an untrained convolutional network with dropout for images (n, 1, 8, 8) of digits.

    >>> digits_network()(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(1, 12, 3, padding=1),
        "act1": nn.GELU(),
        "pool1": nn.AvgPool2d(2),
        "conv2": nn.Conv2d(12, 12, 3, padding=1),
        "act2": nn.GELU(),
        "drop2": nn.Dropout2d(0.1),
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(12 * 16, 32),
        "act3": nn.GELU(),
        "drop3": nn.Dropout(0.1),
        "fc2": nn.Linear(32, 10),
    }
    net = nn.Sequential()
    for name, layer in layers.items():
        net.add_module(name, layer)
    return net


def train(net: nn.Module, x: Tensor, y: Tensor, loss: nn.Module, *, epochs: int, seed: int, progress: bool) -> None:
    """Train ``net`` in place with AdamW and a cosine schedule, and leave it in eval mode.

    Parameters
    ----------
    net
        The network.
    x, y
        Inputs and targets as the loss takes them, of the same number of rows.
    loss
        Module of (outputs, targets) that returns a scalar.
    epochs
        Passes over the rows, in batches of 128.
    seed
        Seed of the order of the rows. Dropout uses the global generator.
    progress
        Show a progress bar.

    Examples
    --------
    >>> net, x = friedman_network(2), torch.rand(300, 2)
    >>> train(net, x, x[:, :1], nn.MSELoss(), epochs=2, seed=0, progress=False)
    >>> net.training
    False
    """
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    net.train()
    for _ in tqdm(range(epochs), desc="training", unit="epoch", disable=not progress, leave=False):
        for batch in torch.split(torch.randperm(len(x), generator=generator), _BATCH_SIZE):
            optimiser.zero_grad()
            loss(net(x[batch]), y[batch]).backward()
            optimiser.step()
        schedule.step()
    net.eval()


def friedman(seed: int = 0, progress: bool = True) -> tuple[nn.Sequential, Tensor, Tensor]:
    """Train a network on Friedman's first function, and return it with test data.

    The function is ``10 sin(pi x0 x1) + 20 (x2 - 1/2)^2 + 10 x3 + 5 x4`` plus noise of variance 1. Of its ten features
    five matter, and x0 and x1 are the only pair that interacts.

    Parameters
    ----------
    seed
        Decides on data, initial weights and training.
    progress
        Show a progress bar.

    Returns
    -------
    net : nn.Sequential
        The trained network in eval mode, with outputs in units of the target.
    x, y : Tensor
        Test inputs (1000, 10) and targets (1000, 1).

    Examples
    --------
    >>> net, x, y = friedman(progress=False)  # doctest: +SKIP
    >>> net(x).shape  # doctest: +SKIP
    torch.Size([1000, 1])
    """
    from sklearn.datasets import make_friedman1

    inputs, values = make_friedman1(n_samples=6000, n_features=10, noise=1.0, random_state=seed)
    x = torch.as_tensor(inputs, dtype=torch.float32)
    y = torch.as_tensor(values, dtype=torch.float32)[:, None]
    x_train, x_test = x[:_FRIEDMAN_TRAIN], x[_FRIEDMAN_TRAIN:]
    y_train, y_test = y[:_FRIEDMAN_TRAIN], y[_FRIEDMAN_TRAIN:]
    mean, std = y_train.mean(), y_train.std()
    torch.manual_seed(seed)
    net = friedman_network()
    train(net, x_train, (y_train - mean) / std, nn.MSELoss(), epochs=60, seed=seed, progress=progress)
    _rescale(net, mean, std)
    return net, x_test, y_test


def digit_products(seed: int = 0, progress: bool = True) -> tuple[nn.Sequential, Tensor, Tensor, Tensor]:
    """Train a network on images of two handwritten digits to predict their product.

    Layer ``"digits"`` has three neurons that read the left digit and three that read the right one, in turns. No digit
    of the held-out images is among those of the training images.

    Parameters
    ----------
    seed
        Decides on data, initial weights and training.
    progress
        Show a progress bar.

    Returns
    -------
    net : nn.Sequential
        The trained network in eval mode.
    x_train : Tensor
        Training images (8000, 1, 8, 16).
    x, y : Tensor
        Held-out images (897, 1, 8, 16) and products (897, 1).

    Examples
    --------
    >>> net, x_train, x, y = digit_products(progress=False)  # doctest: +SKIP
    >>> net(x).shape  # doctest: +SKIP
    torch.Size([897, 1])
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, values = torch.as_tensor(digits.images, dtype=torch.float32) / 16, torch.as_tensor(digits.target).float()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(values), generator=generator)
    known, held_out = order[:_DIGITS_TRAIN], order[_DIGITS_TRAIN:]
    rows = known[torch.randint(_DIGITS_TRAIN, (2, 8000), generator=generator)]
    held = torch.stack([held_out, held_out[torch.randperm(len(held_out), generator=generator)]])
    (x_train, y_train), (x, y) = (
        (torch.cat([images[left], images[right]], dim=2)[:, None], (values[left] * values[right])[:, None])
        for left, right in (rows, held)
    )
    mean, std = y_train.mean(), y_train.std()
    torch.manual_seed(seed)
    net = _product_network()
    train(net, x_train, (y_train - mean) / std, nn.MSELoss(), epochs=25, seed=seed, progress=progress)
    _rescale(net, mean, std)
    return net, x_train, x, y


def _product_network() -> nn.Sequential:
    """Return an untrained network for two digits side by side, which reads both of them by the same convolutions."""
    net = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Dropout(0.1), nn.Conv2d(16, 3, 4, stride=4), nn.Sigmoid()),
    )
    net.add_module("digits", nn.Flatten())
    net.add_module("head", nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Dropout(0.05), nn.Linear(32, 1)))
    return net


def _rescale(net: nn.Module, mean: Tensor, std: Tensor) -> None:
    """Let the last layer take up the scale of the target, so that the network's outputs have its units."""
    *_, last = (module for module in net.modules() if isinstance(module, nn.Linear))
    with torch.no_grad():
        last.weight.mul_(std)
        last.bias.mul_(std).add_(mean)


def explain_friedman(seed: int, progress: bool) -> Demonstration:
    """Explain a network trained on Friedman's function; the note compares its strongest pair with the truth.

    The rows that are explained are test rows, so that their labels are evidence.
    """
    net, x, y = friedman(seed, progress)
    explainer = GEHExplainer(net)
    result = explainer.explain(x, draws=100, seed=seed, evidence=(x, y), progress=progress)
    surfaces = [explainer.surface(x, pair=(i, j), result=result, progress=progress) for i, j in result.ranking().top(3)]
    with torch.no_grad():
        error = float((net(x) - y).pow(2).mean().sqrt())
    truth = _true_interaction(x.double().numpy(), result.labels)
    note = f"test error {error:.2f}, of which noise 1.00; true GEH of (x0, x1) here: {truth:.1f}, of all other pairs: 0"
    return Demonstration(result, note, {"surfaces": surfaces})


def explain_products(seed: int, progress: bool) -> Demonstration:
    """Explain which neurons of a hidden layer interact in a network that multiplies two handwritten digits.

    Labels of held-out images are evidence. The gallery shows the training images that activate the strongest pairs.
    """
    net, x_train, x, y = digit_products(seed, progress)
    explainer = GEHExplainer(net, layer="digits")
    names = [f"{side} {letter}" for letter in "ABC" for side in ("left", "right")]
    options: dict[str, Any] = {"names": names, "scale": "std", "groups": 1, "draws": 50}
    result = explainer.explain(x, evidence=(x, y), seed=seed, progress=progress, **options)
    gallery = explainer.interpret(result, x_train, pairs=3, k=6, ascent=False, progress=progress)
    with torch.no_grad():
        rest = float((net(x) - y).var() / y.var())
    note = f"{1 - rest:.0%} of the variance of held-out products explained; the product joins left and right neurons"
    return Demonstration(result, note, {"gallery": gallery})


#: Title, name of the files, and function of each demonstration.
_DEMONSTRATIONS: tuple[tuple[str, str, Callable[[int, bool], Demonstration]], ...] = (
    ("Inputs: a dropout network trained on Friedman's function of ten features", "friedman", explain_friedman),
    ("Hidden units: what a network reads from two digits, whose product it predicts", "digits", explain_products),
)


def run(folder: Path, seed: int = 0, progress: bool = True) -> list[str]:
    """Run both demonstrations, write figures, results and pages to ``folder``, and return the lines to print.

    Parameters
    ----------
    folder
        Where files are written; it is created.
    seed
        Decides on data, training and draws.
    progress
        Show progress bars.

    Examples
    --------
    >>> lines = run(Path("demo_output"), progress=False)  # doctest: +SKIP
    """
    import matplotlib

    # Files only: no window, and no display needed.
    matplotlib.use("Agg")
    folder = check_folder("output", folder)
    lines = []
    for title, name, explain in _DEMONSTRATIONS:
        shown = explain(seed, progress)
        lines += [f"\n{title}\n{'-' * len(title)}", shown.note, repr(shown.result)]
        for picture in ("heatmap", "intervals"):
            path = folder / f"{name}_{picture}.png"
            axes = getattr(shown.result.plot, picture)()
            lines.append(f"figure: {save_figure(axes.figure, path, dpi=120)}")
        lines.append(f"result: {shown.result.save(folder / f'{name}.npz')}")
        lines.append(f"page: {shown.result.report(folder / f'{name}.html', title=title, **shown.report_parts)}")
    return lines


def _true_interaction(inputs: Floats, labels: Ints) -> float:
    """Return the true GEH of (x0, x1) at these points and groups, from d2/dx0dx1 of 10 sin(pi x0 x1)."""
    angle = np.pi * inputs[:, 0] * inputs[:, 1]
    local = 10 * np.pi * (np.cos(angle) - angle * np.sin(angle))
    return float(np.abs(np.bincount(labels, weights=local)).sum() / len(labels))
