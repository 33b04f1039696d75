"""Cases on images: pixels, patches, and hidden units of convolutional networks."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import geh_explain as geh
from benchmarks import other_methods
from benchmarks import package_methods as ours
from benchmarks.networks import images, lenet, resnet
from benchmarks.tabular import TORCH_NOTE
from benchmarks.timing import Case, Method, Target
from benchmarks.torch_hessians import TORCH_HESSIANS, Problem, double_backward, torch_method
from studies.vision.networks import crop_photographs, load_efficientnet

#: Channels of the ResNet that are explained.
CHANNELS = 64


def lenet_patches(points: int = 32, checked: int = 8) -> Case:
    """Return the case of the 7 x 14 patches of an image of two digits."""
    model, x = lenet(), images(points, 1, 28, 56)
    make = partial(geh.GEHExplainer, model, units=geh.units.Patches(4))
    problem = Problem(
        x,
        lambda x: x.new_zeros(len(x), 98),
        lambda x, t: model(x + _expand_patches(t))[:, 0],
        lambda x, t: model(x + _expand_patches(t))[0],
    )
    methods = {
        **ours.explain_methods(make, x, checked),
        **ours.engine_methods(make, x, checked),
        **{name: torch_method(form, problem, checked) for name, form in TORCH_HESSIANS.items()},
    }
    # The other methods explain gates: 1 lets a patch of the first image through, 0 blocks it.
    gates_on, gates_off = torch.ones(points, 98), torch.zeros(1, 98)
    others = other_methods.make_methods(
        lambda gates: model(x[:1] * _expand_patches(gates))[:, 0], gates_on, gates_off, (0, 1, 2)
    )
    return Case(
        title=f"LeNet, 98 patches of 28 x 56 images, {points} points",
        methods=methods | others,
        reference=ours.EXPLAIN,
        targets=[*ours.speedup_targets(methods, ("vmap(hessian)",), 2), *ours.exact_targets(methods)],
        notes=[
            ours.engine_note(make(), x),
            TORCH_NOTE + "; all along the same directions",
            "softplus and average pooling: the network is smooth, and all methods differentiate the same function",
            *other_methods.missing_notes(),
        ],
        points=points,
    )


def lenet_pixels(points: int = 4, checked: int = 1) -> Case:
    """Return the case of all 1,568 pixels of an image of two digits; torch is timed on one point and scaled."""
    model, x = lenet(), images(points, 1, 28, 56)
    make = partial(geh.GEHExplainer, model)
    pixels = x[0].shape
    problem = Problem(
        x,
        lambda x: x.new_zeros(len(x), pixels.numel()),
        lambda x, t: model(x + t.reshape(-1, *pixels))[:, 0],
        lambda x, t: model(x + t.reshape(pixels))[0],
    )
    methods = {
        **ours.explain_methods(make, x, checked),
        ours.BARE: ours.engine_methods(make, x, checked)[ours.BARE],
        **{name: torch_method(form, problem, checked, 1) for name, form in TORCH_HESSIANS.items()},
    }
    return Case(
        title=f"LeNet, 1,568 pixels of 28 x 56 images, {points} points",
        methods=methods,
        reference=ours.EXPLAIN,
        targets=ours.exact_targets(methods),
        notes=[ours.engine_note(make(), x), TORCH_NOTE],
        points=points,
    )


def lenet_hidden(points: int = 1000, checked: int = 200) -> Case:
    """Return the case of the 84 units of the second-to-top layer, as in the paper."""
    model, x = lenet(), images(points, 1, 28, 56)
    make = partial(geh.GEHExplainer, model, "act4", output="probability")
    below, head = model[:-1], model[-1]
    problem = Problem(x, below, lambda _, t: head(t).sigmoid()[:, 0], lambda _, t: head(t).sigmoid()[0])
    methods = {
        **ours.explain_methods(make, x, checked),
        **ours.engine_methods(make, x, checked),
        **{name: torch_method(form, problem, checked) for name, form in TORCH_HESSIANS.items()},
    }
    return Case(
        title=f"LeNet, 84 units of the second-to-top layer, probability, {points:,} points",
        methods=methods,
        reference=ours.EXPLAIN,
        targets=ours.exact_targets(methods),
        notes=[ours.engine_note(make(), x), TORCH_NOTE + "; the part below the layer runs once, without gradients"],
        points=points,
    )


def exemplars(count: int = 20_000) -> Case:
    """Return the case of the nine candidates that excite each of 84 units most, against forward passes alone."""
    model, x = lenet(), images(count, 1, 28, 56)
    search = partial(geh.interpret.exemplars, model, "act4", None, x, progress=False)
    search_name, forward_name = "exemplars()", "forward passes"
    return Case(
        title=f"LeNet, exemplars of 84 units among {count:,} images",
        methods={
            search_name: Method(search, lambda: search().scores),
            forward_name: Method(partial(_forward, model, x), partial(_best_activations, model, x)),
        },
        reference=forward_name,
        targets=[Target(search_name, (forward_name,), 1.1)],
        notes=["forward passes: the whole network, 256 images at a time, with unused outputs"],
    )


@torch.no_grad()
def _forward(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the outputs of a model, batch by batch."""
    return [model(batch) for batch in torch.split(x, 256)]


