"""Local Hessians (n, D, D) of any function of directions by torch alone: the same numbers in other ways.

Every method gets its best conditions: frozen weights, layers below the cut run once and without gradients, chunks of
the best size, and no work around the Hessians; they are not even summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.timing import Method, count_noun

#: Points times directions per call of torch.func: fewer leave cores idle, more exceed the caches.
CHUNK = 16384


@dataclass(frozen=True)
class Problem:
    """One scalar per point as a function of its directions t, to be differentiated twice in t.

    Parameters
    ----------
    points
        The points (n, ...).
    start
        Maps points to the t (n, D) at which the Hessians are taken.
    rows
        Maps points and t (n, D) to the scalars (n,).
    point
        The same for one point and its t (D,), returning a scalar tensor.
    """

    points: Tensor
    start: Callable[[Tensor], Tensor]
    rows: Callable[[Tensor, Tensor], Tensor]
    point: Callable[[Tensor, Tensor], Tensor]

    def first(self, count: int) -> Problem:
        """Return the same problem for the first ``count`` points."""
        return replace(self, points=self.points[:count])

    def start_values(self) -> Tensor:
        """Return the t (n, D) at which the Hessians are taken."""
        with torch.no_grad():
            return self.start(self.points)


def input_problem(model: nn.Module, x: Tensor) -> Problem:
    """Return the problem whose t are the inputs of a network with one output."""
    return Problem(x, torch.Tensor.clone, lambda _, t: model(t)[:, 0], lambda _, t: model(t)[0])


def notebook_loop(problem: Problem) -> Tensor:
    """Return the Hessians by a loop over points and columns in Python, as in the authors' notebook."""
    hessians = []
    for point, start in zip(problem.points, problem.start_values(), strict=True):
        t = start[None].requires_grad_()
        (gradient,) = torch.autograd.grad(problem.rows(point[None], t).sum(), t, create_graph=True)
        columns = [torch.autograd.grad(gradient[0, i], t, retain_graph=True)[0] for i in range(t.shape[1])]
        hessians.append(torch.cat(columns))
    return torch.stack(hessians)


def vmap_hessian(problem: Problem) -> Tensor:
    """Return the Hessians by ``torch.func.hessian`` (forward over reverse mode), vectorised over points."""
    return _vmap_over_points(torch.func.hessian(problem.point, argnums=1), problem)


def vmap_reverse(problem: Problem) -> Tensor:
    """Return the Hessians by reverse over reverse mode, vectorised over points."""
    return _vmap_over_points(torch.func.jacrev(torch.func.jacrev(problem.point, argnums=1), argnums=1), problem)


def _vmap_over_points(hessian: Callable[[Tensor, Tensor], Tensor], problem: Problem) -> Tensor:
    """Return ``hessian`` of all points, in chunks."""
    start = problem.start_values()
    chunk = max(1, min(len(start), CHUNK // start.shape[1]))
    hessians: Tensor = torch.func.vmap(hessian, chunk_size=chunk)(problem.points, start)
    return hessians


def double_backward(problem: Problem, columns: int | None = None) -> Tensor:
    """Return the Hessians by one backward pass per column, each for all points at once.

    ``columns`` restricts them to the first columns: (n, columns, D).
    """
    t = problem.start_values().requires_grad_()
    (gradient,) = torch.autograd.grad(problem.rows(problem.points, t).sum(), t, create_graph=True)
    # Unit vectors as weights of the gradient: slices of it would add their own backward passes.
    weights = torch.eye(t.shape[1])[:columns, None].expand(-1, len(t), -1)
    return torch.stack([torch.autograd.grad(gradient, t, weight, retain_graph=True)[0] for weight in weights], dim=1)


#: Computes the Hessians of a problem.
HessianFunction = Callable[[Problem], Tensor]

#: Ways to compute Hessians of many points with torch, by their names in the tables.
TORCH_HESSIANS: dict[str, HessianFunction] = {
    "vmap(hessian)": vmap_hessian,
    "vmap(jacrev(jacrev))": vmap_reverse,
    "double backward": double_backward,
}


def torch_method(hessians: HessianFunction, problem: Problem, checked: int, timed_points: int | None = None) -> Method:
    """Return a method that is timed on the first ``timed_points`` and scaled, and checked on the first ``checked``."""
    points = len(problem.points)
    timed_points = min(timed_points or points, points)
    timed_on = "" if timed_points == points else count_noun(timed_points, "point")
    run = partial(hessians, problem.first(timed_points))
    return Method(run, partial(_answer, hessians, problem.first(checked)), points / timed_points, timed_on)


def _answer(hessians: HessianFunction, problem: Problem) -> NDArray[np.float64]:
    """Return the measures (2, P) from the Hessians of a problem."""
    return aeh_and_eah(hessians(problem))


def aeh_and_eah(hessians: Tensor) -> NDArray[np.float64]:
    """Return AEH and EAH (2, P), the measures that need no groups; pairs in row-major order i < j."""
    row, column = torch.triu_indices(hessians.shape[1], hessians.shape[2], offset=1)
    pairs = hessians.detach().double()[:, row, column]
    return torch.stack([pairs.mean(dim=0).abs(), pairs.abs().mean(dim=0)]).numpy()
