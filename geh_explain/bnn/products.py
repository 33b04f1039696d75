"""Products of polynomials of two and of three features: weak interactions, which a network of sums learns last."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from geh_explain.bnn.layers import LinearMap
from geh_explain.errors import GEHValueError

#: Largest degree of the polynomials of pairs that a network has by default.
_DEGREE_OF_PAIRS = 3
#: Coefficients at most.
_MAX_COEFFICIENTS = 1_000_000
#: Coefficients of triples at most that a network has by default.
_MAX_BY_DEFAULT = 20_000
#: A coefficient of 1 adds this part of its product to the output, over the number of polynomials. An optimiser then
#: needs many steps for a strong interaction, which the network beside learns sooner, and few for a weak one. Triples
#: are many, and each stands for itself three times.
_STEP_OF_PAIRS = 0.1
_STEP_OF_TRIPLES = 0.03


class PairPolynomials(nn.Module):
    """Sum of products of two polynomials, each of one feature.

    With P_k the Legendre polynomial of degree k scaled to variance 1 on (-1, 1), u = tanh(s) / tanh(1), D features and
    degrees up to d ::

        f(s) = 0.1 / (D d) * sum over features i, j and degrees k, l of c_ijkl P_k(u_i) P_l(u_j)

    It is linear in its coefficients. A weak interaction among strong main effects is therefore learned in a few epochs,
    while a network of sums learns the strong parts first, and the weak ones after hundreds of epochs or never. Terms of
    one feature, i = j, are main effects. The hyperbolic tangent bounds the polynomials outside of the range of the
    training rows.

    Parameters
    ----------
    features, outputs
        Number of input columns and of outputs.
    degree
        Largest degree d of the polynomials.
    wrap
        Function that makes the linear map of the coefficients a Bayesian layer, or returns it as it is.

    Examples
    --------
    >>> products = PairPolynomials(features=3, outputs=1, degree=2, wrap=lambda layer: layer)
    >>> products(torch.rand(5, 3)).abs().max()  # all coefficients are 0 at first
    tensor(0., grad_fn=<MaxBackward1>)
    """

    def __init__(self, features: int, outputs: int, degree: int, wrap: Callable[[LinearMap], nn.Module]) -> None:
        super().__init__()
        self.degree = degree
        self.outputs = outputs
        coefficients = nn.Linear(features * degree, outputs * features * degree, bias=False)
        nn.init.zeros_(coefficients.weight)
        self.coefficients = wrap(coefficients)

    def forward(self, x: Tensor) -> Tensor:
        terms = _bounded_terms(x, self.degree)
        factors: Tensor = self.coefficients(terms) * (_STEP_OF_PAIRS / terms.shape[1])
        return _sum_products(factors, terms, self.outputs)


class TriplePolynomials(nn.Module):
    """Sum of products of three polynomials, the first two of different features.

    With the polynomials P_k(u_i) of :class:`PairPolynomials`, D features and degrees up to d ::

        f(s) = 0.03 / (D d) * sum over i < j, m and degrees k, l, q of c_ijmklq P_k(u_i) P_l(u_j) P_q(u_m)

    It makes weak interactions of three features easy to learn, such as x0 (3 x1^2 - 1) (3 x2^2 - 1), in which no two
    features interact on average over the third one.

    Parameters
    ----------
    features, outputs, degree, wrap
        As for :class:`PairPolynomials`; at least two features.

    Attributes
    ----------
    coefficients : nn.Module
        The linear map from products of two polynomials to the factors of the third ones.

    Examples
    --------
    >>> products = TriplePolynomials(features=4, outputs=1, degree=2, wrap=lambda layer: layer)
    >>> products.coefficients.weight.shape  # 8 polynomials, and 24 products of two of them
    torch.Size([8, 24])
    """

    first: Tensor
    second: Tensor

    def __init__(self, features: int, outputs: int, degree: int, wrap: Callable[[LinearMap], nn.Module]) -> None:
        super().__init__()
        self.degree = degree
        self.outputs = outputs
        feature = torch.arange(features * degree) % features
        first, second = torch.nonzero(feature[:, None] < feature, as_tuple=True)
        # The places follow from the sizes, so files of weights need not hold them.
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("second", second, persistent=False)
        coefficients = nn.Linear(len(first), outputs * features * degree, bias=False)
        nn.init.zeros_(coefficients.weight)
        self.coefficients = wrap(coefficients)

    def lowest_of_features(self, rates: Tensor) -> Tensor:
        """Return the lowest of the rates (products,) of products of two that hold each feature, (features,)."""
        features = (int(self.second.max()) + 1) // self.degree
        lowest = rates.new_full((features,), math.inf)
        for places in (self.first, self.second):
            lowest = lowest.scatter_reduce(0, places % features, rates, "amin")
        return lowest

    def forward(self, x: Tensor) -> Tensor:
        terms = _bounded_terms(x, self.degree)
        products = terms[:, self.first] * terms[:, self.second]
        factors: Tensor = self.coefficients(products) * (_STEP_OF_TRIPLES / terms.shape[1])
        return _sum_products(factors, terms, self.outputs)


def _bounded_terms(x: Tensor, degree: int) -> Tensor:
    """Return the polynomials (n, D degree) of scaled features (n, D), which are bounded to (-1, 1) first."""
    return legendre(torch.tanh(x) / math.tanh(1), degree)


def _sum_products(factors: Tensor, terms: Tensor, outputs: int) -> Tensor:
    """Return the sums (n, outputs) of polynomials (n, p) times their factors (n, outputs * p)."""
    if outputs == 1:
        return (factors * terms).sum(dim=1, keepdim=True)
    return (factors.reshape(len(terms), outputs, terms.shape[1]) * terms.unsqueeze(1)).sum(dim=2)


def degree_of_pairs(features: int, outputs: int, wanted: int | None) -> int:
    """Return the degree of pairs: ``wanted``, or if it is None, 3 or what a million coefficients allow.

    Raises
    ------
    GEHValueError
        If the wanted degree needs more than a million coefficients.

    >>> degree_of_pairs(10, 1, None), degree_of_pairs(500, 1, None), degree_of_pairs(2000, 1, None)
    (3, 2, 0)
    """
    of_degree_one = outputs * features**2
    if wanted is None:
        return next((d for d in range(_DEGREE_OF_PAIRS, 0, -1) if of_degree_one * d**2 <= _MAX_COEFFICIENTS), 0)
    return _check_size("pairs", features, wanted, of_degree_one * wanted**2)


def degree_of_triples(features: int, outputs: int, wanted: int | None) -> int:
    """Return the degree of triples: ``wanted``, or if it is None, 2 for 3 to 17 features of one output, else 0.

    The default needs at most 20,000 coefficients, so that triples cost about as much as an MLP of 100-100-100 units.
    Of degree 1, which would be possible for more features, they gain little. One feature has none.

    Raises
    ------
    GEHValueError
        If the wanted degree needs more than a million coefficients.

    >>> degree_of_triples(10, 1, None), degree_of_triples(30, 1, None), degree_of_triples(30, 1, 1)
    (2, 0, 1)
    """
    of_degree_one = outputs * features * features * (features - 1) // 2
    if wanted is None:
        return 2 if features > 2 and of_degree_one * 2**3 <= _MAX_BY_DEFAULT else 0
    return _check_size("triples", features, wanted, of_degree_one * wanted**3) if features > 1 else 0


def _check_size(name: str, features: int, degree: int, size: int) -> int:
    """Return a degree that a user asked for, or raise GEHValueError if it needs too many coefficients."""
    if size > _MAX_COEFFICIENTS:
        raise GEHValueError(
            f"{name}={degree} needs {size:,} coefficients for {features} features, more than {_MAX_COEFFICIENTS:,}; "
            f"use a lower degree, or {name}=0."
        )
    return degree


def legendre(x: Tensor, degree: int) -> Tensor:
    """Return Legendre polynomials (n, D degree) of columns (n, D), degree by degree, of variance 1 on (-1, 1).

    >>> legendre(torch.tensor([[1.0, 0.0]]), 2) ** 2  # 3 P_1^2 = 3 x^2, then 5 P_2^2 = 5 (3 x^2 - 1)^2 / 4
    tensor([[3.0000, 0.0000, 5.0000, 1.2500]])
    """
    before, last = torch.ones_like(x), x
    terms = [math.sqrt(3) * x]
    for k in range(1, degree):
        before, last = last, ((2 * k + 1) * x * last - k * before) / (k + 1)
        terms.append(math.sqrt(2 * k + 3) * last)
    return torch.cat(terms, dim=1)