def _best_activations(model: nn.Sequential, x: Tensor) -> NDArray[np.float64]:
    """Return the nine highest activations of each unit (units, 9)."""
    values = torch.cat(_forward(model[:-1], x))
    return values.topk(9, dim=0).values.T.double().numpy()


def resnet_channels(points: int = 8) -> Case:
    """Return the case of 64 of the 256 channels of a ResNet's third stage, with smoothed ReLUs."""
    model, x = resnet(), images(points, 3, 64, 64)
    units = geh.units.Subset(range(CHANNELS))
    make = partial(geh.GEHExplainer, model, "layer3", units=units, output="probability")
    methods = {
        **ours.explain_methods(make, x, points, target=0),
        ours.BARE: ours.engine_methods(make, x, points, target=0)[ours.BARE],
        "double backward": torch_method(
            double_backward, _smoothed_problem(make(posterior=geh.posterior.PointEstimate()), x), points
        ),
    }
    return Case(
        title=f"ResNet-18, {CHANNELS} of 256 channels of layer3, probability of a class, {points} images of 64 x 64",
        methods=methods,
        reference=ours.EXPLAIN,
        targets=[*ours.speedup_targets(methods, ("double backward",), 1.5), *ours.exact_targets(methods)],
        notes=[
            ours.engine_note(make(), x, target=0),
            "double backward: of the function that explain() differentiates, with its smoothed ReLUs and kernels",
            "torch.func cannot transform that function, because it tests for NaN",
        ],
        points=points,
    )


def trained_channels(block: int, channels: int, points: int = 32) -> Case:
    """Return the case of channels of EfficientNet-Lite0 with ImageNet weights, on crops of photographs."""
    model, x = load_efficientnet().requires_grad_(False), crop_photographs(points, seed=0).pixels
    make = partial(geh.GEHExplainer, model, f"_blocks.{block}", units=geh.units.Subset(range(channels)))
    point = geh.posterior.PointEstimate()
    explain = partial(make(posterior=point).explain, target=0, groups=1, progress=False)
    methods = {
        ours.EXPLAIN: Method(partial(explain, x), partial(ours.answer_of, explain, x)),
        ours.BARE: ours.engine_methods(make, x, points, target=0)[ours.BARE],
        "double backward": torch_method(double_backward, _smoothed_problem(make(posterior=point), x), points),
    }
    return Case(
        title=f"EfficientNet-Lite0, {channels} channels of block {block}, {points} images of 224 x 224",
        methods=methods,
        reference=ours.EXPLAIN,
        targets=ours.speedup_targets(methods, ("double backward",), 2),
        notes=[
            ours.engine_note(make(), x, target=0),
            "double backward: of the function that explain() differentiates, above the layer only, along the same "
            "directions",
            "explain() also runs the network below the layer, once",
        ],
        points=points,
    )


def trained_screen(points: int = 32) -> Case:
    """Return the case of the search for the 16 channels of block 15 with the largest gradients."""
    model, x = load_efficientnet().requires_grad_(False), crop_photographs(points, seed=0).pixels
    explainer = geh.GEHExplainer(model, "_blocks.15", posterior=geh.posterior.PointEstimate())
    screen_name, forward_name = "screen()", "forward pass"
    return Case(
        title=f"EfficientNet-Lite0, screening of the 320 channels of block 15, {points} images of 224 x 224",
        methods={
            screen_name: Method(partial(explainer.screen, x, 0, keep=16, progress=False)),
            forward_name: Method(partial(_forward, model, x)),
        },
        reference=forward_name,
        targets=[Target(screen_name, (forward_name,), 4)],
        points=points,
    )


def _expand_patches(t: Tensor) -> Tensor:
    """Return one number per patch (..., 98) repeated over its pixels (..., 1, 28, 56)."""
    return (
        t.reshape(*t.shape[:-1], 1, 7, 1, 14, 1).expand(*t.shape[:-1], 1, 7, 4, 14, 4).reshape(*t.shape[:-1], 1, 28, 56)
    )


def _smoothed_problem(explainer: geh.GEHExplainer, x: Tensor) -> Problem:
    """Return the problem that an explainer solves: the smoothed model as a function of the shifts of its units."""
    plan = ours.warmed_up_plan(explainer, x, target=0)
    (rows,) = plan.points.batches()
    cut = plan.cut

    def outputs(x: Tensor, t: Tensor) -> Tensor:
        with cut.viewed(plan.view):
            return cut.outputs(rows[: len(x)], t)

    return Problem(x, lambda x: torch.zeros(len(x), cut.n_units), outputs, outputs)
