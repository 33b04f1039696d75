"""Which channels of a ResNet act together, and what do they respond to?

A torchvision ResNet-18 learns to tell whether a picture shows a red circle beside a blue square; then the channels of
its third stage are explained, and the strongest pairs shown. Runs offline, in one or two minutes.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import geh_explain as geh
from geh_explain.vision import torchvision

SIZE = 48
COLOURS = {"red": (0.9, 0.15, 0.15), "blue": (0.15, 0.3, 0.9), "green": (0.1, 0.7, 0.25)}
SHAPES = ("circle", "square", "triangle")


def shapes(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """Return pictures (n, 3, 48, 48) of two shapes, whether they are the pair looked for, and what they show."""
    generator = np.random.default_rng(seed)
    pictures, labels, words = torch.full((count, 3, SIZE, SIZE), 0.95), torch.zeros(count), []
    for row in range(count):
        kinds = [(SHAPES[generator.integers(3)], list(COLOURS)[generator.integers(3)]) for _ in range(2)]
        if generator.random() < 0.4:
            kinds = [("circle", "red"), ("square", "blue")]
        order = generator.permutation(2)
        for place, number in enumerate(order):
            centre = (generator.integers(13, 35), generator.integers(11, 14) + 24 * place)
            _paint(pictures[row], *kinds[number], centre, generator.integers(7, 10))
        labels[row] = ("circle", "red") in kinds and ("square", "blue") in kinds
        words.append(" and ".join(sorted(f"{colour} {shape}" for shape, colour in kinds)))
    return pictures + 0.03 * torch.from_numpy(generator.standard_normal(pictures.shape)).float(), labels, words


def _paint(picture: torch.Tensor, shape: str, colour: str, centre: tuple[int, int], radius: int) -> None:
    y, x = torch.meshgrid(torch.arange(SIZE) - centre[0], torch.arange(SIZE) - centre[1], indexing="ij")
    inside = {
        "circle": x**2 + y**2 <= radius**2,
        "square": (x.abs() <= 0.85 * radius) & (y.abs() <= 0.85 * radius),
        "triangle": (y <= radius) & (y >= 2 * x.abs() - radius),
    }[shape]
    picture[:, inside] = torch.tensor(COLOURS[colour])[:, None]


def train(model: torch.nn.Module, pictures: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    """Fit the network."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(labels)), 64):
            optimiser.zero_grad()
            F.binary_cross_entropy_with_logits(model(pictures[batch])[:, 0], labels[batch]).backward()
            optimiser.step()
    model.eval()


def main() -> None:
    """Train, explain, show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("resnet_channels.png"))
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = torchvision("models").resnet18(num_classes=1)
    pictures, labels, _ = shapes(1200, seed=0)
    train(model, pictures, labels, options.epochs)
    test, truth, words = shapes(400, seed=1)
    with torch.no_grad():
        accuracy = ((model(test)[:, 0] > 0).float() == truth).float().mean()
    print(f"accuracy {accuracy:.3f}")

    with warnings.catch_warnings():  # no dropout: one network, no intervals
        warnings.simplefilter("ignore", geh.GEHWarning)
        explainer = geh.GEHExplainer(model, "layer3", output="probability")
        strongest = explainer.screen(test[:64], keep=32)
        explainer = geh.GEHExplainer(model, "layer3", units=strongest, output="probability")
        result = explainer.explain(test[:64], groups=3, scale="std")
    print(result.top(3))
    gallery = explainer.interpret(result, test, pairs=2, ascent={"limits": (0, 1), "steps": 128})
    gallery.plot().savefig(options.output, dpi=120)
    for pair in gallery.pairs:
        shown = [geh.interpret.reading(words[index] for index in row) for row in pair.exemplars.indices]
        print(" × ".join(f"{unit}: {reading}" for unit, reading in zip(pair.units, shown, strict=True)))
    print(f"figure: {options.output}")


if __name__ == "__main__":
    main()
