"""Runs the cases of ``benchmarks.versions`` with the package of one checkout; needs that package and torch only."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

#: Makes what is timed, for a number of points.
Maker = Callable[[int], Callable[[], object]]


def _package() -> Any:
    import geh_explain

    return geh_explain


def _mlp(inputs: int, hidden: tuple[int, ...], activation: type[nn.Module] = nn.Softplus, dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for n_inputs, width in zip((inputs, *hidden), hidden, strict=False):
        layers += [nn.Linear(n_inputs, width), activation(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], 1)).eval()


def _convolutional() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for n_inputs, width in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(n_inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)
    ).eval()


def _transformer() -> nn.Sequential:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(12 * 16, 1)).eval()


def _points(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def _explain(model: Any, x: Tensor, posterior: Any = None, layer: str | None = None, **options: Any) -> Any:
    geh = _package()
    units = options.pop("units", None)
    keywords: dict[str, Any] = {"engine": options.pop("engine", "auto")}
    keywords["posterior"] = geh.posterior.PointEstimate() if posterior is None else posterior(geh)
    explainer = geh.GEHExplainer(model, layer, units=None if units is None else units(geh), **keywords)
    return partial(explainer.explain, x, **{"groups": 1, "progress": False, **options})


def _dropout(geh: Any) -> Any:
    return geh.posterior.MCDropout()


def _ensemble(points: int) -> Any:
    members = [_mlp(32, (64, 64)) for _ in range(8)]
    return _explain(members[0], _points(points, 32), lambda geh: geh.posterior.Ensemble(members), groups=4)


def _weight_samples(points: int) -> Any:
    model = _mlp(8, (50, 50))
    samples = [{name: 1.01**k * value for name, value in model.state_dict().items()} for k in range(50)]
    return _explain(model, _points(points, 8), lambda geh: geh.posterior.WeightSamples(samples), groups=4)


def _group_curve(points: int) -> Any:
    geh = _package()
    explainer = geh.GEHExplainer(_mlp(8, (100, 100), dropout=0.1), posterior=geh.posterior.MCDropout())
    return partial(explainer.choose_groups, _points(points, 8), draws=20, progress=False)


_DEEP = (100, 100, 100)
#: For each case what makes it, and its number of points.
CASES: dict[str, tuple[Maker, int]] = {
    "8 inputs": (lambda n: _explain(_mlp(8, _DEEP), _points(n, 8)), 1000),
    "8 inputs, 50 draws of dropout, 5 groups": (
        lambda n: _explain(_mlp(8, _DEEP, dropout=0.1), _points(n, 8), _dropout, groups=5, draws=50),
        1000,
    ),
    "8 inputs, ReLU, groups='auto', 20 draws": (
        lambda n: _explain(_mlp(8, _DEEP, nn.ReLU, 0.1), _points(n, 8), _dropout, groups="auto", draws=20),
        1000,
    ),
    "8 inputs, hidden 30, 154 points, 200 draws": (
        lambda n: _explain(_mlp(8, (30,), dropout=0.1), _points(n, 8), _dropout, draws=200),
        154,
    ),
    "32 inputs": (lambda n: _explain(_mlp(32, _DEEP), _points(n, 32)), 1000),
    "128 inputs": (lambda n: _explain(_mlp(128, _DEEP), _points(n, 128)), 500),
    "784 inputs": (lambda n: _explain(_mlp(784, (100, 100)), _points(n, 784)), 500),
    "5,000 inputs": (lambda n: _explain(_mlp(5000, (100,)), _points(n, 5000)), 200),
    "8 inputs, exact engine": (lambda n: _explain(_mlp(8, _DEEP), _points(n, 8), engine="exact"), 1000),
    "8 inputs, differences": (lambda n: _explain(_mlp(8, _DEEP), _points(n, 8), engine="difference"), 1000),
    "ensemble of 8, 32 inputs": (_ensemble, 500),
    "50 weight samples, 8 inputs": (_weight_samples, 300),
    "number of groups": (_group_curve, 1000),
    "32 channels of a hidden layer": (
        lambda n: _explain(_convolutional(), _points(n, 3, 16, 16), layer="5", target=0),
        64,
    ),
    "patches of images": (
        lambda n: _explain(_convolutional(), _points(n, 3, 16, 16), target=0, units=lambda geh: geh.units.Patches(4)),
        32,
    ),
    "12 tokens of a transformer": (
        lambda n: _explain(_transformer(), _points(n, 12, 16), units=lambda geh: geh.units.Tokens()),
        100,
    ),
}


@cache
def make(case: str) -> Callable[[], object]:
    """Return what is timed, called once."""
    maker, points = CASES[case]
    call = maker(points)
    call()
    return call


def _peak() -> float:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    """Print seconds of the cases whose names are read, or the memory of one case."""
    checkout, job, *cases = sys.argv[1:]
    if not Path(_package().__file__).is_relative_to(checkout):
        raise SystemExit(f"geh_explain was imported from {_package().__file__}, not from {checkout}.")
    warnings.simplefilter("ignore")
    if job == "memory":
        maker, points = CASES[cases[0]]
        maker(12)()
        before = _peak()
        maker(points)()
        print(_peak() - before)
        return
    for line in sys.stdin:
        call = make(line.strip())
        start = time.perf_counter()
        call()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
