"""All cases, by their names on the command line.

To add one, write a function that returns a :class:`~benchmarks.timing.Case` and enter it here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.checks import checks
from benchmarks.compilation import compilation
from benchmarks.draws import energy, ensemble, evidence, group_curve
from benchmarks.growth import growth_draws, growth_inputs, growth_memory, growth_points
from benchmarks.images import (
    exemplars,
    lenet_hidden,
    lenet_patches,
    lenet_pixels,
    resnet_channels,
    trained_channels,
    trained_screen,
)
from benchmarks.some_pairs import some_channels, some_inputs
from benchmarks.tabular import narrow, wide
from benchmarks.timing import Case
from benchmarks.wide import (
    many_rows,
    many_rows_memory,
    search_growth,
    search_wide,
    search_wide_memory,
    search_widest,
    search_widest_memory,
)

CASES: dict[str, Callable[[], Case]] = {
    "mlp-8": partial(narrow, 8, points_of_others=(10, 10, 50), checked=200, with_loop=True, speedup=2),
    "mlp-32": partial(narrow, 32, points_of_others=(0, 4, 20), checked=200, speedup=2.5),
    "mlp-128": partial(narrow, 128, points_of_others=(0, 1, 5), checked=8),
    "mlp-784": partial(wide, 784, (100, 100), timed_points=20, columns=100, speedup=25),
    "mlp-5000": partial(wide, 5000, (100,), timed_points=4, columns=50, speedup=100),
    "lenet-pixels": lenet_pixels,
    "lenet-patches": lenet_patches,
    "lenet-hidden": lenet_hidden,
    "resnet-channels": resnet_channels,
    "efficientnet-15": partial(trained_channels, 15, 64),
    "efficientnet-10": partial(trained_channels, 10, 112),
    "efficientnet-screen": trained_screen,
    "exemplars": exemplars,
    "pairs-100": partial(some_inputs, 100, (100, 100, 100), speedup=10),
    "pairs-500": partial(some_inputs, 500, (100, 100, 100), speedup=10),
    "pairs-channels": partial(some_channels, speedup=1.5),
    "energy": energy,
    "ensemble-784": ensemble,
    "group-curve": group_curve,
    "evidence": evidence,
    "checks": checks,
    "compilation": compilation,
    "growth-points": growth_points,
    "growth-draws": growth_draws,
    "growth-inputs": growth_inputs,
    "memory": growth_memory,
    "search-5000": search_wide,
    "search-5000-memory": search_wide_memory,
    "search-100000": search_widest,
    "search-100000-memory": search_widest_memory,
    "search-growth": search_growth,
    "rows": many_rows,
    "rows-memory": many_rows_memory,
}
