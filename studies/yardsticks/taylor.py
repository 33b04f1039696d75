"""Second-order expansions of a ReLU network: the P-MSE of SmoothHess (Torop et al., NeurIPS 2023).

The network is the authors' for MNIST, 784-500-300-250-250-250-10 with ReLU, trained here. The explained number is the
logit of the predicted class. For the gradient g and the Hessian H of a method at a point x ::

    P-MSE(r) = mean over points x and d of (f(x + d) - f(x) - g d - d' H d / 2)^2,    d uniform in a ball of radius r.

The methods are
- ``no Hessian``: the gradient of the network, and H = 0;
- ``softplus``: ReLU replaced by a softplus, with the best of several beta for each radius, chosen on the same points;
- ``SmoothHess``: gradients at normal shifts of standard deviation s = c r / sqrt(784), in antithetic pairs, with the
  best of several c, chosen on the same points. Its error is a bias plus a part that falls with the number of pairs.
  Both follow from two independent halves of the pairs, and with them the error with 50,000 pairs, the authors' number;
- ``Radius``: this package, ``InputHessian(net, smooth=Radius(r)).expand(x)``;
- ``auto``, ``auto with reference``: its default without and with reference rows, the same for all radii.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain.captum import InputHessian
from geh_explain.datasets import mnist_digits
from geh_explain.engines import Radius
from geh_explain.local.expansion import Expansion

#: Radii of the balls, as in the original study.
RADII = (0.25, 0.5, 1.0)
#: Widths of the network, those of the original study.
WIDTHS = (784, 500, 300, 250, 250, 250, 10)
#: Pairs of SmoothHess in the original study.
PUBLISHED_PAIRS = 50_000
#: Standard deviations of SmoothHess, times sqrt(784) / r; the authors' best for r = 0.5 is 0.75.
SMOOTHHESS_SCALES = (0.75, 0.9, 1.0)
#: Seeds of the study.
SEEDS = 3
#: Sharpnesses of the softplus.
BETAS = (20.0, 40.0, 80.0, 160.0, 320.0, 640.0)


@dataclass(frozen=True)
class Size:
    """Sizes of the study: training, points, shifts per point, pairs of SmoothHess, repeats of timings."""

    train_rows: int
    epochs: int
    points: int
    shifts: int
    pairs: int
    repeats: int


QUICK = Size(train_rows=6000, epochs=2, points=4, shifts=300, pairs=2000, repeats=1)
FULL = Size(train_rows=50_000, epochs=8, points=30, shifts=1500, pairs=8000, repeats=3)


def train_network(seed: int, size: Size) -> nn.Sequential:
    """Return the network after some epochs of Adam (1e-3, batches of 128) on the first training rows of MNIST."""
    digits = mnist_digits("train")
    x, y = digits.images.flatten(1)[: size.train_rows], digits.labels[: size.train_rows]
    torch.manual_seed(seed)
    layers = [module for fan in itertools.pairwise(WIDTHS) for module in (nn.Linear(*fan), nn.ReLU())]
    net = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(size.epochs):
        for batch in torch.split(torch.randperm(len(x)), 128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return net.eval()


@dataclass(frozen=True)
class Problem:
    """A network, points (n, 784), and their predicted classes (n,)."""

    net: nn.Sequential
    points: Tensor
    targets: Tensor

    def logits(self, x: Tensor, targets: Tensor) -> Tensor:
        """Return the explained logits of rows (m, 784)."""
        chosen: Tensor = self.net(x).gather(1, targets[:, None])[:, 0]
        return chosen

    def gradients(self, x: Tensor, targets: Tensor) -> Tensor:
        """Return the gradients (m, 784) of the logits."""
        x = x.clone().requires_grad_()
        return torch.autograd.grad(self.logits(x, targets).sum(), x)[0]

    @torch.no_grad()
    def balls(self, radius: float, n_shifts: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield for each point shifts (k, 784) uniform in a ball, and f(x + d) - f(x) (k,)."""
        generator = torch.Generator().manual_seed(seed)
        for x, target in zip(self.points, self.targets, strict=True):
            d = torch.randn(n_shifts, len(x), generator=generator)
            d *= radius * torch.rand(n_shifts, 1, generator=generator) ** (1 / len(x)) / d.norm(dim=1, keepdim=True)
            targets = target.expand(n_shifts + 1)
            values = self.logits(torch.cat([x[None], x + d]), targets).double()
            yield d, values[1:] - values[0]


