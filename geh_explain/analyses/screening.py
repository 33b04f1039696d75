"""Which of very many units are worth a closer look: one gradient per point and draw, whatever the number of units."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.cut import Cut
from geh_explain.posterior import Posterior
from geh_explain.units.neurons import Neurons


def expected_gradients(
    cut: Cut, points: Points, posterior: Posterior, draws: int, batch_size: int | None, seed: int, progress: bool
) -> Floats:
    """Return the mean absolute gradient (D,) of each unit, over points and draws."""
    total, count = np.zeros(cut.count), 0
    with tqdm(total=draws * len(points), desc="screening", unit="row", disable=not progress, leave=False) as bar:
        for draw in islice(posterior.draws(cut.model, draws, seed) or (), draws):
            with draw:
                cut.outputs(points.first[:1])  # the first forward of a draw has one row, see Posterior
                for rows in points.split(batch_size):
                    t = cut.zeros(rows).requires_grad_()
                    value = cut.outputs(rows, t)
                    if not value.requires_grad:
                        raise GEHRuntimeError(
                            "screen needs gradients, and the model's output has none; choose units=Subset([...])."
                        )
                    (gradient,) = torch.autograd.grad(value.sum(), t, allow_unused=True)
                    if gradient is not None:
                        total += gradient.abs().double().sum(dim=0).cpu().numpy()
                    count += len(rows)
                    bar.update(len(rows))
    return total / max(count, 1)


def learned_rates(cut: Cut) -> Floats | None:
    """Return the rate (D,) at which a model has learned to drop each input, if it says so.

    A model says so by an attribute ``input_dropout_rates`` with one number per input.
    """
    rates: Any = getattr(cut.model, "input_dropout_rates", None)
    if rates is None or cut.layer is not None or not isinstance(cut.units, Neurons):
        return None
    values = torch.as_tensor(rates).detach().double().cpu().numpy().reshape(-1)
    return values if len(values) == cut.count else None
