"""The P-MSE of second-order expansions, on functions whose expansion is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from studies.yardsticks.taylor import QUICK, Problem, errors, smoothhess

MATRIX = torch.tensor([[2.0, -1.0, 0.5], [-1.0, 0.0, 1.0], [0.5, 1.0, -3.0]])


class Quadratic(nn.Module):
    """x' A x / 2 + x_0, and a second output."""

    def forward(self, x: Tensor) -> Tensor:
        value = ((x @ MATRIX) * x).sum(1) / 2 + x[:, 0]
        return torch.stack([value, 2 * value], dim=1)


def problem() -> Problem:
    points = torch.tensor([[0.3, -0.2, 1.0], [0.0, 0.5, 0.1]])
    return Problem(nn.Sequential(Quadratic()), points, torch.tensor([0, 1]))


def test_the_error_of_the_exact_expansion_is_0_and_without_hessian_that_of_its_term() -> None:
    known = problem()
    gradients = known.gradients(known.points, known.targets)
    hessians = torch.stack([MATRIX, 2 * MATRIX])
    exact, none = errors(known, 0.5, QUICK, 0, [(gradients, hessians), (gradients, torch.zeros(2, 3, 3))])
    assert exact.max() < 1e-12
    expected = [
        float((((d @ hessian) * d).sum(1) / 2).square().mean())
        for hessian, (d, _) in zip(hessians, known.balls(0.5, QUICK.shifts, 0), strict=True)
    ]
    assert none.tolist() == pytest.approx(expected, rel=1e-4)


def test_shifts_are_uniform_in_the_ball() -> None:
    (d, _), _ = problem().balls(0.5, 20_000, 1)
    lengths = d.norm(dim=1)
    assert float(lengths.max()) <= 0.5 + 1e-6
    # The share of a uniform ball within half of its radius is 1/8 in three dimensions.
    assert float((lengths < 0.25).double().mean()) == pytest.approx(0.125, abs=0.01)
    assert float(d.square().mean()) == pytest.approx(0.25 / 5, rel=0.03)


def test_smoothhess_estimates_gradient_and_hessian() -> None:
    known = problem()
    gradients, hessians = smoothhess(known, 0.1, 20_000, 0)
    torch.testing.assert_close(gradients, known.gradients(known.points, known.targets), rtol=0, atol=1e-3)
    torch.testing.assert_close(hessians, torch.stack([MATRIX, 2 * MATRIX]), rtol=0, atol=0.2)
