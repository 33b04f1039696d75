"""A network for tables: main effects plus a Bayesian network for the interactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from geh_explain._validation import check_int
from geh_explain.bnn.concrete import ConcreteDropout
from geh_explain.bnn.layers import Map
from geh_explain.bnn.mean_field import MeanField
from geh_explain.errors import GEHTypeError, GEHValueError

#: Hidden units of each feature's own network.
_PER_FEATURE = 16

_WEIGHTS: dict[str, Callable[[Map], nn.Module]] = {
    "dropout": ConcreteDropout,
    "gaussian": MeanField,
    "point": lambda layer: layer,
}


class HybridNet(nn.Module):
    """Main effects plus a network for the interactions, for tables of ``features`` columns.

    What each feature does by itself is left to the main effects, "linear" ones or a small "network" per feature, so
    that the other part is free for what features do together. That part is an MLP of ``hidden`` widths whose
    weights are Bayesian: "dropout" for concrete dropout with a learned rate per node, "gaussian" for mean field,
    "point" for plain ones; or any module of your own, as ``interactions``. Inside, inputs are brought to (-1, 1), so
    that a dropped one is one in the middle, and outputs to where they belong, as :func:`fit` finds them: the network
    takes raw tables.

    >>> import torch, geh_explain as geh
    >>> x = torch.rand(400, 3)
    >>> net = geh.bnn.HybridNet(3, hidden=(20,))
    >>> history = geh.bnn.fit(net, x, x[:, 0] * x[:, 1], epochs=3, progress=False)
    >>> geh.GEHExplainer(net).explain(x, groups=2, draws=20, progress=False).geh.draws.shape
    (20, 3)
    """

    def __init__(
        self,
        features: int,
        hidden: Sequence[int] = (100, 100, 100),
        outputs: int = 1,
        *,
        main: str | None = "linear",
        weights: str = "dropout",
        interactions: nn.Module | None = None,
        activation: Callable[[], nn.Module] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.features, self.outputs = check_int("features", features, 1), check_int("outputs", outputs, 1)
        if weights not in _WEIGHTS:
            raise GEHValueError(f"weights={weights!r} is unknown; use {', '.join(map(repr, _WEIGHTS))}.")
        if interactions is not None and not isinstance(interactions, nn.Module):
            raise GEHTypeError(f"interactions={interactions!r} is no torch.nn.Module.")
        widths = [check_int("hidden", width, 1) for width in hidden]
        act = activation or (lambda: nn.Softplus(beta=10))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.main = _main_effects(main, features, outputs, act)
            self.interactions = interactions or _mlp([features, *widths, outputs], _WEIGHTS[weights], act)
        for name, value in (("low", torch.zeros(features)), ("span", torch.ones(features))):
            self.register_buffer(name, value)
        for name, value in (("shift", torch.zeros(outputs)), ("stretch", torch.ones(outputs))):
            self.register_buffer(name, value)
        self.low: Tensor
        self.span: Tensor
        self.shift: Tensor
        self.stretch: Tensor

    def forward(self, x: Tensor) -> Tensor:
        scaled = 2 * (x - self.low) / self.span - 1
        out: Tensor = self.interactions(scaled)
        if self.main is not None:
            out = out + self.main(scaled)
        return out * self.stretch + self.shift

    @property
    def input_dropout_rates(self) -> Tensor | None:
        """The learned dropout rate of each feature, low for those that matter; None without concrete dropout."""
        for module in self.interactions.modules():
            if isinstance(module, ConcreteDropout):
                rates = module.rates
                return rates if len(rates) == self.features else None
        return None

    def importance(self) -> Tensor | None:
        """Return how much each feature is kept, 1 - its learned dropout rate; None without concrete dropout."""
        rates = self.input_dropout_rates
        return None if rates is None else 1 - rates


class FeatureNetworks(nn.Module):
    """One small network per feature, summed: main effects of any shape, and no interactions."""

    def __init__(
        self, features: int, outputs: int, activation: Callable[[], nn.Module], width: int = _PER_FEATURE
    ) -> None:
        super().__init__()
        self.hidden = nn.Conv1d(features, features * width, 1, groups=features)
        self.act = activation()
        self.out = nn.Linear(features * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.act(self.hidden(x.unsqueeze(-1))).flatten(1))
        return out


def _main_effects(main: str | None, features: int, outputs: int, act: Callable[[], nn.Module]) -> nn.Module | None:
    if main is None:
        return None
    if main == "linear":
        return nn.Linear(features, outputs)
    if main == "network":
        return FeatureNetworks(features, outputs, act)
    raise GEHValueError(f"main={main!r} is unknown; use 'linear', 'network' or None.")


def _mlp(widths: Sequence[int], wrap: Callable[[Map], nn.Module], act: Callable[[], nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, width in pairwise(widths):
        layers += [wrap(nn.Linear(before, width)), act()]
    return nn.Sequential(*layers[:-1])
