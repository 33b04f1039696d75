"""Other ways to the same numbers: local Hessians (n, D, D) of any function of directions.

Every rival gets its best: frozen weights, whatever lies below the cut run once and without gradients, chunks of the
size that suits it, and nothing around the Hessians, which it need not even sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.timing import Contestant, counted

#: Points times directions that torch.func is given at once: fewer leave the cores idle, more spill the caches.
CHUNK = 16384


@dataclass(frozen=True)
class Problem:
    """Numbers of ``points`` (n, ...) as a function of ``t`` (n, D), to be differentiated twice at ``start(points)``.

    ``rows`` maps all points and their t to (n,), ``point`` does the same for a single one.
    """

    points: Tensor
    start: Callable[[Tensor], Tensor]
    rows: Callable[[Tensor, Tensor], Tensor]
    point: Callable[[Tensor, Tensor], Tensor]

    def first(self, count: int) -> Problem:
        """Return the same problem for the first few points."""
        return replace(self, points=self.points[:count])

    def begin(self) -> Tensor:
        """Return where the Hessians are taken (n, D)."""
        with torch.no_grad():
            return self.start(self.points)


def of_inputs(model: nn.Module, x: Tensor) -> Problem:
    """Return the problem of a network with one output in its own inputs."""
    return Problem(x, torch.Tensor.clone, lambda _, t: model(t)[:, 0], lambda _, t: model(t)[0])


def notebook_loop(problem: Problem) -> Tensor:
    """Loop over points and columns in Python, as in the authors' notebook."""
    hessians = []
    for point, start in zip(problem.points, problem.begin(), strict=True):
        t = start[None].requires_grad_()
        (gradient,) = torch.autograd.grad(problem.rows(point[None], t).sum(), t, create_graph=True)
        columns = [torch.autograd.grad(gradient[0, i], t, retain_graph=True)[0] for i in range(t.shape[1])]
        hessians.append(torch.cat(columns))
    return torch.stack(hessians)


def vmap_hessian(problem: Problem) -> Tensor:
    """Forward over reverse mode, vectorised over points: what torch offers for it."""
    return _over_points(torch.func.hessian(problem.point, argnums=1), problem)


def vmap_reverse(problem: Problem) -> Tensor:
    """Reverse over reverse mode, vectorised over points."""
    return _over_points(torch.func.jacrev(torch.func.jacrev(problem.point, argnums=1), argnums=1), problem)


def _over_points(hessian: Callable[[Tensor, Tensor], Tensor], problem: Problem) -> Tensor:
    start = problem.begin()
    chunk = max(1, min(len(start), CHUNK // start.shape[1]))
    hessians: Tensor = torch.func.vmap(hessian, chunk_size=chunk)(problem.points, start)
    return hessians


def double_backward(problem: Problem, columns: int | None = None) -> Tensor:
    """One backward pass per column, each for all points at once; ``columns`` takes the first few of them only."""
    t = problem.begin().requires_grad_()
    (gradient,) = torch.autograd.grad(problem.rows(problem.points, t).sum(), t, create_graph=True)
    # Weighting the gradient by a unit vector spares the graph a slice, whose own backward pass costs D numbers more.
    weights = torch.eye(t.shape[1])[:columns, None].expand(-1, len(t), -1)
    return torch.stack([torch.autograd.grad(gradient, t, one, retain_graph=True)[0] for one in weights], dim=1)


Form = Callable[[Problem], Tensor]

#: The forms that torch has for Hessians of many points, by the names they have in the tables.
RIVALS: dict[str, Form] = {
    "vmap(hessian)": vmap_hessian,
    "vmap(jacrev(jacrev))": vmap_reverse,
    "double backward": double_backward,
}


def rival(form: Form, problem: Problem, checked: int, few: int | None = None) -> Contestant:
    """Return a contestant timed on the first ``few`` points and scaled, and checked on the first ``checked``."""
    points = len(problem.points)
    few = min(few or points, points)
    part = "" if few == points else counted(few, "point")
    return Contestant(
        partial(form, problem.first(few)), partial(_answer, form, problem.first(checked)), points / few, part
    )


def _answer(form: Form, problem: Problem) -> NDArray[np.float64]:
    return aeh_and_eah(form(problem))


def aeh_and_eah(hessians: Tensor) -> NDArray[np.float64]:
    """Return the two measures (2, P) that need no groups, pairs in row-major order i < j."""
    row, column = torch.triu_indices(hessians.shape[1], hessians.shape[2], offset=1)
    pairs = hessians.detach().double()[:, row, column]
    return torch.stack([pairs.mean(dim=0).abs(), pairs.abs().mean(dim=0)]).numpy()
