"""Concrete dropout: dropout rates are learned, one per node or one per layer (Gal, Hron & Kendall, 2017)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geh_explain._validation import check_positive
from geh_explain.bnn.layers import LinearMap, check_linear_map, input_nodes, squared_norms
from geh_explain.errors import GEHValueError

#: Uniform noise is kept this far from 0 and 1, where its logit is infinite.
_UNIFORM_MARGIN = 1e-6


class NodeDropout(nn.Module):
    """Dropout with one learned rate per node; the identity in eval mode.

    A node with rate p = sigmoid(logit) is multiplied by the concrete mask ::

        m = (1 - z) / (1 - p),    z = sigmoid((logit p + logit u) / t),    u ~ U(0, 1)

    For a small temperature t it is almost 0 or almost 1 / (1 - p). It is differentiable in p.

    Parameters
    ----------
    nodes
        Number of rates: the input nodes of the layer that follows, or 1 for a common rate.
    p
        Initial rate.
    temperature
        Temperature t of the mask.
    hard
        Round 1 - z to 0 or 1 in the value of the mask; its gradient stays that of the soft mask.
    last
        Nodes are the last dimension of the input (linear layers) instead of dimension 1 (convolutions).

    Attributes
    ----------
    logits : nn.Parameter
        logit p of every node, shape (nodes,).
    """

    def __init__(self, nodes: int, p: float, temperature: float, hard: bool, last: bool) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.full((nodes,), math.log(p / (1 - p))))
        self.temperature = temperature
        self.hard = hard
        self.last = last

    @property
    def rates(self) -> Tensor:
        """Dropout rate p of every node, shape (nodes,), with gradient."""
        return torch.sigmoid(self.logits)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.draw_mask(x) if self.training else x

    def draw_mask(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw the mask m of every row and node.

        Parameters
        ----------
        x
            Input of the module; only its shape, device and dtype are used.
        generator
            Source of the uniform noise, on the CPU so that a seed gives the same masks on every device. None uses the
            global generator of the device of ``x``.

        Returns
        -------
        Tensor
            A mask that broadcasts to ``x``: (rows, nodes), with dimensions of size 1 where all positions of a row
            share the mask. In training it carries the gradient with respect to ``logits``.
        """
        rows = x.shape[:1] if x.ndim > 1 else ()
        ones = (1,) * (x.ndim - 2)
        shape = (*rows, *ones, x.shape[-1]) if self.last else (*rows, x.shape[1], *ones)
        logits = self.logits if self.last else self.logits.reshape(-1, *ones)
        with torch.no_grad():
            if generator is None:
                uniform = torch.rand(shape, device=x.device, dtype=x.dtype)
            else:
                uniform = torch.rand(shape, generator=generator).to(x)
            soft = uniform.logit_(eps=_UNIFORM_MARGIN).add_(logits).mul_(-1 / self.temperature).sigmoid_()  # 1 - z
            rate = torch.sigmoid(logits)
            mask = ((soft > 0.5).to(soft) if self.hard else soft) / (1 - rate)
            if not (self.training and logits.requires_grad):
                return mask
            # dm / dlogit of the soft mask; hard masks use it too, as a straight-through estimate.
            slope = soft / (1 - rate) * (rate - (1 - soft) / self.temperature)
        # Adding slope * 0 attaches this gradient without recording the operations above in the autograd graph.
        return mask.addcmul(slope, logits - logits.detach())

    def extra_repr(self) -> str:
        return f"{len(self.logits)}, mean rate {self.rates.mean().item():.3g}"


class ConcreteDropout(nn.Module):
    """A linear layer or convolution with learned dropout of its input nodes (concrete dropout).

    Nodes are the features of a linear layer and the channels of a convolution. In train mode every row has its own
    mask of the nodes; in eval mode nothing is dropped. The explainer draws the masks by MC dropout, one mask per draw
    for all rows. Mask of node j, and regulariser of the layer ::

        m_j = (1 - z_j) / (1 - p_j),    z_j = sigmoid((logit p_j + logit u_j) / t),    u_j ~ U(0, 1)

        kl = l^2 / 2 * (sum_j ||W_:,j||^2 / (1 - p_j) + ||b||^2) + sum_j [p_j log p_j + (1 - p_j) log(1 - p_j)]

    with the temperature t and the prior's length scale l. The second term is the negative entropy of the masks.

    Train with :func:`geh_explain.bnn.fit`, or add ``layer.kl() / n_rows`` to the mean negative log likelihood.

    Parameters
    ----------
    layer
        ``nn.Linear`` or a convolution. It is wrapped, not copied.
    per
        ``"node"`` for one rate per input node, ``"layer"`` for one common rate.
    p
        Initial dropout rate, between 0 and 1.
    temperature
        Temperature t of the masks; smaller values give masks closer to 0 or 1.
    hard
        Use masks that are exactly 0 or 1 (before the factor 1 / (1 - p)).
    length_scale
        Length scale l of the prior; larger values pull the weights more strongly to 0.

    Attributes
    ----------
    layer : nn.Module
        The wrapped layer.
    drop : NodeDropout
        The module that draws the masks; ``drop.logits`` are the learned parameters.

    Raises
    ------
    GEHTypeError
        If ``layer`` is neither linear nor a convolution.
    GEHValueError
        If ``per`` is unknown, ``p`` lies outside (0, 1), or ``temperature`` or ``length_scale`` is not positive.

    Examples
    --------
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
        layer: LinearMap,
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
            raise GEHValueError(f"ConcreteDropout: p={p!r}, the initial dropout rate, must lie between 0 and 1.")
        check_positive("ConcreteDropout: temperature", temperature)
        check_positive("ConcreteDropout: length_scale", length_scale)
        self.layer = check_linear_map("ConcreteDropout", layer)
        nodes = input_nodes(layer) if per == "node" else 1
        self.drop = NodeDropout(nodes, p, temperature, hard, last=isinstance(layer, nn.Linear))
        self.drop.to(layer.weight)
        self.length_scale = length_scale

    @property
    def rates(self) -> Tensor:
        """Learned dropout rates, shape (n_nodes,) or (1,); low rates mark important nodes. Detached."""
        return self.drop.rates.detach()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(self.drop(x))
        return out

    def kl(self) -> Tensor:
        """Return the divergence from the prior up to a constant, a scalar tensor; the class has the formula."""
        # Log-sigmoids keep the entropy finite for rates that reach 0 or 1 in single precision.
        log_keep = F.logsigmoid(-self.drop.logits)
        log_rate = F.logsigmoid(self.drop.logits)
        norms = squared_norms(self.layer)
        weights = (norms / log_keep.exp()).sum()
        if self.layer.bias is not None:
            weights = weights + self.layer.bias.square().sum()
        # A common rate counts once per node.
        entropy = -(log_keep.exp() * log_keep + log_rate.exp() * log_rate).expand_as(norms).sum()
        return self.length_scale**2 / 2 * weights - entropy
