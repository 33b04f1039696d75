"""Mean-field Gaussian weights: independent normal distributions with learned means and standard deviations."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geh_explain._validation import check_positive
from geh_explain.bnn.layers import LinearMap, check_linear_map

#: Smallest variance of an output; the gradient of the square root is infinite at 0.
_MIN_VARIANCE = 1e-16


class MeanField(nn.Module):
    """A linear layer or convolution with independent Gaussian weights.

    Every weight and bias has the distribution N(mu, sigma^2): mu is the weight of the wrapped layer, sigma is learned
    as ``log_std``. The prior is N(0, s^2), and the divergence from it is ::

        kl = sum_w 1/2 * (sigma^2 / s^2 + mu^2 / s^2 - 1 - log(sigma^2 / s^2))

    In train mode outputs are drawn instead of weights (local reparameterisation), with less noise in the gradient ::

        y = (mu x + mu_b) + sqrt(sigma^2 x^2 + sigma_b^2) * eps,    eps ~ N(0, 1) for every row and output

    In eval mode the layer uses its mean weights. The explainer draws whole weight tensors with :meth:`sample`, so that
    one draw is one function of all rows.

    Parameters
    ----------
    layer
        ``nn.Linear`` or a convolution. It is wrapped, not copied.
    std
        Initial sigma of all weights.
    prior
        Standard deviation s of the prior; None for 1 / sqrt(inputs of an output node).

    Attributes
    ----------
    layer : nn.Module
        The wrapped layer with the means mu.
    log_std, log_std_bias : nn.Parameter
        log sigma of weight and bias, in their shapes; ``log_std_bias`` is None for a layer without bias.
    prior : float
        Standard deviation s of the prior.

    Raises
    ------
    GEHTypeError
        If ``layer`` is neither linear nor a convolution.
    GEHValueError
        If ``std`` or ``prior`` is not positive.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(geh.bnn.MeanField(torch.nn.Linear(3, 8)), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> result = geh.GEHExplainer(net).explain(torch.randn(50, 3), groups=2, draws=30, progress=False)
    >>> result.settings["posterior"], bool((result.geh.std[0, 1:] > 0).all())
    ('MeanField()', True)
    """

    def __init__(self, layer: LinearMap, *, std: float = 0.01, prior: float | None = None) -> None:
        super().__init__()
        self.layer = check_linear_map("MeanField", layer)
        check_positive("MeanField: std", std)
        if prior is not None:
            check_positive("MeanField: prior", prior)
        if layer.bias is None:
            self.register_parameter("log_std_bias", None)
        else:
            self.log_std_bias = nn.Parameter(torch.full_like(layer.bias, math.log(std)))
        self.log_std = nn.Parameter(torch.full_like(layer.weight, math.log(std)))
        # By default standardised inputs give outputs of variance about 1 under the prior.
        self.prior = prior or 1 / math.sqrt(layer.weight[0].numel())

    def forward(self, x: Tensor) -> Tensor:
        mean: Tensor = self.layer(x)
        if not self.training:
            return mean
        # Variances of independent terms add: the same linear map of squared inputs and variances of the weights.
        bias = None if self.log_std_bias is None else (2 * self.log_std_bias).exp()
        variance = _apply(self.layer, x.square(), (2 * self.log_std).exp(), bias)
        return mean + variance.clamp_min(_MIN_VARIANCE).sqrt() * torch.randn_like(mean)

    def kl(self) -> Tensor:
        """Return the divergence from the prior, a scalar tensor, over weights and biases."""
        total = _gaussian_kl(self.layer.weight, self.log_std, self.prior)
        if self.layer.bias is not None and self.log_std_bias is not None:
            total = total + _gaussian_kl(self.layer.bias, self.log_std_bias, self.prior)
        return total

    @torch.no_grad()
    def sample(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw weight and bias.

        Parameters
        ----------
        generator
            A CPU generator, also for a layer on another device: a seed gives the same weights everywhere.

        Returns
        -------
        dict
            Tensors by their names in the wrapped layer's state dict, ``"weight"`` and ``"bias"``.

        Examples
        --------
        >>> layer = MeanField(nn.Linear(3, 2))
        >>> {name: tuple(value.shape) for name, value in layer.sample(torch.Generator()).items()}
        {'weight': (2, 3), 'bias': (2,)}
        """
        tensors = {}
        for name, mean, log_std in (
            ("weight", self.layer.weight, self.log_std),
            ("bias", self.layer.bias, self.log_std_bias),
        ):
            if mean is not None and log_std is not None:
                # Drawn in single precision, so that a network in double precision has the same draws.
                noise = torch.randn(mean.shape, generator=generator, dtype=torch.float32)
                tensors[name] = mean + log_std.exp() * noise.to(mean)
        return tensors


def _gaussian_kl(mean: Tensor, log_std: Tensor, prior: float) -> Tensor:
    """Return KL(N(mean, exp(log_std)^2) || N(0, prior^2)), summed over all entries."""
    ratio = (2 * log_std).exp() / prior**2
    return (ratio + mean.square() / prior**2 - 1 - ratio.log()).sum() / 2


def _apply(layer: LinearMap, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the layer's output for ``x`` with another weight and bias."""
    if isinstance(layer, nn.Linear):
        return F.linear(x, weight, bias)
    parameters = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    out: Tensor = torch.func.functional_call(layer, parameters, (x,))
    return out
