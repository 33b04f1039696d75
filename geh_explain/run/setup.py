"""What an explainer is built with: a model, the layer, units, output, posterior, smoothing and engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from geh_explain.data.case_weights import CaseWeights
from geh_explain.data.points import Points
from geh_explain.data.reader import Reader
from geh_explain.data.targets import Target
from geh_explain.engines.base import Engine
from geh_explain.engines.compared_networks import ComparedNetworks
from geh_explain.engines.smoothing.sharpness import Smooth
from geh_explain.model.callable_model import CallableModel
from geh_explain.model.calling import as_the_model_takes
from geh_explain.model.cut import Cut
from geh_explain.model.estimators import EstimatorModel, ReturnedProbability
from geh_explain.model.known_layers import is_smooth, layers_of
from geh_explain.model.layers import LayerRef
from geh_explain.model.outputs import Output
from geh_explain.model.preserve import device_and_dtype, had_known_layers
from geh_explain.posterior import Ensemble, MCDropout, PointEstimate, Posterior, Stochastic
from geh_explain.posterior.default import default_posterior
from geh_explain.posterior.protocols import prepared
from geh_explain.units.base import Units
from geh_explain.units.categorical import Categorical


@dataclass(frozen=True)
class ModelSetup:
    """The arguments of :class:`~geh_explain.GEHExplainer`, checked; the same for all of its calls.

    Attributes
    ----------
    model
        The network, in any mode; a plain callable is wrapped into a module.
    layer_ref
        The layer whose output holds the units; its module is None at the inputs.
    units, output, posterior, smooth, engine
        As in :class:`~geh_explain.GEHExplainer`.
    compared
        Networks at which the structured engine was compared with double backward in earlier calls.
    """

    model: nn.Module
    layer_ref: LayerRef
    units: Units | None
    output: Output
    posterior: Posterior | None
    smooth: Smooth
    engine: str | Engine
    compared: ComparedNetworks = field(default_factory=ComparedNetworks, compare=False)

    def read(
        self,
        inputs: Any,
        target: Target,
        additional_forward_args: Any,
        budget: int | None = None,
        argument: str = "inputs",
    ) -> tuple[Points, Cut]:
        """Read the data and cut the model at the layer.

        Parameters
        ----------
        inputs, target, additional_forward_args
            As in :meth:`~geh_explain.GEHExplainer.explain`.
        budget
            Bytes of memory that the user allows; a loader whose rows take more than a share of it is streamed.
        argument
            The argument by which the user passed ``inputs``, for error messages.

        Returns
        -------
        points, cut
            All rows as batches that repeat themselves, and the model as a function of the units' shifts.
        """
        points = self.read_points(inputs, target, additional_forward_args, budget, argument)
        if isinstance(self.units, Categorical) and self.layer_ref.module is None:
            units = self.units.observe(points, self._columns(points, None))
            return points, replace(self, units=units).cut(points)
        return points, self.cut(points)

    def weighted_cut(self, cut: Cut, points: Points, weights: CaseWeights) -> Cut:
        """Return the cut for the ``points`` that count: shares of levels are shares of their weights."""
        if not isinstance(cut.units, Categorical) or weights.sample_weight is None:
            return cut
        return replace(self, units=cut.units.weighted(points, weights.values)).cut(points)

    def _columns(self, points: Points, columns: list[str] | None) -> list[str] | None:
        """Return the names of the columns of ``points``; ``columns`` are those of points that have none."""
        columns = (points.columns or columns) if self.layer_ref.module is None else None
        if columns is None and isinstance(self.model, EstimatorModel):
            return self.model.feature_names
        return columns

    def cut(self, points: Points, columns: list[str] | None = None) -> Cut:
        """Cut the model at the layer; ``columns`` are names for the columns of points that have none."""
        columns = self._columns(points, columns)
        cut = Cut(self.model, self.layer_ref, self.units, self.output, points.first, columns)
        networks = self._networks_of_draws()
        shape = [x.ndim for x in points.first.inputs]
        as_made = self.layer_ref.module is None and self.output in ("raw", "probability") and cut.frame is None
        if as_made and shape == [2] and networks and all(map(had_known_layers, networks)):
            cut.known_layers = True
            cut.known_smooth = all(map(is_smooth, networks))
            architectures = {layers_of(network) for network in networks}
            if cut.known_smooth and len(architectures) == 1 and self.units is None:
                cut.layers = (type(self.posterior), self.output, *architectures)
        return cut

    def _networks_of_draws(self) -> list[nn.Module]:
        """Return the networks whose layers the draws have; none where draws may have other layers."""
        if isinstance(self.posterior, Ensemble):
            return [self.model, *self.posterior.models] if type(self.posterior) is Ensemble else []
        return [self.model] if self.posterior is None or type(self.posterior) in (MCDropout, PointEstimate) else []

    def read_points(
        self, inputs: Any, target: Target, additional_forward_args: Any, budget: int | None, argument: str
    ) -> Points:
        """Read the data as :meth:`read` does; points were read already.

        A plain callable is tried on two rows of a data frame.
        """
        if isinstance(inputs, Points):
            return inputs
        device, dtype = device_and_dtype(self.model)
        coded = self.units.coded if isinstance(self.units, Categorical) else None
        if isinstance(self.model, EstimatorModel):
            inputs = self.model.check_inputs(inputs, argument)
        reader = Reader(
            # Categories may be ids; Categorical.observe() refuses numeric units that are integers.
            floating_only=self.layer_ref.module is None and coded is None,
            device=device,
            dtype=dtype,
            argument=argument,
            budget=budget,
            keeps_frames=isinstance(self.model, CallableModel),
            coded=coded or (),
        )
        points = reader.read(inputs, self.target_index(target), additional_forward_args)
        return as_the_model_takes(self.model, points)

    def target_index(self, target: Target) -> Target:
        """Return the column of a class of an estimator that is given by its label; any other target unchanged."""
        if not isinstance(self.model, EstimatorModel):
            return target
        if target is None and callable(self.output) and not isinstance(self.output, ReturnedProbability):
            # A callable of the user may have made one column of them.
            return None
        index: Target = self.model.target_index(target)
        return index

    def target_label(self, target: Target) -> Any:
        """Return ``target``, or the label of the class that is explained where an estimator chooses it."""
        if target is not None or not isinstance(self.model, EstimatorModel) or self.model.classes is None:
            return target
        index = self.target_index(None)
        return self.model.classes[index] if isinstance(index, int) else None

    def given_posterior(self, cut: Cut, points: Points) -> Posterior | None:
        """Return the posterior that was passed, which seeds only generators from which the model draws; else None."""
        if isinstance(self.posterior, Stochastic):
            return self.posterior.examined(lambda: cut.outputs(points.first[:1]))
        return self.posterior

    def posterior_for(self, cut: Cut, points: Points) -> Posterior:
        """Return the posterior that was passed, ready for draws, else what the model itself offers."""
        given = self.given_posterior(cut, points)
        if given is not None:
            return prepared(given, self.model, self.output)
        # Twice the rows with which the model is checked elsewhere: it may do other things in larger batches.
        batch = points.first.repeat(2)
        return default_posterior(self.model, lambda: cut.outputs(points.first[:1]), lambda: cut.outputs(batch))
