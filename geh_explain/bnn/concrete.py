"""Concrete dropout: rates are learned, one per node or one per layer (Gal, Hron & Kendall, 2017)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geh_explain.bnn.layers import Map, check_map, input_nodes, squared_norms
from geh_explain.errors import GEHValueError


class NodeDropout(nn.Module):
    """Drops the nodes of its input in train mode, each at a rate of its own that is learned; the identity in eval mode.

    A mask is sigmoid((logit p + logit u) / temperature) with uniform u: almost 0 or 1, and differentiable in p.
    """

    def __init__(self, nodes: int, p: float, temperature: float, hard: bool, last: bool) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.full((nodes,), math.log(p / (1 - p))))
        self.temperature, self.hard, self.last = temperature, hard, last

    @property
    def rates(self) -> Tensor:
        """The rate of each node."""
        return torch.sigmoid(self.logits)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.draw_mask(x) if self.training else x

    def draw_mask(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw the factors of each row's nodes, in a shape that broadcasts to ``x``.

        A generator lives on the CPU, so that a seed means the same on every device.
        """
        rows, ones = x.shape[:1] if x.ndim > 1 else (), (1,) * (x.ndim - 2)
        shape = (*rows, *ones, x.shape[-1]) if self.last else (*rows, x.shape[1], *ones)
        logits = self.logits if self.last else self.logits.reshape(-1, *ones)
        with torch.no_grad():
            if generator is None:
                uniform = torch.rand(shape, device=x.device, dtype=x.dtype)
            else:
                uniform = torch.rand(shape, generator=generator).to(x)
            kept = uniform.logit_(eps=1e-6).add_(logits).mul_(-1 / self.temperature).sigmoid_()
            rate = torch.sigmoid(logits)
            value = ((kept > 0.5).to(kept) if self.hard else kept) / (1 - rate)
            if not (self.training and logits.requires_grad):
                return value
            # The derivative by the logits, soft for hard masks too.
            slope = kept / (1 - rate) * (rate - (1 - kept) / self.temperature)
        # Carried by a zero: autograd need not go through all of the above.
        return value.addcmul(slope, logits - logits.detach())

    def extra_repr(self) -> str:
        return f"{len(self.logits)}, mean rate {self.rates.mean().item():.3g}"


class ConcreteDropout(nn.Module):
    """A linear layer or convolution whose input nodes are dropped, at rates that are learned.

    Nodes are features of a linear layer, and channels of a convolution. ``per`` is "node", or "layer" for one
    common rate. ``hard`` masks are exactly 0 or 1 (before what makes up for dropped nodes). ``length_scale`` is
    that of the prior: larger values draw the weights to 0.

    Train it with :func:`geh_explain.bnn.fit`, or add ``layer.kl() / number_of_rows`` to the mean negative
    log likelihood yourself. The explainer draws its masks by MC dropout.

    >>> import torch, geh_explain as geh
    >>> from torch import nn
    >>> net = nn.Sequential(geh.bnn.ConcreteDropout(nn.Linear(3, 8)), nn.Tanh(), nn.Linear(8, 1))
    >>> net[0].rates.shape, round(float(net[0].rates[0]), 3)
    (torch.Size([3]), 0.1)
    >>> result = geh.GEHExplainer(net).explain(torch.randn(50, 3), groups=2, draws=30, progress=False)
    >>> bool((result.geh.std[0, 1:] > 0).all())
    True
    """

    def __init__(
        self,
        layer: Map,
        per: str = "node",
        *,
        p: float = 0.1,
        temperature: float = 0.1,
        hard: bool = False,
        length_scale: float = 1e-4,
    ) -> None:
        super().__init__()
        if per not in ("node", "layer"):
            raise GEHValueError(f"ConcreteDropout: per={per!r} is unknown; use 'node' or 'layer'.")
        if not 0 < p < 1:
            raise GEHValueError(f"ConcreteDropout: p={p!r}, the rate to start from, must lie between 0 and 1.")
        if not temperature > 0 or not length_scale > 0:
            raise GEHValueError(
                f"ConcreteDropout: temperature={temperature!r} and length_scale={length_scale!r} must be positive."
            )
        self.layer = check_map("ConcreteDropout", layer)
        nodes = input_nodes(layer) if per == "node" else 1
        self.drop = NodeDropout(nodes, p, temperature, hard, last=isinstance(layer, nn.Linear))
        self.drop.to(layer.weight)
        self.length_scale = length_scale

    @property
    def rates(self) -> Tensor:
        """The learned rate of each node (or the one of the layer); low ones mark what matters."""
        return self.drop.rates.detach()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(self.drop(x))
        return out

    def kl(self) -> Tensor:
        """Return the divergence from the prior, up to a constant."""
        kept, dropped = F.logsigmoid(-self.drop.logits), F.logsigmoid(self.drop.logits)
        norms = squared_norms(self.layer)
        weights = (norms / kept.exp()).sum()
        if self.layer.bias is not None:
            weights = weights + self.layer.bias.square().sum()
        entropy = -(kept.exp() * kept + dropped.exp() * dropped).expand_as(norms).sum()
        return self.length_scale**2 / 2 * weights - entropy
