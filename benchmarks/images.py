"""Cases on images: patches of them, and hidden units of convolutional networks."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import geh_explain as geh
from benchmarks import own
from benchmarks.networks import images, lenet, resnet
from benchmarks.others import others, skipped
from benchmarks.rivals import RIVALS, Problem, double_backward, rival
from benchmarks.tables import BARE_RIVALS
from benchmarks.timing import Case, Contestant, Target

CHANNELS = 64


def lenet_patches(points: int = 32, checked: int = 8) -> Case:
    """Explain the 7 x 14 patches of a pair of digits."""
    model, x = lenet(), images(points, 1, 28, 56)
    make = partial(geh.GEHExplainer, model, units=geh.units.Patches(4))
    problem = Problem(
        x,
        lambda x: x.new_zeros(len(x), 98),
        lambda x, t: model(x + _spread(t))[:, 0],
        lambda x, t: model(x + _spread(t))[0],
    )
    contestants = {
        **own.explaining(make, x, checked),
        **own.bare(make, x, checked),
        **{name: rival(form, problem, checked) for name, form in RIVALS.items()},
    }
    on, off = torch.ones(points, 98), torch.zeros(1, 98)
    return Case(
        title=f"LeNet, 98 patches of 28 x 56 images, {points} points",
        # Of gates that let patches of the first image through.
        contestants=contestants | others(lambda gates: model(x[:1] * _spread(gates))[:, 0], on, off, (0, 1, 2)),
        reference=own.EXPLAIN,
        targets=[*own.against(contestants, ("vmap(hessian)",), 2), *own.never_slower(contestants)],
        notes=[
            own.engine_note(make(), x),
            BARE_RIVALS + "; all along the same directions",
            "softplus and average pooling: smooth by itself, so that all differentiate the same function",
            *skipped(),
        ],
        points=points,
    )


def lenet_pixels(points: int = 4, checked: int = 1) -> Case:
    """Explain all 1,568 pixels of a pair of digits; rivals are timed on one point, and scaled."""
    model, x = lenet(), images(points, 1, 28, 56)
    make = partial(geh.GEHExplainer, model)
    pixels = x[0].shape
    problem = Problem(
        x,
        lambda x: x.new_zeros(len(x), pixels.numel()),
        lambda x, t: model(x + t.reshape(-1, *pixels))[:, 0],
        lambda x, t: model(x + t.reshape(pixels))[0],
    )
    contestants = {
        **own.explaining(make, x, checked),
        own.BARE: own.bare(make, x, checked)[own.BARE],
        **{name: rival(form, problem, checked, 1) for name, form in RIVALS.items()},
    }
    return Case(
        title=f"LeNet, 1,568 pixels of 28 x 56 images, {points} points",
        contestants=contestants,
        reference=own.EXPLAIN,
        targets=own.never_slower(contestants),
        notes=[own.engine_note(make(), x), BARE_RIVALS],
        points=points,
    )


def lenet_hidden(points: int = 1000, checked: int = 200) -> Case:
    """Explain the 84 units of the second-to-top layer, as the paper does."""
    model, x = lenet(), images(points, 1, 28, 56)
    make = partial(geh.GEHExplainer, model, "act4", output="probability")
    below, head = model[:-1], model[-1]
    problem = Problem(x, below, lambda _, t: head(t).sigmoid()[:, 0], lambda _, t: head(t).sigmoid()[0])
    contestants = {
        **own.explaining(make, x, checked),
        **own.bare(make, x, checked),
        **{name: rival(form, problem, checked) for name, form in RIVALS.items()},
    }
    return Case(
        title=f"LeNet, 84 units of the second-to-top layer, probability, {points:,} points",
        contestants=contestants,
        reference=own.EXPLAIN,
        targets=own.never_slower(contestants),
        notes=[own.engine_note(make(), x), BARE_RIVALS + "; the part below the layer runs once, without gradients"],
        points=points,
    )


def exemplars(count: int = 20_000) -> Case:
    """Find the nine candidates that excite each of 84 units most, against the forward passes alone."""
    model, x = lenet(), images(count, 1, 28, 56)
    search = partial(geh.interpret.exemplars, model, "act4", None, x, progress=False)
    ours, alone = "exemplars()", "forward passes"
    return Case(
        title=f"LeNet, exemplars of 84 units among {count:,} images",
        contestants={
            ours: Contestant(search, lambda: search().scores),
            alone: Contestant(partial(_forward, model, x), partial(_best, model, x)),
        },
        reference=alone,
        targets=[Target(ours, (alone,), 1.1)],
        notes=["forward passes: all of the network, 256 images at a time, with nothing done to what comes out"],
    )


@torch.no_grad()
def _forward(model: nn.Module, x: Tensor) -> list[Tensor]:
    return [model(part) for part in torch.split(x, 256)]


def _best(model: nn.Sequential, x: Tensor) -> NDArray[np.float64]:
    """Return the nine highest activations of each unit."""
    values = torch.cat(_forward(model[:-1], x))
    return values.topk(9, dim=0).values.T.double().numpy()


def resnet_channels(points: int = 8) -> Case:
    """Explain 64 of the 256 channels of a ResNet's third stage, smoothed."""
    model, x = resnet(), images(points, 3, 64, 64)
    units = geh.units.Subset(range(CHANNELS))
    make = partial(geh.GEHExplainer, model, "layer3", units=units, output="probability")
    contestants = {
        **own.explaining(make, x, points, target=0),
        own.BARE: own.bare(make, x, points, target=0)[own.BARE],
        "double backward": rival(double_backward, _smoothed(make(posterior=geh.posterior.PointEstimate()), x), points),
    }
    return Case(
        title=f"ResNet-18, {CHANNELS} of 256 channels of layer3, probability of a class, {points} images of 64 x 64",
        contestants=contestants,
        reference=own.EXPLAIN,
        targets=[*own.against(contestants, ("double backward",), 1.5), *own.never_slower(contestants)],
        notes=[
            own.engine_note(make(), x, target=0),
            "double backward: of the very function that explain() differentiates, ReLUs smoothed and kernels included",
            "torch.func cannot pass through that function, which tests for NaN",
        ],
        points=points,
    )


def _spread(t: Tensor) -> Tensor:
    """Spread one number per patch (..., 98) over the pixels (..., 1, 28, 56)."""
    return (
        t.reshape(*t.shape[:-1], 1, 7, 1, 14, 1).expand(*t.shape[:-1], 1, 7, 4, 14, 4).reshape(*t.shape[:-1], 1, 28, 56)
    )


def _smoothed(explainer: geh.GEHExplainer, x: Tensor) -> Problem:
    """Return the function that an explainer differentiates, in the shifts of its units."""
    job = own.prepared(explainer, x, target=0)
    (rows,), cut = job.points.batches(), job.cut

    def outputs(x: Tensor, t: Tensor) -> Tensor:
        return cut.outputs(rows[: len(x)], t)

    return Problem(x, lambda x: torch.zeros(len(x), cut.count), outputs, outputs)
