"""The main job on data that need no download: train a small network, explain it, draw it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from geh_explain.explainer import GEHExplainer
from geh_explain.results.interactions import Interactions


def friedman_network(features: int = 10) -> nn.Sequential:
    """Return an untrained dropout network for Friedman's function."""
    return nn.Sequential(
        *(nn.Linear(features, 128), nn.GELU(), nn.Dropout(0.1)),
        *(nn.Linear(128, 128), nn.GELU(), nn.Dropout(0.1)),
        nn.Linear(128, 1),
    )


def digits_network() -> nn.Sequential:
    """Return an untrained convolutional dropout network for 8 x 8 digits."""
    parts: dict[str, nn.Module] = {
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
    for name, part in parts.items():
        net.add_module(name, part)
    return net


def train(net: nn.Module, x: Tensor, y: Tensor, loss: nn.Module, *, epochs: int, seed: int, progress: bool) -> None:
    """Fit ``net`` with AdamW and a cosine schedule, reproducibly."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    net.train()
    for _ in tqdm(range(epochs), desc="training", unit="epoch", disable=not progress, leave=False):
        for batch in torch.split(torch.randperm(len(x), generator=generator), 128):
            optimiser.zero_grad()
            loss(net(x[batch]), y[batch]).backward()
            optimiser.step()
        schedule.step()
    net.eval()


def friedman(seed: int = 0, progress: bool = True) -> tuple[nn.Sequential, Tensor, Tensor]:
    """Train a network on Friedman's first function; return it with test inputs (1000, 10) and targets (1000, 1).

    Of the ten features five matter, and x0 and x1 alone interact, as 10 sin(pi x0 x1).
    """
    from sklearn.datasets import make_friedman1

    inputs, values = make_friedman1(n_samples=6000, n_features=10, noise=1.0, random_state=seed)
    x = torch.as_tensor(inputs, dtype=torch.float32)
    y = torch.as_tensor(values, dtype=torch.float32)[:, None]
    mean, std = y[:5000].mean(), y[:5000].std()
    torch.manual_seed(seed)
    net = friedman_network()
    train(net, x[:5000], (y[:5000] - mean) / std, nn.MSELoss(), epochs=60, seed=seed, progress=progress)
    last = net[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():  # let the last layer speak in units of y
        last.weight.mul_(std)
        last.bias.mul_(std).add_(mean)
    return net, x[5000:], y[5000:]


def explain_friedman(seed: int, progress: bool) -> tuple[Interactions, str, dict[str, Any]]:
    """Explain the network trained on Friedman's function, compare with the truth, and look at the strongest pairs."""
    net, x, y = friedman(seed, progress)
    explainer = GEHExplainer(net)
    result = explainer.explain(x, draws=100, seed=seed, progress=progress)
    surfaces = [explainer.surface(x, pair=(i, j), result=result, progress=progress) for i, j in result.ranking().top(3)]
    with torch.no_grad():
        error = float((net(x) - y).pow(2).mean().sqrt())
    truth = _true_interaction(x.double().numpy(), result.labels)
    note = f"test error {error:.2f}, of which noise 1.00; true GEH of (x0, x1) here: {truth:.1f}, of all other pairs: 0"
    return result, note, {"surfaces": surfaces}


def _true_interaction(inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
    """Return the GEH of (x0, x1) in 10 sin(pi x0 x1), from its second derivative."""
    angle = np.pi * inputs[:, 0] * inputs[:, 1]
    local = 10 * np.pi * (np.cos(angle) - angle * np.sin(angle))
    return float(np.abs(np.bincount(labels, weights=local)).sum() / len(labels))


def explain_digits(seed: int, progress: bool) -> tuple[Interactions, str, dict[str, Any]]:
    """Explain which channels of a hidden convolution act together in the score of the right digit, and on what."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    x = torch.as_tensor(digits.images[order], dtype=torch.float32)[:, None] / 16
    y = torch.as_tensor(digits.target[order])
    torch.manual_seed(seed)
    net = digits_network()
    train(net, x[:1500], y[:1500], nn.CrossEntropyLoss(), epochs=25, seed=seed, progress=progress)
    with torch.no_grad():
        accuracy = float((net(x[1500:]).argmax(1) == y[1500:]).float().mean())
    explainer = GEHExplainer(net, layer="conv2")
    result = explainer.explain(x[1500:], target=y[1500:], draws=50, scale="std", seed=seed, progress=progress)
    gallery = explainer.interpret(result, x[:1500], pairs=3, ascent=False, progress=progress)
    return result, f"test accuracy {accuracy:.1%}", {"gallery": gallery}


def run(folder: Path, seed: int = 0, progress: bool = True) -> list[str]:
    """Run both demonstrations, write figures, results and pages to ``folder``, and return what to print."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for title, name, explain in (
        ("Inputs: a dropout network trained on Friedman's function of ten features", "friedman", explain_friedman),
        ("Hidden units: channels of a convolution in a network that reads digits", "digits", explain_digits),
    ):
        result, note, parts = explain(seed, progress)
        lines += [f"\n{title}\n{'-' * len(title)}", note, repr(result)]
        for picture in ("heatmap", "intervals"):
            path = folder / f"{name}_{picture}.png"
            axes = getattr(result.plot, picture)()
            axes.figure.savefig(path, dpi=120)
            lines.append(f"figure: {path}")
        lines.append(f"result: {result.save(folder / f'{name}.npz')}")
        lines.append(f"page: {result.report(folder / f'{name}.html', title=title, **parts)}")
    return lines
