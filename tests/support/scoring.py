"""Small networks in double precision, and the comparison of their scores with the plain reference."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import reference
import torch
from torch import Tensor, nn

import geh_explain as geh

CLOSE = 1e-10


def explain(
    model: Any,
    inputs: Any,
    target: Any = None,
    extra: Any = None,
    *,
    layer: Any = None,
    units: Any = None,
    output: Any = "raw",
    **options: Any,
) -> geh.Interactions:
    point = geh.posterior.PointEstimate()
    explainer = geh.GEHExplainer(model, layer, units=units, output=output, posterior=point)
    return explainer.explain(inputs, target, extra, **({"groups": 3, "progress": False} | options))


def assert_scores(result: geh.Interactions, local: np.ndarray, close: float = CLOSE) -> None:
    """Compare all three measures with the local Hessians' (n, D, D), over the result's own groups."""
    for scores, truth in (
        (result.aeh, reference.aeh(local)),
        (result.geh, reference.geh(local, result.labels)),
        (result.eah, reference.eah(local)),
    ):
        np.testing.assert_allclose(scores.mean, truth, rtol=0, atol=close)
    assert result.eah.mean.max() > 1e3 * close  # two matrices of zeros would agree too


def points(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def mlp(*widths: int, seed: int = 0, activation: Callable[[], nn.Module] = nn.Tanh) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    net = nn.Sequential(*layers[:-1]).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2.0)
    return net


def cnn(seed: int = 0) -> nn.Sequential:
    """From (1, 6, 6) by (3, 4, 4) and (4, 2, 2) to two outputs."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Softplus(), nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16, 2)
    ).double()


def check_deep_network(activation: Callable[[], nn.Module], seed: int) -> None:
    """Check the scores of a network with three hidden layers against the plain reference."""
    net, x = mlp(4, 8, 6, 5, 1, seed=seed, activation=activation), points(12, 4, seed)
    assert_scores(explain(net, x), reference.local_hessians(lambda x: net(x)[:, 0], x))
