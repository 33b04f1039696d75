"""Cases of some pairs: explanations of one unit, of some units and of single pairs, against one of all pairs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import geh_explain as geh
from benchmarks.networks import images, mlp, resnet, table
from benchmarks.timing import Case, Method, Target

#: Name of the reference.
ALL = "explain(), all pairs"
#: The unit whose pairs all methods but the last must agree on.
UNIT = 3


def some_inputs(inputs: int, hidden: tuple[int, ...], *, draws: int = 20, speedup: float) -> Case:
    """Return the case of inputs of a network with dropout; one unit is to be ``speedup`` times faster than all."""
    explainer = geh.GEHExplainer(mlp(inputs, hidden, dropout=0.1))
    widths = "-".join(map(str, hidden))
    title = f"Some pairs of {inputs} inputs, hidden {widths} with dropout, 200 points, {draws} draws"
    return _case(title, explainer, table(200, inputs), inputs, speedup, draws=draws)


def some_channels(points: int = 8, *, speedup: float) -> Case:
    """Return the case of the 256 channels of a ResNet's third stage."""
    point = geh.posterior.PointEstimate()
    explainer = geh.GEHExplainer(resnet(), "layer3", output="probability", posterior=point)
    title = f"Some pairs of the 256 channels of layer3 of ResNet-18, {points} images of 64 x 64"
    return _case(title, explainer, images(points, 3, 64, 64), 256, speedup, target=0)


def _case(title: str, explainer: geh.GEHExplainer, x: Tensor, units: int, speedup: float, **options: Any) -> Case:
    explain = partial(explainer.explain, x, groups=1, progress=False, **options)
    requests: dict[str, dict[str, Any]] = {
        ALL: {},
        "unit=, 1 row": {"unit": UNIT},
        "rows=, a tenth of the units": {"rows": [UNIT + k for k in range(units // 10)]},
        "rows=, half of the units": {"rows": [UNIT + k for k in range(units // 2)]},
        "pairs=, 10 pairs": {"pairs": [(UNIT + k, k + 20) for k in range(10)]},
    }
    methods = {
        name: Method(partial(explain, **request), partial(_of_unit, explain, request))
        for name, request in requests.items()
    }
    of_pairs = methods["pairs=, 10 pairs"]
    methods["pairs=, 10 pairs"] = Method(of_pairs.run)
    targets = [Target("unit=, 1 row", (ALL,), 1 / speedup), Target("rows=, half of the units", (ALL,), 1.1)]
    return Case(title, methods, ALL, targets, points=len(x))


def _of_unit(explain: partial[geh.Interactions], request: dict[str, Any]) -> NDArray[np.float64]:
    """Return AEH (D,) of the unit with all others."""
    return np.asarray(explain(**request).aeh.mean[UNIT])
