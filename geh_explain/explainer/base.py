"""The arguments of an explainer, and checks that its methods share."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from geh_explain._types import Ints
from geh_explain.data.points import Points
from geh_explain.data.targets import Target
from geh_explain.engines.base import Engine
from geh_explain.engines.selection import check_engine, check_gradient_free
from geh_explain.engines.smoothing.sharpness import Smooth, check_smooth
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.evidence.held_out import HeldOutRows, HeldOutTest
from geh_explain.model.cut import Cut
from geh_explain.model.estimators import EstimatorModel, estimator_output, model_name
from geh_explain.model.layers import Layer, find_layer
from geh_explain.model.outputs import Output, check_output
from geh_explain.model.preserve import as_module
from geh_explain.model.refused_models import short_repr
from geh_explain.posterior import Posterior
from geh_explain.posterior.default import check_posterior
from geh_explain.results.by_target import InteractionsByTarget
from geh_explain.results.interactions import Interactions
from geh_explain.run.options import AnalysisOptions, RunOptions
from geh_explain.run.record import describe, digest_parameters
from geh_explain.run.recorded_arguments import check_columns, has_target_per_row, stored_target
from geh_explain.run.setup import ModelSetup
from geh_explain.units.base import Units


class ExplainerBase:
    """Base class of :class:`~geh_explain.GEHExplainer`: the model, its layer, units, output, posterior and engine.

    It checks the arguments once, and keeps them as a frozen :class:`~geh_explain.run.setup.ModelSetup`. The methods of
    the explainer are in classes that inherit from this one, one file for each kind: explaining, testing, analysing,
    searching, interpreting.

    Raises
    ------
    GEHTypeError
        If ``units`` is not a unit set, or another argument has a wrong type.
    GEHValueError
        If there is no such layer, output or engine, or the arguments do not go together.
    """

    #: What the last call of ``explain`` was about: the data that ``explain_row`` refers to by default.
    _last_inputs: Any = None

    def __init__(
        self,
        model: Any,
        layer: str | nn.Module | Layer | None = None,
        *,
        units: Units | None = None,
        output: Output = "raw",
        posterior: Posterior | None = None,
        smooth: Smooth = "auto",
        engine: str | Engine = "auto",
    ) -> None:
        module = as_module(model)
        layer_ref = find_layer(module, layer)
        if units is not None and not isinstance(units, Units):
            raise GEHTypeError(
                f"units={units!r} is not a unit set; use an instance of one of geh_explain.units, such as Channels()."
            )
        check_output(output)
        check_smooth(smooth)
        check_engine(engine)
        check_posterior(posterior, layer_ref)
        if isinstance(module, EstimatorModel):
            check_gradient_free(module, engine)
            # Functions without gradients have no kinks to smooth.
            smooth, output = None, estimator_output(module, output)
        self._setup = ModelSetup(module, layer_ref, units, output, posterior, smooth, engine)

    @property
    def model(self) -> nn.Module:
        """The network that is explained; a plain callable or an estimator is wrapped into a module."""
        return self._setup.model

    @property
    def place(self) -> str:
        """Where the units are: ``"the inputs"`` or ``"layer 'conv2'"``."""
        return self._setup.layer_ref.place

    def __repr__(self) -> str:
        setup = self._setup
        options = {"units": setup.units, "posterior": setup.posterior}
        shown = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
        return f"GEHExplainer({model_name(setup.model)}, {self.place}{shown})"

    def _held_out(self, rows: HeldOutRows, options: AnalysisOptions | RunOptions) -> HeldOutTest:
        """Read and check held-out rows."""
        reading = AnalysisOptions(1, options.batch_size, options.seed, options.progress)
        return HeldOutTest.prepare(self._setup, rows, reading)

    def _target_of(self, result: Interactions | None, target: Target) -> Target:
        """Return the target of a call: ``target``, or that of a result where it is None; warn if they differ."""
        if result is None:
            return target
        if target is None:
            own: Target = stored_target(result.record)
            return own
        given: Any = target
        stored: Any = result.record.target
        if not has_target_per_row(result.record):
            # A class may be given by its label or by its index.
            given, stored = (self._setup.target_index(each) for each in (target, stored_target(result.record)))
        if describe(given) != describe(stored):
            warn(f"target={short_repr(target)} is used, and result is about target={result.record.target!r}.")
        return target

    def _check_units(self, result: Interactions, points: Points, cut: Cut) -> None:
        """Raise if a result is about other units or columns than inputs that were read for it."""
        if cut.n_units != len(result.names):
            raise GEHValueError(
                f"inputs: there are {cut.n_units} units, and result is about {len(result.names)}; give the same kind."
            )
        if result.record.units and result.record.units != repr(cut.units):
            raise GEHValueError(
                f"result: it is about units={result.record.units}, and this explainer about units={cut.units!r}; use "
                "the explainer that made it."
            )
        check_columns(points.columns, result.record)

    def _check_result(self, result: Any) -> None:
        """Raise unless ``result`` is about the layer of this explainer; warn if it is about another network."""
        if isinstance(result, InteractionsByTarget):
            raise GEHTypeError(f"result holds {len(result)} targets; give that of one, result[{next(iter(result))!r}].")
        if not isinstance(result, Interactions):
            raise GEHTypeError(f"result is a {type(result).__name__}, no result of explain().")
        layer = self._setup.layer_ref.name or None
        if layer != result.record.layer:
            raise GEHValueError(
                f"result: it is about {result.record.layer or 'the inputs'}, and this explainer about "
                f"{layer or 'the inputs'}; use the explainer that made it."
            )
        output = describe(self._setup.output)
        if output != result.record.output:
            raise GEHValueError(
                f"result: it is about output={result.record.output!r}, and this explainer about output={output!r}; use "
                "the explainer that made it."
            )
        recorded = result.record.parameters
        if recorded and recorded != digest_parameters(self.model):
            warn(
                "result: it is about a network with other parameters than this explainer's; use the explainer that "
                "made it, or explain again."
            )


def strongest_pairs(result: Interactions, pairs: int) -> Ints:
    """Return the indices of the strongest pairs by GEH."""
    return np.argsort(-result.geh.pair_mean, kind="stable")[:pairs]