@torch.no_grad()
def errors(problem: Problem, radius: float, size: Size, seed: int, found: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Return the mean squared errors (n,) of the points for each of some gradients (n, 784) and Hessians."""
    results: list[list[Tensor]] = [[] for _ in found]
    for row, (d, change) in enumerate(problem.balls(radius, size.shifts, seed)):
        for (gradient, hessian), result in zip(found, results, strict=True):
            expanded = d @ gradient[row] + ((d @ hessian[row]) * d).sum(1) / 2
            result.append((change - expanded.double()).square().mean())
    return [torch.stack(result) for result in results]


def smoothhess(problem: Problem, sigma: float, pairs: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return SmoothGrad (n, 784) and SmoothHess (n, 784, 784) from antithetic pairs of gradients.

    ::

        g = mean of grad f(x + s e),    H = mean of e grad f(x + s e)' / s, symmetrised,    e standard normal.
    """
    generator = torch.Generator().manual_seed(seed)
    gradients, hessians = [], []
    for x, target in zip(problem.points, problem.targets, strict=True):
        noise = torch.randn(pairs, len(x), generator=generator)
        noise = torch.cat([noise, -noise])
        found = problem.gradients(x + sigma * noise, target.expand(len(noise)))
        hessian = noise.T @ found / (len(noise) * sigma)
        gradients.append(found.mean(0))
        hessians.append((hessian + hessian.T) / 2)
    return torch.stack(gradients), torch.stack(hessians)


def _smoothhess_error(problem: Problem, radius: float, size: Size, seed: int, scale: float) -> dict[str, float]:
    """Return the P-MSE of SmoothHess with the pairs that were drawn, and with 50,000 of them."""
    sigma = scale * radius / math.sqrt(problem.points.shape[1])
    one, two = (smoothhess(problem, sigma, size.pairs // 2, seed + half) for half in (1, 2))
    both = tuple((a + b) / 2 for a, b in zip(one, two, strict=True))
    halves = errors(problem, radius, size, seed, [one, two, (both[0], both[1])])
    half, whole = float((halves[0].mean() + halves[1].mean()) / 2), float(halves[2].mean())
    # half = bias + v / (pairs / 2) and whole = bias + v / pairs.
    bias, variance = 2 * whole - half, (half - whole) * size.pairs
    return {"drawn": whole, "published": bias + variance / PUBLISHED_PAIRS, "scale": scale}


def _expansion_error(problem: Problem, radius: float, size: Size, seed: int, found: Expansion) -> float:
    return float(errors(problem, radius, size, seed, [(found.gradient, found.hessian)])[0].mean())


def costs(problem: Problem, radius: float, repeats: int) -> dict[str, float]:
    """Return what an expansion of one point costs, in gradients of the network: the least of some repeats.

    Gradients are taken point by point, and in one batch. Processor time of one thread; both are measured in turn.
    """
    method = InputHessian(problem.net, smooth=Radius(radius))
    rows = list(zip(torch.split(problem.points, 1), torch.split(problem.targets, 1), strict=True))
    calls: dict[str, Callable[[], Any]] = {
        "alone": lambda: [problem.gradients(x, target) for x, target in rows],
        "batch": lambda: problem.gradients(problem.points, problem.targets),
        "expansion": lambda: method.expand(problem.points, problem.targets),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    # The first round only warms up.
    least = {name: min(found[1:]) for name, found in times.items()}
    return {
        "gradients": least["expansion"] / least["alone"],
        "gradients_in_batch": least["expansion"] / least["batch"],
    }


def count_seeds(case: str) -> int:
    """Return with how many of the seeds the part is run: networks hardly differ, and SmoothHess takes long."""
    return SEEDS


def run(seed: int, quick: bool) -> list[dict[str, Any]]:
    """Return one record for each radius and method: ``pmse``, and the same ``relative`` to that without Hessian.

    Parameters
    ----------
    seed
        Seed of the network, of the points among the test rows of MNIST, of shifts and of SmoothHess.
    quick
        Whether to run a small version, whose numbers mean little.
    """
    size = QUICK if quick else FULL
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        net = train_network(seed, size)
        test = mnist_digits("test").images.flatten(1)
        order = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))
        points = test[order[: size.points]]
        with torch.no_grad():
            problem = Problem(net, points, net(points).argmax(1))
        reference = test[order[size.points : size.points + 500]]
        return list(_records(problem, reference, size, seed))
    finally:
        torch.set_num_threads(threads)


def _records(problem: Problem, reference: Tensor, size: Size, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the records of all radii and methods."""
    x, targets = problem.points, problem.targets
    gradient = problem.gradients(x, targets)
    fixed = {
        "auto": InputHessian(problem.net).expand(x, targets),
        "auto with reference": InputHessian(problem.net, data=reference).expand(x, targets),
    }
    softplus = {beta: InputHessian(problem.net, smooth=beta).expand(x, targets) for beta in BETAS}
    for radius in RADII:
        no_hessian = (gradient, torch.zeros(1, 1, 1).expand(len(x), x.shape[1], x.shape[1]))
        base = float(errors(problem, radius, size, seed, [no_hessian])[0].mean())
        ours = InputHessian(problem.net, smooth=Radius(radius)).expand(x, targets)
        by_beta = {beta: _expansion_error(problem, radius, size, seed, found) for beta, found in softplus.items()}
        best = min(by_beta, key=lambda beta: by_beta[beta])
        sampled = [_smoothhess_error(problem, radius, size, seed, scale) for scale in SMOOTHHESS_SCALES]
        published = min(sampled, key=lambda found: found["published"])
        drawn = min(sampled, key=lambda found: found["drawn"])
        found: list[tuple[str, float, dict[str, Any]]] = [
            ("no Hessian", base, {}),
            ("softplus", by_beta[best], {"beta": best}),
            ("SmoothHess", drawn["drawn"], {"scale": drawn["scale"], "pairs": size.pairs}),
            ("SmoothHess", published["published"], {"scale": published["scale"], "pairs": PUBLISHED_PAIRS}),
            ("Radius", _expansion_error(problem, radius, size, seed, ours), costs(problem, radius, size.repeats)),
            *((name, _expansion_error(problem, radius, size, seed, other), {}) for name, other in fixed.items()),
        ]
        for method, pmse, settings in found:
            record = {"study": "taylor", "seed": seed, "radius": radius, "method": method, "points": len(x)}
            yield {**record, "pmse": pmse, "relative": pmse / base, **settings}
