"""A model with a spurious interaction, and labels that do not have it."""

from functools import cache

import torch

import geh_explain as geh

POINT = geh.posterior.PointEstimate()


def model(x):
    """Return outputs with the interaction x0 × x1 at 1.25 times its true size, and a spurious one of x1 × x2."""
    return 2.5 * x[:, 0] * x[:, 1] + x[:, 2] + 0.5 * x[:, 1] * x[:, 2]


@cache
def held_out_rows():
    """Return held-out inputs (2000, 3) and labels (2000,)."""
    x = torch.rand(2000, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    noise = 0.5 * torch.randn(2000, generator=torch.Generator().manual_seed(1))
    return x, 2 * x[:, 0] * x[:, 1] + x[:, 2] + noise
