"""One layer of a trained network: agreement with differences, faithfulness, stability, cost and pictures."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import geh_explain as geh
from geh_explain.errors import GEHWarning
from geh_explain.inference import auc
from geh_explain.inference.jsonl import Record
from geh_explain.results.interactions import Interactions
from studies.vision.differences import activations, channel_deviations, mixed_differences
from studies.vision.networks import SUBJECTS, Images

#: Smaller seeds were used to choose how kinked functions are smoothed.
FIRST_SEED = 10
#: Seeds of images that a result was not computed from are those of the run plus this.
_OTHER_IMAGES = 1000
#: Steps of the differences, in standard deviations of the channels.
STEPS = (0.25, 0.5, 1.0)
#: The one of them at which agreement is wanted.
WANTED_STEP = 0.5


@dataclass(frozen=True)
class Size:
    """Extent of a study.

    Parameters
    ----------
    subjects
        Networks, by the names of :data:`~studies.vision.networks.SUBJECTS`.
    seeds
        Samples of images and of channels for each layer.
    images, channels
        Images, and channels that are compared with differences.
    screened
        Channels with the largest gradients, whose pairs are checked by ablation.
    candidates
        Images among which exemplars are searched; 0 for no pictures.
    """

    subjects: tuple[str, ...]
    seeds: int
    images: int
    channels: int
    screened: int
    candidates: int


FULL = Size(tuple(SUBJECTS), seeds=3, images=24, channels=7, screened=12, candidates=240)
QUICK = Size(("text",), seeds=1, images=8, channels=4, screened=6, candidates=0)


def tasks(size: Size) -> list[tuple[Any, ...]]:
    """Return one task per network, layer and seed."""
    settings = size.images, size.channels, size.screened, size.candidates
    return [
        (name, layer, FIRST_SEED + number, *settings)
        for number in range(size.seeds)
        for name in size.subjects
        for layer in SUBJECTS[name].layers
    ]


@dataclass(frozen=True)
class _Layer:
    """A layer of a network, with images and the class of each that is explained, None for one output."""

    net: nn.Module
    name: str
    images: Images
    target: Tensor | None
    above: Callable[[nn.Module, str], nn.Module] | None = None

    @property
    def module(self) -> nn.Module:
        """The layer itself."""
        return self.net.get_submodule(self.name)

    @torch.no_grad()
    def differentiated(self) -> tuple[nn.Module, nn.Module, Tensor]:
        """Return a network, its layer and its inputs, whose differences are those of this layer at the least cost.

        It is what follows the layer, at the layer's output, where that is known, else the whole network.
        """
        if self.above is None:
            return self.net, self.module, self.images.pixels
        net, inputs = self.above(self.net, self.name), activations(self.net, self.module, self.images.pixels)
        torch.testing.assert_close(net(inputs), self.net(self.images.pixels), rtol=1e-4, atol=1e-4)
        return net, net.get_submodule("layer"), inputs

    def explainer(self, units: geh.units.Units | None = None) -> geh.GEHExplainer:
        """Return an explainer of some of its channels; None for all."""
        return geh.GEHExplainer(self.net, self.name, units=units, posterior=geh.posterior.PointEstimate())

    def explain(self, explainer: geh.GEHExplainer, part: Tensor | None = None, **options: Any) -> Interactions:
        """Return the interactions at a part of the images (None: all), in one group, scaled by standard deviations."""
        rows = torch.arange(len(self.images.pixels)) if part is None else part
        target = None if self.target is None else self.target[rows]
        return explainer.explain(self.images.pixels[rows], target, groups=1, scale="std", progress=False, **options)


@cache
def _network(name: str) -> nn.Module:
    """Return a network; each process loads it once."""
    return SUBJECTS[name].load()


@torch.no_grad()
def _predicted_class(net: nn.Module, images: Tensor) -> Tensor | None:
    """Return the class (n,) that a network predicts for each image, None if it has one output."""
    outputs = net(images)
    return None if outputs.ndim == 1 else outputs.argmax(dim=1)


def run(task: tuple[Any, ...], pictures: Path | None = None) -> Record:
    """Study one layer with one sample of images and channels, and return its record.

    ``pictures`` is the folder of the gallery, which the first sample of each layer draws; None for none.
    """
    name, title, seed, n_images, n_channels, screened, candidates = task
    subject, net = SUBJECTS[name], _network(name)
    images = subject.images(n_images, seed)
    layer = _Layer(net, subject.layers[title], images, _predicted_class(net, images.pixels), subject.above)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GEHWarning)
        record: Record = {
            "network": name,
            "layer": title,
            "seed": seed,
            **_compare_with_differences(layer, n_channels, seed),
            **_check_strongest(layer, screened, subject.images(n_images, seed + _OTHER_IMAGES)),
        }
        if candidates and pictures is not None and seed == FIRST_SEED:
            shown = subject.images(candidates, seed + 2 * _OTHER_IMAGES)
            record |= _draw_gallery(layer, screened, shown, pictures / f"vision_{name}_{title.replace(' ', '')}.png")
    return record


def _compare_with_differences(layer: _Layer, n_channels: int, seed: int) -> Record:
    """Return correlation and relative size of the interactions of random channels, against differences of the network.

    Channels that are constant over the images are not drawn.
    """
    deviations = channel_deviations(layer.net, layer.module, layer.images.pixels)
    channels = np.flatnonzero(deviations > 1e-3 * deviations.max())
    channels = np.sort(np.random.default_rng(seed).choice(channels, n_channels, replace=False))
    start = process_time()
    explainer = layer.explainer(geh.units.Subset(channels.tolist(), geh.units.Channels()))
    result = layer.explain(explainer)
    record: Record = {
        "channels": len(deviations),
        "explain_seconds": process_time() - start,
        "engine": result.settings["engine"],
        "output_change": result.settings["smoothed"]["relative_change"] if result.settings["smoothed"] else 0.0,
    }
    start = process_time()
    place = layer.differentiated()
    references = {
        step: mixed_differences(*place, layer.target, channels, step * deviations[channels]) / step**2 for step in STEPS
    }
    record["difference_seconds"] = (process_time() - start) / len(STEPS)
    scores = result.signed[0, 0]
    for step, reference in references.items():
        record[f"r {step:g}"] = float(np.corrcoef(scores, reference)[0, 1])
        record[f"scale {step:g}"] = float(scores @ reference / (reference @ reference))
        # How far differences themselves depend on the step: no score can agree with all of them.
        other = references[WANTED_STEP]
        record[f"own r {step:g}"] = float(np.corrcoef(reference, other)[0, 1])
        record[f"own scale {step:g}"] = float(reference @ other / (other @ other))
    return record


def _check_strongest(layer: _Layer, screened: int, others: Images) -> Record:
    """Return how far the pairs of the channels with the largest gradients hold on other images.

    Ablation is on other images. Stability is over sharpness and over two halves of the images, which share no
    photograph.
    """
    pixels, target = layer.images.pixels, layer.target
    start = process_time()
    units = layer.explainer().screen(pixels, target, keep=screened, progress=False)
    record: Record = {"screen_seconds": process_time() - start}
    explainer = layer.explainer(units)
    start = process_time()
    result = layer.explain(explainer, clusters=layer.images.sources)
    record["explain_screened_seconds"] = process_time() - start
    other_target = _predicted_class(layer.net, others.pixels)
    # Joint effects are absolute values, as those of EAH: nothing cancels.
    check = explainer.check(result, others.pixels, other_target, measure="eah", progress=False)
    observed, half = check.observed, len(check.observed) // 2
    strongest = np.argsort(-check.predicted, kind="stable")[:half]
    rest = np.setdiff1d(np.arange(len(observed)), strongest)
    large = observed > np.quantile(observed, 0.75)
    record |= {
        "ablation_correlation": check.correlation,
        "ablation_ratio": float(observed[strongest].mean() / observed[rest].mean()),
        "ablation_auc": auc(check.predicted, large),
        "stable": float(np.mean(result.table()["stable"])),
    }
    if result.settings["smoothed"]:
        table = explainer.stability(result, pixels, target, progress=False)
        record["keeps_place"] = float(table["keeps_place"].mean())
    even = torch.as_tensor(layer.images.sources % 2 == 0)
    first, second = (layer.explain(explainer, half.nonzero()[:, 0]).signed[0, 0] for half in (even, ~even))
    record["halves_correlation"] = float(np.corrcoef(first, second)[0, 1])
    return record


def _draw_gallery(layer: _Layer, screened: int, candidates: Images, path: Path) -> Record:
    """Draw what the two channels of the strongest pair respond to, and return names and seconds."""
    from studies.figures import save_figure, use_file_backend

    use_file_backend()
    units = layer.explainer().screen(layer.images.pixels, layer.target, keep=screened, progress=False)
    explainer = layer.explainer(units)
    result = layer.explain(explainer, clusters=layer.images.sources)
    start = process_time()
    gallery = explainer.interpret(result, candidates.pixels, pairs=1, k=6, clusters=candidates.sources, progress=False)
    save_figure(gallery.plot(), path, dpi=90)
    strongest = result.top(1).iloc[0]
    return {
        "picture": path.name,
        "pair": [strongest["unit_i"], strongest["unit_j"]],
        "score": float(strongest["mean"]),
        "gallery_seconds": process_time() - start,
    }
