"""Mean field posteriors: Gaussian weights whose means and standard deviations were learned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from geh_explain.errors import GEHValueError
from geh_explain.posterior.loading import load_weights
from geh_explain.posterior.protocols import seed_of_draw


@runtime_checkable
class GaussianLayer(Protocol):
    """Methods of a module that wraps a layer and learns a Gaussian over its weights.

    :class:`geh_explain.bnn.MeanField` is one. Besides the methods it has the wrapped layer as a submodule ``layer``,
    whose parameters are the means, and a parameter ``log_std``; see :func:`is_gaussian_layer`.
    """

    def kl(self) -> Tensor:
        """Return the divergence KL(q(w), p(w)) of the weights from their prior, a scalar."""
        ...

    def sample(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Return weights sampled with a CPU generator, by their names in ``layer``."""
        ...


class MeanField:
    """Independent Gaussian weights, w ~ N(m, exp(log_std)^2), as :class:`geh_explain.bnn.MeanField` layers learn them.

    Layers of other kinds keep their weights. This is the default posterior of a model that has such layers.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(geh.bnn.MeanField(torch.nn.Linear(3, 8)), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.MeanField())
    >>> explainer.explain(torch.randn(50, 3), groups=2, draws=20, progress=False).geh.draws.shape
    (20, 3)
    """

    keeps_below = True

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield ``n`` draws of the weights of all Gaussian layers.

        Raises
        ------
        GEHValueError
            If the model has no Gaussian layer.
        """
        layers = gaussian_layers(model)
        if not layers:
            raise GEHValueError(
                "posterior=MeanField(): the model has no geh_explain.bnn.MeanField layer; use another posterior, or "
                "wrap its layers and train it."
            )
        for draw in range(n):
            # One generator for all layers, in the order of named_modules().
            generator = torch.Generator().manual_seed(seed_of_draw(seed, draw))
            sample = {
                f"{name}.layer.{entry}" if name else f"layer.{entry}": value
                for name, layer in layers.items()
                for entry, value in layer.sample(generator).items()
            }
            yield load_weights(model, sample, draw, "MeanField")

    def __repr__(self) -> str:
        return "MeanField()"


def is_gaussian_layer(module: nn.Module) -> bool:
    """Return whether a module is a :class:`GaussianLayer` with a submodule ``layer`` and a parameter ``log_std``.

    The methods alone would also match other modules, such as variational autoencoders with ``sample`` and ``kl``.
    """
    # The class is checked and not the instance: compiled modules forward attribute access to what they wrap.
    return (
        issubclass(type(module), GaussianLayer)
        and isinstance(getattr(module, "layer", None), nn.Module)
        and isinstance(getattr(module, "log_std", None), nn.Parameter)
    )


def gaussian_layers(model: nn.Module) -> dict[str, Any]:
    """Return the Gaussian layers of a model by name; the name is empty if the model is one itself."""
    return {name: module for name, module in model.named_modules() if is_gaussian_layer(module)}
