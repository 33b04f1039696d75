"""Products of polynomials of two features: weak interactions, which a network of sums learns last."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from geh_explain.bnn.layers import LinearMap

#: Coefficients at most; with more features polynomials of lower degree are used.
_MAX_COEFFICIENTS = 1_000_000
#: A coefficient of 1 adds this part of its product to the output, over the number of polynomials. An optimiser then
#: needs many steps for a strong interaction, which the network beside learns sooner, and few for a weak one.
_STEP = 0.1


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
        terms = legendre(torch.tanh(x) / math.tanh(1), self.degree)
        factors: Tensor = self.coefficients(terms) * (_STEP / terms.shape[1])
        if self.outputs == 1:
            return (factors * terms).sum(dim=1, keepdim=True)
        return (factors.reshape(len(x), self.outputs, -1) * terms.unsqueeze(1)).sum(dim=2)


def largest_degree(features: int, outputs: int, wanted: int) -> int:
    """Return the largest degree up to ``wanted`` with a million coefficients at most; 0 if there is none.

    >>> largest_degree(10, 1, 3), largest_degree(500, 1, 3), largest_degree(2000, 1, 3)
    (3, 2, 0)
    """
    return next((d for d in range(wanted, 0, -1) if outputs * (features * d) ** 2 <= _MAX_COEFFICIENTS), 0)


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
