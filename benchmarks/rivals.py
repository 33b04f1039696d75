"""Other ways to the same numbers: local Hessians (n, D, D) of ``model`` at points ``x`` (n, D)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


def notebook_loop(model: nn.Module, x: Tensor) -> Tensor:
    """Loop over points and columns in Python, as in the authors' notebook."""
    hessians = []
    for point in x:
        inputs = point[None].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
        columns = [torch.autograd.grad(entry, inputs, retain_graph=True)[0] for entry in gradient[0]]
        hessians.append(torch.cat(columns))
    return torch.stack(hessians)


def vmap_hessian(model: nn.Module, x: Tensor) -> Tensor:
    """Forward over reverse mode, vectorised over points: what torch offers for it."""
    hessians: Tensor = torch.func.vmap(torch.func.hessian(lambda point: model(point).sum()))(x)
    return hessians


def double_backward(model: nn.Module, x: Tensor) -> Tensor:
    """One backward pass per column, each for all points at once."""
    inputs = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
    columns = [torch.autograd.grad(column.sum(), inputs, retain_graph=True)[0] for column in gradient.T]
    return torch.stack(columns, dim=1)


def aeh_and_eah(hessians: Tensor) -> NDArray[np.float64]:
    """Return the two measures (2, P) that need no groups, pairs in row-major order i < j."""
    row, column = torch.triu_indices(hessians.shape[1], hessians.shape[2], offset=1)
    pairs = hessians.detach().double()[:, row, column]
    return torch.stack([pairs.mean(dim=0).abs(), pairs.abs().mean(dim=0)]).numpy()
