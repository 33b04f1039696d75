"""Plain accounts of one prediction, by dense quadrature and closed forms. They use nothing of the package."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def integrated_hessian(f: Callable[[Tensor], Tensor], x: Tensor, b: Tensor, nodes: int = 50) -> np.ndarray:
    """Gamma (D, D) from ``b`` to ``x`` (D,), for ``f`` from (n, D) to (n,): autograd at dense nodes s = v^4."""
    v, w = np.polynomial.legendre.leggauss(nodes)
    v, w = (v + 1) / 2, w / 2
    s, w = v**4, 4 * w * v**3
    d = (x - b).double()
    gamma = torch.zeros(len(d), len(d), dtype=torch.double)
    for place, weight in zip(s, w, strict=True):
        point = b.double() + place * d
        gradient = torch.autograd.functional.jacobian(lambda row: f(row[None])[0], point)
        hessian = torch.autograd.functional.hessian(lambda row: f(row[None])[0], point)
        gamma += -weight * place * np.log(place) * hessian * torch.outer(d, d)
        gamma += torch.diag(-weight * np.log(place) * gradient * d)
    return gamma.numpy()


def relu_account(weights: Tensor, bias: Tensor, read_out: Tensor, x: Tensor, b: Tensor) -> np.ndarray:
    """Gamma (D, D) of sum_k v_k relu(w_k x + c_k), exactly: each kink on the path is a Dirac of curvature.

    The input of unit k on the path is z(s) = z_0 + (z_1 - z_0) s with a kink at s_k, where the second derivatives are
    v_k w_ki w_kj / |z_1 - z_0| times a Dirac. The integral of -ln s up to s is s - s ln s.
    """
    w, c, v, x, b = (part.double().numpy() for part in (weights, bias, read_out, x, b))
    d = x - b
    gamma = np.zeros((len(d), len(d)))
    for k in range(len(v)):
        start, stop = w[k] @ b + c[k], w[k] @ x + c[k]
        active = {True: 1.0, False: 0.0}[stop > 0 and start > 0]
        if (start > 0) != (stop > 0):
            s = start / (start - stop)
            before = s - s * np.log(s)
            active = 1 - before if stop > 0 else before
            gamma += v[k] * np.outer(w[k] * d, w[k] * d) * (-s * np.log(s)) / abs(stop - start)
        gamma += np.diag(v[k] * w[k] * d * active)
    return gamma
