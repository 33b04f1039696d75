"""The choice of the engine of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from geh_explain._types import Floats, Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits
from geh_explain.engines.difference import Difference
from geh_explain.engines.exact import Exact, NoSecondDerivative
from geh_explain.engines.level_contrasts import NoNumericUnits
from geh_explain.engines.probes import random_directions
from geh_explain.engines.stein.engine import Stein
from geh_explain.engines.structured.engine import PROBE_ROWS, Structured, unsupported_reason
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.model.estimators import EstimatorModel
from geh_explain.units.categorical import Categorical

_BY_NAME: dict[str, type[Engine]] = {
    "exact": Exact,
    "structured": Structured,
    "difference": Difference,
    "stein": Stein,
}
#: The reason of an engine that the user chose.
REQUESTED = "requested"
#: The reason of the structured engine.
_STRUCTURED = "linear maps and elementwise functions only"
#: The reason of the engine of an estimator.
NO_GRADIENTS = "an estimator has no gradients"


def check_engine(engine: Any) -> None:
    """Refuse what is neither the name of an engine, nor ``"auto"``, nor an instance of :class:`Engine`.

    Raises
    ------
    GEHValueError
        For another name.
    GEHTypeError
        For anything else, such as the class of an engine.
    """
    if isinstance(engine, str):
        if engine != "auto" and engine not in _BY_NAME:
            raise GEHValueError(f"engine={engine!r} is unknown; use 'auto', {', '.join(map(repr, _BY_NAME))}.")
    elif not isinstance(engine, Engine):
        raise GEHTypeError(
            f"engine={engine!r} is not an engine; use a name such as 'auto', or an instance from geh_explain.engines, "
            "such as Difference(step=0.5)."
        )


def check_gradient_free(model: EstimatorModel, engine: str | Engine) -> None:
    """Raise if ``engine`` takes derivatives, which an estimator does not have."""
    if _takes_gradients(engine):
        raise GEHValueError(
            f"engine={engine!r} takes derivatives, and a {type(model.estimator).__name__} has none; use 'auto' or "
            "geh_explain.engines.Difference(step=0.5)."
        )


def _takes_gradients(engine: str | Engine) -> bool:
    """Return whether a requested engine cannot do without gradients."""
    return engine in ("exact", "structured", "stein") or isinstance(engine, (Exact, Structured, Stein))


def needs_smoothing(engine: str | Engine) -> bool:
    """Return whether ``engine`` takes second derivatives, or may choose one that does."""
    return engine.differentiates if isinstance(engine, Engine) else engine == "auto" or _BY_NAME[engine].differentiates


def choose_engine(engine: str | Engine, cut: Cut, rows: Rows, limits: Limits) -> tuple[EngineRun, str]:
    """Start the engine of a run, and return it with the reason of the choice.

    ``"auto"`` and ``"structured"`` try second derivatives on a few rows: structured if it supports the network and
    agrees with autograd, else exact, else mixed differences if there are no second derivatives.

    Parameters
    ----------
    engine
        A name or an instance that passed :func:`check_engine`.
    cut
        The model as a function of the units' shifts, with the view of the run.
    rows
        A few rows.
    limits
        Resources of the run.

    Returns
    -------
    run
        The engine's object for this run.
    reason
        A sentence for ``result.settings["engine_reason"]``; :data:`REQUESTED` if there was no choice.
    """
    if cut.frame is not None and _takes_gradients(engine):
        raise GEHValueError(
            f"engine={engine!r} takes derivatives, and a callable that is called with a data frame has none; use "
            "'auto' or 'difference', or a callable of tensors."
        )
    if engine == "auto" and isinstance(cut.model, EstimatorModel):
        return Difference().start(cut, limits), NO_GRADIENTS
    if isinstance(cut.units, Categorical) and len(cut.units.observed) == cut.n_units:
        return NoNumericUnits().start(cut, limits), "all units are categories"
    if not isinstance(engine, Structured) and engine not in ("auto", "structured"):
        requested = _BY_NAME[engine]() if isinstance(engine, str) else engine
        return requested.start(cut, limits), REQUESTED
    structured = (engine if isinstance(engine, Structured) else Structured()).start(cut, limits)
    if structured.recall():
        return structured, _STRUCTURED
    probe_rows = rows[:PROBE_ROWS]
    directions = random_directions(cut, probe_rows, seed=0)
    try:
        products = structured.exact.probe(probe_rows, directions)
    except NoSecondDerivative as error:
        return Difference().start(cut, limits), str(error)
    except RuntimeError as error:
        # A model that calls x.numpy() fails for tensors that require gradients: a black box.
        if "numpy()" not in str(error):
            raise
        products = None
    if products is None and depends_on_units(cut, rows):
        return Difference().start(cut, limits), "the model's output has no gradients"
    if products is None:
        # All second derivatives are 0, which any engine finds.
        return structured.exact, "the output does not depend on the units"
    structured.check(probe_rows, directions, products)
    if structured.unsupported is not None:
        return structured.exact, unsupported_reason(structured.unsupported)
    return structured, _STRUCTURED


def depends_on_units(cut: Cut, rows: Rows, units: Ints | None = None) -> bool:
    """Return whether the outputs change when each row takes the values of ``units`` (None: all) of another row.

    The units of a single row are moved by their own size, and by 1 at least.
    """
    with torch.no_grad():
        values = cut.units.values(cut.activations(rows))
        shift = values.roll(1, dims=0) - values if len(rows) > 1 else values.abs().clamp_min(1)
        if units is not None:
            others = np.setdiff1d(np.arange(cut.n_units), units)
            shift[:, torch.as_tensor(others, device=shift.device)] = 0
        return not torch.equal(cut.outputs(rows, shift), cut.outputs(rows, cut.zeros(rows)))


def slopes_of(cut: Cut, rows: Rows) -> Floats:
    """Return the gradients (n, D) of the outputs of a few rows; 0 where they do not depend on the units."""
    t = cut.zeros(rows).requires_grad_()
    value = cut.outputs(rows, t)
    gradient = torch.autograd.grad(value.sum(), t, allow_unused=True)[0] if value.requires_grad else None
    return np.zeros(t.shape) if gradient is None else gradient.double().cpu().numpy()
