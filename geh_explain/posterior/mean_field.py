"""Gaussian weights that were learned, see :class:`geh_explain.bnn.MeanField`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from geh_explain.errors import GEHValueError
from geh_explain.posterior.protocols import seed_of_draw
from geh_explain.posterior.weights import loaded


class MeanField:
    """The distribution that a network's :class:`geh_explain.bnn.MeanField` layers have learned.

    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(geh.bnn.MeanField(torch.nn.Linear(3, 8)), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.MeanField())
    >>> explainer.explain(torch.randn(50, 3), groups=2, draws=20, progress=False).geh.draws.shape
    (20, 3)
    """

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield ``n`` draws of the weights."""
        layers = gaussian_layers(model)
        if not layers:
            raise GEHValueError("posterior=MeanField(): the model has no geh_explain.bnn.MeanField layer.")
        for draw in range(n):
            generator = torch.Generator().manual_seed(seed_of_draw(seed, draw))
            sample = {
                f"{name}.layer.{entry}" if name else f"layer.{entry}": value
                for name, layer in layers.items()
                for entry, value in layer.sample(generator).items()
            }
            yield loaded(model, sample, draw)

    def __repr__(self) -> str:
        return "MeanField()"


def gaussian_layers(model: nn.Module) -> dict[str, Any]:
    """Return the layers whose weights are Gaussian, by name."""
    from geh_explain.bnn.mean_field import MeanField as Layer

    return {name: module for name, module in model.named_modules() if isinstance(module, Layer)}
