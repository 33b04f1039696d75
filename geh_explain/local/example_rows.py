"""Integrated Hessians of a batch of examples, each with a baseline of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain._validation import check_int
from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.points import InMemoryPoints
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.local.baselines import Baseline, ReferenceData
from geh_explain.local.computation import LocalRun
from geh_explain.model.preserve import preserved
from geh_explain.posterior import PointEstimate
from geh_explain.run.options import AnalysisOptions
from geh_explain.run.setup import ModelSetup

#: Places of the path that set the sharpness where there is no reference.
_PLACES = 17


def integrated_rows(
    setup: ModelSetup, inputs: Any, baselines: Any, arguments: tuple[Any, Any], reference: Any, steps: int | None
) -> Floats:
    """Return Gamma (N, D, D) of each example.

    Parameters
    ----------
    setup
        The arguments of an explainer.
    inputs, baselines
        Tensors or tuples of tensors, by the rules of Captum.
    arguments
        Target and further arguments of the model.
    reference
        Rows that set the sharpness of smoothing; None takes the path of each example.
    steps
        Nodes of the rule on the path; None to choose them.
    """
    if steps is not None:
        check_int("n_steps", steps, 1)
    with preserved(setup.model):
        examples, cut = setup.read(inputs, *arguments)
        data = ReferenceData(setup, reference, "data", "inputs")
        data.check(examples.first, None)
        run = LocalRun(
            setup=setup,
            cut=cut,
            posterior=PointEstimate(),
            names=cut.unit_names(),
            baseline=Baseline("number"),
            data=data,
            options=AnalysisOptions(),
            steps=steps,
        )
        accounts = []
        for row in examples.split(1):
            start = baseline_row(baselines, row, len(examples))
            own = replace(run, baseline=Baseline("rows", points=InMemoryPoints(start)))
            if reference is None:
                own = replace(own, data=ReferenceData(setup, _places(start, row)), shared_smoothing=[])
            accounts += own.explain(row, lambda count: None)
    for message in dict.fromkeys(message for account in accounts for message in account.warnings):
        warn(message)
    return np.stack([account.matrix for account in accounts])


def baseline_row(baselines: Any, row: Rows, n_examples: int) -> Rows:
    """Return the baseline of one example: zeros for None, a number, or its row of a tensor."""
    given = baselines if isinstance(baselines, tuple) else (baselines,) * (1 if len(row.inputs) == 1 else 0)
    if baselines is None or (not isinstance(baselines, tuple) and not isinstance(baselines, Tensor)):
        given = (baselines,) * len(row.inputs)
    if len(given) != len(row.inputs):
        raise GEHValueError(
            f"baselines: {len(given)} of them for {len(row.inputs)} input tensors; give a tuple with one for each."
        )
    parts = tuple(_baseline(value, x, row.start, n_examples) for value, x in zip(given, row.inputs, strict=True))
    return Rows(parts, ForwardArgs.of(None, (), 1), input_names=row.input_names, argument="baselines")


def _baseline(value: Any, x: Tensor, number: int, n_examples: int) -> Tensor:
    """Return the baseline (1, ...) of one input tensor ``x`` (1, ...) of example ``number``."""
    if value is None:
        return torch.zeros_like(x)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise GEHValueError(f"baselines={value!r} must be finite.")
        return torch.full_like(x, value)
    if not isinstance(value, Tensor):
        raise GEHTypeError(
            f"baselines: a {type(value).__name__} is not supported; give None, a number, or a tensor, as in Captum."
        )
    if not bool(torch.isfinite(value).all()):
        raise GEHValueError("baselines has NaN or infinite values; give finite ones.")
    value = value[None] if tuple(value.shape) == tuple(x.shape[1:]) else value
    if tuple(value.shape[1:]) != tuple(x.shape[1:]) or len(value) not in (1, n_examples):
        raise GEHValueError(
            f"baselines has shape {tuple(value.shape)}; give one row of shape {tuple(x.shape[1:])}, or one for each of "
            f"the {n_examples} examples."
        )
    own: Tensor = value if len(value) == 1 else value[number : number + 1]
    return own.detach().to(x)


def _places(start: Rows, row: Rows) -> tuple[Tensor, ...]:
    """Return rows at equal distances on the path, as inputs."""
    s = torch.linspace(0, 1, _PLACES, dtype=torch.double)
    return tuple(
        (b.double() + s.reshape(-1, *([1] * (b.ndim - 1))).to(b.device) * (x - b).double()).to(x)
        for b, x in zip(start.inputs, row.inputs, strict=True)
    )
