"""A network of two weights, whose interactions are computed by hand."""

from typing import Any

import pandas as pd
import torch
from explaining import explain_draws
from torch import Tensor, nn

import geh_explain as geh


class Weighted(nn.Module):
    """w0 x0^2 x1 + w1 x1 x2: local interactions 2 w0 x0 of (x0, x1), w1 of (x1, x2) and none of (x0, x2)."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 1.0], dtype=torch.double))

    def forward(self, x: Tensor) -> Tensor:
        return self.w[0] * x[:, 0] ** 2 * x[:, 1] + self.w[1] * x[:, 1] * x[:, 2]


#: 2 x0 is 1 and -3 in the west, with mean -1, and 2 and 4 in the east, with mean 3.
POINTS = pd.DataFrame({"rooms": [0.5, -1.5, 1.0, 2.0], "age": [0.0, 1.0, 2.0, 3.0], "price": [5.0, 6.0, 7.0, 9.0]})
SIDES = ["west", "west", "east", "east"]
WEIGHTS = [(2.0, 2.0), (2.5, 3.0), (3.0, 4.0)]


def explain_weighted(weights: list[tuple[float, float]] = WEIGHTS, **options: Any) -> geh.Interactions:
    """Explain ``POINTS`` in two groups with one posterior draw for each pair of weights."""
    samples = geh.posterior.WeightSamples([{"w": torch.tensor(w, dtype=torch.double)} for w in weights])
    options = {"groups": SIDES, "draws": len(weights)} | options
    return explain_draws(Weighted(), POINTS, posterior=samples, **options)
