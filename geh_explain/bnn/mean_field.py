"""Gaussian weights, independent of each other, whose means and spreads are learned."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geh_explain.bnn.layers import Map, check_map
from geh_explain.errors import GEHValueError


class MeanField(nn.Module):
    """A linear layer or convolution with Gaussian weights: those of ``layer`` are their means.

    In training the outputs are drawn instead of the weights (local reparameterisation), which has less noise;
    in eval mode the layer uses its mean weights; the explainer draws weights. ``std`` is the spread to start from,
    ``prior`` the standard deviation of the prior, None for 1 / sqrt(inputs of a node).

    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(geh.bnn.MeanField(torch.nn.Linear(3, 8)), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> result = geh.GEHExplainer(net).explain(torch.randn(50, 3), groups=2, draws=30, progress=False)
    >>> result.settings["posterior"], bool((result.geh.std[0, 1:] > 0).all())
    ('MeanField()', True)
    """

    def __init__(self, layer: Map, *, std: float = 0.01, prior: float | None = None) -> None:
        super().__init__()
        self.layer = check_map("MeanField", layer)
        if not std > 0 or not (prior is None or prior > 0):
            raise GEHValueError(f"MeanField: std={std!r} and prior={prior!r} must be positive.")
        if layer.bias is None:
            self.register_parameter("log_std_bias", None)
        else:
            self.log_std_bias = nn.Parameter(torch.full_like(layer.bias, math.log(std)))
        self.log_std = nn.Parameter(torch.full_like(layer.weight, math.log(std)))
        self.prior = prior or 1 / math.sqrt(layer.weight[0].numel())

    def forward(self, x: Tensor) -> Tensor:
        mean: Tensor = self.layer(x)
        if not self.training:
            return mean
        bias = None if self.log_std_bias is None else (2 * self.log_std_bias).exp()
        variance = _apply(self.layer, x.square(), (2 * self.log_std).exp(), bias)
        return mean + variance.clamp_min(1e-16).sqrt() * torch.randn_like(mean)

    def kl(self) -> Tensor:
        """Return the divergence from the prior."""
        total = _gaussian_kl(self.layer.weight, self.log_std, self.prior)
        if self.layer.bias is not None and self.log_std_bias is not None:
            total = total + _gaussian_kl(self.layer.bias, self.log_std_bias, self.prior)
        return total

    @torch.no_grad()
    def sample(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw the weights; names are as in the layer's state dict. The generator lives on the CPU."""
        drawn = {}
        for name, mean, log_std in (
            ("weight", self.layer.weight, self.log_std),
            ("bias", self.layer.bias, self.log_std_bias),
        ):
            if mean is not None and log_std is not None:
                noise = torch.randn(mean.shape, generator=generator, dtype=torch.float32)
                drawn[name] = mean + log_std.exp() * noise.to(mean)
        return drawn


def _gaussian_kl(mean: Tensor, log_std: Tensor, prior: float) -> Tensor:
    """Return the divergence of independent normal distributions from N(0, prior^2)."""
    ratio = (2 * log_std).exp() / prior**2
    return (ratio + mean.square() / prior**2 - 1 - ratio.log()).sum() / 2


def _apply(layer: Map, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Apply a layer with other weights."""
    if isinstance(layer, nn.Linear):
        return F.linear(x, weight, bias)
    given = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    out: Tensor = torch.func.functional_call(layer, given, (x,))
    return out
