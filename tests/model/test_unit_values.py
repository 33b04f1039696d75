"""Moments of the units' values."""

import numpy as np
import pytest
import torch

from geh_explain.model.unit_values import UnitMoments


def moments_of(values, batch=1000):
    moments = UnitMoments(values.shape[1])
    for start in range(0, len(values), batch):
        moments.add(values[start : start + batch])
    return moments


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -1e6 - 0.1])
@pytest.mark.parametrize("batch", [1, 7, 100_000])
def test_equal_values_have_no_standard_deviation(value, batch):
    values = torch.full((20_000 if batch > 7 else 50, 2), value, dtype=torch.float64)
    assert (moments_of(values, batch).std == 0).all()


def test_values_that_differ_by_rounding_have_no_standard_deviation():
    values = torch.full((50, 1), 0.1, dtype=torch.float64)
    values[::2] = np.nextafter(0.1, 1)
    assert moments_of(values).std == 0


def test_small_differences_of_large_values_are_kept():
    values = 1e6 + 1e-6 * torch.arange(50, dtype=torch.float64)[:, None]
    assert moments_of(values).std == pytest.approx(values.numpy().std(), rel=1e-3)
