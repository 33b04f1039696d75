"""Screening: rank single units by their gradients, to choose which of very many units to explain.

The cost is one gradient per point and draw, whatever the number of units.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError, warn
from geh_explain.model.cut import Cut
from geh_explain.model.kept_points import keep_below, output_of_row
from geh_explain.model.unit_values import check_scale, unit_moments
from geh_explain.posterior import Posterior
from geh_explain.posterior.protocols import enter_draws, fixed
from geh_explain.run.options import AnalysisOptions
from geh_explain.units.categorical import refuse_categories
from geh_explain.units.neurons import Neurons


def screen_units(cut: Cut, points: Points, posterior: Posterior, scale: Any, options: AnalysisOptions) -> Floats:
    """Return the importance (D,) of each unit.

    It is the scaled mean absolute gradient, or one minus the dropout rate that the model has learned for the unit.
    """
    refuse_categories(cut.units, "screen()", "Explain some of its pairs by unit= or pairs=.")
    rates = learned_rates(cut)
    if rates is not None:
        return 1 - rates
    factors = check_scale(scale, cut)
    with fixed(posterior, cut.model, options.seed):
        points = keep_below(cut, points, options.batch_size)
        if factors is None:
            factors = unit_moments(cut, points, options.batch_size).std
            if not factors.any():
                warn(
                    "scale='std': all units are constant over the points, so that their order is arbitrary; pass more "
                    "points, or scale=None."
                )
    return np.abs(factors) * expected_gradients(cut, points, posterior, options)


def expected_gradients(cut: Cut, points: Points, posterior: Posterior, options: AnalysisOptions) -> Floats:
    """Return the mean absolute gradient (D,) of each unit, over points and draws.

    That is mean over draws k and points x of |d f_k(x) / d t_i|.
    """
    total = np.zeros(cut.n_units)
    n_rows = 0
    first_forward = partial(output_of_row, cut, points.first[:1], cut.below)
    with (
        tqdm(
            total=options.draws * len(points),
            desc="screening",
            unit="row",
            disable=not options.progress,
            leave=False,
        ) as bar,
        enter_draws(posterior, cut.model, options.draws, options.seed, first_forward) as draws,
    ):
        for _ in draws:
            for rows in points.split(options.batch_size):
                total += _absolute_gradients(cut, rows)
                n_rows += len(rows)
                bar.update(len(rows))
    return total / max(n_rows, 1)


def _absolute_gradients(cut: Cut, rows: Rows) -> Floats | float:
    """Return the absolute gradients (D,) summed over rows, 0 where the output does not depend on the units."""
    t = cut.zeros(rows).requires_grad_()
    value = cut.outputs(rows, t)
    if not value.requires_grad:
        raise GEHRuntimeError("screen needs gradients, and the model's output has none; choose units=Subset([...]).")
    (gradient,) = torch.autograd.grad(value.sum(), t, allow_unused=True)
    return 0.0 if gradient is None else np.asarray(gradient.abs().double().sum(dim=0).cpu().numpy())


def learned_rates(cut: Cut) -> Floats | None:
    """Return the dropout rate (D,) that a model has learned for each input, None if it has none.

    A model with such rates has an attribute ``input_dropout_rates`` with one number per input, as
    :class:`~geh_explain.bnn.HybridNet` does. Hidden units and grouped inputs have no such rates.
    """
    rates: Any = getattr(cut.model, "input_dropout_rates", None)
    if rates is None or cut.layer is not None or not isinstance(cut.units, Neurons):
        return None
    values = torch.as_tensor(rates).detach().double().cpu().numpy().reshape(-1)
    return values if len(values) == cut.n_units else None
