"""A network for tables: main effects plus a Bayesian network for the interactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from geh_explain._validation import check_int
from geh_explain.bnn.concrete import ConcreteDropout
from geh_explain.bnn.layers import LinearMap
from geh_explain.bnn.mean_field import MeanField
from geh_explain.bnn.products import PairPolynomials, TriplePolynomials, degree_of_pairs, degree_of_triples
from geh_explain.errors import GEHTypeError, GEHValueError

#: Hidden units of the network of each feature, for main="network".
_UNITS_PER_FEATURE = 16

#: The Bayesian layer of each value of ``weights``.
_WRAPPERS: dict[str, Callable[[LinearMap], nn.Module]] = {
    "dropout": ConcreteDropout,
    "gaussian": MeanField,
    "point": lambda layer: layer,
}
#: Standard deviation of the prior of coefficients of products.
_PRODUCT_PRIOR = 0.1
#: The Bayesian layer of these coefficients.
_PRODUCT_WRAPPERS: dict[str, Callable[[LinearMap], nn.Module]] = {
    "dropout": partial(ConcreteDropout, length_scale=1 / _PRODUCT_PRIOR),
    "gaussian": partial(MeanField, prior=_PRODUCT_PRIOR),
    "point": lambda layer: layer,
}


class HybridNet(nn.Module):
    """Sum of main effects, products of few features and an interaction network, for tables of ``features`` columns.

    The output is, for scaled inputs s ::

        f(x) = stretch * (main(s) + pairs(s) + triples(s) + interactions(s)) + shift,    s = 2 (x - low) / span - 1

    ``main`` takes up what each feature does alone, so that ``interactions`` can describe what features do together.
    ``pairs`` and ``triples`` take up weak interactions of two and of three features, which an MLP learns last
    (:class:`PairPolynomials`, :class:`TriplePolynomials`).
    :func:`fit` sets low and span such that s lies in (-1, 1), where a dropped input is one in the middle of its range,
    and shift and stretch by the range of the targets. The network therefore takes tables in their own units.

    Parameters
    ----------
    features
        Number of input columns.
    hidden
        Widths of the hidden layers of the interaction network, an MLP.
    outputs
        Number of outputs: one per target or class; twice as many for ``fit(heteroscedastic=True)``.
    main
        Main effects: ``"linear"``, ``"network"`` for a small network per feature, or None for none.
    pairs
        Largest degree of the polynomials whose products are added for pairs of features, 0 for none. None for 3, or
        what a million coefficients allow, and for 0 beside other ``interactions``.
    triples
        The same for products of three features, 0 for none. None for 2 where that needs at most 20,000 coefficients
        (3 to 17 features of one output), else for 0, and for 0 beside ``pairs`` below 2 or other ``interactions``.
    weights
        Weights of the MLP and of the products: ``"dropout"`` for concrete dropout with a learned rate per node,
        ``"gaussian"`` for mean field, ``"point"`` for plain weights.
    interactions
        A module of (rows, features) -> (rows, outputs) to use instead of the MLP; ``hidden`` is then ignored.
    activation
        Function that returns a new activation module; softplus with beta = 10 by default, which has the second
        derivatives that interactions are measured by.
    seed
        Seed of the initial weights. The global generator is left as it was.

    Attributes
    ----------
    main, pairs, triples, interactions : nn.Module
        The parts; all but ``interactions`` may be None.
    low, span : Tensor
        Buffers (features,) that scale the inputs; 0 and 1 before :func:`fit`.
    shift, stretch : Tensor
        Buffers (outputs,) that scale the outputs; 0 and 1 before :func:`fit`.

    Raises
    ------
    GEHValueError
        If ``weights`` or ``main`` is unknown, a size is less than 1, or ``pairs`` or ``triples`` need more than a
        million coefficients.
    GEHTypeError
        If ``interactions`` is not a module, or a size is not an integer.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> x = torch.rand(400, 3)
    >>> net = geh.bnn.HybridNet(3, hidden=(20,))
    >>> history = geh.bnn.fit(net, x, x[:, 0] * x[:, 1], epochs=3, progress=False)
    >>> geh.GEHExplainer(net).explain(x, groups=2, draws=20, progress=False).geh.draws.shape
    (20, 3)
    """

    low: Tensor
    span: Tensor
    shift: Tensor
    stretch: Tensor

    def __init__(
        self,
        features: int,
        hidden: Sequence[int] = (100, 100, 100),
        outputs: int = 1,
        *,
        main: str | None = "linear",
        pairs: int | None = None,
        triples: int | None = None,
        weights: str = "dropout",
        interactions: nn.Module | None = None,
        activation: Callable[[], nn.Module] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.features = check_int("features", features, 1)
        self.outputs = check_int("outputs", outputs, 1)
        if weights not in _WRAPPERS:
            raise GEHValueError(f"weights={weights!r} is unknown; use {', '.join(map(repr, _WRAPPERS))}.")
        if interactions is not None and not isinstance(interactions, nn.Module):
            raise GEHTypeError(f"interactions={interactions!r} is not a torch.nn.Module; pass a module or None.")
        widths = [check_int("hidden", width, 1) for width in hidden]
        make_activation = activation or (lambda: nn.Softplus(beta=10))
        wrap = _PRODUCT_WRAPPERS[weights]
        for name, degree in (("pairs", pairs), ("triples", triples)):
            if degree is not None:
                check_int(name, degree, 0)
        of_pairs = 0 if pairs is None and interactions is not None else degree_of_pairs(features, outputs, pairs)
        # Who asks for less than the default of pairs gets no triples either.
        without = triples is None and (of_pairs < 2 or interactions is not None)
        of_triples = 0 if without else degree_of_triples(features, outputs, triples)
        # New weights are made on the CPU, so only its generator is seeded and restored.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.main = _main_effects(main, features, outputs, make_activation)
            self.interactions = interactions or _mlp([features, *widths, outputs], _WRAPPERS[weights], make_activation)
            self.pairs = PairPolynomials(features, outputs, of_pairs, wrap) if of_pairs else None
            self.triples = TriplePolynomials(features, outputs, of_triples, wrap) if of_triples else None
        self.register_buffer("low", torch.zeros(features))
        self.register_buffer("span", torch.ones(features))
        self.register_buffer("shift", torch.zeros(outputs))
        self.register_buffer("stretch", torch.ones(outputs))

    def forward(self, x: Tensor) -> Tensor:
        scaled = 2 * (x - self.low) / self.span - 1
        out: Tensor = self.interactions(scaled)
        if self.main is not None:
            out = out + self.main(scaled)
        if self.pairs is not None:
            out = out + self.pairs(scaled)
        if self.triples is not None:
            out = out + self.triples(scaled)
        return out * self.stretch + self.shift

    @property
    def input_dropout_rates(self) -> Tensor | None:
        """Learned dropout rate (features,) of each feature, low for important ones; None without concrete dropout.

        It is the lowest one of the feature and of its polynomials in ``pairs`` and ``triples``. ``GEHExplainer.screen``
        ranks features by it.
        """
        first = next((module for module in self.interactions.modules() if isinstance(module, ConcreteDropout)), None)
        # A first layer with one common rate, or of another width, has no rate per feature.
        if first is None or len(first.rates) != self.features:
            return None
        lowest = first.rates
        if self.pairs is not None and isinstance(self.pairs.coefficients, ConcreteDropout):
            of_polynomials = self.pairs.coefficients.rates.reshape(self.pairs.degree, self.features)
            lowest = torch.minimum(lowest, of_polynomials.amin(dim=0))
        if self.triples is not None and isinstance(self.triples.coefficients, ConcreteDropout):
            lowest = torch.minimum(lowest, self.triples.lowest_of_features(self.triples.coefficients.rates))
        return lowest

    def importance(self) -> Tensor | None:
        """Return 1 - dropout rate (features,) of each feature, high for important ones; None without concrete dropout.

        >>> HybridNet(2, hidden=(3,)).importance()
        tensor([0.9000, 0.9000])
        """
        rates = self.input_dropout_rates
        return None if rates is None else 1 - rates


class FeatureNetworks(nn.Module):
    """Sum of one small network per feature: main effects of any shape without interactions.

    With one hidden layer of ``width`` units per feature ::

        f(x) = b + sum_j v_j^T activation(w_j x_j + c_j)

    A grouped convolution evaluates the hidden layers of all features in one call.

    Parameters
    ----------
    features, outputs
        Number of input columns and of outputs.
    activation
        Function that returns a new activation module.
    width
        Hidden units per feature.
    """

    def __init__(
        self, features: int, outputs: int, activation: Callable[[], nn.Module], width: int = _UNITS_PER_FEATURE
    ) -> None:
        super().__init__()
        self.hidden = nn.Conv1d(features, features * width, 1, groups=features)
        self.act = activation()
        self.out = nn.Linear(features * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.act(self.hidden(x.unsqueeze(-1))).flatten(1))
        return out


def _main_effects(
    main: str | None, features: int, outputs: int, activation: Callable[[], nn.Module]
) -> nn.Module | None:
    """Return the module of the main effects for a value of HybridNet's argument ``main``."""
    if main is None:
        return None
    if main == "linear":
        return nn.Linear(features, outputs)
    if main == "network":
        return FeatureNetworks(features, outputs, activation)
    raise GEHValueError(f"main={main!r} is unknown; use 'linear', 'network' or None.")


def _mlp(
    widths: Sequence[int], wrap: Callable[[LinearMap], nn.Module], activation: Callable[[], nn.Module]
) -> nn.Sequential:
    """Return an MLP with wrapped linear layers of these widths, from inputs to outputs, the last without activation."""
    layers: list[nn.Module] = []
    for in_features, out_features in pairwise(widths):
        layers += [wrap(nn.Linear(in_features, out_features)), activation()]
    return nn.Sequential(*layers[:-1])
