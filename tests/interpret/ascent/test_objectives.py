"""Objectives of gradient ascent: the smooth minimum, and what users may pass as units."""

import numpy as np
import pytest
import torch

from geh_explain.interpret.ascent.objectives import parse_objectives, soft_minimum


def test_the_soft_minimum_is_within_log_2_over_4_of_the_minimum():
    values = torch.randn(200, 2) * 5
    distance = soft_minimum(values) - values.amin(dim=1)
    assert bool((distance >= 0).all())
    assert bool((distance <= np.log(2) / 4 + 1e-6).all())
    torch.testing.assert_close(soft_minimum(torch.full((1, 2), 3.0)), torch.tensor([3.0]))


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (None, [(0,), (1,), (2,)]),
        (2, [(2,)]),
        ((0, 2), [(0, 2)]),
        ([1, (0, 1)], [(1,), (0, 1)]),
        (range(2), [(0,), (1,)]),
        (np.array([2, 1]), [(2,), (1,)]),
        (torch.tensor([2, 1]), [(2,), (1,)]),
    ],
    ids=["all", "unit", "pair", "list", "range", "array", "tensor"],
)
def test_units_and_pairs_are_parsed(units, expected):
    assert [objective.units for objective in parse_objectives(units, 3)] == expected


def test_the_objectives_of_a_unit_a_direction_and_a_pair():
    values = torch.tensor([[1.0, 4.0, -2.0]])
    mean, std = torch.tensor([0.0, 2.0, 0.0]), torch.tensor([1.0, 2.0, 1.0])
    unit, direction, pair = parse_objectives([2, torch.tensor([1.0, 0.5, 1.0]), (0, 1)], 3)
    assert unit(values, mean, std).tolist() == [-2.0]
    assert direction(values, mean, std).tolist() == [1.0]
    # Both standardised activations are 1: (1 - 0) / 1 and (4 - 2) / 2.
    torch.testing.assert_close(pair(values, mean, std), torch.tensor([1.0]))
    assert [objective.name(["a", "b", "c"]) for objective in (unit, direction, pair)] == ["c", "direction", "a and b"]
