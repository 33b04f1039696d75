"""All cases, by the names they have on the command line. To add one, write a function that returns a :class:`Case`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.growth import growth_draws, growth_inputs, growth_points, memory
from benchmarks.images import exemplars, lenet_hidden, lenet_patches, lenet_pixels, resnet_channels
from benchmarks.many import energy, group_curve
from benchmarks.tables import narrow, wide
from benchmarks.timing import Case

CASES: dict[str, Callable[[], Case]] = {
    "mlp-8": partial(narrow, 8, few=(10, 10, 50), checked=200, loop=True, times=2),
    "mlp-32": partial(narrow, 32, few=(0, 4, 20), checked=200, times=2),
    "mlp-128": partial(narrow, 128, few=(0, 1, 5), checked=8),
    "mlp-784": partial(wide, 784, (100, 100), few=20, columns=100, times=25),
    "mlp-5000": partial(wide, 5000, (100,), few=4, columns=50, times=100),
    "lenet-pixels": lenet_pixels,
    "lenet-patches": lenet_patches,
    "lenet-hidden": lenet_hidden,
    "resnet-channels": resnet_channels,
    "exemplars": exemplars,
    "energy": energy,
    "group-curve": group_curve,
    "growth-points": growth_points,
    "growth-draws": growth_draws,
    "growth-inputs": growth_inputs,
    "memory": memory,
}
